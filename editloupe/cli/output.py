"""Helpers for the output of commands: messages on stderr, texts to a file or standard output, and formats.

This module is separate from the options because those load the judges' providers.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from editloupe._util.errors import UserError
from editloupe._util.files import write_text
from editloupe._util.text import one_line

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


def tell(sentence: str) -> None:
    """Print a message on stderr."""
    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)


def deliver(text: str, out: Path | None) -> None:
    """Write a text to a file, or to standard output if no file is named."""
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    tell(f"written to {out}")


def choose_format(format: str | None, out: Path | None, formats: Sequence[str]) -> str:
    """Return the named format, or that of the file's suffix, or text."""
    if format is not None and format not in formats:
        raise UserError(f'--format is one of {", ".join(formats)}, not "{format}"')
    by_suffix = SUFFIXES.get(out.suffix.lower()) if out else None
    if format is None and by_suffix and by_suffix not in formats:
        raise UserError(f"{out} cannot be written as {by_suffix}; name another file, or --format {', '.join(formats)}")
    return format or by_suffix or "text"


def choose_width(out: Path | None, otherwise: int) -> int:
    """Return the width of a text in columns: the terminal's, if it goes there."""
    if out is not None or not sys.stdout.isatty():
        return otherwise
    return max(NARROWEST, shutil.get_terminal_size((otherwise, 24)).columns)
