"""Read a user's files safely, and write files atomically.

Only regular files are read, and never more bytes than a limit: a pipe or a device could block or never end. A failure is an
OSError whose `strerror` fits into a sentence. A file is written under a temporary name and renamed when it is complete, so
that a full disk never destroys the old file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from editloupe._util.errors import UserError
from editloupe._util.json_safe import sanitize_text

TEXT_BYTES = 256_000_000
"""The size limit of text files, such as a benchmark's list of tasks."""
_QUIETLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotAFile(OSError):
    """A path is not a regular file, or the file is too large."""


def check_file(path: Path) -> os.stat_result:
    """Return the status of a file. Raise OSError if it is missing or not a regular file."""
    try:
        status = os.stat(path)
    except ValueError as error:  # a NUL, or half a character: no file can have such a name
        raise NotAFile(errno.EINVAL, f"no file can be called that ({error})", str(path)) from None
    _check_kind(status.st_mode, path)
    return status


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes. Never blocks on a pipe or a device."""
    check_file(path)  # before opening, because opening a device can have effects
    with os.fdopen(os.open(path, _QUIETLY), "rb") as file:
        _check_kind(os.fstat(file.fileno()).st_mode, path)
        yield file


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a file. The limit is checked before and while reading, because the file could grow."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise _too_large(path, limit)
        parts, room = [], limit + 1
        while room > 0 and (part := file.read(min(room, size + 1))):
            parts.append(part)
            room -= len(part)
            size = max(size, 1 << 20)
        if room <= 0:
            raise _too_large(path, limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def read_text(path: Path, limit: int = TEXT_BYTES) -> str:
    """Return a file's text without a byte order mark. Raise UnicodeDecodeError if it is not UTF-8."""
    return read_bytes(path, limit).decode("utf-8-sig")


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a resolved path is in a folder. A snapshot in the cache of the Hugging Face hub has its files in `blobs`.

    >>> is_inside(Path("/hub/datasets--a--b/blobs/0a1b"), Path("/hub/datasets--a--b/snapshots/2c"))
    True
    """
    blobs = folder.parent.parent / "blobs"
    return path.is_relative_to(folder) or (folder.parent.name == "snapshots" and path.is_relative_to(blobs))


def _check_kind(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise NotAFile(errno.EINVAL, f"it is {kind}, not a file", str(path))


def _too_large(path: Path, limit: int) -> NotAFile:
    return NotAFile(errno.EFBIG, f"it is larger than the limit of {limit // 1_000_000} MB", str(path))


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, and rename it to `path` at the end. Raise UserError if that fails.

    A device or a pipe (`/dev/stdout`) is written directly.
    """
    part: Path | None = None
    try:
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.exists() and not target.is_file():
            yield target
            return
        part = target.with_name(f".{target.name[:50]}.{os.getpid()}-{threading.get_ident()}.part")
        yield part
        part.replace(target)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if part is not None:
            with suppress(OSError):  # a failing disk may fail here too; the first error matters
                part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Write a folder atomically: yield a temporary folder, and rename it to `path` at the end.

    Raises:
        UserError: If the path exists and is not an empty folder, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    part: Path | None = None
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UserError(f"{path} exists and is not an empty folder; name another one")
        make_folder(target.parent)
        part = target.with_name(f".{target.name[:50]}.{os.getpid()}-{threading.get_ident()}.part")
        part.mkdir()
        yield part
        if target.exists():
            target.rmdir()
        part.rename(target)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def atomic_text_file(path: Path) -> Iterator[TextIO]:
    """Open a text file for an atomic write."""
    with atomic_write(path) as part, part.open("w", encoding="utf-8", newline="") as out:
        yield out


def write_text(path: Path, text: str) -> None:
    """Write a text atomically and create the folder if needed. Lone surrogates are replaced by a mark."""
    make_folder(path.parent)
    with atomic_text_file(path) as out:
        out.write(sanitize_text(text))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically and create the folder if needed."""
    make_folder(path.parent)
    with atomic_write(path) as part:
        part.write_bytes(data)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents. Raise UserError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror or error}") from None


def safe_file_name(name: str) -> str:
    """Return a valid and readable file name that is unique per name.

    >>> safe_file_name("vstar-12"), safe_file_name("perception/ocr/0913")
    ('vstar-12', 'perception-ocr-0913-c21e0554')
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80]
    if plain == name:
        return plain
    return f"{plain or 'sample'}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
