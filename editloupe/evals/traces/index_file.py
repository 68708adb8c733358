"""The index that traces are searched by: a SQLite file in the run's folder, brought up to date before every search.

It holds nothing that is not in the run and may be deleted at any time. A run that is being written is read as any reader
reads it; one whose folder cannot be written has its index in the user's cache, or for the moment in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from editloupe.evals.runs.store import FILE as RUN_FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.step_facts import StepFacts
from editloupe.storable import storable_text
from editloupe.types import UserError

FILE = "trace_index.sqlite"
VERSION = 1
CHUNK = 500
"""Verdicts read, and written, at a time."""
Progress = Callable[[int, int], None]
"""Told how many verdicts are indexed, and of how many."""
VERDICT = (
    "answer",
    "edit",
    "unit",
    "criterion",
    "asked",
    "repeat",
    "configuration",
    "protocol",
    "mode",
    "judge",
    "status",
    "label",
    "score",
    "score_100",
    "confidence",
    "reason",
    "steps",
    "requests",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost",
    "seconds",
    "finished_at",
)
TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE verdicts (
    answer INTEGER PRIMARY KEY, {", ".join(VERDICT[1:])}, twin INTEGER NOT NULL DEFAULT 0, UNIQUE (edit, asked, repeat)
);
CREATE INDEX verdicts_of_units ON verdicts (unit, edit);
CREATE TABLE units (unit INTEGER PRIMARY KEY, entry INTEGER NOT NULL, turns, repairs, rationale);
CREATE TABLE tool_counts (
    unit INTEGER, tool TEXT, calls, failed, cached, seconds, input_tokens, output_tokens, PRIMARY KEY (unit, tool)
) WITHOUT ROWID;
CREATE TABLE edits (
    edit INTEGER PRIMARY KEY, name, edit_id, model, content, position, instruction, instruction_type, turn, extra, human,
    rater, source, edited, crc
);
CREATE TABLE offered (tools TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE columns (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE people (edit INTEGER, criterion, protocol, label, score, place, people, PRIMARY KEY (edit, criterion, protocol))
WITHOUT ROWID;
CREATE TABLE notes (answer INTEGER PRIMARY KEY, note);
CREATE TABLE tags (answer INTEGER, tag TEXT, PRIMARY KEY (answer, tag)) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(
    thought, called, observed, replied, content='', columnsize=0, tokenize="unicode61 remove_diacritics 2"
);
"""
_FROM_RUN = ", ".join(
    {
        "answer": "answers.answer",
        "configuration": "coalesce({}, units.configuration)",
        "confidence": "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.confidence') END",
        "label": "CASE WHEN status = 'judged' THEN coalesce(label, printf('%g', score)) END",
    }.get(name, f"{'answers' if name in ('edit', 'unit', 'criterion', 'asked', 'repeat') else 'units'}.{name}")
    for name in VERDICT
)
_FIRST = (
    "(SELECT configuration FROM configurations WHERE configurations.asked = answers.asked ORDER BY configurations.rowid "
    "LIMIT 1)"
)


@contextmanager
def open_index(run: Run, progress: Progress | None = None) -> Iterator[sqlite3.Connection]:
    """Give a connection to a run's index that is as new as the run."""
    with closing(_connect(run.folder)) as index:
        _bring_up_to_date(index, run, progress)
        yield index


def _connect(folder: Path) -> sqlite3.Connection:
    problem: Exception | None = None
    for place in _places(folder):
        try:
            return _opened(place)
        except sqlite3.DatabaseError as error:
            problem = error
            if isinstance(error, sqlite3.OperationalError):
                continue
            with suppress(OSError, sqlite3.Error):  # not an index, or a damaged one: nothing in it is needed
                for name in (place, f"{place}-wal", f"{place}-shm"):
                    Path(name).unlink(missing_ok=True)
                return _opened(place)
    raise UserError(f"the traces of {folder} cannot be indexed: {problem}")


def _places(folder: Path) -> Iterator[str]:
    """Yield where the index may stand: in the run, in the user's cache, in memory."""
    if os.access(folder, os.W_OK):
        yield str(folder / FILE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "editloupe" / "traces"
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:24]
    with suppress(OSError, RuntimeError):
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield str(cache / f"{name}.sqlite")
    yield ":memory:"


def _opened(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=60)
    try:
        connection.row_factory = sqlite3.Row
        connection.create_function("folded", 1, _folded, deterministic=True)
        connection.create_function("as_number", 1, _number, deterministic=True)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # it can be made anew
        connection.execute("PRAGMA cache_size = -32000")
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            connection.execute("BEGIN IMMEDIATE")
            _empty(connection)
            connection.execute("COMMIT")
        connection.execute("SELECT count(*) FROM meta").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _empty(connection: sqlite3.Connection) -> None:
    """Make the tables anew."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION and not _meta(connection, "stale"):
        return  # another process was quicker
    shadow = "name NOT LIKE 'sqlite_%' AND name NOT LIKE 'words_%'"
    for (name,) in connection.execute(f"SELECT name FROM sqlite_master WHERE type = 'table' AND {shadow}").fetchall():
        connection.execute(f'DROP TABLE "{name}"')
    for statement in filter(str.strip, TABLES.split(";")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _meta(index: sqlite3.Connection, key: str) -> Any:
    row = index.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return json.loads(row[0]) if row else None


def remember(index: sqlite3.Connection, key: str, value: Any) -> None:
    """Keep a fact about the index."""
    index.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


recall = _meta
"""Return a fact about the index, None where there is none."""


def stamp(*files: Path) -> list[list[int] | None]:
    """Return what changes when one of the files does."""
    found: list[list[int] | None] = []
    for file in files:
        try:
            about = file.stat()
            found.append([about.st_size, about.st_mtime_ns])
        except OSError:
            found.append(None)
    return found


def _bring_up_to_date(index: sqlite3.Connection, run: Run, progress: Progress | None) -> None:
    now = stamp(run.folder / RUN_FILE, run.folder / f"{RUN_FILE}-wal")
    if _meta(index, "stamp") == now and _meta(index, "whole"):
        return
    with closing(run.reader()) as source:
        source.row_factory = sqlite3.Row
        while True:
            with _writing(index):
                _go_back(index, source, run)
                left = _take_answers(index, source, run)
                if not left:
                    _take_edits(index, source)
                    _drop_removed(index, source)
                    remember(index, "stamp", now)
                    remember(index, "whole", True)
                    remember(index, "state", int(_meta(index, "state") or 0) + 1)
                    return
            if progress is not None:
                done = index.execute("SELECT count(*) FROM verdicts").fetchone()[0]
                progress(done, source.execute("SELECT count(*) FROM answers").fetchone()[0])


@contextmanager
def _writing(index: sqlite3.Connection) -> Iterator[None]:
    index.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        index.execute("ROLLBACK")
        raise
    index.execute("COMMIT")


def _go_back(index: sqlite3.Connection, source: sqlite3.Connection, run: Run) -> None:
    """Forget what the run holds otherwise: all of another run, and answers whose numbers were given again."""
    last = _meta(index, "last")
    if last is None:
        return
    if _meta(index, "run") != _identity(run):
        remember(index, "stale", True)
        _empty(index)
        return
    rows = "SELECT answers.answer, answers.edit, answers.unit, finished_at FROM answers JOIN units USING (unit) {}"
    found = source.execute(rows.format("WHERE answers.answer = ?"), (last[0],)).fetchone()
    if found is not None and list(found) == last:
        return
    there = {row[0]: tuple(row) for row in source.execute(rows.format("WHERE answers.answer <= ?"), (last[0],))}
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


def _take_answers(index: sqlite3.Connection, source: sqlite3.Connection, run: Run) -> bool:
    """Read the next verdicts; False where there are no further ones."""
    last = _meta(index, "last") or [0]
    query = (
        f"SELECT {_FROM_RUN.format(_FIRST)}, CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.rationale') END "
        "AS rationale, CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.raw') END AS raw "
        "FROM answers CROSS JOIN units ON units.unit = answers.unit WHERE {}"
    )
    fresh = query.format("answers.answer > ? ORDER BY answers.answer LIMIT ?")
    rows = source.execute(fresh, (last[0], CHUNK)).fetchall()
    if not rows:
        return False
    units = {int(row["unit"]): row for row in rows}
    marks = ", ".join("?" * len(units))
    # A unit that was judged again says something else of every edit it answers.
    other = query.format(f"answers.unit IN ({marks}) AND answers.answer <= ?")
    before = source.execute(other, (*units, last[0])).fetchall() if last[0] else []
    index.executemany(
        f"INSERT OR REPLACE INTO verdicts ({', '.join(VERDICT)}) VALUES ({', '.join('?' * len(VERDICT))})",
        [tuple(_plain(value) for value in tuple(row)[: len(VERDICT)]) for row in (*before, *rows)],
    )
    facts = _facts(source, run, list(units))
    entry = int(_meta(index, "entry") or 0)
    for unit, row in units.items():
        entry += 1
        found = facts[unit]
        if row["raw"]:
            found.words["replied"].append(str(row["raw"]))
        index.execute("DELETE FROM tool_counts WHERE unit = ?", (unit,))
        index.executemany(
            "INSERT INTO tool_counts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(unit, *count) for count in found.counts()]
        )
        told = (unit, entry, found.turns, found.repairs, _plain(row["rationale"]))
        index.execute("INSERT OR REPLACE INTO units VALUES (?, ?, ?, ?, ?)", told)
        texts = tuple(map(storable_text, found.texts()))
        index.execute(
            "INSERT INTO words (rowid, thought, called, observed, replied) VALUES (?, ?, ?, ?, ?)", (entry, *texts)
        )
    _mark_twins(index, units)
    offered = (
        "SELECT DISTINCT json_extract(head, '$.tools') FROM traces WHERE unit IN ({}) AND json_valid(head) "
        "AND json_extract(head, '$.tools') IS NOT NULL"
    )
    index.executemany(
        "INSERT OR IGNORE INTO offered VALUES (?)",
        [tuple(row) for row in source.execute(offered.format(marks), list(units))],
    )
    remember(index, "entry", entry)
    remember(index, "last", [rows[-1][name] for name in ("answer", "edit", "unit", "finished_at")])
    remember(index, "run", _identity(run))
    remember(index, "whole", False)
    return True


def _facts(source: sqlite3.Connection, run: Run, units: Sequence[int]) -> dict[int, StepFacts]:
    found = {unit: StepFacts() for unit in units}
    query = (
        "SELECT traces.unit AS unit, steps.position AS position, steps.step AS step FROM traces JOIN steps "
        f"ON steps.trace = traces.trace WHERE traces.unit IN ({', '.join('?' * len(units))}) ORDER BY steps.trace, position"
    )
    for unit, position, step in source.execute(query, units):
        with run.damage.reading("steps", f"verdict {unit}, step {position}"):
            found[unit].add(step)
    return found


def _mark_twins(index: sqlite3.Connection, units: Iterable[int]) -> None:
    """Mark verdicts that answer a second question of their edit: each is found once."""
    index.executemany(
        "UPDATE verdicts SET twin = EXISTS (SELECT 1 FROM verdicts AS first WHERE first.unit = verdicts.unit "
        "AND first.edit = verdicts.edit AND first.repeat = verdicts.repeat AND first.answer < verdicts.answer) WHERE unit = ?",
        [(unit,) for unit in units],
    )


def _take_edits(index: sqlite3.Connection, source: sqlite3.Connection) -> None:
    """Read the edits that are new or say something else than before."""
    known = dict(index.execute("SELECT edit, crc FROM edits").fetchall())
    columns: set[str] = set()
    rows = source.execute("SELECT edit, name, edit_id, model, content, position, facts, pictures FROM edits")
    while some := rows.fetchmany(CHUNK):
        fresh = []
        for row in some:
            mark = crc32(repr(tuple(row)).encode("utf-8", "replace"))
            if known.pop(row["edit"], None) != mark:
                fresh.append((*_edit(row, columns), mark))
        index.executemany(f"INSERT OR REPLACE INTO edits VALUES ({', '.join('?' * 15)})", fresh)
    index.executemany("DELETE FROM edits WHERE edit = ?", [(edit,) for edit in known])
    index.executemany("INSERT OR IGNORE INTO columns VALUES (?)", [(storable_text(name),) for name in columns])


def _edit(row: sqlite3.Row, columns: set[str]) -> tuple[Any, ...]:
    """Return an edit's row; one whose record is damaged keeps its place."""
    try:
        facts: dict[str, Any] = json.loads(row["facts"])
        extra = dict(facts.get("extra") or {})
        human = {name: [said] if isinstance(said, str) else said for name, said in (facts.get("human") or {}).items()}
        pictures = {role: shas[0] for role, shas in json.loads(row["pictures"]).items() if shas}
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        facts, extra, human, pictures = {}, {}, {}, {}
    columns.update(map(str, extra))
    if facts.get("hint") is not None:
        extra.setdefault("hint", facts["hint"])
        columns.add("hint")
    rater = extra.get("rater", extra.get("annotator"))
    about = [row[name] for name in ("edit", "name", "edit_id", "model", "content", "position")]
    texts = [_plain(facts.get(name)) for name in ("instruction", "instruction_type", "turn")]
    kept = [json.dumps(extra), json.dumps(human), None if rater is None else str(rater)]
    return (*about, *texts, *map(_plain, kept), _plain(pictures.get("source")), _plain(pictures.get("edited")))


def _drop_removed(index: sqlite3.Connection, source: sqlite3.Connection) -> None:
    """Leave out what the run no longer holds."""
    counted = "SELECT count(*) FROM {}"
    here = index.execute(counted.format("verdicts")).fetchone()[0]
    if here == source.execute(counted.format("answers")).fetchone()[0]:
        return
    there = {row[0] for row in source.execute("SELECT answer FROM answers")}
    gone = [(row[0],) for row in index.execute("SELECT answer FROM verdicts") if row[0] not in there]
    index.executemany("DELETE FROM verdicts WHERE answer = ?", gone)


def _plain(value: Any) -> Any:
    """Return what SQLite takes."""
    if value is None or isinstance(value, (int, float)):
        return value
    return storable_text(value if isinstance(value, str) else str(value))


def _folded(value: Any) -> str | None:
    return None if value is None else str(value).casefold()


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
