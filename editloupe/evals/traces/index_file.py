"""The index that traces are searched by: a SQLite file in the run's folder, brought up to date before every search.

It holds nothing that is not in the run and may be deleted at any time. A run that is being written is read as any reader
reads it; one whose folder cannot be written has its index in the user's cache, or for the moment in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any
from zlib import crc32

from editloupe._util.json_safe import storable_text
from editloupe.evals.runs.damage import UNREADABLE
from editloupe.evals.runs.edit_rows import EditRecord
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.run_folder import FILE as RUN_FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.index_store import VERDICT, connect, make_tables, recall, remember, stamp
from editloupe.evals.traces.step_facts import StepFacts

CHUNK = 500
"""Verdicts read, and written, at a time."""
Progress = Callable[[int, int], None]
"""Told how many verdicts are indexed, and of how many."""


@contextmanager
def open_index(run: Run, progress: Progress | None = None) -> Iterator[sqlite3.Connection]:
    """Give a connection to a run's index that is as new as the run."""
    with closing(connect(run.folder, lambda index: _bring_up_to_date(index, run, progress))) as index:
        for (place,) in index.execute("SELECT place FROM lost ORDER BY unit, place"):
            run.damage.add("steps", place)
        yield index


def behind(run: Run) -> int:
    """Return how many verdicts the index of a run has yet to take in."""
    with closing(connect(run.folder, lambda _: None)) as index, run.reader() as source:
        last = recall(index, "last") or [0]
        return source.count_answers(after=last[0])


def _bring_up_to_date(index: sqlite3.Connection, run: Run, progress: Progress | None) -> None:
    now = stamp(run.folder / RUN_FILE, run.folder / f"{RUN_FILE}-wal")
    if recall(index, "stamp") == now and recall(index, "whole"):
        return
    with run.reader() as source:
        while True:
            with _writing(index), source.snapshot():
                _go_back(index, source, run)
                left = _take_answers(index, source, run)
                if not left:
                    _take_edits(index, source)
                    _drop_removed(index, source)
                    remember(index, "stamp", now)
                    remember(index, "whole", True)
                    remember(index, "state", int(recall(index, "state") or 0) + 1)
                    return
            if progress is not None:
                done = index.execute("SELECT count(*) FROM verdicts").fetchone()[0]
                progress(done, source.count_answers())


@contextmanager
def _writing(index: sqlite3.Connection) -> Iterator[None]:
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if index.in_transaction:  # a full disk has ended it already
            index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


def _go_back(index: sqlite3.Connection, source: RunReader, run: Run) -> None:
    """Forget what the run holds otherwise: all of another run, and answers whose numbers were given again."""
    last = recall(index, "last")
    if last is None:
        return
    if recall(index, "run") != _identity(run):
        remember(index, "stale", True)
        make_tables(index)
        return
    mark = source.answer_mark(last[0])
    if mark is not None and list(mark) == last:
        return
    there = {mark.answer: tuple(mark) for mark in source.answer_marks(last[0])}
    same = [0, 0, 0, ""]
    for row in index.execute("SELECT answer, edit, unit, finished_at FROM verdicts ORDER BY answer"):
        if row[0] in there and there[row[0]] != tuple(row):
            break
        same = list(row)
    index.execute("DELETE FROM verdicts WHERE answer > ?", (same[0],))
    remember(index, "last", same)


def _identity(run: Run) -> list[Any]:
    about = run.about()
    return [about.get("schema"), about.get("created")]


def _take_answers(index: sqlite3.Connection, source: RunReader, run: Run) -> bool:
    """Read the next verdicts; False where there are no further ones."""
    last = recall(index, "last") or [0]
    rows = source.verdict_records(last[0], CHUNK)
    if not rows:
        return False
    units = {int(row.unit): row for row in rows}
    # A unit that was judged again says something else of every edit it answers.
    before = source.verdict_records_of(list(units), last[0]) if last[0] else []
    index.executemany(
        f"INSERT OR REPLACE INTO verdicts ({', '.join(VERDICT)}) VALUES ({', '.join('?' * len(VERDICT))})",
        [tuple(_plain(value) for value in row[: len(VERDICT)]) for row in (*before, *rows)],
    )
    facts = _facts(source, list(units))
    for unit, row in units.items():
        if row.raw:
            facts[unit].words["replied"].append(str(row.raw))
    _put_facts(index, facts, {unit: _plain(row.rationale) for unit, row in units.items()})
    _mark_twins(index, units)
    offered = [(tools,) for tools in source.tools_offered(list(units))]
    index.executemany("INSERT OR IGNORE INTO offered VALUES (?)", offered)
    remember(index, "last", list(rows[-1].mark))
    remember(index, "run", _identity(run))
    remember(index, "whole", False)
    return True


def _put_facts(index: sqlite3.Connection, facts: Mapping[int, StepFacts], rationales: Mapping[int, str | None]) -> None:
    """Write what traces amount to; words of a verdict that is given again get a new entry, and nobody points to the old one."""
    first = int(recall(index, "entry") or 0) + 1
    entries = dict(zip(facts, range(first, first + len(facts)), strict=True))
    for table in ("tool_counts", "lost"):
        index.executemany(f"DELETE FROM {table} WHERE unit = ?", [(unit,) for unit in facts])
    index.executemany(
        "INSERT INTO tool_counts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(unit, *count) for unit, found in facts.items() for count in found.counts()],
    )
    index.executemany(
        "INSERT OR IGNORE INTO lost VALUES (?, ?)",
        [(unit, f"verdict {unit}, step {place + 1}") for unit, found in facts.items() for place in found.lost],
    )
    index.executemany(
        "INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?, ?)",
        [(unit, entries[unit], one.turns, one.repairs, rationales[unit]) for unit, one in facts.items()],
    )
    index.executemany(
        "INSERT INTO words (rowid, thought, called, observed, replied) VALUES (?, ?, ?, ?, ?)",
        [(entries[unit], *map(storable_text, found.texts())) for unit, found in facts.items()],
    )
    remember(index, "entry", first + len(facts) - 1)


def _facts(source: RunReader, units: Sequence[int]) -> dict[int, StepFacts]:
    found = {unit: StepFacts() for unit in units}
    for unit, position, step in source.steps_of(units):
        try:
            found[unit].add(step)
        except UNREADABLE:
            found[unit].lost.append(position)
    return found


def _mark_twins(index: sqlite3.Connection, units: Iterable[int]) -> None:
    """Mark verdicts that answer a second question of their edit: each is found once."""
    index.executemany(
        "UPDATE verdicts SET twin = EXISTS (SELECT 1 FROM verdicts AS first WHERE first.unit = verdicts.unit "
        "AND first.edit = verdicts.edit AND first.repeat = verdicts.repeat AND first.answer < verdicts.answer) WHERE unit = ?",
        [(unit,) for unit in units],
    )


def _take_edits(index: sqlite3.Connection, source: RunReader) -> None:
    """Read the edits that are new or say something else than before."""
    known = dict(index.execute("SELECT edit, crc FROM edits").fetchall())
    columns: set[str] = set()
    rows = source.edit_records()
    while some := list(islice(rows, CHUNK)):
        fresh = []
        for row in some:
            mark = crc32(repr(tuple(row)).encode("utf-8", "replace"))
            if known.pop(row.edit, None) != mark:
                fresh.append((*_edit(row, columns), mark))
        index.executemany(f"INSERT OR REPLACE INTO edits VALUES ({', '.join('?' * 15)})", fresh)
    index.executemany("DELETE FROM edits WHERE edit = ?", [(edit,) for edit in known])
    index.executemany("INSERT OR IGNORE INTO columns VALUES (?)", [(storable_text(name),) for name in columns])


def _edit(row: EditRecord, columns: set[str]) -> tuple[Any, ...]:
    """Return an edit's row; one whose record is damaged keeps its place."""
    try:
        facts: dict[str, Any] = json.loads(row.facts)
        extra = dict(facts.get("extra") or {})
        human = {name: [said] if isinstance(said, str) else said for name, said in (facts.get("human") or {}).items()}
        pictures = {role: shas[0] for role, shas in json.loads(row.pictures).items() if shas}
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        facts, extra, human, pictures = {}, {}, {}, {}
    columns.update(map(str, extra))
    if facts.get("hint") is not None:
        extra.setdefault("hint", facts["hint"])
        columns.add("hint")
    rater = extra.get("rater", extra.get("annotator"))
    about = (row.edit, row.name, row.edit_id, row.model, row.content, row.position)
    texts = [_plain(facts.get(name)) for name in ("instruction", "instruction_type", "turn")]
    kept = [json.dumps(extra), json.dumps(human), None if rater is None else str(rater)]
    return (*about, *texts, *map(_plain, kept), _plain(pictures.get("source")), _plain(pictures.get("edited")))


def _drop_removed(index: sqlite3.Connection, source: RunReader) -> None:
    """Leave out what the run no longer holds."""
    here = index.execute("SELECT count(*) FROM verdicts").fetchone()[0]
    if here == source.count_answers():
        return
    there = source.answer_numbers()
    gone = [(row[0],) for row in index.execute("SELECT answer FROM verdicts") if row[0] not in there]
    index.executemany("DELETE FROM verdicts WHERE answer = ?", gone)


def _plain(value: Any) -> Any:
    """Return what SQLite takes."""
    if value is None or isinstance(value, (int, float)):
        return value
    return storable_text(value if isinstance(value, str) else str(value))
