"""Rows into the tables: a unit is written once under what was asked and shown, and answers every edit it is true of."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from editloupe.evals.runs.records import Rows, text_sha
from editloupe.evals.runs.schema import UNIT_COLUMNS

_NAMES = ", ".join(UNIT_COLUMNS)
_VALUES = ", ".join(f":{name}" for name in UNIT_COLUMNS)
_SET = ", ".join(f"{name} = :{name}" for name in UNIT_COLUMNS)
ANSWER = "INSERT OR REPLACE INTO answers (edit, criterion, asked, repeat, unit, shown) VALUES (?, ?, ?, ?, ?, ?)"
"""A row that changes gets a new, higher number, by which readers see what is new."""
_ANSWERS = "SELECT edit, criterion, asked, repeat, unit, shown FROM answers WHERE unit = ?"


class Answer(NamedTuple):
    """Says that a unit answers an edit."""

    edit: int
    criterion: str
    asked: str
    repeat: int
    unit: int
    shown: str | None
    """What of the edit the unit was taken to answer for; a verdict that is kept on purpose was shown something else."""


def put(connection: sqlite3.Connection, rows: Rows, edit: int, also: Mapping[str, Sequence[int]]) -> frozenset[str]:
    """Write a judgement's units with their traces, and have them answer its edit and others that wait for them.

    A unit that ended unjudged never replaces a verdict: the verdict and its traces are kept.

    Returns:
        The criteria whose verdict was kept.
    """
    kept = set[str]()
    for text in rows.texts:
        connection.execute("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", (text_sha(text), text))
    for unit in rows.units:
        edits = (edit, *also.get(unit["criterion"], ()))
        place = _place(connection, unit, edit)
        verdict = _find_verdict(connection, unit, rows.held.get(unit["criterion"]), place)
        if verdict is not None:
            _keep_verdict(connection, verdict, unit, edits, passing=unit["criterion"] in rows.passing)
            kept.add(unit["criterion"])
            continue
        number = insert_unit(connection, unit) if place is None else write_over(connection, place, unit)
        answer = (unit["criterion"], unit["asked"], unit["repeat"], number, unit["shown"])
        before = connection.execute(_ANSWERS, (number,))
        connection.executemany(ANSWER, [*before, *((one, *answer) for one in edits)])
        for head, steps in rows.traces[unit["criterion"]]:
            trace = connection.execute(
                "INSERT INTO traces (unit, target, seconds, head) VALUES (?, ?, ?, ?)", (number, *head)
            ).lastrowid
            connection.executemany(
                "INSERT INTO steps (trace, position, seconds, step) VALUES (?, ?, ?, ?)",
                [(trace, position, *step) for position, step in enumerate(steps)],
            )
    return frozenset(kept)


def insert_unit(connection: sqlite3.Connection, unit: Mapping[str, Any]) -> int:
    """Write a unit that is not there yet and return its number."""
    return int(connection.execute(f"INSERT INTO units ({_NAMES}) VALUES ({_VALUES})", unit).lastrowid or 0)


def _find_verdict(connection: sqlite3.Connection, unit: Mapping[str, Any], *candidates: int | None) -> int | None:
    """Return the unit whose verdict is kept instead of an unjudged outcome; None if there is none or the outcome is a verdict."""
    if unit["status"] == "judged":
        return None
    query = "SELECT 1 FROM units WHERE unit = ? AND status = 'judged'"
    return next((number for number in candidates if number and connection.execute(query, (number,)).fetchone()), None)


def _keep_verdict(
    connection: sqlite3.Connection, verdict: int, unit: Mapping[str, Any], edits: Sequence[int], passing: bool
) -> None:
    """Have a verdict go on answering these edits although the question was asked again and ended unjudged.

    If the judge did reply, the try is counted and the answers are renewed, so that a replacement that goes on does not ask
    again, and the next one asks with replies of its own. After a passing failure the next try takes over the replies that came.
    """
    standing = (
        "SELECT 1 FROM answers JOIN units ON units.unit = answers.unit WHERE answers.edit = ? AND answers.asked = ? "
        "AND answers.repeat = ? AND (answers.unit = ? OR (units.status = 'judged' AND answers.shown IS ?))"
    )
    asked, repeat, shown = unit["asked"], unit["repeat"], unit["shown"]
    for edit in edits:
        if not connection.execute(standing, (edit, asked, repeat, verdict, shown)).fetchone():
            connection.execute(ANSWER, (edit, unit["criterion"], asked, repeat, verdict, shown))
    if not passing:
        connection.execute("UPDATE units SET tries = ? WHERE unit = ?", (unit["tries"], verdict))
        connection.executemany(ANSWER, connection.execute(_ANSWERS, (verdict,)).fetchall())


def write_over(connection: sqlite3.Connection, number: int, unit: Mapping[str, Any]) -> int:
    """Write a unit in the place of another and return its number; the other one's traces are gone."""
    connection.execute("DELETE FROM steps WHERE trace IN (SELECT trace FROM traces WHERE unit = ?)", (number,))
    connection.execute("DELETE FROM traces WHERE unit = ?", (number,))
    connection.execute(f"UPDATE units SET {_SET} WHERE unit = :unit", {**unit, "unit": number})
    return number


def _place(connection: sqlite3.Connection, unit: Mapping[str, Any], edit: int) -> int | None:
    """Return the unit that is the same; one that could not see its pictures belongs to its edit alone."""
    same = "SELECT unit FROM units WHERE shown = :shown AND asked = :asked AND repeat = :repeat"
    blind = (
        "SELECT units.unit FROM answers JOIN units ON units.unit = answers.unit WHERE answers.edit = :edit "
        "AND answers.asked = :asked AND answers.repeat = :repeat AND units.shown IS NULL"
    )
    for query in (same, blind):
        if row := connection.execute(query, {**unit, "edit": edit}).fetchone():
            return int(row[0])
    return None
