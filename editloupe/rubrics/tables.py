"""Printed tables, and layouts of a paper's tables with one row per model.

A layout is data: its columns are means over edits, or averages of such means. `evals/stats/scores/paper_tables.py` fills it in
for any number of models and runs, with intervals on demand. A paper's tables and a report's scores use the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from editloupe._util.tables import data_frame, html_table, text_table
from editloupe.rubrics.model import MeasuredAnswer, Rubric
from editloupe.types import Edit

Cell = str | int | float | None
NO_MODEL = "(no model)"
"""Row name of edits without an editing model."""
MEASURED_DIGITS = 4
"""Decimals of measured criteria in tables."""
TOTAL = "total"
"""Name of the measure that is the edit's score by the protocol's arithmetic."""
Measure = Callable[[Edit, Mapping[str, float]], float | None]
"""Computes a number from an edit's judged criteria (0 to 100), or returns None if a required criterion is missing."""


@dataclass(frozen=True)
class PrintedTable:
    """A table of a report or a paper. It displays itself in terminals and notebooks.

    Args:
        title: Title; empty if a heading above the table is enough.
        columns: Column titles. The first column is text, the others are usually numbers.
        rows: One tuple of cells per row, as long as `columns`.
        notes: Sentences below the table.
        protocol: Name of the protocol that the table belongs to, in a report.
        numbers: Numbers of the table in the paper.
        figure: Name of the figure that shows the same data.
        digits: Decimals of columns that have more or fewer than two, by title.
        best: Positions of the rows with the best score, bold in LaTeX.
        wraps: Whether a narrow terminal wraps the cells, which hold words, and keeps the columns in one table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    protocol: str = ""
    numbers: tuple[str, ...] = ()
    figure: str = ""
    digits: Mapping[str, int] = field(default_factory=dict)
    best: tuple[int, ...] = ()
    wraps: bool = False

    def format_row(self, row: Sequence[Cell]) -> list[Cell]:
        """Return a row with the numbers of the columns in `digits` as texts.

        >>> PrintedTable("", ("model", "L1"), (), digits={"L1": 4}).format_row(("a", 0.0925))
        ['a', '0.0925']
        """
        return [
            f"{cell:.{self.digits[column]}f}" if isinstance(cell, float) and column in self.digits else cell
            for column, cell in zip(self.columns, row, strict=True)
        ]

    @property
    def note(self) -> str:
        """All notes as a single text."""
        return " ".join(filter(None, self.notes))

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __repr__(self) -> str:
        rows = [*map(self.format_row, self.rows)]
        return "\n".join(filter(None, (self.title, text_table(self.columns, rows), *self.notes)))

    def _repr_html_(self) -> str:
        return html_table(self.title, self.columns, [*map(self.format_row, self.rows)], self.notes)


Section = PrintedTable
"""Former name of PrintedTable, for packages written before 0.3."""


@dataclass(frozen=True)
class Mean:
    """The mean of a measure over all edits of some kinds."""

    measure: str
    """A criterion, TOTAL, or a name in `Layout.measures`."""
    kinds: tuple[Hashable, ...]


@dataclass(frozen=True)
class Average:
    """The unweighted mean of several values."""

    parts: tuple[Value, ...]
    complete: bool = False
    """Whether all values are required. If False, missing values are left out of the mean."""


Value = Mean | Average


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    value: Value
    digits: int = 2
    """Decimals in print."""


@dataclass(frozen=True)
class Layout:
    """The layout of a table with one row per model."""

    title: str
    columns: tuple[Column, ...]
    kind: Callable[[Edit], Hashable]
    """Returns the kind of an edit, such as its type. Edits of a kind that no column names are left out."""
    keep: Callable[[Edit], bool] | None = None
    """Returns whether an edit belongs to the table; None for all edits."""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    """Further measures, by name."""
    reads_checks: bool = False
    """Whether `measures` also need the values of single checks, as `criterion/check`, times 100. These take longer to read."""
    scale: Callable[[float], float] | None = None
    """Converts criteria and TOTAL from 0 to 100 to the paper's scale; `measures` must already be on that scale."""
    across: bool = False
    """Whether a row holds everything of a model, such as its edits in all languages, even if these are reported apart."""
    spread: bool = False
    """Whether each mean is printed with its standard deviation over repeats."""
    notes: tuple[str, ...] = ()


def criterion_columns(
    rubrics: Iterable[Rubric], kinds: tuple[Hashable, ...]
) -> tuple[tuple[Column, ...], dict[str, Measure]]:
    """Return a column per criterion and the measures they need: a measured criterion is shown as it was measured.

    Args:
        rubrics: A rubric per criterion.
        kinds: The kinds of edits whose mean a column is.
    """
    columns, measures = [], {}
    for rubric in rubrics:
        name = rubric.criterion
        if rubric.measured:
            name = f"{name} as measured"
            measures[name] = _read_measured(rubric.criterion, rubric.measured)
        columns.append(Column(rubric.title, Mean(name, kinds), MEASURED_DIGITS if rubric.measured else 2))
    return tuple(columns), measures


def _read_measured(criterion: str, answer: MeasuredAnswer) -> Measure:
    return lambda edit, scores: answer.value(scores[criterion]) if criterion in scores else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None, or None if there are none."""
    present = [value for value in values if value is not None]
    return fmean(present) if present else None


def list_means(value: Value) -> Iterator[Mean]:
    """Yield all means that a value depends on.

    >>> [mean.measure for mean in list_means(Average((Mean("a", ("x",)), Average((Mean("b", ("x",)),)))))]
    ['a', 'b']
    """
    if isinstance(value, Mean):
        yield value
        return
    for part in value.parts:
        yield from list_means(part)


def average_column(title: str, values: Iterable[Value], complete: bool = False) -> Column:
    """Return a column with the average of several values."""
    return Column(title, Average(tuple(values), complete))
