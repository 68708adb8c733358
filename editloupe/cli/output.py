"""Messages on stderr, texts to a file or standard output, formats, and the options about them.

This module is separate from the other options because those load the judges' providers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.errors import UserError
from editloupe._util.files import write_text
from editloupe._util.text import one_line

if TYPE_CHECKING:
    from editloupe.evals.batch.work_items import ItemTally
    from editloupe.evals.report.block_types import Block

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
Out = Annotated[Path | None, typer.Option("--out", help="Output file. Default: standard output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
NARROWEST = 60
"""Smallest width of a table, in columns."""
REPORT_FORMATS = ("text", "md", "html", "json", "latex", "csv")
SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".json": "json",
    ".txt": "text",
    ".tex": "latex",
    ".csv": "csv",
}


def format_option(formats: Sequence[str], out: str | None = "--out") -> Any:
    """Return the option `--format` of a command.

    Args:
        formats: The formats.
        out: The option that names the output file, whose suffix is the default; None if there is no such option.
    """
    *first, last = formats
    default = f" Default: by the suffix of {out}, or {first[0]}." if out else ""
    return typer.Option("--format", help=f"{', '.join(first)} or {last}.{default}")


def tell(sentence: str) -> None:
    """Print a message on stderr."""
    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)


def build_progress(quiet: bool) -> Callable[[ItemTally], None]:
    """Return a function that shows on a terminal how far a stage is."""

    def tick(tally: ItemTally) -> None:
        if not quiet and sys.stderr.isatty():
            has_total = tally.stage != "questions"  # their total grows while they are read
            total = f" of {tally.total}" if has_total else ""
            failed = f", {len(tally.failed)} failed" if tally.failed else ""
            ends = "\n" if has_total and tally.total and tally.done >= tally.total else ""
            print(f"\r{tally.stage}: {tally.done}{total}{failed}", end=ends, file=sys.stderr)

    return tick


def deliver(text: str, out: Path | None) -> None:
    """Write a text to a file, or to standard output if no file is named."""
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    tell(f"written to {out}")


def choose_format(
    format: str | None, out: Path | None, formats: Sequence[str], suffixes: Mapping[str, str] = SUFFIXES
) -> str:
    """Return the named format, or that of the file's suffix, or the first one."""
    if format is not None and format not in formats:
        raise UserError(f'--format is one of {", ".join(formats)}, not "{format}"')
    by_suffix = suffixes.get(out.suffix.lower()) if out else None
    if format is None and by_suffix and by_suffix not in formats:
        raise UserError(f"{out} cannot be written as {by_suffix}; name another file, or --format {', '.join(formats)}")
    return format or by_suffix or formats[0]


def choose_width(out: Path | None, otherwise: int) -> int:
    """Return the width of a text in columns: the terminal's, if it goes there."""
    if out is not None or not sys.stdout.isatty():
        return otherwise
    return max(NARROWEST, shutil.get_terminal_size((otherwise, 24)).columns)


def render_blocks(blocks: Sequence[Block], kind: str, out: Path | None, width: int | None = None) -> str:
    """Return the blocks of a result as Markdown if `kind` is `md`, else as text, which goes to `out` or a terminal."""
    from editloupe.evals.report.text_renderer import WIDTH, as_markdown, as_text

    return as_markdown(blocks) if kind == "md" else as_text(blocks, choose_width(out, width or WIDTH))


def render_page(blocks: Sequence[Block], drawings: Mapping[str, Callable[[], Any]], title: str) -> str:
    """Return the blocks of a result and its figures as an HTML page."""
    from editloupe._util.version import __version__
    from editloupe.evals.report.html_renderer import as_html

    return as_html(blocks, drawings, title, f"Made by EditLoupe {__version__}.")


def split_assignments(texts: Sequence[str], form: str, empty: bool = False) -> Iterator[tuple[str, str]]:
    """Yield name and value of texts NAME=VALUE.

    Args:
        texts: The texts.
        form: The option and its form, such as `--rule takes NAME=VALUE`, for the error message.
        empty: Whether a value may be empty.

    Raises:
        UserError: If a text has another form.
    """
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and (value or empty)):
            raise UserError(f'{form}, not "{text}"')
        yield name, value
