"""Files written whole: a file takes its name when everything is in it, so that a full disk never costs the old one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from editloupe.storable import storable_text
from editloupe.types import UserError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to that takes its name only when it is whole; what fails is told in one sentence.

    A device or a pipe (`/dev/stdout`) is written as it is: there is nothing to replace.
    """
    part: Path | None = None
    try:
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.exists() and not target.is_file():
            yield target
            return
        part = target.with_name(f".{target.name[:50]}.{os.getpid()}.part")
        yield part
        part.replace(target)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if part is not None:
            with suppress(OSError):  # a disk that failed the file may fail this too; the file's sentence is to be read
                part.unlink(missing_ok=True)


@contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that takes its name only when it is whole."""
    with whole_file(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        yield out


def write_text(path: Path, text: str) -> None:
    """Write a text whole, into a folder that is made where there is none; half a character in it carries a mark."""
    make_folder(path.parent)
    with text_file(path) as out:
        out.write(storable_text(text))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; where that fails, one sentence says so."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None
