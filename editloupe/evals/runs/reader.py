"""Queries on a run's tables. SQL of the run schema is written in this package only."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from editloupe._util.json_safe import sanitize_text
from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.configurations import Configuration
from editloupe.evals.runs.damage import iter_rows
from editloupe.evals.runs.edit_rows import EditRecord, find_edit_records
from editloupe.judge.question_key import QuestionKey

AT_ONCE = 2000
"""Units fetched at a time."""
OF_CONFIGURATION = "asked IN (SELECT asked FROM configurations WHERE configuration = ?)"

_OUTCOME_FIELD = "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.{}') END"
_NUMBERS = ("score", "score_100", "cost")
_COUNTS = ("repeat", "requests", "input_tokens", "output_tokens")
_TEXTS = ("criterion", "protocol", "mode", "judge")
_FITS = " AND ".join(
    (
        "json_extract(outcome, '$.status') IS status",
        "json_extract(outcome, '$.criterion') IS criterion",
        "status IN ('judged', 'unjudged')",
        *(f"typeof({name}) IN ('real', 'integer', 'null')" for name in _NUMBERS),
        *(f"typeof({name}) = 'integer'" for name in _COUNTS),
        "typeof(seconds) IN ('real', 'integer')",
        *(f"typeof({name}) = 'text'" for name in _TEXTS),
    )
)
_DAMAGED = (
    f"CASE WHEN CASE WHEN json_valid(outcome) THEN {_FITS} ELSE 0 END THEN NULL "
    "ELSE coalesce(name, '?') || ', ' || coalesce(criterion, '?') END"
)
"""Names a damaged row: its outcome is unreadable or of another unit, or a value has another type."""
_COLUMNS = {
    "edit": "name",
    "damaged": _DAMAGED,
    "number": "unit",
    "confidence": (
        "CASE WHEN json_valid(outcome) AND json_type(outcome, '$.confidence') IN ('real', 'integer') "
        "THEN json_extract(outcome, '$.confidence') END"
    ),
    "served": _OUTCOME_FIELD.format("served"),
}


class AnswerMark(NamedTuple):
    """Identifies an answer and the state of its unit."""

    answer: int
    edit: int
    unit: int
    finished_at: str


class VerdictRecord(NamedTuple):
    """An answer with columns of its unit, as the index of a run stores it.

    A damaged number is None, a damaged count 0, a damaged text a question mark.
    """

    answer: int
    edit: int
    unit: int
    criterion: str
    asked: str
    repeat: int
    configuration: str | None
    """The first configuration that asks the question."""
    protocol: str
    mode: str
    judge: str
    status: str
    label: str | None
    """The label, or the score as text."""
    score: float | None
    score_100: float | None
    confidence: float | None
    reason: str | None
    steps: int
    requests: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None
    seconds: float
    finished_at: str

    @property
    def mark(self) -> AnswerMark:
        """What identifies the answer."""
        return AnswerMark(self.answer, self.edit, self.unit, self.finished_at)


class StepEffort(NamedTuple):
    """Time and observations of one step of a judged unit."""

    edit_id: str
    model: str | None
    criterion: str
    seconds: float | None
    observations: int
    cached: int
    """Observations that came from the cache of tool results."""
    observed_seconds: float


_TOTALS = (
    "steps",
    "requests",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "seconds",
)
_ANSWER_COLUMNS = frozenset({"answer", "edit", "unit", "criterion", "asked", "repeat"})
_SPECIAL_COLUMNS = {
    "configuration": (
        "coalesce((SELECT configuration FROM configurations WHERE configurations.asked = answers.asked "
        "ORDER BY configurations.rowid LIMIT 1), units.configuration)"
    ),
    "label": (
        "CASE WHEN status = 'judged' THEN "
        "coalesce(label, CASE WHEN typeof(score) IN ('real', 'integer') THEN printf('%g', score) END) END"
    ),
    "confidence": _COLUMNS["confidence"],
    **{
        name: f"CASE WHEN typeof({name}) IN ('real', 'integer') THEN {name}{otherwise} END"
        for names, otherwise in ((("score", "score_100", "cost"), ""), (_TOTALS, " ELSE 0"))
        for name in names
    },
    **{
        name: "CASE WHEN typeof({0}.{1}) = 'text' THEN {0}.{1} ELSE '?' END".format(
            "answers" if name in _ANSWER_COLUMNS else "units", name
        )
        for name in (*_TEXTS, "status")
    },
}
_VERDICT_RECORDS = "SELECT {} FROM answers CROSS JOIN units ON units.unit = answers.unit".format(
    ", ".join(
        _SPECIAL_COLUMNS.get(name, f"{'answers' if name in _ANSWER_COLUMNS else 'units'}.{name}")
        for name in VerdictRecord._fields
    )
)
_MARKS = "SELECT answers.answer, answers.edit, answers.unit, finished_at FROM answers JOIN units USING (unit)"
_EDIT_RECORDS = f"SELECT {', '.join(EditRecord._fields[:-1])} FROM edits"  # without `files"


class RunReader:
    """Reads a run over a connection of its own, also while another process writes it. Used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        """For the modules of this package only."""

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Run all queries of the block on one state of the file, even if another process commits meanwhile.

        A reader that remembers how far it has read must read the rows and the position in one snapshot.
        """
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")  # nothing was written

    def data_version(self) -> int:
        """Return a number that changes when another connection has written."""
        return int(self._value("PRAGMA data_version"))

    # Configurations and questions

    def configurations(self, protocol: str | None = None) -> list[Configuration]:
        """Return the configurations with answers in the order of first use; all, or those of a protocol."""
        return configurations.list_configurations(self.connection, protocol)

    def find_configuration(self, name: str) -> Configuration | None:
        """Return a configuration by its whole name; None if it has answered nothing. Its units are not counted."""
        query = f"SELECT judge, mode, protocol FROM verdicts WHERE {OF_CONFIGURATION} LIMIT 1"
        row = self.connection.execute(query, (name,)).fetchone()
        return Configuration(name, str(row[0]), str(row[1]), str(row[2]), units=0) if row else None

    def questions_by_configuration(self) -> list[tuple[str, str]]:
        """Return pairs of a configuration's name and the key of a question it asks."""
        return list(self.connection.execute("SELECT configuration, asked FROM configurations"))

    def question_facts(self, key: str) -> dict[str, Any]:
        """Return the facts of a question by its key; empty if the run does not know it or they cannot be read."""
        row = self.connection.execute("SELECT facts FROM asked WHERE asked = ?", (key,)).fetchone()
        try:
            return dict(json.loads(row[0])) if row else {}
        except (ValueError, TypeError, RecursionError):
            return {}

    # Edits

    def edit_records(self, edits: Sequence[int] | None = None) -> Iterator[EditRecord]:
        """Yield the rows of all edits, or of those with these numbers."""
        query, numbers = (
            (_EDIT_RECORDS, ()) if edits is None else (f"{_EDIT_RECORDS} WHERE edit IN ({_marks(edits)})", edits)
        )
        yield from starmap(EditRecord, iter_rows(self.connection.execute(query, numbers)))

    def holds_edit(self, name: str) -> bool:
        """True if an edit has this name or id."""
        query = "SELECT 1 FROM edits WHERE name = :name OR edit_id = :name"
        return self.connection.execute(query, {"name": sanitize_text(name)}).fetchone() is not None

    def edits_with_id(self, edit_id: str) -> list[EditRecord]:
        """Return everything the run holds under an id: one row per model and content."""
        return find_edit_records(self.connection, edit_id)

    def names_with_id(self, edit_id: str) -> list[str]:
        """Return the names of the edits that share an id, in the manifest's order."""
        query = "SELECT name FROM edits WHERE edit_id = ? ORDER BY position"
        return [str(name) for (name,) in self.connection.execute(query, (edit_id,))]

    def names_judged_by(self, configuration: str) -> set[str]:
        """Return the names of the edits that a configuration has answered."""
        query = f"SELECT name FROM edits WHERE edit IN (SELECT edit FROM answers WHERE {OF_CONFIGURATION})"
        return {str(name) for (name,) in self.connection.execute(query, (configuration,))}

    def edits_after(self, edit: int) -> list[int]:
        """Return the numbers of the edits that were added after one."""
        return [number for (number,) in self.connection.execute("SELECT edit FROM edits WHERE edit > ?", (edit,))]

    def last_edit(self) -> int:
        """Return the highest number of an edit, 0 if there is none."""
        return int(self._value("SELECT coalesce(max(edit), 0) FROM edits"))

    # Answers and units

    def last_answer(self) -> int:
        """Return the highest number of an answer, 0 if there is none; an answer that changes gets a new, higher number."""
        return int(self._value("SELECT coalesce(max(answer), 0) FROM answers"))

    def count_answers(self, after: int = 0) -> int:
        """Return how many answers have a higher number than this."""
        return int(self._value("SELECT count(*) FROM answers WHERE answer > ?", after))

    def answer_numbers(self) -> set[int]:
        """Return the numbers of all answers."""
        return {number for (number,) in iter_rows(self.connection.execute("SELECT answer FROM answers"))}

    def answer_mark(self, answer: int) -> AnswerMark | None:
        """Return what identifies an answer; None if there is none with this number."""
        row = self.connection.execute(f"{_MARKS} WHERE answers.answer = ?", (answer,)).fetchone()
        return AnswerMark._make(row) if row else None

    def answer_marks(self, last: int) -> Iterator[AnswerMark]:
        """Yield what identifies the answers up to a number."""
        rows = iter_rows(self.connection.execute(f"{_MARKS} WHERE answers.answer <= ?", (last,)))
        yield from map(AnswerMark._make, rows)

    def verdict_records(self, after: int, limit: int) -> list[VerdictRecord]:
        """Return the next answers after a number, at most `limit`."""
        query = f"{_VERDICT_RECORDS} WHERE answers.answer > ? ORDER BY answers.answer LIMIT ?"
        return [VerdictRecord._make(row) for row in self.connection.execute(query, (after, limit))]

    def verdict_records_of(self, units: Sequence[int], last: int) -> list[VerdictRecord]:
        """Return the answers by these units up to a number."""
        query = f"{_VERDICT_RECORDS} WHERE answers.unit IN ({_marks(units)}) AND answers.answer <= ?"
        return [VerdictRecord._make(row) for row in self.connection.execute(query, (*units, last))]

    def unit_texts(self, units: Sequence[int]) -> Iterator[tuple[int, str | None, str | None]]:
        """Yield the number, the rationale and, if the outcome contains it, the raw reply of units."""
        fields = ", ".join(_OUTCOME_FIELD.format(name) for name in ("rationale", "raw"))
        yield from self.connection.execute(f"SELECT unit, {fields} FROM units WHERE unit IN ({_marks(units)})", units)

    def unit_columns(self, configuration: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the units of a configuration in the manifest's order, many at a time.

        Args:
            configuration: The configuration's whole name.
            columns: Columns of the view `verdicts`; or `edit` (its name), `number` (the unit's), `confidence`, `served`,
                and `damaged`, which is None if the row is as it was written and else names it.
        """
        query = (
            f"SELECT {', '.join(_COLUMNS.get(name, name) for name in columns)} FROM verdicts WHERE {OF_CONFIGURATION} "
            "ORDER BY position, edit_id, name, criterion, repeat, asked"
        )
        cursor = self.connection.execute(query, (configuration,))
        while rows := cursor.fetchmany(AT_ONCE):
            yield rows

    def outcome_texts(self, first: int, last: int) -> dict[int, str]:
        """Return the outcomes of the units in a range of numbers, as JSON."""
        query = "SELECT unit, outcome FROM units WHERE unit BETWEEN ? AND ?"
        return dict(self.connection.execute(query, (first, last)).fetchall())

    def next_repeat(self, question: QuestionKey) -> int:
        """Return the number of the first repeat after those that answer a question."""
        query = "SELECT coalesce(max(repeat) + 1, 0) FROM units WHERE shown = ? AND asked = ?"
        return int(self._value(query, question.shown, question.asked))

    def count_served(self, configuration: str) -> dict[str, int]:
        """Return how many verdicts of a configuration have each record of what served them, as JSON."""
        served = _OUTCOME_FIELD.format("served")
        query = (
            f"SELECT {served} AS served, count(*) FROM verdicts WHERE {OF_CONFIGURATION} "
            "GROUP BY served HAVING served IS NOT NULL"
        )
        return {str(text): int(count) for text, count in self.connection.execute(query, (configuration,))}

    # Traces

    def steps_of(self, units: Sequence[int]) -> Iterator[tuple[int, int, str]]:
        """Yield the steps of units: the unit, the position in its trace, and the step as JSON."""
        query = (
            "SELECT traces.unit, steps.position, steps.step FROM traces JOIN steps ON steps.trace = traces.trace "
            f"WHERE traces.unit IN ({_marks(units)}) ORDER BY steps.trace, steps.position"
        )
        yield from self.connection.execute(query, units)

    def tools_offered(self, units: Sequence[int]) -> list[str]:
        """Return the distinct lists of tools that were offered in the traces of units, as JSON."""
        query = (
            f"SELECT DISTINCT json_extract(head, '$.tools') FROM traces WHERE unit IN ({_marks(units)}) "
            "AND json_valid(head) AND json_extract(head, '$.tools') IS NOT NULL"
        )
        return [tools for (tools,) in self.connection.execute(query, units)]

    def step_efforts(self, configuration: str) -> Iterator[StepEffort]:
        """Yield what each step of a configuration's judged units took."""
        step = "CASE WHEN json_valid(steps.step) THEN steps.step ELSE '{}' END"
        seen = f"FROM json_each({step}, '$.observations') AS seen"
        query = f"""
            SELECT verdicts.edit_id, verdicts.model, verdicts.criterion, steps.seconds,
                (SELECT count(*) {seen}),
                (SELECT count(*) {seen} WHERE json_extract(seen.value, '$.cached')),
                (SELECT total(json_extract(seen.value, '$.seconds')) {seen})
            FROM verdicts JOIN traces ON traces.unit = verdicts.unit JOIN steps ON steps.trace = traces.trace
            WHERE verdicts.{OF_CONFIGURATION} AND verdicts.status = 'judged'
        """
        yield from map(StepEffort._make, self.connection.execute(query, (configuration,)))

    # Forks

    def count_forks(self, identity: str | None = None) -> int:
        """Return how many forks the run holds, all or of one identity."""
        where, values = ("", ()) if identity is None else (" WHERE identity = ?", (identity,))
        return sum(count for (count,) in self._forks(f"SELECT count(*) FROM forks{where}", values))

    def fork_records(self, edit: str | None = None, number: str | None = None) -> list[tuple[int, str]]:
        """Return the number and the JSON record of forks in order, of all edits or of one by its name or id."""
        tests: dict[str, tuple[str, ...]] = {}
        if edit is not None:
            tests["(name = ? OR edit_id = ?)"] = (sanitize_text(edit),) * 2
        if number is not None:
            tests["fork = ?"] = (number,)
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        values = tuple(value for several in tests.values() for value in several)
        return self._forks(f"SELECT fork, record FROM forks{where} ORDER BY fork", values)

    def fork_facts(self, facts: Sequence[str], equal: Mapping[str, str]) -> list[tuple[Any, ...]]:
        """Return number, name, criterion, identity and the facts of forks, in order.

        Args:
            facts: Places in the JSON record, such as `outcome.label`.
            equal: Columns and the value each must have.
        """
        extracted = ", ".join(f"json_extract(record, '$.{fact}')" for fact in facts)
        tests = " AND ".join(("json_valid(record)", *(f"{column} = ?" for column in equal)))
        query = f"SELECT fork, name, criterion, identity, {extracted} FROM forks WHERE {tests} ORDER BY fork"
        return self._forks(query, tuple(equal.values()))

    def _forks(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self.connection.execute(schema.FORKS_THERE).fetchone() is None:
            return []
        return list(self.connection.execute(query, values).fetchall())

    def _value(self, query: str, *values: Any) -> Any:
        return self.connection.execute(query, values).fetchone()[0]


def open_reader(file: Path) -> RunReader:
    """Open a reader of a run's SQLite file."""
    return RunReader(schema.connect_to_read(file))


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
