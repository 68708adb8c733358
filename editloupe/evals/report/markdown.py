"""A report as Markdown, for a repository, an issue or a paper's appendix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from editloupe._util.text import code_for_markdown, counted, for_markdown, trace_command
from editloupe.evals.report.block_types import Block, Cases, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.notable_edits import Instructive
from editloupe.evals.report.table_formats import markdown_rows
from editloupe.rubrics.tables import PrintedTable


def as_markdown(blocks: Sequence[Block], pictures: Mapping[str, str] | None = None) -> str:
    """Return blocks as Markdown; figures are linked where `pictures` says by name where they are."""
    return "\n\n".join(part for block in blocks for part in _shown(block, pictures or {})) + "\n"


def _shown(block: Block, pictures: Mapping[str, str]) -> list[str]:
    if isinstance(block, Heading):
        return [f"{'#' * block.level} {for_markdown(block.text)}"]
    if isinstance(block, Paragraph):
        text = for_markdown(block.text)
        return [{"answer": f"**{text}**", "warning": f"> **Note.** {text}", "paste": f"> {text}"}.get(block.kind, text)]
    if isinstance(block, Points):
        return ["\n".join(f"- {for_markdown(item)}" for item in block.items)] if block.items else []
    if isinstance(block, PrintedTable):
        return ["\n".join(markdown_rows(block)), *([for_markdown(block.note)] if block.note else [])]
    if isinstance(block, Drawing):
        return [f"![{for_markdown(block.caption)}]({pictures[block.name]})"] if block.name in pictures else []
    return _cases(block)


def _cases(cases: Cases) -> list[str]:
    return ["\n".join(_case(cases, number, item) for number, item in enumerate(cases.items, start=1))]


def _case(cases: Cases, number: int, item: Instructive) -> str:
    title = cases.titles.get(item.criterion, item.criterion)
    human = f"; people: {counted(item.human)}" if item.human else ""
    said = for_markdown(f"{title}: {item.label}{human}")
    command = code_for_markdown(trace_command(cases.folder, item.edit_id, item.criterion, item.repeat))
    return (
        f"{number}. **{for_markdown(item.edit_id)}**, {item.kind} ({for_markdown(item.because)}): "
        f"“{for_markdown(item.instruction)}” – {said}. {command}"
    )
