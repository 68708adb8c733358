"""Render blocks as terminal text or Markdown."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from editloupe._util.text import code_for_markdown, for_markdown, format_counts, printable
from editloupe.evals.report.block_types import Block, Cases, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.notable_edits import NotableEdit
from editloupe.evals.report.table_formats import cell_text, markdown_rows
from editloupe.rubrics.tables import PrintedTable

WIDTH = 110
"""Default width in characters, for files."""


_PADDING = 3
"""Characters between two columns of a table."""


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Print blocks to a terminal, without figures."""
    for block in blocks:
        for part in _render_block(block, console.width):
            console.print(part)


def as_text(blocks: Sequence[Block], width: int = WIDTH) -> str:
    """Return blocks as plain text."""
    target = io.StringIO()
    print_blocks(blocks, Console(file=target, width=width, highlight=False, color_system=None))
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def _render_block(block: Block, width: int) -> list[RenderableType]:
    if isinstance(block, Heading):
        text = Text(printable(block.text), style="bold")
        return [Rule(text, align="left", style="dim")] if block.level < 3 else [text]
    if isinstance(block, Paragraph) and block.kind == "json":
        return []
    if isinstance(block, Paragraph):
        text = Text(printable(block.text))
        if block.kind == "answer":
            return [Panel(Text(printable(block.text), style="bold"), padding=(0, 1))]
        return [Text(printable(block.text), style="yellow") if block.kind == "warning" else text, Text()]
    if isinstance(block, Points):
        lines: list[RenderableType] = []
        for item in block.items:
            line = RichTable.grid(padding=(0, 1))
            line.add_row(Text("•"), Text(printable(item)))
            lines.append(line)
        return [*lines, Text()]
    if isinstance(block, PrintedTable):
        return _render_table(block, width)
    if isinstance(block, Cases):
        return [part for item in block.items for part in _render_case(block, item)]
    return []


def _render_table(grid: PrintedTable, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    rows = [[cell_text(cell) for cell in grid.format_row(row)] for row in grid.rows]
    widths = _measure_columns(grid.columns, rows)
    pages = [list(range(len(widths)))] if grid.wraps else _split_columns(widths, width)
    for columns in pages:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        heads = [printable(grid.columns[column]) for column in columns]
        wide = [max(widths[column], len(head)) for column, head in zip(columns, heads, strict=True)]
        if (
            not grid.wraps and sum(wide) + _PADDING * len(wide) > width
        ):  # rich would break words; one word per line is the narrowest
            heads = ["\n".join(head.split()) if column else head for column, head in zip(columns, heads, strict=True)]
        for column, head in zip(columns, heads, strict=True):
            justify: JustifyMethod = "right" if column and not grid.wraps else "left"
            table.add_column(Text(head), justify=justify, overflow="fold")
        for row in rows:
            table.add_row(*(Text(row[column]) for column in columns))
        parts.append(table)
    return [*parts, Text(printable(grid.note), style="dim"), Text()] if grid.note else parts


def _measure_columns(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width per column that breaks no cell and no word of its heading."""
    return [max(map(len, (*column.split(), *(row[index] for row in rows), ""))) for index, column in enumerate(columns)]


def _split_columns(widths: list[int], width: int) -> list[list[int]]:
    """Split the columns into tables that fit the width; each repeats the first column.

    Numbers and words of headings are never broken. Long texts in the first column may be.
    """
    first = min(widths[0], width // 3)
    pages: list[list[int]] = [[0]]
    room = width - first - 2 * _PADDING
    left = room
    for column in range(1, len(widths)):
        wanted = widths[column] + _PADDING
        if wanted > left and len(pages[-1]) > 1:
            pages.append([0])
            left = room
        pages[-1].append(column)
        left -= wanted
    return pages


def _render_case(cases: Cases, item: NotableEdit) -> list[RenderableType]:
    head = Text.assemble((printable(item.edit_id), "bold"), f"  {item.kind}: {printable(item.because)}")
    human = f" · people: {format_counts(item.human)}" if item.human else ""
    title = cases.titles.get(item.criterion, item.criterion)
    lines = [
        Text(f"“{printable(item.instruction)}”", style="italic"),
        Text(printable(f"{title}: {item.label}{human}")),
        Text(cases.trace_command(item), style="dim"),
    ]
    return [head, *(Padding(line, (0, 0, 0, 2)) for line in lines), Text()]


def as_markdown(blocks: Sequence[Block], pictures: Mapping[str, str] | None = None) -> str:
    """Return blocks as Markdown. `pictures` maps figure names to link targets; other figures are left out."""
    return "\n\n".join(part for block in blocks for part in _block_to_markdown(block, pictures or {})) + "\n"


def _block_to_markdown(block: Block, pictures: Mapping[str, str]) -> list[str]:
    if isinstance(block, Heading):
        return [f"{'#' * block.level} {for_markdown(block.text)}"]
    if isinstance(block, Paragraph) and block.kind == "json":
        return ["\n".join(("```json", *map(printable, block.text.replace("`", "\\u0060").splitlines()), "```"))]
    if isinstance(block, Paragraph):
        text = for_markdown(block.text)
        return [{"answer": f"**{text}**", "warning": f"> **Note.** {text}", "paste": f"> {text}"}.get(block.kind, text)]
    if isinstance(block, Points):
        return ["\n".join(f"- {for_markdown(item)}" for item in block.items)] if block.items else []
    if isinstance(block, PrintedTable):
        return ["\n".join(markdown_rows(block)), *([for_markdown(block.note)] if block.note else [])]
    if isinstance(block, Drawing):
        return [f"![{for_markdown(block.caption)}]({pictures[block.name]})"] if block.name in pictures else []
    return _cases_to_markdown(block)


def _cases_to_markdown(cases: Cases) -> list[str]:
    return ["\n".join(_case_to_markdown(cases, number, item) for number, item in enumerate(cases.items, start=1))]


def _case_to_markdown(cases: Cases, number: int, item: NotableEdit) -> str:
    title = cases.titles.get(item.criterion, item.criterion)
    human = f"; people: {format_counts(item.human)}" if item.human else ""
    verdict = for_markdown(f"{title}: {item.label}{human}")
    command = code_for_markdown(cases.trace_command(item))
    return (
        f"{number}. **{for_markdown(item.edit_id)}**, {item.kind} ({for_markdown(item.because)}): "
        f"“{for_markdown(item.instruction)}” – {verdict}. {command}"
    )
