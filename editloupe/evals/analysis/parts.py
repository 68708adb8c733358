"""The parts of a run that are never put into one number: an editing model each and, where the paper says so, a language each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

from editloupe.evals.analysis.run_table import RunRow, Table
from editloupe.evals.analysis.sheet import Sheet
from editloupe.rubrics.registry import known_protocol

BETWEEN = " · "
"""Stands between the values by which a group is named."""
MODEL = "model"


@dataclass(frozen=True)
class Part:
    """The edits of one editing model, in one language where the run has several."""

    group: tuple[str, ...]
    """The model, then the values of what the paper keeps apart."""
    table: Table

    @property
    def label(self) -> str:
        """The name of its row in a table."""
        return BETWEEN.join(self.group)

    @cached_property
    def sheet(self) -> Sheet:
        """Its scores as arrays."""
        return Sheet(self.table, self.table.rows)


def apart_fields(table: Table) -> tuple[str, ...]:
    """Return the fields by which a run falls into parts: the model, and what the paper keeps apart and the run has several of."""
    protocol = known_protocol(table.protocol)
    fields = protocol.apart if protocol else ()
    return (MODEL, *(name for name in fields if _has_several(table, name)))


def _has_several(table: Table, field: str) -> bool:
    return len(table.models if field == MODEL else {row.field(field) for row in table.rows}) > 1


def shared_apart_fields(tables: Sequence[Table]) -> tuple[str, ...]:
    """Return what the paper keeps apart and these runs of one protocol have several values of; the model is not meant."""
    protocol = known_protocol(tables[0].protocol)
    names = protocol.apart if protocol else ()
    return tuple(name for name in names if len({row.field(name) for table in tables for row in table.rows}) > 1)


def parts_of(table: Table) -> tuple[Part, ...]:
    """Return the parts of a run, in the order in which they occur."""
    fields = apart_fields(table)
    groups = grouped(table.rows, fields)
    waiting = grouped([RunRow(edit, {}, {}) for edit in table.waiting], fields)
    return tuple(
        Part(group, table.with_rows(rows).with_waiting(row.edit for row in waiting.get(group, ())))
        for group, rows in groups.items()
    )


def grouped(rows: Sequence[RunRow], fields: Sequence[str]) -> dict[tuple[str, ...], list[RunRow]]:
    """Return rows by the values they have in some fields, in the order in which these occur."""
    found: dict[tuple[str, ...], list[RunRow]] = {}
    columns = [[value_of(row, field) for row in rows] for field in fields]
    for group, row in zip(zip(*columns, strict=True) if columns else repeat(()), rows, strict=False):
        found.setdefault(group, []).append(row)
    return found


def value_of(row: RunRow, field: str) -> str:
    """Return the value of a field as a table names it; what has none is a group of its own."""
    value = row.field(field)
    return f"(no {field})" if value is None else str(value)


def grouping(table: Table, columns: str) -> tuple[str, ...]:
    """Return the fields behind `--by a,b`: those, and before them whatever the run's parts differ in.

    A grouping never puts two models, or two languages of a paper that keeps them apart, into one number.
    """
    named = tuple(name.strip() for name in columns.split(",") if name.strip())
    several = [name for name in apart_fields(table) if _has_several(table, name)]
    return (*(name for name in several if name not in named), *named)
