"""Show rows as a text table, as an HTML table for notebooks, and as a pandas data frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from editloupe._util.errors import UserError
from editloupe._util.text import for_html, one_line, shorten

LONGEST_CELL = 80
"""Characters of a cell in a text table; longer texts are cut."""
MOST_ROWS = 60
"""Rows that a table shows; the number of further rows is stated below it."""


def format_cell(value: Any) -> str:
    """Return a value as one line of text; None is a dash, and a float has two decimals at most.

    >>> format_cell(None), format_cell(66.666), format_cell(100.0), format_cell("a\\nb")
    ('–', '66.67', '100', 'a b')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return one_line(str(value))


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as aligned columns of text.

    >>> print(text_table(("criterion", "score"), [("following", 66.666), ("quality", None)]))
    criterion  score
    following  66.67
    quality    –
    """
    cells = [[shorten(format_cell(value), LONGEST_CELL) for value in row] for row in (columns, *rows[:MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    if len(rows) > MOST_ROWS:
        lines.append(f"… and {len(rows) - MOST_ROWS} more rows")
    return "\n".join(lines)


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], notes: Sequence[str] = ()) -> str:
    """Return rows as a small HTML table; all texts are escaped.

    >>> html_table("", ("name",), [("<b>",)])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    caption = f"<caption>{for_html(title)}</caption>" if title else ""
    head = "".join(f"<th>{for_html(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{for_html(format_cell(value))}</td>' for value in row)}</tr>" for row in rows[:MOST_ROWS]
    )
    more = (f"… and {len(rows) - MOST_ROWS} more rows",) if len(rows) > MOST_ROWS else ()
    below = "".join(f"<p>{for_html(note)}</p>" for note in (*more, *filter(None, notes)))
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


class TableView(ABC):
    """Shows the rows of a result as text, in notebooks and as a data frame."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return the tables as plain records, one per number."""

    @abstractmethod
    def _heading(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Return the title, the columns to show, and the notes below the table."""

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raise UserError if pandas is not installed."""
        return data_frame(self.rows())

    frame = to_pandas
    """The former name of `to_pandas`."""

    def __repr__(self) -> str:
        title, columns, _ = self._heading()
        return f"{title}\n{text_table(columns, self._cells(columns))}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        title, columns, notes = self._heading()
        return html_table(title, columns, self._cells(columns), notes)

    def _cells(self, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in columns) for row in self.rows()]


def data_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas data frame.

    Raises:
        UserError: If pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UserError(
            "a data frame needs pandas, which is not installed; install it with `pip install pandas`"
        ) from None
    return pandas.DataFrame(list(rows))
