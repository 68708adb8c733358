"""A run of version 1 made one of version 2: every verdict, trace, reply and cent is taken over, and nothing is judged.

Version 1 kept one answer for an edit's id, a criterion and a repeat, under one hash of everything. What was asked is put
together again from the descriptions in run.json, so that the same question is known when it comes again.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from editloupe.agent.profiles import Profile
from editloupe.asked import Asked, content_key
from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.enrolment import Entry, content_of, enrol
from editloupe.evals.runs.lock import RunLock
from editloupe.evals.runs.putting import ANSWER, insert_unit
from editloupe.evals.runs.readback import Unreadable, read_about
from editloupe.evals.runs.records import hashes_by_path
from editloupe.evals.runs.redact import Redactor
from editloupe.evals.runs.store import ABOUT, FILE, LOCK
from editloupe.judge_settings import JudgeSettings
from editloupe.question_facts import question_facts
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import known_protocol
from editloupe.rubrics.roles import make_cases
from editloupe.rubrics.shown import shown_of
from editloupe.tools.registry import BUILT_IN
from editloupe.types import Edit, UserError

KEPT = "run.v1.sqlite"
"""The old file, which stays beside the one made of it."""
READERS_LEAVE = 2.0
"""Seconds within which whoever reads the run may finish."""
_EDITS = (
    "SELECT edit_id, position, edit, pictures FROM edits UNION ALL "
    "SELECT DISTINCT edit_id, (SELECT max(position) + 1 FROM edits), '', '{}' FROM units "
    "WHERE edit_id NOT IN (SELECT edit_id FROM edits) ORDER BY 2, 1"
)
"""Also those of which only verdicts are left: such an edit is told as one that cannot be read."""
_OLD = "of version 1"
_MADE = ("asked", "shown", "used")
"""Columns of a unit that version 1 had not."""
_COPIED = ("texts", "replies", "spent")
"""Tables that are the same in both versions."""


@dataclass(frozen=True)
class Migrated:
    """What was taken over."""

    edits: int
    units: int
    traces: int
    kept: Path
    """The file of version 1."""


def migrate(folder: Path) -> Migrated | None:
    """Make a run of version 1 one of this version; None where it is one already.

    The old file stays; a stop in the middle leaves the run as it was.
    """
    path = folder / FILE
    with closing(schema.connect_to_read(path)) as reader:  # tells what is no run
        if schema.version_of(reader) == schema.VERSION:
            return None
    if (folder / KEPT).exists() and not (folder / KEPT).samefile(
        path
    ):  # else a migration that was stopped set it aside
        raise UserError(f"{folder / KEPT} is there already; move it away first, so that nothing is written over")
    try:
        lock = RunLock(folder / LOCK)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    try:
        return _migrated(folder, path)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UserError(f"{folder} cannot be migrated ({error}); it stays as it was") from None
    finally:
        lock.release()


def _migrated(folder: Path, path: Path) -> Migrated:
    part = folder / f".{FILE}.part"
    for left in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm"))):
        left.unlink(missing_ok=True)
    about = _about(folder)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=READERS_LEAVE)) as old:
        _take_alone(old, folder)
        old.row_factory = sqlite3.Row
        with closing(schema.connect_to_write(part)) as new:
            found = _Migration(old, new, about).run()
            new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _set_aside(path, folder / KEPT)
    part.replace(path)
    if about["configurations"] or (folder / ABOUT).exists():
        written = folder / f".{ABOUT}.part"
        written.write_text(
            json.dumps({**about, "schema": schema.VERSION}, indent=2, ensure_ascii=False) + "\n", "utf-8"
        )
        written.replace(folder / ABOUT)
    return replace(found, kept=folder / KEPT)


def _take_alone(old: sqlite3.Connection, folder: Path) -> None:
    """Have the old file to oneself and whole: whoever has it open would go on to read the log of the one in its place."""
    old.execute("PRAGMA locking_mode = EXCLUSIVE")
    try:
        old.execute("BEGIN IMMEDIATE")
        old.execute("COMMIT")
        busy = bool(old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        busy = True
    if busy:
        raise UserError(f"{folder} is being read by another program, such as the studio; close that first")


def _set_aside(path: Path, kept: Path) -> None:
    if kept.exists():
        return
    try:
        os.link(path, kept)
    except OSError:  # a disk without links
        shutil.copy2(path, kept)


def _about(folder: Path) -> dict[str, Any]:
    try:
        return read_about(folder / ABOUT)
    except Unreadable:
        return {"configurations": []}


@dataclass
class _Migration:
    old: sqlite3.Connection
    new: sqlite3.Connection
    about: Mapping[str, Any]
    clean: Redactor = field(default_factory=Redactor)

    def run(self) -> Migrated:
        """Copy everything in one transaction."""
        described = {str(one["name"]): _Described(one) for one in self.about["configurations"]}
        edits = units = traces = 0
        self.new.execute("BEGIN IMMEDIATE")
        for row in self.old.execute(_EDITS):
            edit, pictures = _read(row)
            number = self._edit(row, edit, pictures)
            edits += 1
            for unit in self.old.execute("SELECT rowid AS place, * FROM units WHERE edit_id = ?", (row["edit_id"],)):
                traces += self._unit(unit, number, edit, pictures, described.get(str(unit["configuration"])))
                units += 1
        self.new.execute("COMMIT")
        for table in _COPIED:
            self._copy(table)
        return Migrated(edits, units, traces, Path())

    def _edit(self, row: sqlite3.Row, edit: Edit | None, pictures: Mapping[str, list[str]]) -> int:
        if edit is not None:
            content = content_of(edit, hashes_by_path(edit, pictures))
            return enrol(self.new, Entry(edit, row["position"], content, {}, pictures), self.clean)
        query = (
            "INSERT INTO edits (name, edit_id, model, content, position, facts, pictures, files) "
            "VALUES (?, ?, NULL, NULL, ?, ?, ?, '{}')"
        )
        values = (row["edit_id"], row["edit_id"], row["position"] or 0, row["edit"], row["pictures"])
        return int(self.new.execute(query, values).lastrowid or 0)

    def _unit(
        self,
        unit: sqlite3.Row,
        number: int,
        edit: Edit | None,
        pictures: Mapping[str, list[str]],
        described: _Described | None,
    ) -> int:
        """Copy a unit with its traces and return how many those are."""
        asked, shown = _question(unit, edit, pictures, described)
        name = unit["configuration"] or content_key({"judge": unit["judge"], "mode": unit["mode"]})[:16]
        configurations.extend(self.new, self.clean, [asked], name)
        place = (unit["edit_id"], unit["criterion"], unit["repeat"])
        traces = self.old.execute(
            "SELECT * FROM traces WHERE edit_id = ? AND criterion = ? AND repeat = ?", place
        ).fetchall()
        steps = {one["trace"]: self._steps(one["trace"]) for one in traces}
        used = sorted({tool for some in steps.values() for tool in _tools_in(some)})
        values = {column: unit[column] for column in schema.UNIT_COLUMNS if column not in _MADE}
        values |= {"asked": asked.key, "shown": shown, "used": json.dumps(used)}
        taken = self.new.execute(
            "SELECT 1 FROM units WHERE shown = :shown AND asked = :asked AND repeat = :repeat", values
        ).fetchone()
        if taken:  # two ids with the same content: both verdicts stay
            values["shown"] = None
        unit_number = insert_unit(self.new, values)
        self.new.execute(ANSWER, (number, unit["criterion"], asked.key, unit["repeat"], unit_number, shown))
        for one in traces:
            trace = self.new.execute(
                "INSERT INTO traces (unit, target, seconds, head) VALUES (?, ?, ?, ?)",
                (unit_number, one["target"], one["seconds"], one["head"]),
            ).lastrowid
            self.new.executemany(
                "INSERT INTO steps (trace, position, seconds, step) VALUES (?, ?, ?, ?)",
                [(trace, step["position"], step["seconds"], step["step"]) for step in steps[one["trace"]]],
            )
        return len(traces)

    def _steps(self, trace: int) -> list[sqlite3.Row]:
        return self.old.execute("SELECT * FROM steps WHERE trace = ? ORDER BY position", (trace,)).fetchall()

    def _copy(self, table: str) -> None:
        rows = self.old.execute(f"SELECT * FROM {table}")
        marks = ", ".join("?" * len(rows.description))
        self.new.execute("BEGIN IMMEDIATE")
        self.new.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", (tuple(row) for row in rows))
        self.new.execute("COMMIT")


class _Described:
    """A configuration of run.json, from which the questions it asked are put together again."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._description = description
        self._protocol: Protocol | None = None
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            name = str(description["protocol"])
            known = known_protocol(name)
            here = {rubric.name: rubric for rubric in known.rubrics} if known else {}
            recorded = (Rubric.model_validate(one) for one in description["rubrics"].values())
            rubrics = tuple(_in_order(rubric, here.get(rubric.name)) for rubric in recorded)
            known = known or Protocol(name, name, "", rubrics, "plain", make_cases)
            self._protocol = replace(known, rubrics=rubrics)
            self._settings = JudgeSettings.model_validate(description["settings"])
            self._profile = Profile.model_validate(description["profile"])

    def question(self, edit: Edit, criterion: str) -> tuple[Rubric, Protocol, Asked] | None:
        """Return how a criterion was put; None where the description does not tell."""
        description = self._description
        if self._protocol is None or "settings" not in description:
            return None
        with suppress(ValueError, TypeError, KeyError, AttributeError, UserError):
            (rubric,) = self._protocol.rubrics_for(edit, [criterion])
            # Which tools there were is one hash in version 1: a tool that was used counts as another one.
            tools = {tool.name: {_OLD: description.get("tools")} for tool in BUILT_IN}
            given = (description["mode"], description["spec"], self._settings, self._profile)
            facts = question_facts(rubric, *given, tools)
            if "rules" in facts:
                facts["rules"] = _OLD
            return rubric, self._protocol, Asked(criterion, facts)
        return None


def _in_order(recorded: Rubric, here: Rubric | None) -> Rubric:
    """Return a recorded rubric, its parts in the order of ours where it says the same: run.json sorts them."""
    same = {"tells"}
    if here and recorded.model_dump(exclude=same) == here.model_dump(exclude=same):
        return here.model_copy(update={"tells": recorded.tells})
    return recorded


def _question(
    unit: sqlite3.Row, edit: Edit | None, pictures: Mapping[str, list[str]], described: _Described | None
) -> tuple[Asked, str | None]:
    """Return how a unit was asked and what it was shown, as far as the run tells."""
    criterion = str(unit["criterion"])
    found = described.question(edit, criterion) if described and edit else None
    if found is None or edit is None:
        facts = {"criterion": criterion, **{name: unit[name] for name in ("judge", "mode", "protocol")}}
        return Asked(criterion, {**facts, "recorded": _OLD}), unit["key"]
    rubric, protocol, asked = found
    return asked, shown_of(protocol, rubric, unit["mode"], edit).key(hashes_by_path(edit, pictures))


def _read(row: sqlite3.Row) -> tuple[Edit | None, dict[str, list[str]]]:
    """Return an edit and the hashes of its pictures, as far as they can be read."""
    edit, pictures = None, {}
    with suppress(ValueError, TypeError, RecursionError):
        edit = Edit.model_validate_json(row["edit"])
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        pictures = {str(role): [str(sha) for sha in shas] for role, shas in json.loads(row["pictures"]).items()}
    return edit, pictures


def _tools_in(steps: list[sqlite3.Row]) -> Iterator[str]:
    for step in steps:
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield from (str(call["name"]) for call in json.loads(step["step"])["calls"])
