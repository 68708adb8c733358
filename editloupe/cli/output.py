"""What commands write: sentences for the user on stderr, texts to a file or the terminal, and in which format.

A module of its own, because loading the options of commands loads the judges' providers.
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
"""Columns below which no table is drawn."""
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
    """Print a sentence for the user on stderr, apart from what is piped."""
    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)


def deliver(text: str, out: Path | None) -> None:
    """Write a text into a file, or to the terminal if no file is named."""
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    tell(f"written to {out}")


def chosen_format(format: str | None, out: Path | None, formats: Sequence[str]) -> str:
    """Return the format that was named, else that of the file's suffix, else text."""
    if format is not None and format not in formats:
        raise UserError(f'--format is one of {", ".join(formats)}, not "{format}"')
    by_suffix = SUFFIXES.get(out.suffix.lower()) if out else None
    return format or (by_suffix if by_suffix in formats else None) or "text"


def width_for(out: Path | None, otherwise: int) -> int:
    """Return how many columns a text may take: the terminal's, if it goes there."""
    if out is not None or not sys.stdout.isatty():
        return otherwise
    return max(NARROWEST, shutil.get_terminal_size((otherwise, 24)).columns)
