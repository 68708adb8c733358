"""Format tables as LaTeX, CSV, Markdown or JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from editloupe._util.text import for_csv, for_json, for_markdown, one_line
from editloupe.rubrics.tables import Cell, PrintedTable

NONE = "–"
"""Shown for a missing value."""
PASSPORT = "Passport "
"""The beginning of a passport in one line."""
LOW, HIGH, SD = " low", " high", " SD"
"""Suffixes of the columns of an interval and a standard deviation."""
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "\0": "{}",
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
"""Non-ASCII characters of our tables and notes; others, such as letters of names, are kept."""


def format_or_dash(value: float | None, spec: str = ".1f") -> str:
    """Format a number, or a dash for a missing one.

    >>> format_or_dash(83.812), format_or_dash(7, ""), format_or_dash(None)
    ('83.8', '7', '–')
    """
    return NONE if value is None else format(value, spec)


def format_p_value(value: float | None) -> str:
    """Format a p-value for a table.

    >>> format_p_value(0.0004), format_p_value(0.0312), format_p_value(None)
    ('< 0.001', '0.031', '–')
    """
    return "< 0.001" if value is not None and value < 0.001 else format_or_dash(value, ".3f")


def describe_p_value(value: float) -> str:
    """Format a p-value for a sentence.

    >>> describe_p_value(0.0004), describe_p_value(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    text = format_p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def cell_text(value: Cell) -> str:
    """Format a cell: two decimals, integers without, a dash for a missing value.

    >>> cell_text(83.812), cell_text(7), cell_text("a"), cell_text(None)
    ('83.81', '7', 'a', '–')
    """
    if value is None:
        return NONE
    if isinstance(value, str):
        return one_line(value)
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def merge_intervals(table: PrintedTable) -> PrintedTable:
    """Merge each value with its standard deviation and interval into one cell.

    >>> table = PrintedTable("t", ("model", "AD", "AD low", "AD high"), (("a", 50.0, 40.0, 61.5),))
    >>> merge_intervals(table).columns, merge_intervals(table).rows
    (('model', 'AD'), (('a', '50.00 [40.00, 61.50]'),))
    """
    columns = list(table.columns)
    index_of = {name: index for index, name in enumerate(columns)}
    more = {
        index: [index_of.get(f"{name}{end}") for end in (SD, LOW, HIGH)]
        for index, name in enumerate(columns)
        if f"{name}{SD}" in index_of or (f"{name}{LOW}" in index_of and f"{name}{HIGH}" in index_of)
    }
    hidden = {index for ends in more.values() for index in ends if index is not None}
    visible = [index for index in range(len(columns)) if index not in hidden]
    shown = [(row, table.format_row(row)) for row in table.rows]
    rows = tuple(
        tuple(_merge_cell(texts if more.get(index) else row, index, more.get(index)) for index in visible)
        for row, texts in shown
    )
    return replace(table, columns=tuple(columns[index] for index in visible), rows=rows)


def _merge_cell(row: Sequence[Cell], index: int, ends: Sequence[int | None] | None) -> Cell:
    value = row[index]
    if ends is None or value is None:
        return value
    sd, low, high = (None if end is None else row[end] for end in ends)
    text = cell_text(value)
    if sd is not None:
        text += f" ± {cell_text(sd)}"
    if low is not None and high is not None:
        text += f" [{cell_text(low)}, {cell_text(high)}]"
    elif isinstance(low, str):
        text += f" [{low}]"  # why there is no interval
    return text


def latex_text(text: str) -> str:
    r"""Escape text for LaTeX, on one line. Text between backticks is set as code.

    >>> print(latex_text("50 % of a_b – √2, see `compare --models`"))
    50 \% of a\_b -- $\surd$2, see \texttt{compare -{}-models}
    """
    parts = one_line(text).replace("--", "-\0-").split("`")
    escaped = ["".join(_ESCAPES.get(c) or _SYMBOLS.get(c, c) for c in part) for part in parts]
    if len(parts) % 2:  # backticks are in pairs
        escaped[1::2] = [rf"\texttt{{{code}}}" for code in escaped[1::2]]
        return "".join(escaped)
    return "`".join(escaped)


def to_latex(section: PrintedTable) -> str:
    r"""Return a table as LaTeX with the rules of `booktabs`; the first column is text, the others are numbers.

    >>> print(to_latex(PrintedTable("Scores", ("model", "IF"), (("a_b", 75.93),))))
    \begin{table}
    \centering
    \caption{Scores}
    \label{tab:scores}
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
    lines += [rf"\label{{tab:{_make_label(section.title)}}}"] if section.title else []
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(section.columns), r"\midrule"]
    for position, row in enumerate(section.rows):
        lines.append(_latex_row([cell_text(cell) for cell in section.format_row(row)], position in section.best))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {latex_text(note)}" for note in section.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _make_label(title: str) -> str:
    """Return a title as a LaTeX label.

    >>> _make_label("Scores, Table 1")
    'scores-table-1'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _latex_row(cells: Sequence[str], is_best: bool = False) -> str:
    texts = [rf"\textbf{{{text}}}" if is_best and text else text for text in map(latex_text, cells)]
    row = " & ".join(texts)
    # A leading bracket would be read as an argument of the previous row end.
    return f"{{}}{row} \\\\" if row.startswith("[") else f"{row} \\\\"


def to_csv(section: PrintedTable) -> str:
    """Return a table as CSV with a header. Numbers are not rounded, missing values are empty, title and notes are omitted.

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
    rows = (_markdown_row([cell_text(cell) for cell in section.format_row(row)]) for row in section.rows)
    return [_markdown_row(section.columns), ruler, *rows]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(for_markdown, cells)) + " |"


def table_to_dict(section: PrintedTable) -> dict[str, Any]:
    """Return a table as a dictionary for JSON."""
    return {
        "title": section.title,
        "columns": list(section.columns),
        "rows": [list(row) for row in section.rows],
        "notes": list(section.notes),
    }


def to_json(section: PrintedTable) -> str:
    """Return a table as a JSON object with title, columns, rows and notes."""
    return for_json(table_to_dict(section), 2) + "\n"


FORMATS: Mapping[str, Callable[[PrintedTable], str]] = {
    "latex": to_latex,
    "csv": to_csv,
    "md": to_markdown,
    "json": to_json,
}
"""Functions that format one table, by format name."""


def all_to_latex(sections: Sequence[PrintedTable], comments: Sequence[str] = ()) -> str:
    """Return several tables as LaTeX; they need the package `booktabs`. Comments are written above them, a line each."""
    lines = ["% needs \\usepackage{booktabs}", *(f"% {one_line(comment)}" for comment in comments)]
    return "\n".join(("\n".join(lines) + "\n", *map(to_latex, sections)))


def all_to_csv(sections: Sequence[PrintedTable]) -> str:
    """Return several tables as one CSV, each with a title line before it and an empty line after it; passports come last.

    A single table has only its header and rows, as CSV readers expect.
    """
    if len(sections) == 1:
        return to_csv(sections[0])
    passports = dict.fromkeys(note for section in sections for note in section.notes if PASSPORT in note)
    listed = [PrintedTable("Passports", ("passport",), tuple((line,) for line in passports))] if passports else []
    return "\n".join(f"# {one_line(section.title)}\n{to_csv(section)}" for section in (*sections, *listed))
