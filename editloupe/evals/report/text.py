"""A report in the terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from editloupe.evals.analysis.instructive import Instructive
from editloupe.evals.report.blocks import Block, Cases, Grid, Heading, Paragraph, Points
from editloupe.safe_text import counted, printable, trace_command

WIDTH = 110
"""Columns where nothing else is known, as in a file."""


def print_blocks(blocks: Sequence[Block], console: Console) -> None:
    """Print blocks; figures have no place in a terminal and are left out."""
    for block in blocks:
        for part in _shown(block):
            console.print(part)


def as_text(blocks: Sequence[Block], width: int = WIDTH) -> str:
    """Return blocks as plain text."""
    target = io.StringIO()
    print_blocks(blocks, Console(file=target, width=width, highlight=False, color_system=None))
    return "\n".join(line.rstrip() for line in target.getvalue().splitlines()) + "\n"


def _shown(block: Block) -> list[RenderableType]:
    if isinstance(block, Heading):
        text = Text(printable(block.text), style="bold")
        return [Rule(text, align="left", style="dim")] if block.level < 3 else [text]
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
    if isinstance(block, Grid):
        return _grid(block)
    if isinstance(block, Cases):
        return [part for item in block.items for part in _case(block, item)]
    return []


def _grid(grid: Grid) -> list[RenderableType]:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for place, column in enumerate(grid.columns):
        table.add_column(Text(printable(column)), justify="right" if place else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    parts: list[RenderableType] = [table]
    return [*parts, Text(printable(grid.note), style="dim"), Text()] if grid.note else parts


def _case(cases: Cases, item: Instructive) -> list[RenderableType]:
    head = Text.assemble((printable(item.edit_id), "bold"), f"  {item.kind}: {printable(item.because)}")
    human = f" · people: {counted(item.human)}" if item.human else ""
    title = cases.titles.get(item.criterion, item.criterion)
    lines = [
        Text(f"“{printable(item.instruction)}”", style="italic"),
        Text(printable(f"{title}: {item.label}{human}")),
        Text(trace_command(cases.folder, item.edit_id, item.criterion, item.repeat), style="dim"),
    ]
    return [head, *(Padding(line, (0, 0, 0, 2)) for line in lines), Text()]
