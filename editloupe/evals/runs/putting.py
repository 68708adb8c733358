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


class Answer(NamedTuple):
    """Says that a unit answers an edit."""

    edit: int
    criterion: str
    asked: str
    repeat: int
    unit: int
    shown: str | None
    """What of the edit the unit was taken to answer for; a verdict that is kept on purpose was shown something else."""


def put(connection: sqlite3.Connection, rows: Rows, edit: int, also: Mapping[str, Sequence[int]]) -> None:
    """Write a judgement's units with their traces, and have them answer its edit and others that wait for them."""
    for text in rows.texts:
        connection.execute("INSERT OR IGNORE INTO texts (sha, text) VALUES (?, ?)", (text_sha(text), text))
    for unit in rows.units:
        number = _unit(connection, unit, edit)
        place = (unit["criterion"], unit["asked"], unit["repeat"], number, unit["shown"])
        before = connection.execute(
            "SELECT edit, criterion, asked, repeat, unit, shown FROM answers WHERE unit = ?", (number,)
        )
        connection.executemany(ANSWER, [*before, *((one, *place) for one in (edit, *also.get(unit["criterion"], ())))])
        for head, steps in rows.traces[unit["criterion"]]:
            trace = connection.execute(
                "INSERT INTO traces (unit, target, seconds, head) VALUES (?, ?, ?, ?)", (number, *head)
            ).lastrowid
            connection.executemany(
                "INSERT INTO steps (trace, position, seconds, step) VALUES (?, ?, ?, ?)",
                [(trace, position, *step) for position, step in enumerate(steps)],
            )


def insert_unit(connection: sqlite3.Connection, unit: Mapping[str, Any]) -> int:
    """Write a unit that is not there yet and return its number."""
    return int(connection.execute(f"INSERT INTO units ({_NAMES}) VALUES ({_VALUES})", unit).lastrowid or 0)


def _unit(connection: sqlite3.Connection, unit: Mapping[str, Any], edit: int) -> int:
    """Write a unit in its place and return its number; what it was before, with its traces, is gone."""
    if (number := _place(connection, unit, edit)) is None:
        return insert_unit(connection, unit)
    return write_over(connection, number, unit)


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
