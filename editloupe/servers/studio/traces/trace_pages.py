"""Searches the traces of open runs, builds links to them, and indexes large runs in the background."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.traces.index_update import count_unread, open_index
from editloupe.evals.traces.run_index import TableQuery
from editloupe.evals.traces.trace_notes import TagsAndNote, TraceKey, read_notes
from editloupe.evals.traces.trace_search import ORDERS, RunSearch, TraceHit, search_run
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.servers.studio.run_catalog import OpenRun


@contextmanager
def search_open_run(open_run: OpenRun, where: str = "") -> Iterator[RunSearch]:
    """Search an open run, with the labels of the studio."""
    with raise_run_damaged(open_run.name), search_run(open_run.run, where, studio=open_run.labels.path) as opened:
        yield opened


class TraceLinks:
    """Addresses of the traces of one run."""

    def __init__(self, open_run: OpenRun) -> None:
        self._open_run = open_run
        self._configurations = open_run.index.configurations_of_questions()

    def place(self, hit: TraceHit) -> str:
        """Return a verdict as CONFIGURATION~REPEAT, unique for its edit and criterion."""
        return f"{self._configurations.get(hit.asked, (0, ''))[1]}~{hit.repeat}"

    def trace(self, hit: TraceHit, **more: Any) -> str:
        """Return the address of a trace."""
        values = {"edit": hit.name, "criterion": hit.criterion, "verdict": self.place(hit), **more}
        return f"/runs/{self._open_run.key}/trace?{_query(values)}"


def traces_link(key: str, where: str = "", **more: Any) -> str:
    """Return the address of the list of a run's traces."""
    query = _query({"where": where or None, **more})
    return f"/runs/{key}/traces" + (f"?{query}" if query else "")


def narrow_filter(where: str, **fields: str) -> str:
    r"""Return a filter that also asks for these values.

    >>> narrow_filter("score < 3 or repairs > 0", label='the "best"')
    '(score < 3 or repairs > 0) and label = "the \\"best\\""'
    """
    more = " and ".join(f"{name} = {_text(value)}" for name, value in fields.items())
    return f"({where}) and {more}" if where.strip() else more


@dataclass(frozen=True)
class TraceNeighbours:
    """Tags and note of a trace, and its neighbours in the list of a filter."""

    note: TagsAndNote
    tags: str
    where: str | None
    """The filter of a search; None if the trace was not opened from one."""
    order: str
    back: str
    """The address of the list."""
    number: int | None = None
    """Its position among the matches, from 1; None if it does not match."""
    total: int = 0
    previous: str | None = None
    following: str | None = None
    among: str | None = None
    """The query of the run's table; None if the trace was not opened from it."""


def find_neighbours(
    open_run: OpenRun, unit: Unit, where: str | None, order: str, among: str | None = None
) -> TraceNeighbours:
    """Return tags and note of a trace, and its neighbours in the list that it was opened from.

    Args:
        open_run: The run.
        unit: The unit of the trace.
        where: The filter of a search of traces.
        order: The order of the search.
        among: The query of the run's table of edits. Its neighbours are the verdicts on other edits by the same criterion.
    """
    key = TraceKey(unit.name, unit.criterion, unit.repeat, unit.asked)
    with raise_run_damaged(open_run.name):
        note = read_notes(open_run.run.folder).get(key, TagsAndNote())
    order = order if order in ORDERS else "manifest"
    back = traces_link(open_run.key, where or "", order=None if order == "manifest" else order)
    plain = TraceNeighbours(note, ", ".join(note.tags), where, order, back)
    if where is None:
        return plain if among is None else find_in_table(open_run, unit.name, unit.criterion, among, plain)
    with search_open_run(open_run, where) as opened:
        numbers = opened.numbers(order)
        own = opened.number_of(unit.name, unit.criterion, unit.repeat, unit.asked)
        at = numbers.index(own) if own in numbers else None
        links = TraceLinks(open_run)
        links_of_neighbours = []
        for place_of_other in (None, None) if at is None else (at - 1, at + 1):
            inside = place_of_other is not None and 0 <= place_of_other < len(numbers)
            hit = opened.hit(numbers[place_of_other]) if inside and place_of_other is not None else None
            links_of_neighbours.append(links.trace(hit, where=where, order=order) if hit else None)
    number = None if at is None else at + 1
    return TraceNeighbours(note, plain.tags, where, order, back, number, len(numbers), *links_of_neighbours)


def find_in_table(
    open_run: OpenRun, name: str, criterion: str, among: str, notes: TraceNeighbours | None = None
) -> TraceNeighbours:
    """Return the neighbours of an edit in the run's table; `notes` has the tags and note of its trace."""
    query = TableQuery.parse(among)
    among = query.link().removeprefix("?")
    names = open_run.index.names(query)
    at = names.index(name) if name in names else None
    configuration = query.configuration or None

    def link(place: int) -> str | None:
        if not 0 <= place < len(names):
            return None
        values = {"edit": names[place], "criterion": criterion or None, "configuration": configuration, "among": among}
        return f"/runs/{open_run.key}/trace?{_query(values)}"

    back = f"/runs/{open_run.key}" + (f"?{among}" if among else "")
    neighbours = (None, None) if at is None else (link(at - 1), link(at + 1))
    return replace(
        notes or TraceNeighbours(TagsAndNote(), "", None, "manifest", back),
        among=among,
        back=back,
        number=None if at is None else at + 1,
        total=len(names),
        previous=neighbours[0],
        following=neighbours[1],
    )


def _query(values: dict[str, Any]) -> str:
    return urlencode({name: value for name, value in values.items() if value is not None}, errors="replace")


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
    ended: bool = field(default=False)


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
                    left = count_unread(open_run.run)
                if left <= AT_ONCE:
                    return None
                job = self._jobs[open_run.key] = _Job(whole=left)
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
