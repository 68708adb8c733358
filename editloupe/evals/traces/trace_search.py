"""Searches the traces of one or several runs with a filter, and compares two runs."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from editloupe.evals.labels.human import LabelFiles, list_files
from editloupe.evals.labels.label_files import LabelFile
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.filter_parser import parse
from editloupe.evals.traces.filter_sql import FilterNames, FilterSql, find_unknown_values, translate_filter
from editloupe.evals.traces.index_file import FILE, discard
from editloupe.evals.traces.index_update import IndexedLabels, Progress, open_index, read_consensus, update_people
from editloupe.evals.traces.trace_notes import update_claims, update_notes
from editloupe.evals.traces.trace_statistics import TraceStatistics, count_traces
from editloupe.types import Record, UserError

T = TypeVar("T")

JOINS = (
    "LEFT JOIN units u ON u.unit = v.unit "
    "LEFT JOIN people p ON p.edit = v.edit AND p.criterion = v.criterion AND p.protocol = v.protocol "
    "LEFT JOIN notes n ON n.answer = v.answer LEFT JOIN claims c ON c.answer = v.answer"
)
"""Tables that fields of a filter refer to, apart from verdicts and edits. SQLite skips unused joins if a query does not group."""
FROM = f"FROM verdicts v JOIN edits e ON e.edit = v.edit {JOINS}"
_MANIFEST = "e.position, e.edit_id, e.name, v.criterion, v.repeat, v.answer"
ORDERS: Mapping[str, tuple[str, str]] = {
    "manifest": ("Manifest order", _MANIFEST),
    "confident": ("Most confident first", f"v.confidence IS NULL, v.confidence DESC, {_MANIFEST}"),
    "unsure": ("Least confident first", f"v.confidence IS NULL, v.confidence, {_MANIFEST}"),
    "apart": ("Furthest from people first", f"abs(v.score_100 - p.place) DESC, {_MANIFEST}"),
    "turns": ("Most turns first", f"v.steps DESC, {_MANIFEST}"),
    "costly": ("Most costly first", f"v.cost IS NULL, v.cost DESC, v.output_tokens DESC, {_MANIFEST}"),
    "slow": ("Slowest first", f"v.seconds DESC, {_MANIFEST}"),
}
VERDICT_ORDERS: Mapping[str, str] = {
    "edit": "e.edit_id",
    "model": "e.model",
    "type": "e.instruction_type",
    "criterion": "v.criterion",
    "label": "v.score_100",
    "people": "abs(v.score_100 - p.place)",
    "confidence": "v.confidence",
    "steps": "v.steps",
    "cost": "v.cost",
    "seconds": "v.seconds",
    "tags": "(SELECT min(tag) FROM tags WHERE tags.answer = v.answer)",
}
"""Further orders of `RunSearch`: the columns of a list, ascending, or descending after a minus sign."""
WORKLIST = ("human != label", "confident")
"""Filter and order that list the verdicts on which judge and people disagree, the most confident first."""
_HIT = (
    "SELECT v.*, e.name, e.edit_id, e.model, e.instruction, e.instruction_type, e.source, e.edited, "
    "u.turns, u.repairs, p.label AS human, p.score AS human_score, p.place AS human_place, n.note, "
    "(SELECT group_concat(tool || char(31) || calls, char(30)) FROM tool_counts t WHERE t.unit = v.unit) AS tools, "
    "(SELECT group_concat(tag, char(30)) FROM tags WHERE tags.answer = v.answer) AS tags"
)


class TraceHit(Record):
    """A verdict that matches a filter, with what is needed to open its trace."""

    run: str
    """The run's name."""
    folder: Path
    name: str
    """The edit's name, unique in the run; `editloupe trace RUN NAME` shows it."""
    edit_id: str
    model: str | None
    criterion: str
    protocol: str
    configuration: str | None
    asked: str
    """The key of the question."""
    judge: str
    mode: str
    repeat: int
    status: str
    label: str | None
    score: float | None
    score_100: float | None
    confidence: float | None
    reason: str | None
    human: str | None
    human_score: float | None
    instruction: str | None
    instruction_type: str | None
    steps: int
    turns: int | None
    repairs: int | None
    tools: Mapping[str, int]
    """Calls per tool."""
    cost: float | None
    seconds: float | None
    input_tokens: int
    output_tokens: int
    tags: tuple[str, ...] = ()
    note: str | None = None
    source: str | None = None
    """Hashes of the two pictures, if the run kept them."""
    edited: str | None = None
    human_place: float | None = None
    """The position of people's label on the scale, from 0 to 100."""
    answer: int = 0
    """The verdict's number in the run."""


@dataclass(frozen=True)
class RunSearch:
    """A search in one open run."""

    run: Run
    index: sqlite3.Connection
    filter: FilterSql
    notes: tuple[str, ...] = ()
    """What a reader should know: about the labels of people, and about values that do not occur."""

    @cached_property
    def matching(self) -> str:
        """FROM and WHERE of the verdicts that match; the filter is evaluated only once."""
        if self.filter.sql == "1":
            return f"{FROM} WHERE v.twin = 0"
        self.index.execute("CREATE TEMP TABLE fits (answer INTEGER PRIMARY KEY)")
        matches = f"INSERT INTO fits SELECT v.answer {FROM} WHERE v.twin = 0 AND {self.filter.sql}"
        self.index.execute(matches, self.filter.values)
        return FROM.replace("FROM verdicts v", "FROM fits CROSS JOIN verdicts v ON v.answer = fits.answer")

    def of_configuration(self, configuration: str) -> RunSearch:
        """Return the search among the verdicts of one configuration."""
        own = f"{self.filter.sql} AND v.asked IN (SELECT asked FROM asked WHERE configuration = ?)"
        return replace(self, filter=FilterSql(own, [*self.filter.values, configuration]))

    @cached_property
    def _run_name(self) -> str:
        return self.run.folder.resolve().name

    def count(self) -> int:
        """Return the number of verdicts that match."""
        return int(self.index.execute(f"SELECT count(*) {self.matching}").fetchone()[0])

    def count_all(self) -> int:
        """Return the number of verdicts in the run."""
        return int(self.index.execute("SELECT count(*) FROM verdicts WHERE twin = 0").fetchone()[0])

    def hits(self, order: str = "manifest", limit: int | None = None, skip: int = 0) -> Iterator[TraceHit]:
        """Yield the verdicts that match."""
        ordered = f"{self.matching} ORDER BY {_order_sql(order)}"
        if limit is None:
            for row in self.index.execute(f"{_HIT} {ordered} LIMIT -1 OFFSET {int(skip)}"):
                yield _build_hit(row, self._run_name, self.run.folder)
            return
        # Sorting numbers alone is several times faster, because SQLite sorts all columns that a query asks for.
        page = self.index.execute(f"SELECT v.answer {ordered} LIMIT {int(limit)} OFFSET {int(skip)}").fetchall()
        yield from filter(None, (self.hit(answer) for (answer,) in page))

    def numbers(self, order: str = "manifest") -> list[int]:
        """Return the numbers of all verdicts that match, in order."""
        return [row[0] for row in self.index.execute(f"SELECT v.answer {self.matching} ORDER BY {_order_sql(order)}")]

    def hit(self, answer: int) -> TraceHit | None:
        """Return a verdict by its number, whether it matches or not."""
        row = self.index.execute(f"{_HIT} {FROM} WHERE v.answer = ?", (answer,)).fetchone()
        return _build_hit(row, self._run_name, self.run.folder) if row else None

    def consensus(self, name: str) -> dict[str, str]:
        """Return the consensus of people on an edit, per criterion."""
        return read_consensus(self.index, name)

    def number_of(self, name: str, criterion: str, repeat: int, asked: str) -> int | None:
        """Return the number of a verdict, None if it is not in the run."""
        query = (
            "SELECT min(other.answer) FROM verdicts v JOIN edits e ON e.edit = v.edit JOIN verdicts other "
            "ON other.unit = v.unit AND other.edit = v.edit AND other.repeat = v.repeat "
            "WHERE e.name = ? AND v.criterion = ? AND v.repeat = ? AND v.asked = ?"
        )
        row = self.index.execute(query, (name, criterion, repeat, asked)).fetchone()
        return None if row[0] is None else int(row[0])

    def statistics(self) -> TraceStatistics:
        """Return the statistics of the verdicts that match."""
        return count_traces(self.index, self.matching)


@contextmanager
def search_run(
    run: Run,
    where: str = "",
    human: LabelFiles = None,
    studio: Path | None = None,
    progress: Progress | None = None,
    names: FilterNames | None = None,
) -> Iterator[RunSearch]:
    """Search an open run.

    Args:
        run: The run.
        where: The filter; empty for all verdicts.
        human: Further files of human labels.
        studio: The label file of the studio, if it is not the one in the run's folder.
        progress: Called while the index is built.
        names: Columns and tools of other runs that are searched with the same filter.

    Raises:
        ExpressionError: The filter has a mistake.
    """
    condition = parse(where)
    labels: IndexedLabels

    def fill(index: sqlite3.Connection) -> None:
        nonlocal labels
        labels = update_people(index, run, human, studio)
        update_notes(index, run)
        update_claims(index, run)

    with open_index(run, progress, fill) as index, _discard_if_damaged(run, index):
        own = read_names(index)
        if names is not None:
            own = FilterNames({*own.columns, *names.columns}, {*own.tools, *names.tools})
        faults = (f"A label does not count: {fault}" for fault in labels.faults)
        notes = (*faults, *labels.notes, *find_unknown_values(index, condition))
        yield RunSearch(run, index, translate_filter(condition, own), notes)


@contextmanager
def _discard_if_damaged(run: Run, index: sqlite3.Connection) -> Iterator[None]:
    """Discard the index if a query in the block fails, so that the next search builds it again."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        discard(index, error)
        raise UserError(f"the index {run.folder / FILE} cannot be read ({error}); search again") from None


def read_names(index: sqlite3.Connection) -> FilterNames:
    """Return the manifest's columns, and the tools that were offered in a run."""
    columns = {str(row[0]) for row in index.execute("SELECT name FROM columns")}
    used = index.execute("SELECT DISTINCT tool FROM tool_counts")
    offered = index.execute("SELECT DISTINCT value FROM offered, json_each(offered.tools)")
    return FilterNames(columns, {str(row[0]) for rows in (used, offered) for row in rows})


@dataclass(frozen=True)
class FoundTraces:
    """The result of a search in one or several runs. The runs are read when something is asked for.

    Iterate over it for the hits.

    Args:
        folders: The folders of the runs.
        where: The filter.
        human: Further files of human labels.
        order: One of ORDERS; it holds within each run.
        progress: Called while an index is built, with the verdicts done and all verdicts.
    """

    folders: tuple[Path, ...]
    where: str
    human: tuple[LabelFile, ...] = ()
    order: str = "manifest"
    progress: Progress | None = None
    notes: list[str] = field(default_factory=list)
    """What a reader should know about labels and damage; complete when the hits were read."""

    def __iter__(self) -> Iterator[TraceHit]:
        """Yield all hits, run by run."""
        for search in self._search_each():
            with _discard_if_damaged(search.run, search.index):
                yield from search.hits(self.order)

    @cached_property
    def total(self) -> int:
        """The number of verdicts that match."""
        return sum(self._read_each(RunSearch.count))

    @cached_property
    def searched(self) -> int:
        """The number of verdicts in the runs."""
        return sum(self._read_each(RunSearch.count_all))

    def statistics(self) -> TraceStatistics:
        """Return the statistics of all hits together."""
        return sum(self._read_each(RunSearch.statistics), TraceStatistics())

    def standings(self) -> Iterator[str]:
        """Yield the progress of each configuration that is not complete."""
        query = "SELECT title, standing FROM configurations WHERE standing <> '' ORDER BY place"
        for folder in self.folders:
            with Run.open(folder) as run, open_index(run, self.progress) as index:
                for title, standing in index.execute(query):
                    yield f"{folder.resolve().name}, {title}: {standing}"

    def check(self) -> None:
        """Check the filter against the names of all runs; raise ExpressionError if it has a mistake."""
        for _ in self._search_each():
            return

    def _read_each(self, read: Callable[[RunSearch], T]) -> Iterator[T]:
        for search in self._search_each():
            with _discard_if_damaged(search.run, search.index):
                yield read(search)

    def _search_each(self) -> Iterator[RunSearch]:
        names = self._all_names
        for folder in self.folders:
            with (
                Run.open(folder) as run,
                search_run(run, self.where, self.human, progress=self.progress, names=names) as search,
            ):
                yield search
                for note in (*search.notes, *run.damage.sentences()):
                    text = f"{folder.name}: {note}" if len(self.folders) > 1 else note
                    if text not in self.notes:
                        self.notes.append(text)

    @cached_property
    def _all_names(self) -> FilterNames | None:
        """The columns and tools of all runs: a filter may use a column that only some runs have."""
        if len(self.folders) < 2:
            return None
        columns: set[str] = set()
        tools: set[str] = set()
        for folder in self.folders:
            with Run.open(folder) as run, open_index(run, self.progress) as index:
                own = read_names(index)
                columns.update(own.columns)
                tools.update(own.tools)
        return FilterNames(columns, tools)


def find_traces(
    runs: str | Path | Sequence[str | Path],
    where: str = "",
    *,
    human: LabelFiles = None,
    order: str = "manifest",
    progress: Progress | None = None,
) -> FoundTraces:
    """Find the verdicts that match a filter, such as `human != label and tool("zoom_in_image") = 0`.

    docs/reference/filters.md describes the filter language.

    Args:
        runs: The folder of a run, or several.
        where: The filter; empty for all verdicts.
        human: A file of human labels, or several, in addition to those of the manifest and of the run's folder.
        order: `manifest`, `confident`, `unsure`, `apart`, `turns`, `costly` or `slow`; within each run.
        progress: Called while an index is built, with the number of verdicts done and of all verdicts.

    Returns:
        The hits, when iterated over; `total` and `statistics()` are about all of them.

    Raises:
        ExpressionError: The filter has a mistake. Raised at once, not when the hits are read.
    """
    _order_sql(order)
    folders = [runs] if isinstance(runs, (str, Path)) else list(runs)
    if not folders:
        raise UserError("name at least one run to search")
    traces = FoundTraces(tuple(map(Path, folders)), where, tuple(list_files(human)), order, progress)
    traces.check()
    return traces


def _order_sql(name: str) -> str:
    if (column := VERDICT_ORDERS.get(name.removeprefix("-"))) is not None and name not in ORDERS:
        surest = "v.confidence DESC NULLS LAST, " if column == VERDICT_ORDERS["people"] else ""
        return f"{column}{' DESC' if name.startswith('-') else ''} NULLS LAST, {surest}{_MANIFEST}"
    if name not in ORDERS:
        raise UserError(f'an order is one of {", ".join(ORDERS)}, not "{name}"')
    return ORDERS[name][1]


def _build_hit(row: sqlite3.Row, run: str, folder: Path) -> TraceHit:
    names = set(row.keys()) & TraceHit.model_fields.keys() - {"tools", "tags"}
    pairs = (text.split("\x1f") for text in (row["tools"] or "").split("\x1e") if text)
    tags = tuple(filter(None, (row["tags"] or "").split("\x1e")))
    counts = {tool: int(calls) for tool, calls in pairs}
    values = {name: row[name] for name in names}
    return TraceHit(run=run, folder=folder, tools=counts, tags=tags, **values)


# Two runs compared

UNLABELLED = "unjudged"
RIGHT, WRONG = "right", "wrong"
MOST_LABELS = 10
"""The most labels of a table of changes. A criterion with more, as one that takes numbers, is counted by direction."""


class _Side(NamedTuple):
    edit: int
    edit_id: str
    model: str | None
    protocol: str
    answer: int
    status: str
    label: str | None
    score: float | None
    score_100: float | None
    human_score: float | None

    @property
    def name(self) -> str:
        """The label, or the score if it has no label, or `unjudged`."""
        if self.status != "judged":
            return UNLABELLED
        return self.label if self.label is not None else "no score" if self.score is None else f"{self.score:g}"

    def compare_to_people(self, human_score: float) -> str:
        """Return whether the verdict has the score of people's label, in a word."""
        if self.status != "judged" or self.score is None:
            return UNLABELLED
        return RIGHT if self.score == human_score else WRONG


@dataclass(frozen=True)
class PairedVerdicts:
    """The verdicts of two runs on the same content, criterion and repeat."""

    criterion: str
    first: _Side
    second: _Side

    @property
    def differ(self) -> bool:
        """Whether status, label or score differ."""
        own, other = self.first, self.second
        return (own.status, own.label, own.score) != (other.status, other.label, other.score)

    @property
    def apart(self) -> float:
        """The distance of the scores from 0 to 100; below 0 if one of them is unjudged."""
        if self.first.score_100 is None or self.second.score_100 is None:
            return -1.0
        return abs(self.first.score_100 - self.second.score_100)

    def cell(self, by: str) -> tuple[str, str] | None:
        """Return row and column in a table of changes; None if the pair is not in it.

        Args:
            by: `people`: right or wrong by their label; `labels`: the two labels; `direction`: lower, same or higher.
        """
        own, other = self.first, self.second
        if by == "people":
            human = own.human_score if own.human_score is not None else other.human_score
            return None if human is None else (own.compare_to_people(human), other.compare_to_people(human))
        if by == "labels":
            return own.name, other.name
        if own.score is None or other.score is None:
            return "all", UNLABELLED
        return "all", "same" if own.score == other.score else "lower" if other.score < own.score else "higher"


@dataclass(frozen=True)
class VerdictPair:
    """A verdict of either run on the same edit, criterion and repeat."""

    first: TraceHit
    second: TraceHit


@dataclass(frozen=True)
class ChangeTable:
    """Counts of the pairs of a criterion, by the first run's verdict (rows) and the second's (columns)."""

    criterion: str
    protocol: str
    by: str
    """`people`, `labels` or `direction`, as in `PairedVerdicts.cell`."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class PairedRuns:
    """The verdicts of two runs on the same pictures and instructions."""

    pairs: tuple[PairedVerdicts, ...]
    """Furthest apart first; then those with an unjudged verdict, and last those that are the same."""
    several: tuple[str, ...] = ()
    """Runs that judged the same edits in several ways; only the first way is compared."""

    @property
    def differing(self) -> tuple[PairedVerdicts, ...]:
        """The pairs that differ."""
        return tuple(pair for pair in self.pairs if pair.differ)

    def in_cell(self, criterion: str, by: str, was: str, now: str) -> tuple[PairedVerdicts, ...]:
        """Return the pairs in a cell of a table of changes."""
        return tuple(pair for pair in self.pairs if pair.criterion == criterion and pair.cell(by) == (was, now))

    def tabulate_changes(self) -> tuple[ChangeTable, ...]:
        """Return the tables of every criterion: against people if there are labels, and label by label."""
        by_criterion: dict[tuple[str, str], list[PairedVerdicts]] = {}
        for pair in self.pairs:
            by_criterion.setdefault((pair.first.protocol, pair.criterion), []).append(pair)
        return tuple(table for key, pairs in sorted(by_criterion.items()) for table in _tabulate(*key, pairs))


def _tabulate(protocol: str, criterion: str, pairs: Sequence[PairedVerdicts]) -> Iterator[ChangeTable]:
    scores = {side.name: side.score for pair in pairs for side in (pair.first, pair.second) if side.score is not None}
    names = [name for name, _ in sorted(scores.items(), key=lambda entry: (entry[1], entry[0]))]
    labels = (tuple(names), tuple(names)) if len(names) <= MOST_LABELS else None
    tables = {
        "people": ((RIGHT, WRONG), (RIGHT, WRONG)),
        "labels" if labels else "direction": labels or (("all",), ("lower", "same", "higher")),
    }
    for by, (rows, columns) in tables.items():
        counts = Counter(cell for pair in pairs if (cell := pair.cell(by)) is not None)
        if counts:
            more_rows = dict.fromkeys(row for row, _ in counts if row not in rows)
            more_columns = dict.fromkeys(column for _, column in counts if column not in columns)
            yield ChangeTable(criterion, protocol, by, (*rows, *more_rows), (*columns, *more_columns), counts)


def compare_runs(first: RunSearch, second: RunSearch) -> PairedRuns:
    """Pair the verdicts of two runs by content. The filters of both searches select them.

    Verdicts are paired by source picture, edited picture, instruction, criterion and repeat, never by id: two runs may use
    one id for different edits. If several edits of the second run have the same content, the one with the same id and model
    is taken, then one with the same id, then the first.
    """
    left, several_left = _sides_by_content(first)
    right, several_right = _sides_by_content(second)
    pairs = []
    for content in left.keys() & right.keys():
        others = _first_of_each(right[content].values())
        for side in left[content].values():
            other = next(others[name] for name in _names_of(side) if name in others)
            pairs.append(PairedVerdicts(content[1], side, other))
    pairs.sort(key=lambda pair: (not pair.differ, -pair.apart, pair.first.answer))
    several = tuple(
        search.run.folder.resolve().name
        for search, is_several in ((first, several_left), (second, several_right))
        if is_several
    )
    return PairedRuns(tuple(pairs), several)


def read_pairs(first: RunSearch, second: RunSearch, pairs: Iterable[PairedVerdicts]) -> list[VerdictPair]:
    """Return the whole verdicts of pairs."""
    hits = ((first.hit(pair.first.answer), second.hit(pair.second.answer)) for pair in pairs)
    return [VerdictPair(left, right) for left, right in hits if left is not None and right is not None]


def _names_of(side: _Side) -> tuple[tuple[str | None, ...], ...]:
    """Return what a counterpart is looked up by, the closest first."""
    return (side.edit_id, side.model), (side.edit_id,), ()


def _first_of_each(sides: Iterable[_Side]) -> dict[tuple[str | None, ...], _Side]:
    by_name: dict[tuple[str | None, ...], _Side] = {}
    for side in sides:
        for name in _names_of(side):
            by_name.setdefault(name, side)
    return by_name


def _sides_by_content(search: RunSearch) -> tuple[dict[tuple[str, str, int], dict[int, _Side]], bool]:
    """Return verdicts by content, criterion and repeat, then by edit, and whether some edits were judged in several ways."""
    query = (
        "SELECT e.content, v.criterion, v.repeat, e.edit, e.edit_id, e.model, v.protocol, v.answer, v.status, v.label, "
        f"v.score, v.score_100, p.score {search.matching} {'AND' if search.filter.sql == '1' else 'WHERE'} "
        "e.content IS NOT NULL ORDER BY v.answer"
    )
    by_content: dict[tuple[str, str, int], dict[int, _Side]] = {}
    is_several = False
    for content, criterion, repeat, *rest in search.index.execute(query):
        sides, side = by_content.setdefault((content, criterion, repeat), {}), _Side(*rest)
        is_several = is_several or side.edit in sides
        sides.setdefault(side.edit, side)
    return by_content, is_several
