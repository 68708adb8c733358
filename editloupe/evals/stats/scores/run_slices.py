"""The parts of a run that are never put into one number: one per editing model and, if the paper says so, per language.

Also the plain means of their criteria, for the end of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from statistics import stdev

from editloupe.evals.stats.estimate import finite
from editloupe.evals.stats.scores.run_table import RunRow, Table
from editloupe.evals.stats.scores.score_matrix import Sheet
from editloupe.rubrics.registry import known_protocol
from editloupe.rubrics.tables import NO_MODEL

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


@dataclass(frozen=True)
class CriterionMean:
    """One criterion over the edits of one editing model, in one language where the paper keeps languages apart."""

    model: str | None
    """Who made the edits, and in which language where there are several; None where nobody says and there is one part."""
    criterion: str
    units: int
    expected: int
    """Units there should be; more than `units` where the run was stopped."""
    judged: int
    mean: float | None
    """By the protocol's arithmetic, 0 to 100: over types where it weighs types; None where nothing has a score."""
    deviation: float | None
    """Standard deviation of the repeats' means; None with fewer than two repeats."""
    repeats: int


def criterion_means(table: Table) -> list[CriterionMean]:
    """Return every criterion of every part; unjudged units count as such and never as a low score."""
    parts = parts_of(table)
    return [one for part in parts for one in _of_part(part, alone=len(parts) == 1)]


def _of_part(part: Part, alone: bool) -> Iterator[CriterionMean]:
    sheet = part.sheet
    whole = sheet.point(None).by_criterion
    repeats = range(len(part.table.repeats))
    each = [sheet.point(None, repeat).by_criterion for repeat in repeats] if len(repeats) > 1 else []
    for place, criterion in enumerate(sheet.criteria):
        means = [value for one in each if (value := finite(one[place])) is not None]
        judged, unjudged = int(sheet.judged[..., place].sum()), int(sheet.unjudged[..., place].sum())
        yield CriterionMean(
            model=None if alone and part.label == NO_MODEL else part.label,
            criterion=criterion,
            units=judged + unjudged,
            expected=max(judged + unjudged, part.table.expected((criterion,))),
            judged=judged,
            mean=finite(whole[place]),
            deviation=stdev(means) if len(means) > 1 else None,
            repeats=len(repeats),
        )
