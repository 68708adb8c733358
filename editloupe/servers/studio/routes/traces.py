"""Routes of the statistics of traces, the comparison of two runs, notes, and traces as files."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.traces.filter_parser import LONGEST, ExpressionError, join_conditions, quote_text
from editloupe.evals.traces.run_list import PAGE_SIZE, ListQuery
from editloupe.evals.traces.trace_notes import TraceKey, write_note
from editloupe.evals.traces.trace_search import compare_runs, read_pairs
from editloupe.evals.traces.trace_statistics import NO_EXPERIMENT
from editloupe.servers.studio.judging.requests import parse_json
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.studio import studio_of
from editloupe.servers.studio.traces.list_view import find_target
from editloupe.servers.studio.traces.trace_pages import encode_query, list_link, search_open_run, verdict_link
from editloupe.servers.studio.traces.trace_view import compare_settings
from editloupe.types import Record

router = APIRouter()
Where = Annotated[str, Query(max_length=10 * LONGEST)]
"""Longer than a filter may be, so that the page can report it as any other mistake."""
Id = Annotated[str, Query(max_length=1000)]
PageNumber = Annotated[int, Query(ge=1, le=10**9)]


class NoteRequest(Record):
    """Tags and note for a trace."""

    edit: str = Field(max_length=1000)
    criterion: str = Field(max_length=1000)
    repeat: int
    asked: str = Field(max_length=1000)
    tags: str = Field(default="", max_length=2000)
    """Separated by commas."""
    note: str = Field(default="", max_length=5000)


@router.get("/runs/{key}/traces")
def traces(request: Request, key: str) -> Response:
    """Redirect to the run's list by verdict; addresses of earlier versions lead here."""
    return RedirectResponse(list_link(key, replace(ListQuery.parse(request.url.query), by="verdict")), 303)


@router.get("/runs/{key}/traces/statistics")
def statistics(request: Request, key: str, where: Where = "", configuration: Id = "") -> Response:
    """Return the statistics of the matching traces, as a part of the page."""
    studio = studio_of(request)
    open_run = studio.run(key)
    with search_open_run(open_run, where, configuration) as opened:
        counted = opened.statistics()

    def cell(tool: str = "", count: str = "tool", more: str = "", **fields: str) -> str:
        """Return the list of verdicts with these values, calls of a tool and further condition."""
        conditions = [where] * bool(where.strip()) + [f"{name} = {quote_text(value)}" for name, value in fields.items()]
        conditions += [f"{count}({quote_text(tool)}) > 0"] * bool(tool) + [more] * bool(more)
        return list_link(key, ListQuery(join_conditions(conditions), "verdict", configuration=configuration))

    with raise_run_damaged(open_run.name):
        described = open_run.run.about().get("configurations", [])
    of_run = [each for each in described if configuration in ("", each.get("name"))]
    notes = dict.fromkeys(str(note) for each in of_run for note in each.get("notes") or ())
    several = len(open_run.index.facts().configurations) > 1
    return studio.pages.page(
        "parts/trace_statistics.html",
        several=several,
        run=open_run,
        counted=counted,
        cell=cell,
        warning=NO_EXPERIMENT,
        notes=list(notes),
    )


@router.get("/runs/{key}/differences")
def differing(
    request: Request,
    key: str,
    other: Id = "",
    where: Where = "",
    page: PageNumber = 1,
    configuration: Id = "",
    other_configuration: Id = "",
    criterion: Id = "",
    by: Id = "",
    was: Id = "",
    now: Id = "",
) -> Response:
    """Return the verdicts of two runs side by side: tables of what changed, and the verdicts in one of their cells.

    `other` may be the same run, in another configuration. Without `by`, all verdicts that differ are listed.
    """
    studio = studio_of(request)
    open_run, second = studio.run(key), studio.run(other or key)
    for each in (open_run, second):
        if (progress := studio.indexing.progress(each)) is not None:
            return studio.pages.page("indexing.html", run=each, done=progress[0], whole=progress[1])
    sides = []
    for each, wanted in ((open_run, configuration), (second, other_configuration)):
        known = each.index.facts(wanted)
        sides.append((each, known.configuration if len(known.configurations) > 1 else "", known.configurations))
    if second.key == open_run.key and len(sides[0][2]) < 2:
        raise HTTPException(404, "This run has one configuration; name another run to compare it with.")
    if second.key == open_run.key and not other_configuration:
        further = [known["configuration"] for known in sides[1][2] if known["configuration"] != sides[0][1]]
        sides[1] = (second, *further[:1], sides[1][2]) if further else sides[1]
    values: dict[str, Any] = {
        "rows": [],
        "fault": "",
        "shared": 0,
        "total": 0,
        "several": (),
        "tables": (),
        "changed": [],
    }
    last = 1
    try:
        with (
            search_open_run(open_run, where, sides[0][1]) as left,
            search_open_run(second, "", sides[1][1]) as right,
        ):
            paired = compare_runs(left, right)
            listed = paired.in_cell(criterion, by, was, now) if by else paired.differing
            last = max(1, -(-len(listed) // PAGE_SIZE))
            page = min(page, last)
            pairs = read_pairs(left, right, listed[(page - 1) * PAGE_SIZE : page * PAGE_SIZE])
            example = read_pairs(left, right, paired.pairs[:1])
            values |= {
                "rows": _rows(open_run, second, pairs),
                "shared": len(paired.pairs),
                "total": len(listed),
                "several": paired.several,
                "tables": paired.tabulate_changes(),
            }
        if example:
            asked = ((open_run, example[0].first.asked), (second, example[0].second.asked))
            values["changed"] = compare_settings(asked)
    except ExpressionError as error:
        values["fault"] = str(error)

    def link(**changes: Any) -> str:
        chosen = {"configuration": sides[0][1], "other_configuration": sides[1][1], "where": where}
        query = {"other": second.key, **chosen, **changes}
        return f"/runs/{key}/differences?{encode_query({name: value or None for name, value in query.items()})}"

    cell = {"criterion": criterion, "by": by, "was": was, "now": now} if by else {}
    return studio.pages.page(
        "differences.html",
        run=open_run,
        second=second,
        sides=sides,
        names=[f"{each.name}: {_title_of(known, name)}" if name else each.name for each, name, known in sides],
        where=where,
        cell=cell,
        link=link,
        page=page,
        last=last,
        first=(page - 1) * PAGE_SIZE + 1,
        **values,
    )


def _title_of(configurations: Any, name: str) -> str:
    return next((str(known["title"]) for known in configurations if known["configuration"] == name), "")


def _rows(open_run: OpenRun, second: OpenRun, pairs: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "pair": pair,
            "both": verdict_link(open_run, pair.first, beside=f"{second.key}~{second.place_of(pair.second)}"),
            "target": find_target(open_run, pair.first.name),
            "first": verdict_link(open_run, pair.first),
            "second": verdict_link(second, pair.second),
        }
        for pair in pairs
    ]


@router.post("/runs/{key}/trace/note")
async def note(request: Request, key: str) -> Response:
    """Write tags and a note on a trace."""
    studio = studio_of(request)
    open_run = studio.run(key)
    body = await parse_json(request, NoteRequest)
    _find_units(open_run, body.edit, body.criterion, body.repeat, body.asked)
    trace_key = TraceKey(body.edit, body.criterion, body.repeat, body.asked)
    written = write_note(open_run.run.folder, trace_key, body.tags.split(","), body.note)
    return studio.pages.json({"tags": ", ".join(written.tags), "note": written.note})


def _find_units(open_run: OpenRun, edit: str, criterion: str, repeat: int, asked: str) -> list[Unit]:
    """Return the units of a verdict; raise a 404 error if there are none."""
    units = [
        unit for unit in open_run.units(edit) if (unit.criterion, unit.repeat, unit.asked) == (criterion, repeat, asked)
    ]
    if not units:
        raise HTTPException(404, "There is no such trace in this run.")
    return units


@router.get("/runs/{key}/trace.html")
def sent(request: Request, key: str, edit: Id, criterion: Id, repeat: int, asked: Id) -> Response:
    """Return a trace as a self-contained HTML file."""
    from editloupe.evals.report.trace_html import EditStory, render_trace_html  # loads the plotting packages

    studio = studio_of(request)
    open_run = studio.run(key)
    stored = open_run.edit(edit)
    units = _find_units(open_run, stored.name, criterion, repeat, asked)
    people = open_run.index.consensus(stored.name)
    with raise_run_damaged(open_run.name):
        text = render_trace_html(
            open_run.run, EditStory(stored, [(unit, open_run.traces(unit)) for unit in units], people)
        )
    plain = (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stored.edit.id)[:60] or "trace"
    )
    name = {"content-disposition": f'attachment; filename="{plain}.html"'}
    return Response(studio.pages.redact(text).encode("utf-8", "replace"), media_type="text/html", headers=name)
