"""Routes of the Runs page, of a run's list and charts, and of its corrected scores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response, StreamingResponse

from editloupe._util.text import number_of
from editloupe.evals.forks.fork_store import count_forks
from editloupe.evals.labels.label_form import list_choices
from editloupe.evals.runs.damage import RunDamaged, raise_run_damaged
from editloupe.evals.stats.trust.label_queue import QUEUE_FILE, LabelQueue, join_queues
from editloupe.evals.traces.filter_sql import COUNTS, EXAMPLES, FIELDS, SEARCHES
from editloupe.evals.traces.run_index import TableFacts
from editloupe.evals.traces.run_list import AGREEMENTS, BY, CHOICES, COLUMNS, ListQuery
from editloupe.rubrics.registry import protocols
from editloupe.rubrics.tables import NO_MODEL
from editloupe.servers.studio.annotation.worklists import add_to_queue, find_queues, propose_worklist
from editloupe.servers.studio.charts import TrustPage
from editloupe.servers.studio.judging.requests import parse_json
from editloupe.servers.studio.render import capitalize_sentence
from editloupe.servers.studio.run_catalog import ClosedRun, OpenRun
from editloupe.servers.studio.studio import studio_of
from editloupe.servers.studio.traces.list_view import format_list, list_names, needs_traces, read_list
from editloupe.servers.studio.traces.trace_pages import list_link
from editloupe.types import UNJUDGED, Record, UserError

if TYPE_CHECKING:
    from editloupe.evals.report.block_types import Block

router = APIRouter()
Text = Annotated[str, Query(max_length=300)]
VIEWS: Mapping[str, str] = {"edits": "Edits", "charts": "Charts", "agreement": "Agreement and tools"}
"""The views of a run's page, by their name in its address."""
COLUMNS_COOKIE = "editloupe-columns"
OLD_NAMES = frozenset((*CHOICES, "status"))
"""Names in an address whose values become conditions of the filter."""
QUICK_LISTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("Worst disagreements", {"by": "verdict", "where": "agrees = false", "order": "-people"}),
    ("Confident and wrong", {"by": "verdict", "where": "agrees = false", "order": "-confidence"}),
    ("Unjudged", {"by": "verdict", "where": 'status = "unjudged"', "order": ""}),
)
"""Lists that are one click away."""


@dataclass(frozen=True)
class RunCard:
    """A run in the list: its counts, or why it cannot be read."""

    run: OpenRun | ClosedRun
    facts: TableFacts | None = None
    versions: tuple[str, ...] = ()
    """A sentence for each judge that was served in several versions."""
    forks: int = 0
    fault: str = ""
    state: str = "closed"


def _card(run: OpenRun) -> RunCard:
    current = run.index.state()
    facts = run.index.facts()
    versions = (note for each in facts.configurations for note in run.served_notes(each["configuration"]))
    with raise_run_damaged(run.name):
        return RunCard(run, facts, tuple(dict.fromkeys(versions)), count_forks(run.run), state=current)


@router.get("/runs")
def all_runs(request: Request) -> Response:
    """Return the list of runs."""
    studio = studio_of(request)
    cards = []
    for run in studio.catalog.all():
        try:
            if isinstance(run, ClosedRun):
                raise RunDamaged(run.why)
            cards.append(_card(run))
        except UserError as error:
            cards.append(RunCard(run, fault=str(error)))
    return studio.pages.page("runs.html", found=cards)


@router.get("/run-states")
def run_states(request: Request) -> Response:
    """Return a text for each run that changes with it; the open Runs page asks for them to follow batches."""
    studio = studio_of(request)
    states = {}
    for run in studio.catalog.all():
        states[run.key] = "closed"
        with suppress(UserError):
            states[run.key] = run.index.state() if isinstance(run, OpenRun) else "closed"
    return studio.pages.json(states)


@router.get("/runs/{key}/score")
def score(request: Request, key: str, configuration: Text = "") -> Response:
    """Return the score of a configuration and its agreement with people, as the report computes them."""
    studio = studio_of(request)
    open_run = studio.run(key)
    chosen = _configuration(open_run, configuration)
    if not chosen:
        return studio.pages.json({"score": "", "value": None, "answer": "", "agreement": [], "least": None})
    charts = studio.charts.charts(open_run, chosen)
    agreed = [(title, measure) for title, measure in charts.agreement.items() if measure.value is not None]
    agreed.sort(key=lambda pair: float(pair[1].value or 0.0))
    return studio.pages.json(
        {
            "score": charts.score.format(1) if charts.score.value is not None else _count_models(open_run, chosen),
            "value": charts.score.value,
            "answer": charts.answer,
            "agreement": [
                {"title": title, "words": measure.format(2), "why": measure.why or ""} for title, measure in agreed
            ],
            "least": agreed[0][1].value if agreed else None,
        }
    )


def _count_models(open_run: OpenRun, configuration: str) -> str:
    """Return the number of editing models, if there are several: each has a score, the run has none."""
    models = len(open_run.index.facts(configuration).editing_models)
    return f"{models} models" if models > 1 else ""


@router.get("/compare")
def compare(request: Request, chosen: Annotated[list[str] | None, Query(max_length=20)] = None) -> Response:
    """Redirect to the comparison of two rows of the Runs page, or to the ranking for more.

    Args:
        request: The request.
        chosen: The rows, each as KEY~CONFIGURATION.
    """
    rows = [row.partition("~") for row in chosen or ()]
    if len(rows) < 2:
        raise UserError("choose two rows of the Runs page to compare")
    if len(rows) > 2:
        return RedirectResponse("/ranking", 303)
    (first, _, configuration), (second, _, other) = rows
    values = {"other": second, "configuration": configuration, "other_configuration": other}
    return RedirectResponse(f"/runs/{quote(first)}/differences?{urlencode(values)}", 303)


@router.get("/ranking")
def ranking(request: Request) -> Response:
    """Return the ranking of all runs that can be read; rows are ranked only among those with the same passport."""
    from editloupe.evals.report.report_blocks import build_leaderboard_table  # loads the plotting packages

    studio = studio_of(request)
    runs, left_out = [], []
    for run in studio.catalog.all():
        if isinstance(run, ClosedRun):
            left_out.append(f"{run.name} is left out: {run.why}")
        else:
            runs.append(run)
    board, why, table = None, "", None
    try:
        board, faults = studio.charts.leaderboard(runs)
        left_out += faults
        table = None if board is None else build_leaderboard_table(board)
    except UserError as error:
        why = str(error)
    passports = list(dict.fromkeys(report.passport.line for report in board.reports)) if board else []
    notes = [note for note in (*board.notes, *table.notes) if note and note not in passports] if board and table else []
    return studio.pages.page(
        "ranking.html", board=board, table=table, why=why, left_out=left_out, notes=notes, passports=passports
    )


@router.get("/runs/{key}")
def one_run(request: Request, key: str, view: Text = "edits", chosen: bool = False) -> Response:
    """Return a view of a run: its list, charts or agreement; or only the list for the page's script.

    What is chosen in fields above the list becomes a part of the filter; a browser without scripts is redirected to the address
    that has it.
    """
    studio = studio_of(request)
    open_run = studio.run(key)
    query = ListQuery.parse(request.url.query)
    is_part = request.headers.get("x-part") == "rows"
    if chosen or (not is_part and not OLD_NAMES.isdisjoint(request.query_params)):
        return _redirect(request, key, query, view, chosen)
    current = open_run.index.state()  # before anything is read: what comes while it is read is fetched by the page
    facts = open_run.index.facts(query.configuration)
    if needs_traces(open_run, query) and (progress := studio.indexing.progress(open_run)) is not None:
        return studio.pages.page("indexing.html", run=open_run, done=progress[0], whole=progress[1])
    several = len(facts.configurations) > 1
    if query.by == "edit":
        query = replace(query, configuration=facts.configuration if several else "")
    values: dict[str, Any] = {
        "run": open_run,
        "state": current,
        "query": query,
        "list": read_list(open_run, query, facts),
        "run_facts": facts,
        "criteria": _criteria(facts),
        "columns": _columns(request, query),
        "all_columns": COLUMNS,
        "several": several,
        "by": BY,
        "others": [other for other in studio.catalog.runs() if other.key != key],
        "models": [name for name in facts.models if name != NO_MODEL],
    }
    if is_part:
        return studio.pages.page("parts/rows.html", **values)
    with raise_run_damaged(open_run.name):
        forks = count_forks(open_run.run)
    studio.charts.make_ready()
    configuration = {"configuration": facts.configuration} if several else {}
    agreement = {"where": query.where, "configuration": query.configuration}
    return studio.pages.page(
        "run.html",
        **values,
        views=VIEWS,
        view=view if view in VIEWS and facts.edits else "edits",
        fragments={
            "charts": f"/runs/{key}/charts?{urlencode(configuration)}",
            "agreement": f"/runs/{key}/traces/statistics?{urlencode({k: v for k, v in agreement.items() if v})}",
        },
        agreements={name: words for name, (words, _) in AGREEMENTS.items()},
        lists=[(words, query.link(**changes)) for words, changes in QUICK_LISTS],
        examples=[(text, words, query.link(where=text, by="verdict")) for text, words in EXAMPLES],
        fields=FIELDS,
        functions={name: words for name, (_, words) in (*COUNTS.items(), *SEARCHES.items())},
        bars=_bars(open_run, facts, query.choices.get("model", "")),
        repeated=facts.repeats > 1,
        faults=open_run.index.label_faults,
        label_notes=open_run.index.label_notes,
        versions=open_run.served_notes(facts.configuration),
        forks=forks,
    )


class QueueRequest(Record):
    """The list whose edits are added to a queue, and the queue's name."""

    list: str = Field(default="", max_length=20_000)
    """The query string of the list."""
    title: str = Field(min_length=1, max_length=200)


@router.post("/runs/{key}/label-queue")
async def queue_edits(request: Request, key: str) -> Response:
    """Add the edits of a list to a label queue and return the address to label them at."""
    body = await parse_json(request, QueueRequest)
    studio = studio_of(request)
    open_run, query = studio.run(key), ListQuery.parse(body.list)
    names = await asyncio.to_thread(list_names, open_run, query)
    work, added, total = add_to_queue(open_run, body.title, names, query.where)
    sentence = f"{number_of(added, 'edit')} added to {work}, which has {total}."
    link = f"/runs/{key}/annotate?{urlencode({'work': work})}"
    return studio.pages.json({"sentence": sentence, "link": link})


@router.get("/runs/{key}/list.{kind}")
def export_list(request: Request, key: str, kind: Literal["csv", "jsonl"]) -> Response:
    """Return the verdicts of a list as a file."""
    studio = studio_of(request)
    open_run, query = studio.run(key), ListQuery.parse(request.url.query)
    lines = format_list(open_run, query, kind)
    first = next(lines, "")  # a mistake in the filter is reported before the file begins
    encoded = (studio.pages.redact(line).encode("utf-8", "replace") for line in chain([first], lines))
    headers = {"content-disposition": f'attachment; filename="{key}.{kind}"'}
    types = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl; charset=utf-8"}
    return StreamingResponse(encoded, media_type=types[kind], headers=headers)


def _redirect(request: Request, key: str, query: ListQuery, view: str, chosen: bool) -> Response:
    """Redirect to the address of a list; columns that were chosen in the form are remembered."""
    if chosen:
        columns = request.query_params.getlist("column")
        query = replace(query, columns=",".join(name for name in COLUMNS if name in columns) or "label")
    link = list_link(key, query)
    if view != "edits":
        link += f"{'&' if '?' in link else '?'}{urlencode({'view': view})}"
    answer = RedirectResponse(link, 303)
    if chosen:
        answer.set_cookie(COLUMNS_COOKIE, query.columns.replace(",", "."), max_age=31_536_000, samesite="strict")
    return answer


def _columns(request: Request, query: ListQuery) -> list[str]:
    """Return the columns of the address, else those chosen last, else all."""
    columns = query.columns.split(",") if query.columns else request.cookies.get(COLUMNS_COOKIE, "").split(".")
    return [name for name in COLUMNS if name in columns] or list(COLUMNS)


@router.get("/runs/{key}/state")
def state(request: Request, key: str) -> Response:
    """Return a text that changes with the run or its labels; an open page asks for it to follow a batch."""
    studio = studio_of(request)
    try:
        return studio.pages.json({"state": studio.run(key).index.state()})
    except RunDamaged as error:
        return studio.pages.json({"fault": capitalize_sentence(str(error))})


@router.get("/runs/{key}/charts")
def charts(request: Request, key: str, configuration: Text = "") -> Response:
    """Return the report's answer and figures; the page loads them after it is shown, because they take time."""
    studio = studio_of(request)
    open_run = studio.run(key)
    chosen = _configuration(open_run, configuration)
    run_charts = studio.charts.charts(open_run, chosen) if chosen else None
    return studio.pages.page("parts/charts.html", run=open_run, charts=run_charts, configuration=chosen)


@router.get("/runs/{key}/charts/{name}")
def chart(request: Request, key: str, name: str, configuration: Text = "", inline: bool = False) -> Response:
    """Return one figure as an SVG file, or as a part of the run's page."""
    studio = studio_of(request)
    open_run = studio.run(key)
    chosen = _configuration(open_run, configuration)
    figure = studio.charts.figure(open_run, chosen, name, inline) if chosen else None
    if figure is None:
        raise HTTPException(404, "There is no such figure.")
    return Response(figure, media_type="text/html" if inline else "image/svg+xml")


def _configuration(open_run: OpenRun, name: str) -> str:
    """Return a configuration by name, else the first; empty if nothing was judged."""
    return open_run.index.facts(name).configuration


def _criteria(facts: TableFacts) -> list[tuple[str, str]]:
    """Return criteria with their protocols, in the protocols' order."""
    order = [rubric.criterion for protocol in protocols() for rubric in protocol.rubrics]
    return sorted(facts.criteria, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))


def _bars(open_run: OpenRun, facts: TableFacts, model: str) -> list[dict[str, Any]]:
    """Return the shares of every criterion's labels, worst first, unjudged last; of one editing model if it is chosen."""
    bars = []
    by_criterion = open_run.index.label_counts(facts.configuration, model)
    for criterion, protocol in _criteria(facts):
        counts = by_criterion.get(criterion, {})
        rubric = open_run.rubric(protocol, criterion)
        places = {choice.value: choice.place for choice in (list_choices(rubric.answer) if rubric else ())}
        names = [
            name for name in (*places, *sorted(set(counts) - set(places) - {UNJUDGED}), UNJUDGED) if counts.get(name)
        ]
        total, start, parts = sum(counts.values()), 0.0, []
        for name in names:
            share = counts[name] / total
            parts.append(
                {"label": name, "count": counts[name], "share": share, "from": start, "place": places.get(name)}
            )
            start += share
        bars.append({"criterion": criterion, "protocol": protocol, "parts": parts, "total": total})
    return bars


Names = Annotated[list[str] | None, Query(max_length=20)]


@router.get("/runs/{key}/corrected")
def corrected(
    request: Request, key: str, configuration: Text = "", queue: Names = None, chosen: bool = False
) -> Response:
    """Return the corrected scores of a run, by default with the studio's --queue, else with the queue in its folder."""
    studio = studio_of(request)
    open_run = studio.run(key)
    files = find_queues(open_run, studio.settings.queues)
    names = [name for name in queue or () if name in files]
    if not chosen and not names:
        proposed = propose_worklist(open_run, studio.settings.queues)
        names = [proposed] if proposed == QUEUE_FILE or files.get(proposed) in studio.settings.queues else []
    facts = open_run.index.facts(configuration)
    blocks: list[Block] = []
    why = ""
    try:
        label_queue = join_queues([LabelQueue.read(files[name]) for name in names]) if names else None
        blocks = list(_blocks(open_run, facts, label_queue))
    except UserError as error:
        why = str(error)
    about = _block_page(open_run, facts, blocks, why)
    return studio.pages.page("corrected.html", **about, queues=list(files), names=names)


def _block_page(open_run: OpenRun, facts: TableFacts, blocks: Iterable[Block], why: str) -> dict[str, Any]:
    """Return the values of a page that shows blocks of a report, or why there are none."""
    return {
        "run": open_run,
        "facts_of_run": facts,
        "blocks": [(type(block).__name__, block) for block in blocks],
        "why": why,
        "versions": open_run.served_notes(facts.configuration) if facts.configuration else (),
    }


def _blocks(open_run: OpenRun, facts: TableFacts, queue: LabelQueue | None) -> Iterator[Block]:
    if not facts.configuration:
        raise UserError("nothing has been judged in this run yet")
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.trust_blocks import corrected_blocks
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.trust.corrected_scores import correct_scores

    with raise_run_damaged(open_run.name):
        table = read_run_table(open_run.run.folder, configuration=facts.configuration)
        people = load_human_labels(table, studio=open_run.labels.path)
        return corrected_blocks(correct_scores(table, people, queue), table.titles, level=1)


@router.get("/runs/{key}/trust")
def trust(request: Request, key: str, configuration: Text = "") -> Response:
    """Return how far the scores of a run can be trusted, by the labels so far and the queue that drew them."""
    studio = studio_of(request)
    open_run = studio.run(key)
    facts = open_run.index.facts(configuration)
    page: TrustPage | None = None
    why = ""
    try:
        page = studio.charts.trust(open_run, facts.configuration, len(facts.configurations) > 1)
    except UserError as error:
        why = str(error)
    about = _block_page(open_run, facts, page.blocks if page else (), why)
    return studio.pages.page("trust.html", **about, figure=page.figure if page else None)
