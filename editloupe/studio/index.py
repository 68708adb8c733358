"""The rows a run's table is drawn from: one an edit, in memory, brought up to date from the run's file as it grows."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from editloupe.evals.runs.store import Run
from editloupe.studio.damage import readable
from editloupe.studio.human_labels import consensus, rubric_of
from editloupe.studio.labels import LabelBook

TABLES = """
CREATE TABLE edits (
    edit_id TEXT PRIMARY KEY, position INTEGER NOT NULL, type TEXT, model TEXT, instruction TEXT NOT NULL,
    search_text TEXT NOT NULL, source TEXT, edited TEXT, human TEXT NOT NULL
);
CREATE INDEX edits_in_order ON edits (position, edit_id);
CREATE INDEX edits_by_type ON edits (type, position, edit_id);
CREATE TABLE cells (
    edit_id TEXT NOT NULL, criterion TEXT NOT NULL, protocol TEXT NOT NULL, status TEXT NOT NULL, label TEXT,
    score REAL, place REAL, confidence REAL, reason TEXT, repeats INTEGER NOT NULL, differ INTEGER NOT NULL,
    steps INTEGER NOT NULL, seconds REAL NOT NULL, cost REAL, PRIMARY KEY (edit_id, criterion)
) WITHOUT ROWID;
CREATE TABLE people (
    edit_id TEXT NOT NULL, criterion TEXT NOT NULL, label TEXT NOT NULL, score REAL NOT NULL, place REAL NOT NULL,
    count INTEGER NOT NULL, PRIMARY KEY (edit_id, criterion)
) WITHOUT ROWID;
"""
_UNITS = (
    "SELECT name AS edit_id, criterion, protocol, status, label, score, score_100, reason, steps, seconds, cost, "
    "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.confidence') END AS confidence FROM verdicts"
)
_CHUNK = 500


class RunIndex:
    """An in-memory copy of what the table shows; `reading` gives a connection that is up to date."""

    def __init__(self, run: Run, labels: LabelBook, name: str = "") -> None:
        self._run = run
        self._name = name or run.folder.name
        self._labels = labels
        self._lock = threading.RLock()
        self._rows = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._rows.row_factory = sqlite3.Row
        self._rows.executescript(TABLES)
        self._source: sqlite3.Connection | None = None
        self._seen = -1
        self._last_answer = self._last_edit = 0
        self._labelled = -1

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the rows as they are at this moment; a run that cannot be read raises RunDamaged."""
        with self._lock:
            with readable(self._name):
                self._refresh()
            yield self._rows

    def state(self) -> tuple[int, int]:
        """Return something that differs whenever the run or its labels have changed."""
        with self._lock, readable(self._name):
            self._refresh()
            return self._seen, self._labelled

    def close(self) -> None:
        """Let go of the run's file."""
        with self._lock:
            if self._source:
                self._source.close()
            self._rows.close()

    def _refresh(self) -> None:
        if self._source is None:
            self._source = self._run.reader()
            self._source.row_factory = sqlite3.Row
        version = self._source.execute("PRAGMA data_version").fetchone()[0]
        changed: set[str] | None = set()
        if self._seen != version:
            self._rows.execute("BEGIN")
            try:
                changed = self._take_new(self._source)
            except BaseException:
                self._rows.execute("ROLLBACK")
                raise
            self._rows.execute("COMMIT")
        self._seen = version
        self._labels.annotators()  # reads the file anew where it has changed
        if self._labelled != self._labels.version:
            changed = None
        if changed is None or changed:
            self._take_people(changed)
        self._labelled = self._labels.version

    def _take_new(self, source: sqlite3.Connection) -> set[str]:
        """Read what came since the last time; a unit that is judged again gets a new, higher row number."""
        query = "SELECT DISTINCT name FROM answers JOIN edits USING (edit) WHERE answer >= ?"
        fresh = source.execute(query, (self._last_answer,)).fetchall()
        added = source.execute("SELECT name FROM edits WHERE edit > ?", (self._last_edit,)).fetchall()
        changed = {row["name"] for row in (*fresh, *added)}
        for some in _chunks(sorted(changed)):
            marks = ", ".join("?" * len(some))
            self._rows.executemany(
                f"INSERT OR REPLACE INTO edits VALUES ({', '.join('?' * 9)})",
                [_edit(row) for row in source.execute(f"SELECT * FROM edits WHERE name IN ({marks})", some)],
            )
            by_cell: dict[tuple[str, str], list[sqlite3.Row]] = {}
            for row in source.execute(f"{_UNITS} WHERE name IN ({marks}) ORDER BY repeat", some):
                by_cell.setdefault((row["edit_id"], row["criterion"]), []).append(row)
            self._rows.executemany(
                f"INSERT OR REPLACE INTO cells VALUES ({', '.join('?' * 14)})",
                [_cell(units) for units in by_cell.values()],
            )
        self._last_answer = source.execute("SELECT coalesce(max(answer), 0) FROM answers").fetchone()[0]
        self._last_edit = source.execute("SELECT coalesce(max(edit), 0) FROM edits").fetchone()[0]
        return changed

    def _take_people(self, changed: set[str] | None) -> None:
        """Work out what people say, of all edits or of some; labels given in the studio come before the manifest's."""
        given: dict[str, dict[str, Iterable[str]]] = {}
        for (edit_id, criterion), labels in self._labels.labels().items():
            given.setdefault(edit_id, {})[criterion] = labels.values()
        wanted: list[str] = (
            [row["edit_id"] for row in self._rows.execute("SELECT edit_id FROM edits")]
            if changed is None
            else [*changed]
        )
        for some in _chunks(wanted):
            marks = ", ".join("?" * len(some))
            self._rows.execute(f"DELETE FROM people WHERE edit_id IN ({marks})", some)
            human = self._rows.execute(
                "SELECT edits.edit_id, criterion, protocol, human FROM edits JOIN cells USING (edit_id) "
                f"WHERE edit_id IN ({marks})",
                some,
            ).fetchall()
            rows = [_people(row, given.get(row["edit_id"], {})) for row in human]
            self._rows.executemany(
                "INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?, ?)", [row for row in rows if row is not None]
            )


def _edit(row: sqlite3.Row) -> tuple[Any, ...]:
    """Return an edit's row; read as plain JSON, for thousands of them are read before the first page.

    An edit whose record is damaged keeps its place in the table and says so.
    """
    try:
        edit: dict[str, Any] = json.loads(row["facts"])
        instruction, kind, model = (_plain(edit.get(name)) for name in ("instruction", "instruction_type", "model"))
        pictures = json.loads(row["pictures"])
        first = {role: str(shas[0]) for role, shas in pictures.items() if isinstance(shas, list) and shas}
        given = {name: [said] if isinstance(said, str) else said for name, said in (edit.get("human") or {}).items()}
        human = {name: [str(one) for one in said] for name, said in given.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        instruction, kind, model, first, human = "The record of this edit cannot be read.", None, None, {}, {}
    search_text = "\n".join(filter(None, (row["name"], instruction, kind, model))).casefold()
    place = (row["name"], row["position"], kind, model, instruction or "", search_text)
    return (*place, first.get("source"), first.get("edited"), json.dumps(human))


def _plain(value: Any) -> str | None:
    """Return a text SQLite takes: half of a surrogate pair, which JSON can hold, is replaced."""
    return None if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def _people(row: sqlite3.Row, given: Mapping[str, Iterable[str]]) -> tuple[Any, ...] | None:
    labels = given.get(row["criterion"]) or json.loads(row["human"]).get(row["criterion"], ())
    rubric = rubric_of(row["protocol"], row["criterion"])
    said = consensus(rubric.answer if rubric else None, labels)
    return (row["edit_id"], row["criterion"], said.label, said.score, said.place, said.count) if said else None


def _cell(units: list[sqlite3.Row]) -> tuple[Any, ...]:
    """Return one row for all repeats of a criterion: the lower median verdict, as the agreement takes it."""
    judged = sorted(
        (unit for unit in units if unit["status"] == "judged"), key=lambda unit: _number(unit["score"]) or 0.0
    )
    shown = judged[(len(judged) - 1) // 2] if judged else None
    sure = [sure for unit in judged if (sure := _number(unit["confidence"])) is not None]
    costs = [cost for unit in units if (cost := _number(unit["cost"])) is not None]
    return (
        units[0]["edit_id"],
        units[0]["criterion"],
        units[0]["protocol"],
        "judged" if shown else "unjudged",
        shown["label"] if shown else None,
        _number(shown["score"]) if shown else None,
        _number(shown["score_100"]) if shown else None,
        sum(sure) / len(sure) if sure else None,
        next((unit["reason"] for unit in units if unit["reason"]), None),
        len(units),
        len({(unit["label"], unit["score"]) for unit in judged}) > 1,
        sum(_number(unit["steps"]) or 0 for unit in units),
        sum(_number(unit["seconds"]) or 0.0 for unit in units),
        sum(costs) if costs else None,
    )


def _number(value: Any) -> float | None:
    """Return a number as it is; SQLite may hold a text where a number belongs, and that is none."""
    return value if isinstance(value, (int, float)) else None


def _chunks(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]
