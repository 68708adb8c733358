"""Append to and read append-only JSONL files, such as labels and notes, safely after a crash or a full disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from editloupe.evals.manifests.readers import Row, read_jsonl
from editloupe.types import UserError

_BLOCK = 1 << 16


def read_log_rows(path: Path, notes: list[str]) -> Iterator[Row]:
    """Yield the rows of an append-only JSONL file.

    A last line that was cut off (by a full disk or a power cut) is skipped with a note. Any other line that is not JSON raises
    UserError with its number.
    """
    torn, complete = b"", 0
    try:
        torn, complete = _torn(path)
        yield from read_jsonl(path)
    except UserError as error:
        if not torn or not str(error).startswith(f"{path.name}, line {complete + 1}:"):
            raise
        notes.append(f"The last line of {path.name} was cut off and is skipped ({len(torn)} bytes).")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None


def append_line(path: Path, line: bytes) -> int:
    """Append a line under a lock and return the file's size; the line is on disk when this returns.

    A last line that was cut off is moved to `NAME.torn` first, because in the middle of the file it would stop every reader.
    """
    from filelock import lock_descriptor

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        lock_descriptor(file.fileno(), poll_interval=0.005)
        last = _last_line(file)
        if last and not _is_object(last):
            with path.with_name(f"{path.name}.torn").open("ab") as aside:
                aside.write(last + b"\n")
                aside.flush()
                os.fsync(aside.fileno())
            file.truncate(file.seek(0, os.SEEK_END) - len(last))
        elif last:
            line = b"\n" + line
        size = file.seek(0, os.SEEK_END)
        try:
            rest = line + b"\n"
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            # Remove half a line, so that a full disk leaves the file unchanged.
            os.truncate(path, size)
            raise
        return file.seek(0, os.SEEK_END)


def _torn(path: Path) -> tuple[bytes, int]:
    """Return a last line that was cut off, and the number of lines before it."""
    with path.open("rb") as file:
        last = _last_line(file)
        if not last or _is_object(last):
            return b"", 0
        file.seek(0)
        return last, sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))


def _last_line(file: IO[bytes]) -> bytes:
    """Return the bytes after the last line break."""
    end, tail = file.seek(0, os.SEEK_END), b""
    while end > 0 and b"\n" not in tail:
        start = max(0, end - _BLOCK)
        file.seek(start)
        tail, end = file.read(end - start) + tail, start
    return tail.rpartition(b"\n")[2]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8-sig")), dict) or not line.strip()
    except (ValueError, RecursionError):
        return not line.strip()
