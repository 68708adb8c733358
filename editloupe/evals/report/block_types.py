"""Blocks of a page, independent of the output format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from editloupe._util.text import format_trace_command
from editloupe.evals.report.notable_edits import NotableEdit
from editloupe.rubrics.tables import PrintedTable


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the page title."""

    text: str
    level: int = 2
    folded: bool = False
    """Whether a page shows only the heading until it is opened."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of one of five kinds. `json` is shown line by line, and only in pages and Markdown."""

    text: str
    kind: Literal["answer", "warning", "paste", "json", "plain"] = "plain"


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Drawing:
    """A figure, by its name in `build_figures`."""

    name: str
    caption: str
    folder: str = ""
    """The run whose edits it shows, if a page may link them."""
    configuration: str = ""


@dataclass(frozen=True)
class Cases:
    """Edits to look at."""

    folder: str
    items: tuple[NotableEdit, ...]
    titles: Mapping[str, str]
    configuration: str = ""
    """The configuration's name in the run."""
    short_name: str = ""
    """What names the configuration in `--configuration`; empty if the run has only one."""

    def trace_command(self, item: NotableEdit) -> str:
        """Return the command that shows the trace of one of the edits."""
        return format_trace_command(self.folder, item.edit_id, item.criterion, item.repeat, self.short_name)


Block = Heading | Paragraph | Points | PrintedTable | Drawing | Cases
