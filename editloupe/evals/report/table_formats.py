"""One table as LaTeX, CSV, Markdown or JSON: what a paper, a spreadsheet or a program takes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from editloupe._util.text import for_csv, for_json, for_markdown, one_line
from editloupe.rubrics.tables import Cell, PrintedTable

NONE = "–"
"""What stands where there is no value."""
LOW, HIGH, SD = " low", " high", " SD"
"""What the columns of an interval and of a standard deviation end in."""
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_SYMBOLS = {
    "–": "--",
    "—": "---",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "→": r"$\rightarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "½": "1/2",
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "…": r"\dots{}",
    "“": "``",
    "”": "''",
    "’": "'",
}
"""What our tables and notes hold beyond ASCII; other letters, such as those of names, stay as they are."""


def cell_text(value: Cell) -> str:
    """Return a cell as a reader sees it: two digits behind the point, counts without, a dash where there is nothing.

    >>> cell_text(83.812), cell_text(7), cell_text("a"), cell_text(None)
    ('83.81', '7', 'a', '–')
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return one_line(value)
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def merge_intervals(table: PrintedTable) -> PrintedTable:
    """Return a table for readers: a value with its spread and its interval in one cell.

    >>> table = PrintedTable("t", ("model", "AD", "AD low", "AD high"), (("a", 50.0, 40.0, 61.5),))
    >>> merge_intervals(table).columns, merge_intervals(table).rows
    (('model', 'AD'), (('a', '50.00 [40.00, 61.50]'),))
    """
    columns = list(table.columns)
    places = {name: place for place, name in enumerate(columns)}
    more = {
        place: [places.get(f"{name}{end}") for end in (SD, LOW, HIGH)]
        for place, name in enumerate(columns)
        if f"{name}{SD}" in places or (f"{name}{LOW}" in places and f"{name}{HIGH}" in places)
    }
    hidden = {place for ends in more.values() for place in ends if place is not None}
    shown = [place for place in range(len(columns)) if place not in hidden]
    rows = tuple(tuple(_merge_cell(row, place, more.get(place)) for place in shown) for row in table.rows)
    return replace(table, columns=tuple(columns[place] for place in shown), rows=rows)


def _merge_cell(row: Sequence[Cell], place: int, ends: Sequence[int | None] | None) -> Cell:
    value = row[place]
    if ends is None or value is None:
        return value
    sd, low, high = (None if end is None else row[end] for end in ends)
    text = cell_text(value)
    if sd is not None:
        text += f" ± {cell_text(sd)}"
    if low is not None and high is not None:
        text += f" [{cell_text(low)}, {cell_text(high)}]"
    return text


def latex_text(text: str) -> str:
    r"""Return text on one line as it may stand in LaTeX.

    >>> print(latex_text("50 % of a_b – √2"))
    50 \% of a\_b -- $\surd$2
    """
    return "".join(_ESCAPES.get(c) or _SYMBOLS.get(c, c) for c in one_line(text))


def to_latex(section: PrintedTable) -> str:
    r"""Return a table as LaTeX with the rules of `booktabs`; the first column is text, the others are numbers.

    >>> print(to_latex(PrintedTable("Scores", ("model", "IF"), (("a_b", 75.93),))))
    \begin{table}
    \centering
    \caption{Scores}
    \begin{tabular}{lr}
    \toprule
    model & IF \\
    \midrule
    a\_b & 75.93 \\
    \bottomrule
    \end{tabular}
    \end{table}
    <BLANKLINE>
    """
    columns = "l" + "r" * (len(section.columns) - 1)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(section.title)}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(section.columns), r"\midrule"]
    lines += [_latex_row([cell_text(cell) for cell in row]) for row in section.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {latex_text(note)}" for note in section.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    row = " & ".join(map(latex_text, cells))
    # A bracket at the beginning of a row would be read as an argument of the row's end before it.
    return f"{{}}{row} \\\\" if row.startswith("[") else f"{row} \\\\"


def to_csv(section: PrintedTable) -> str:
    """Return a table as CSV with a header; numbers are whole, an empty cell has no value, title and notes are left out.

    >>> print(to_csv(PrintedTable("Scores", ("model", "IF"), (("a", 75.93), ("b", None)))), end="")
    model,IF
    a,75.93
    b,
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([for_csv(column) for column in section.columns])
    writer.writerows([["" if cell is None else for_csv(cell) for cell in row] for row in section.rows])
    return target.getvalue()


def to_markdown(section: PrintedTable) -> str:
    """Return a table as Markdown under its title."""
    lines = [f"### {for_markdown(section.title)}", "", *markdown_rows(section)]
    lines += [line for note in section.notes for line in ("", for_markdown(note))]
    return "\n".join(lines) + "\n"


def markdown_rows(section: PrintedTable) -> list[str]:
    """Return the lines of a table in Markdown, without its title and notes."""
    ruler = "|" + "|".join(["---", *["--:"] * (len(section.columns) - 1)]) + "|"
    rows = (_markdown_row([cell_text(cell) for cell in row]) for row in section.rows)
    return [_markdown_row(section.columns), ruler, *rows]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(for_markdown, cells)) + " |"


def table_to_dict(section: PrintedTable) -> dict[str, Any]:
    """Return a table as JSON holds it."""
    return {
        "title": section.title,
        "columns": list(section.columns),
        "rows": [list(row) for row in section.rows],
        "notes": list(section.notes),
    }


def to_json(section: PrintedTable) -> str:
    """Return a table as one JSON object: title, columns, rows, notes."""
    return for_json(table_to_dict(section), 2) + "\n"


FORMATS: Mapping[str, Callable[[PrintedTable], str]] = {
    "latex": to_latex,
    "csv": to_csv,
    "md": to_markdown,
    "json": to_json,
}
"""How one table is written, by the name of the format."""


def all_to_latex(sections: Sequence[PrintedTable]) -> str:
    """Return several tables as LaTeX, one behind the other; `booktabs` has to be loaded."""
    return "\n".join(("% needs \\usepackage{booktabs}\n", *map(to_latex, sections)))


def all_to_csv(sections: Sequence[PrintedTable]) -> str:
    """Return several tables as one CSV: a line with the title before each, an empty line behind.

    A single table is its own header and rows alone, as any reader of CSV expects.
    """
    if len(sections) == 1:
        return to_csv(sections[0])
    return "\n".join(f"# {one_line(section.title)}\n{to_csv(section)}" for section in sections)
