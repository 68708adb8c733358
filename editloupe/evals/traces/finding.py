"""Traces that fit a filter, in one run or several, in an order, a page at a time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from editloupe.evals.labels.files import Named, label_files
from editloupe.evals.labels.human import known_answers, merge_labels_of_run
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import count_completion
from editloupe.evals.traces.as_sql import Known, Query, as_sql
from editloupe.evals.traces.expression import Among, Comparison, Condition, Joined, Literal, Name, Not, parse
from editloupe.evals.traces.index_file import Progress, open_index
from editloupe.evals.traces.index_store import FILE, recall, remember, stamp
from editloupe.evals.traces.trace_notes import take_notes
from editloupe.evals.traces.trace_statistics import TraceStatistics, count_traces
from editloupe.evals.traces.vocabulary import FIELDS
from editloupe.types import Record, UserError

_INSERT = "INSERT OR REPLACE INTO {}people VALUES (?, ?, ?, ?, ?, ?, ?)"


def take_people(
    index: sqlite3.Connection, run: Run, files: Iterable[str | Path] = (), studio: Path | None = None
) -> list[str]:
    """Bring the labels of people up to date and return what a reader should know about them.

    Labels of the manifest and of the run's own file are kept in the index; where others are named (`files`, or the
    file the `studio` writes), the labels are this connection's alone.
    """
    named = [Path(file) for file in files]
    found = label_files(run.folder, studio, named)
    marks = [recall(index, "state"), [str(path) for path in found], stamp(*found)]
    own = not named and (studio is None or studio.resolve().parent == run.folder.resolve())
    if own and (kept := recall(index, "people")) is not None and kept["marks"] == marks:
        return [str(note) for note in kept["notes"]]
    rows, notes = _labels(index, run, found)
    if own:
        index.execute("BEGIN IMMEDIATE")
        index.execute("DELETE FROM people")
        index.executemany(_INSERT.format(""), rows)
        remember(index, "people", {"marks": marks, "notes": notes})
        index.execute("COMMIT")
    else:
        index.execute("DROP TABLE IF EXISTS temp.people")
        index.execute(
            "CREATE TEMP TABLE people (edit INTEGER, criterion, protocol, label, score, place, people, "
            "PRIMARY KEY (edit, criterion, protocol)) WITHOUT ROWID"
        )
        index.executemany(_INSERT.format("temp."), rows)
    return notes


def _labels(index: sqlite3.Connection, run: Run, files: dict[Path, str]) -> tuple[list[tuple[Any, ...]], list[str]]:
    human = index.execute("SELECT name, human, rater FROM edits WHERE human <> '{}'").fetchall()
    if not human and not files:
        return [], []
    edits = index.execute("SELECT edit, name, edit_id, model FROM edits").fetchall()
    asked = index.execute("SELECT DISTINCT protocol, criterion FROM verdicts ORDER BY 1, 2").fetchall()
    labels = merge_labels_of_run(
        [Named(row["name"], row["edit_id"], row["model"]) for row in edits],
        known_answers(run.about(), map(tuple, asked)),
        [(row["name"], json.loads(row["human"]), row["rater"]) for row in human],
        files,
    )
    numbers = {row["name"]: row["edit"] for row in edits}
    rows = [
        (numbers[name], criterion, protocol, agreed.label, agreed.score, agreed.place, agreed.count)
        for name, criterion, protocol, agreed in labels.consensus()
    ]
    return rows, [*(f"A label does not count: {fault}" for fault in labels.faults), *labels.notes]


CHECKED = {
    "label": "verdicts v",
    "human": "people p",
    "status": "verdicts v",
    "reason": "verdicts v",
    "criterion": "verdicts v",
    "protocol": "verdicts v",
    "judge": "verdicts v",
    "mode": "verdicts v",
    "model": "edits e",
    "instruction_type": "edits e",
}
"""Fields that take few values, and where they stand."""
MOST = 200


def unknown_values(index: sqlite3.Connection, condition: Condition | None) -> tuple[str, ...]:
    """Return a sentence for every value that is compared with a field and that the run has nowhere in it."""
    found: dict[str, None] = {}
    for name, value in dict.fromkeys(_asked(condition)):
        sql, table = FIELDS[name].sql, CHECKED[name]
        same = f"{sql} = ? COLLATE NOCASE" if value.isascii() else f"folded({sql}) = folded(?)"
        if index.execute(f"SELECT 1 FROM {table} WHERE {same} LIMIT 1", (value,)).fetchone():
            continue
        rows = index.execute(f"SELECT DISTINCT {sql} FROM {table} WHERE {sql} IS NOT NULL LIMIT {MOST}")
        there = sorted(str(row[0]) for row in rows)
        near = get_close_matches(value, there, 1, 0.6)
        known = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, there[:8])) or 'none at all'}"
        found[f"No verdict has {name} {value!r}; {known}"] = None
    return tuple(found)


def _asked(condition: Condition | None) -> Iterator[tuple[str, str]]:
    """Yield fields with the texts they are compared with."""
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _asked(part)
    elif isinstance(condition, Not):
        yield from _asked(condition.inner)
    elif isinstance(condition, Comparison) and condition.sign in ("=", "!="):
        for one, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if isinstance(one, Name) and isinstance(other, Literal):
                yield from _texts(one, other)
    elif isinstance(condition, Among) and isinstance(condition.value, Name):
        for literal in condition.listed:
            yield from _texts(condition.value, literal)


def _texts(name: Name, literal: Literal) -> Iterator[tuple[str, str]]:
    if name.name.lower() in CHECKED and isinstance(literal.value, str):
        yield name.name.lower(), literal.value


FROM = (
    "FROM verdicts v JOIN edits e ON e.edit = v.edit LEFT JOIN units u ON u.unit = v.unit "
    "LEFT JOIN people p ON p.edit = v.edit AND p.criterion = v.criterion AND p.protocol = v.protocol "
    "LEFT JOIN notes n ON n.answer = v.answer"
)
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
WORKLIST = ("human != label", "confident")
"""Where judge and people disagree, what the judge was surest of first: filter and order."""
_HIT = (
    "SELECT v.*, e.name, e.edit_id, e.model, e.instruction, e.instruction_type, e.source, e.edited, "
    "u.turns, u.repairs, p.label AS human, p.score AS human_score, p.place AS human_place, n.note, "
    "(SELECT group_concat(tool || char(31) || calls, char(30)) FROM tool_counts t WHERE t.unit = v.unit) AS tools, "
    "(SELECT group_concat(tag, char(30)) FROM tags WHERE tags.answer = v.answer) AS tags"
)


class TraceHit(Record):
    """One verdict that fits a filter, with what is needed to open its trace."""

    run: str
    """The run's name."""
    folder: Path
    name: str
    """The edit's, unique in the run; `editloupe trace RUN NAME` shows it."""
    edit_id: str
    model: str | None
    criterion: str
    protocol: str
    configuration: str | None
    asked: str
    """How the criterion was put to the judge."""
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
    turns: int | None
    repairs: int | None
    tools: Mapping[str, int]
    """How often each tool was called."""
    cost: float | None
    seconds: float | None
    input_tokens: int
    output_tokens: int
    tags: tuple[str, ...] = ()
    note: str | None = None
    source: str | None = None
    """Hashes of the two pictures, as far as the run kept them."""
    edited: str | None = None
    human_place: float | None = None
    """Of people's label, from 0 to 100."""
    answer: int = 0
    """The verdict's number in the run."""


@dataclass(frozen=True)
class SearchedRun:
    """An open run with its index and the filter as SQL."""

    run: Run
    index: sqlite3.Connection
    query: Query
    notes: tuple[str, ...] = ()
    """What a reader should know: about the labels of people, and values that occur nowhere."""

    @cached_property
    def fitting(self) -> str:
        """FROM and WHERE of the verdicts that fit, which are looked for once however much is asked about them."""
        if self.query.sql == "1":
            return f"{FROM} WHERE v.twin = 0"
        self.index.execute("CREATE TEMP TABLE fits (answer INTEGER PRIMARY KEY)")
        chosen = f"INSERT INTO fits SELECT v.answer {FROM} WHERE v.twin = 0 AND {self.query.sql}"
        self.index.execute(chosen, self.query.values)
        return FROM.replace("FROM verdicts v", "FROM fits CROSS JOIN verdicts v ON v.answer = fits.answer")

    def count(self) -> int:
        """Return how many verdicts fit."""
        return int(self.index.execute(f"SELECT count(*) {self.fitting}").fetchone()[0])

    def whole(self) -> int:
        """Return how many verdicts there are."""
        return int(self.index.execute("SELECT count(*) FROM verdicts WHERE twin = 0").fetchone()[0])

    def hits(self, order: str = "manifest", limit: int | None = None, skip: int = 0) -> Iterator[TraceHit]:
        """Yield the verdicts that fit."""
        window = f"LIMIT {-1 if limit is None else int(limit)} OFFSET {int(skip)}"
        name = self.run.folder.resolve().name
        for row in self.index.execute(f"{_HIT} {self.fitting} ORDER BY {_order(order)} {window}"):
            yield _hit(row, name, self.run.folder)

    def numbers(self, order: str = "manifest") -> list[int]:
        """Return the numbers of all verdicts that fit, in order."""
        return [row[0] for row in self.index.execute(f"SELECT v.answer {self.fitting} ORDER BY {_order(order)}")]

    def hit(self, answer: int) -> TraceHit | None:
        """Return one verdict by its number, whether it fits or not."""
        row = self.index.execute(f"{_HIT} {FROM} WHERE v.answer = ?", (answer,)).fetchone()
        return _hit(row, self.run.folder.resolve().name, self.run.folder) if row else None

    def people_about(self, name: str) -> dict[str, str]:
        """Return what people said of an edit, by criterion."""
        query = "SELECT criterion, label FROM people JOIN edits USING (edit) WHERE name = ?"
        return {str(row[0]): str(row[1]) for row in self.index.execute(query, (name,))}

    def number_of(self, name: str, criterion: str, repeat: int, asked: str) -> int | None:
        """Return the number of a verdict, None where it is not in the run."""
        query = (
            "SELECT min(other.answer) FROM verdicts v JOIN edits e ON e.edit = v.edit JOIN verdicts other "
            "ON other.unit = v.unit AND other.edit = v.edit AND other.repeat = v.repeat "
            "WHERE e.name = ? AND v.criterion = ? AND v.repeat = ? AND v.asked = ?"
        )
        row = self.index.execute(query, (name, criterion, repeat, asked)).fetchone()
        return None if row[0] is None else int(row[0])

    def statistics(self) -> TraceStatistics:
        """Return the statistics of what fits."""
        return count_traces(self.index, self.fitting)


@contextmanager
def searching(
    run: Run,
    where: str = "",
    human: Iterable[str | Path] = (),
    studio: Path | None = None,
    progress: Progress | None = None,
    known: Known | None = None,
) -> Iterator[SearchedRun]:
    """Give an open run ready to be asked; a filter that cannot be understood raises ExpressionError.

    `known` names columns and tools that other runs of the same search have.
    """
    condition = parse(where)
    with open_index(run, progress) as index:
        notes = take_people(index, run, human, studio)
        take_notes(index, run)
        own = known_to(index)
        if known is not None:
            own = Known({*own.columns, *known.columns}, {*own.tools, *known.tools})
        query = as_sql(condition, own)
        try:
            yield SearchedRun(run, index, query, (*notes, *unknown_values(index, condition)))
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"the index {run.folder / FILE} cannot be read ({error}); delete it and search again"
            ) from None


def known_to(index: sqlite3.Connection) -> Known:
    """Return the manifest's columns and the tools that were offered in a run."""
    columns = {str(row[0]) for row in index.execute("SELECT name FROM columns")}
    used = index.execute("SELECT DISTINCT tool FROM tool_counts")
    offered = index.execute("SELECT DISTINCT value FROM offered, json_each(offered.tools)")
    return Known(columns, {str(row[0]) for rows in (used, offered) for row in rows})


@dataclass(frozen=True)
class FoundTraces:
    """What a search found, run by run; the runs are read when something is asked for."""

    folders: tuple[Path, ...]
    where: str
    human: tuple[Path, ...] = ()
    order: str = "manifest"
    progress: Progress | None = None
    notes: list[str] = field(default_factory=list)
    """What a reader should know about labels and damage, once the hits were read."""

    def __iter__(self) -> Iterator[TraceHit]:
        """Yield all hits, run after run."""
        for opened in self._each():
            yield from opened.hits(self.order)

    @cached_property
    def total(self) -> int:
        """How many verdicts fit."""
        return sum(opened.count() for opened in self._each())

    @cached_property
    def searched(self) -> int:
        """How many verdicts the runs hold."""
        return sum(opened.whole() for opened in self._each())

    def statistics(self) -> TraceStatistics:
        """Return the statistics of all hits together."""
        return sum((opened.statistics() for opened in self._each()), TraceStatistics())

    def standings(self) -> Iterator[str]:
        """Yield how far each run has got that was to judge more."""
        for folder in self.folders:
            with Run.open(folder) as run, run.reader() as reader:
                for one in run.configurations():
                    if told := count_completion(run, reader, one).describe():
                        yield f"{folder.resolve().name}, {one.title}: {told}"

    def check(self) -> None:
        """Read the filter against all runs; a mistake raises ExpressionError before anything is told."""
        for _ in self._each():
            return

    def _each(self) -> Iterator[SearchedRun]:
        known = self._known
        for folder in self.folders:
            with (
                Run.open(folder) as run,
                searching(run, self.where, self.human, progress=self.progress, known=known) as opened,
            ):
                yield opened
                for note in (*opened.notes, *run.damage.sentences()):
                    told = f"{folder.name}: {note}" if len(self.folders) > 1 else note
                    if told not in self.notes:
                        self.notes.append(told)

    @cached_property
    def _known(self) -> Known | None:
        """The columns and tools of all runs together: a column that one run has is no mistake in another."""
        if len(self.folders) < 2:
            return None
        columns: set[str] = set()
        tools: set[str] = set()
        for folder in self.folders:
            with Run.open(folder) as run, open_index(run, self.progress) as index:
                own = known_to(index)
                columns.update(own.columns)
                tools.update(own.tools)
        return Known(columns, tools)


def find_traces(
    runs: str | Path | Sequence[str | Path],
    where: str = "",
    *,
    human: str | Path | Sequence[str | Path] = (),
    order: str = "manifest",
    progress: Progress | None = None,
) -> FoundTraces:
    """Find the verdicts of one run or several that fit a filter, such as `human != label and tool("zoom_in_image") = 0`.

    docs/reference/filters.md has the language. Iterating gives a TraceHit each; `total` and `statistics()` speak of all of them.
    A mistake in the filter raises ExpressionError at once.
    """
    _order(order)
    folders = [runs] if isinstance(runs, (str, Path)) else list(runs)
    files = [human] if isinstance(human, (str, Path)) else list(human)
    if not folders:
        raise UserError("name at least one run to search")
    found = FoundTraces(tuple(map(Path, folders)), where, tuple(map(Path, files)), order, progress)
    found.check()
    return found


def _order(name: str) -> str:
    if name not in ORDERS:
        raise UserError(f'an order is one of {", ".join(ORDERS)}, not "{name}"')
    return ORDERS[name][1]


def _hit(row: sqlite3.Row, run: str, folder: Path) -> TraceHit:
    names = set(row.keys()) & TraceHit.model_fields.keys() - {"tools", "tags"}
    pairs = (one.split("\x1f") for one in (row["tools"] or "").split("\x1e") if one)
    tags = tuple(filter(None, (row["tags"] or "").split("\x1e")))
    counts = {tool: int(calls) for tool, calls in pairs}
    return TraceHit(run=run, folder=folder, tools=counts, tags=tags, **{name: row[name] for name in names})
