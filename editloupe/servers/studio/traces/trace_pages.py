"""Searches the traces of open runs, builds links to them, and indexes large runs in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from editloupe.evals.labels.label_form import AnswerChoice, list_choices
from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.traces.index_update import count_unread, open_index
from editloupe.evals.traces.run_list import PAGE_SIZE, EditList, ListQuery, find_order
from editloupe.evals.traces.trace_notes import TagsAndNote, TraceKey, read_notes
from editloupe.evals.traces.trace_search import RunSearch, TraceHit, search_run
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.types import UserError


@contextmanager
def search_open_run(open_run: OpenRun, where: str = "", configuration: str = "") -> Iterator[RunSearch]:
    """Search an open run, with the labels of the studio; only verdicts of one configuration, if it is named."""
    with raise_run_damaged(open_run.name), search_run(open_run.run, where, studio=open_run.labels.path) as opened:
        yield opened.of_configuration(configuration) if configuration else opened


@contextmanager
def open_edit_list(open_run: OpenRun, query: ListQuery) -> Iterator[EditList]:
    """Open the list of a run by edit; a filter on the steps of traces waits until they are indexed."""
    with open_run.index.reading() as index:
        edits = EditList(index, query)
        if not edits.needs_traces:
            yield edits
            return
    with search_open_run(open_run) as opened:
        yield EditList(opened.index, query)


def verdict_link(open_run: OpenRun, verdict: Unit | TraceHit, page: str = "trace", **more: Any) -> str:
    """Return the address of a page about a verdict; `more` are further values of the address."""
    place = open_run.place_of(verdict)
    values = {"edit": verdict.name, "criterion": verdict.criterion, "verdict": place, **more}
    return f"/runs/{open_run.key}/{page}?{encode_query(values)}"


def list_link(key: str, query: ListQuery) -> str:
    """Return the address of a run's list."""
    return f"/runs/{key}{query.link(page=query.page)}".removesuffix("?")


@dataclass(frozen=True)
class TraceNeighbours:
    """Tags and note of a trace, and its neighbours in the list that it was opened from."""

    note: TagsAndNote
    tags: str
    back: str
    """The address of the list."""
    query: ListQuery | None = None
    """The query of the list; None if the trace was not opened from one."""
    number: int | None = None
    """Its position in the list, from 1; None if it is not in it."""
    total: int = 0
    previous: str | None = None
    following: str | None = None
    choices: tuple[AnswerChoice, ...] = ()
    """The labels that a person can give the edit on the trace's criterion."""
    annotators: tuple[str, ...] = ()

    @property
    def among(self) -> str | None:
        """The query string of the list, as the addresses of its traces carry it."""
        return None if self.query is None else _list_of(self.query)


def _list_of(query: ListQuery) -> str:
    """Return a list's query string without its page: a trace is found on its page again by its position."""
    return query.link().removeprefix("?")


def find_neighbours(
    open_run: OpenRun, unit: Unit | None, name: str, among: str | None, where: str | None = None, order: str = ""
) -> TraceNeighbours:
    """Return tags and note of a trace, and its neighbours in the list that it was opened from.

    Args:
        open_run: The run.
        unit: The unit of the trace; None if the edit was not judged.
        name: The edit's name.
        among: The query string of the list; None if the trace was not opened from one.
        where: The filter of a list by verdict, in addresses of earlier versions.
        order: Its order.
    """
    note, choices = TagsAndNote(), tuple[AnswerChoice, ...]()
    if unit is not None:
        rubric = open_run.rubric(unit.protocol, unit.criterion)
        choices = list_choices(rubric.answer) if rubric else ()
        key = TraceKey(unit.name, unit.criterion, unit.repeat, unit.asked)
        with raise_run_damaged(open_run.name):
            note = read_notes(open_run.run.folder).get(key, note)
    annotators = tuple(open_run.labels.annotators()) if choices else ()
    plain = TraceNeighbours(note, ", ".join(note.tags), "", choices=choices, annotators=annotators)
    if among is None and where is not None:
        among = urlencode({"by": "verdict", "where": where, "order": order}, errors="replace")
    if among is None:
        return replace(plain, back=list_link(open_run.key, ListQuery()))
    query = replace(ListQuery.parse(among), page=1)
    if query.by == "verdict" and unit is not None:
        at, total, links = _find_among_verdicts(open_run, unit, query)
    else:
        at, total, links = _find_among_edits(open_run, name, unit.criterion if unit else "", query)
    page = 1 if at is None else 1 + at // PAGE_SIZE
    back = list_link(open_run.key, replace(query, page=page))
    number = None if at is None else at + 1
    return replace(plain, back=back, query=query, number=number, total=total, previous=links[0], following=links[1])


Neighbours = tuple[int | None, int, tuple[str | None, str | None]]
"""Position in a list, from 0, the list's length, and the addresses of the neighbours."""


def _find_among_verdicts(open_run: OpenRun, unit: Unit, query: ListQuery) -> Neighbours:
    with search_open_run(open_run, query.where, query.configuration) as opened:
        numbers = opened.numbers(find_order(query))
        own = opened.number_of(unit.name, unit.criterion, unit.repeat, unit.asked)
        at = numbers.index(own) if own in numbers else None
        if at is None:
            return None, len(numbers), (None, None)

        def link(position: int) -> str | None:
            hit = opened.hit(numbers[position]) if 0 <= position < len(numbers) else None
            return verdict_link(open_run, hit, among=_list_of(query)) if hit else None

        return at, len(numbers), (link(at - 1), link(at + 1))


def _find_among_edits(open_run: OpenRun, name: str, criterion: str, query: ListQuery) -> Neighbours:
    """Return the neighbours of an edit; they open on the verdict that matches unless another criterion was chosen."""
    with open_edit_list(open_run, query) as edits:
        names = edits.names()
    at = next((position for position, (other, _) in enumerate(names) if other == name), None)
    if at is None:
        return None, len(names), (None, None)
    is_chosen = criterion != (names[at][1] or criterion)

    def link(position: int) -> str | None:
        if not 0 <= position < len(names):
            return None
        other, matching = names[position]
        return edit_link(open_run.key, other, criterion if is_chosen else matching or criterion, query)

    return at, len(names), (link(at - 1), link(at + 1))


def edit_link(key: str, name: str, criterion: str, query: ListQuery) -> str:
    """Return the address of an edit's trace, opened from a list by edit."""
    values = {"edit": name, "criterion": criterion or None, "configuration": query.configuration or None}
    return f"/runs/{key}/trace?{encode_query({**values, 'among': _list_of(query)})}"


def encode_query(values: Mapping[str, Any]) -> str:
    """Return the query string of an address without values that are None; lone surrogates are replaced."""
    return urlencode({name: value for name, value in values.items() if value is not None}, errors="replace")


AT_ONCE = 4000
"""Verdicts that are indexed while a page waits; more are indexed in the background."""


class _Stopped(Exception):
    """The studio closes."""


@dataclass
class _Job:
    thread: threading.Thread | None = None
    done: int = 0
    whole: int = 0
    fault: str = ""
    ended: bool = False


class TraceIndexing:
    """Indexes the traces of runs in the background, with one thread per run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._closing = False

    def progress(self, open_run: OpenRun) -> tuple[int, int] | None:
        """Return the number of indexed and of all verdicts; None if a page can be answered at once."""
        with self._lock:
            job = self._jobs.get(open_run.key)
            if job is None:
                with raise_run_damaged(open_run.name):
                    unread = count_unread(open_run.run)
                if unread <= AT_ONCE:
                    return None
                job = self._jobs[open_run.key] = _Job(whole=unread)
                job.thread = threading.Thread(target=self._build, args=(open_run, job), daemon=True)
                job.thread.start()
            if job.ended:
                # Kept: a run that can only be indexed in memory would be indexed for every page.
                if job.fault:
                    del self._jobs[open_run.key]
                    raise UserError(job.fault)
                return None
            return job.done, job.whole

    def close(self) -> None:
        """Stop indexing; verdicts indexed so far are kept."""
        with self._lock:
            self._closing = True
            threads = [job.thread for job in self._jobs.values() if job.thread]
        for thread in threads:
            thread.join(20)

    def _build(self, open_run: OpenRun, job: _Job) -> None:
        def report(done: int, whole: int) -> None:
            job.done, job.whole = done, whole
            if self._closing:
                raise _Stopped

        try:
            with raise_run_damaged(open_run.name), Run.open(open_run.run.folder) as run, open_index(run, report):
                pass
        except _Stopped:
            pass
        except UserError as error:
            job.fault = str(error)
        finally:
            job.ended = True
