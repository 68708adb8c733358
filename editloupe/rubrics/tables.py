"""Tables: one as it is printed, and how a paper lays out its own with one row per model.

A layout is data: columns that are means of edits, or averages of such means. `evals/stats/scores/paper_tables.py` fills it in
for any number of models and runs, with intervals on demand. A paper's tables and a report's scores come from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from editloupe._util.tables import data_frame, html_table, text_table
from editloupe.types import Edit

Cell = str | int | float | None
NO_MODEL = "(no model)"
"""The name of a row of edits that name no editing model."""
TOTAL = "total"
"""The measure that is an edit's own score, by the protocol's arithmetic."""
Measure = Callable[[Edit, Mapping[str, float]], float | None]
"""Makes a number from those of an edit's criteria (0 to 100) that were judged; None where one is missing that it needs."""


@dataclass(frozen=True)
class PrintedTable:
    """One table, from whatever makes it to the page: the first column is text, the others are numbers."""

    title: str
    """Empty for a table under a heading that says enough."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    protocol: str = ""
    """Whose table it is, in a report."""
    numbers: tuple[str, ...] = ()
    """Its numbers in the paper."""
    figure: str = ""
    """The name of the figure that shows the same."""

    @property
    def note(self) -> str:
        """All notes as one text."""
        return " ".join(filter(None, self.notes))

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __repr__(self) -> str:
        return "\n".join(filter(None, (self.title, text_table(self.columns, self.rows), *self.notes)))

    def _repr_html_(self) -> str:
        return html_table(self.title, self.columns, self.rows, self.notes)


Section = PrintedTable
"""Its name in packages of papers written before 0.3."""


@dataclass(frozen=True)
class Mean:
    """The mean of a measure over the edits of some kinds."""

    measure: str
    """A criterion, TOTAL, or the name of one of the layout's own measures."""
    kinds: tuple[Hashable, ...]


@dataclass(frozen=True)
class Average:
    """The plain mean of several values: of all of them, or of those that are there."""

    parts: tuple[Value, ...]
    complete: bool = False
    """Whether there is no average where one of the values is missing."""


Value = Mean | Average


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    title: str
    value: Value


@dataclass(frozen=True)
class Layout:
    """One table with one row a model."""

    title: str
    columns: tuple[Column, ...]
    kind: Callable[[Edit], Hashable]
    """Tells edits apart: their type, or whatever the columns speak of; an edit of a kind that no column names is left out."""
    keep: Callable[[Edit], bool] | None = None
    """Which edits the table is about; all of them where nothing is said."""
    measures: Mapping[str, Measure] = field(default_factory=dict)
    scale: Callable[[float], float] | None = None
    """Leads from 0 to 100 to the numbers the paper prints; measures of the layout's own are on that scale already."""
    spread: bool = False
    """Whether each mean comes with its standard deviation over repeats."""
    notes: tuple[str, ...] = ()


def list_means(value: Value) -> Iterator[Mean]:
    """Yield the means that a value is made of.

    >>> [mean.measure for mean in list_means(Average((Mean("a", ("x",)), Average((Mean("b", ("x",)),)))))]
    ['a', 'b']
    """
    if isinstance(value, Mean):
        yield value
        return
    for part in value.parts:
        yield from list_means(part)


def average_column(title: str, values: Iterable[Value], complete: bool = False) -> Column:
    """Return the column that averages others."""
    return Column(title, Average(tuple(values), complete))
