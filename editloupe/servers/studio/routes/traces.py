"""Routes of the statistics of traces, the comparison of two runs, notes, and traces as files."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from editloupe._util.errors import first_error
from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.traces.filter_parser import LONGEST, ExpressionError
from editloupe.evals.traces.run_list import PAGE_SIZE, ListQuery
from editloupe.evals.traces.trace_notes import TraceKey, write_note
from editloupe.evals.traces.trace_search import compare_runs, read_pairs
from editloupe.evals.traces.trace_statistics import NO_EXPERIMENT
from editloupe.servers.studio.judging.requests import parse_json
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.studio import studio_of
from editloupe.servers.studio.traces.trace_pages import TraceLinks, list_link, narrow_filter, search_open_run
from editloupe.types import Record, UserError

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

    def cell(criterion: str, people: str, judge: str) -> str:
        narrowed = narrow_filter(where, criterion=criterion, human=people, label=judge)
        return list_link(key, ListQuery(narrowed, "verdict", configuration=configuration))

    return studio.pages.page(
        "parts/trace_statistics.html", run=open_run, counted=counted, cell=cell, warning=NO_EXPERIMENT
    )


@router.get("/runs/{key}/differences")
def differing(request: Request, key: str, other: Id = "", where: Where = "", page: PageNumber = 1) -> Response:
    """Return the verdicts on which two runs differ; each links to both traces."""
    studio = studio_of(request)
    open_run, second = studio.run(key), studio.run(other)
    for each in (open_run, second):
        if (progress := studio.indexing.progress(each)) is not None:
            return studio.pages.page("indexing.html", run=each, done=progress[0], whole=progress[1])
    rows: list[dict[str, Any]] = []
    fault, shared, total, several = "", 0, 0, tuple[str, ...]()
    try:
        with search_open_run(open_run, where) as left, search_open_run(second) as right:
            differences = compare_runs(left, right)
            shared, total, several = differences.shared, len(differences.pairs), differences.several
            page = max(1, min(page, -(-total // PAGE_SIZE)))
            pairs = read_pairs(left, right, differences, PAGE_SIZE, (page - 1) * PAGE_SIZE)
            rows = _rows(open_run, second, pairs)
    except ExpressionError as error:
        fault = str(error)
    return studio.pages.page(
        "differences.html",
        run=open_run,
        second=second,
        where=where,
        fault=fault,
        rows=rows,
        shared=shared,
        total=total,
        several=several,
        page=page,
        last=max(1, -(-total // PAGE_SIZE)),
        first=(page - 1) * PAGE_SIZE + 1,
    )


def _rows(open_run: OpenRun, second: OpenRun, pairs: list[Any]) -> list[dict[str, Any]]:
    own, others = TraceLinks(open_run), TraceLinks(second)
    rows = []
    for pair in pairs:
        beside = f"{second.key}~{others.place(pair.second)}"
        links = {"first": own.trace(pair.first), "second": others.trace(pair.second)}
        rows.append({"pair": pair, "both": own.trace(pair.first, beside=beside), **links})
    return rows


@router.post("/runs/{key}/trace/note")
async def note(request: Request, key: str) -> Response:
    """Write tags and a note on a trace."""
    studio = studio_of(request)
    open_run = studio.run(key)
    try:
        body = await parse_json(request, NoteRequest)
    except ValidationError as error:
        raise UserError(f"the note cannot be read: {first_error(error).message}") from None
    if not any(
        (unit.criterion, unit.repeat, unit.asked) == (body.criterion, body.repeat, body.asked)
        for unit in open_run.units(body.edit)
    ):
        raise HTTPException(404, "There is no such trace in this run.")
    trace_key = TraceKey(body.edit, body.criterion, body.repeat, body.asked)
    written = write_note(open_run.run.folder, trace_key, body.tags.split(","), body.note)
    return studio.pages.json({"tags": ", ".join(written.tags), "note": written.note})


@router.get("/runs/{key}/trace.html")
def sent(request: Request, key: str, edit: Id, criterion: Id, repeat: int, asked: Id) -> Response:
    """Return a trace as a self-contained HTML file."""
    from editloupe.evals.report.trace_html import render_trace_html  # loads the plotting packages

    studio = studio_of(request)
    open_run = studio.run(key)
    stored = open_run.edit(edit)
    units = [
        unit
        for unit in open_run.units(stored.name)
        if (unit.criterion, unit.repeat, unit.asked) == (criterion, repeat, asked)
    ]
    if not units:
        raise HTTPException(404, "There is no such trace in this run.")
    people = open_run.index.consensus(stored.name)
    with raise_run_damaged(open_run.name):
        text = render_trace_html(open_run.run, stored, [(unit, open_run.traces(unit)) for unit in units], people)
    plain = (
        "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stored.edit.id)[:60] or "trace"
    )
    name = {"content-disposition": f'attachment; filename="{plain}.html"'}
    return Response(studio.pages.redact(text).encode("utf-8", "replace"), media_type="text/html", headers=name)
