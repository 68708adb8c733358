"""Keep the edits of a run that match a filter on their own fields and columns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from editloupe._util.text import number_of
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.traces.filter_parser import (
    Among,
    Call,
    Comparison,
    Condition,
    ExpressionError,
    Joined,
    Missing,
    Name,
    Not,
    Operand,
    parse,
)
from editloupe.evals.traces.filter_sql import (
    COLUMN,
    FIELDS,
    FilterNames,
    add_functions,
    find_unknown_values,
    translate_filter,
)
from editloupe.types import Edit, UserError

EDIT_FIELDS = tuple(name for name, field in FIELDS.items() if field.sql.startswith("e."))
"""Fields of the filter language that belong to an edit, not to a verdict."""


def filter_edits(table: RunTable, where: str) -> RunTable:
    """Return the table with the edits that match a filter; a note states the filter and the number of edits.

    The filter language is that of `find_traces`, with the fields of edits and the columns of the manifest. Fields of verdicts
    are refused: scores of edits that were chosen by their scores say nothing about the others.

    Args:
        table: The run.
        where: The filter, such as `instruction_type = "Change Color" and style != "sketch"`. An empty one keeps all edits.

    Raises:
        ExpressionError: The filter has a mistake, or uses a field of verdicts.
        UserError: No edit matches.
    """
    condition = parse(where)
    if condition is None:
        return table
    columns = {name for edit in _list_edits(table) for name in edit.extra}
    for operand in _list_operands(condition):
        _check_operand(operand, columns)
    query = translate_filter(condition, FilterNames(columns, fields=EDIT_FIELDS))
    with closing(sqlite3.connect(":memory:")) as index:
        add_functions(index)
        index.execute(
            "CREATE TABLE edits (edit, name, edit_id, model, instruction, instruction_type, turn, extra, search_text)"
        )
        index.executemany(
            "INSERT INTO edits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (_build_record(number, edit, name) for number, (edit, name) in enumerate(_list_named(table))),
        )
        matches = {row[0] for row in index.execute(f"SELECT e.edit FROM edits e WHERE {query.sql}", query.values)}
        unknown = find_unknown_values(index, condition)
    rows = [row for number, row in enumerate(table.rows) if number in matches]
    if not rows:
        raise UserError(f"no edit of {table.name} matches --where. {' '.join(unknown)}".rstrip(". ") + ".")
    count = len(table.rows)
    waiting = [edit for number, edit in enumerate(table.waiting, start=count) if number in matches]
    note = f"Only edits with {where.strip()}: {len(rows)} of {number_of(count, 'edit')}."
    return replace(table.with_rows(rows).with_waiting(waiting), notes=(*table.notes, note, *unknown))


def _list_edits(table: RunTable) -> Iterator[Edit]:
    yield from (row.edit for row in table.rows)
    yield from table.waiting


def _list_named(table: RunTable) -> Iterator[tuple[Edit, str]]:
    yield from ((row.edit, row.name) for row in table.rows)
    yield from ((edit, edit.id) for edit in table.waiting)


def _build_record(number: int, edit: Edit, name: str) -> tuple[object, ...]:
    extra = json.dumps(dict(edit.extra), default=str)
    texts = (name, edit.instruction, edit.instruction_type, edit.model)
    search = "\n".join(text for text in texts if text).casefold()
    return (number, name, edit.id, edit.model, edit.instruction, edit.instruction_type, edit.turn, extra, search)


def _check_operand(operand: Operand, columns: set[str]) -> None:
    """Raise if an operand is a field of verdicts or a function on traces."""
    field = FIELDS.get(operand.name) or FIELDS.get(operand.name.lower()) if isinstance(operand, Name) else None
    if field is not None and not field.sql.startswith("e."):
        what = operand.name if isinstance(operand, Name) else ""
    elif isinstance(operand, Call) and operand.name != COLUMN:
        what = f"{operand.name}(…)"
    else:
        return
    own = ", ".join((*EDIT_FIELDS, *sorted(columns)))
    raise ExpressionError(f"{what} is about a verdict; edits are chosen by {own}", operand.position)


def _list_operands(condition: Condition) -> Iterator[Operand]:
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _list_operands(part)
    elif isinstance(condition, Not):
        yield from _list_operands(condition.inner)
    elif isinstance(condition, Comparison):
        yield from (condition.left, condition.right)
    elif isinstance(condition, (Among, Missing)):
        yield condition.value
    else:
        yield condition
