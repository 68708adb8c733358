"""Cache of tool results in memory and on disk."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from editloupe._util.files import write_bytes
from editloupe.pictures.decode import decode
from editloupe.pictures.encode import encode
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import CachedResult
from editloupe.types import UserError

T = TypeVar("T")


def key(tool: str, *parts: object) -> str:
    """Return the key of a result: a hash of everything it depends on.

    Args:
        tool: The name of the tool.
        parts: Everything else that decides the result, such as picture hashes and settings.

    >>> key("zoom", "a", 1) == key("zoom", "a", 1) != key("zoom", "a", 2)
    True
    """
    return hashlib.sha256(json.dumps([tool, *map(str, parts)]).encode()).hexdigest()[:40]


class ToolResultCache:
    """Keep results in memory and optionally on disk. Both are bounded; the least recently used go first.

    Threads that ask for the same key at the same time share one computation. An error is not cached; every waiting
    thread gets it. A damaged file on disk is computed again.

    Args:
        limit_bytes: Size limit in memory.
        folder: Folder of the cache on disk, if there should be one.
        folder_bytes: Size limit on disk.
    """

    def __init__(self, limit_bytes: int, folder: Path | None = None, folder_bytes: int = 2 * 2**30) -> None:
        self._limit = limit_bytes
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._disk = DiskResultCache(folder, folder_bytes) if folder else None

    @property
    def bytes(self) -> int:
        """The size of the cache in memory."""
        return self._bytes

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """Return the cached result, or compute and cache it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                cached: T = self._kept[key][0]
                return cached
            waiting = self._under_way.get(key)
            if waiting is None:
                mine: Future[T] = Future()
                self._under_way[key] = mine
        if waiting is not None:
            awaited: T = waiting.result()
            return awaited
        try:
            value = self._from_disk_or(key, compute)
        except BaseException as error:
            with self._lock:
                del self._under_way[key]
            mine.set_exception(error)
            raise
        with self._lock:
            self._keep(key, value)
            del self._under_way[key]
        mine.set_result(value)
        return value

    def _from_disk_or(self, key: str, compute: Callable[[], T]) -> T:
        if self._disk is None:
            return compute()
        stored: Any = self._disk.read(key)
        if stored is not None:
            cached: T = stored
            return cached
        value = compute()
        if isinstance(value, CachedResult):
            self._disk.write(key, value)
        return value

    def _keep(self, key: str, value: Any) -> None:
        size = estimate_bytes(value)
        if size > self._limit:
            return
        self._kept[key] = (value, size)
        self._bytes += size
        while self._bytes > self._limit:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped


class DiskResultCache:
    """Store results in a folder of bounded size, one file per key."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._bytes: int | None = None

    def read(self, key: str) -> CachedResult | None:
        """Return the result of a key, or None if there is none or it cannot be read."""
        path = self._path(key)
        try:
            with np.load(path, allow_pickle=False) as stored:
                data = json.loads(stored["data"].tobytes())
                pictures = tuple(decode(stored[f"p{i}"].tobytes(), key).pixels for i in range(len(stored.files) - 1))
            os.utime(path)
        except (OSError, ValueError, KeyError, EOFError, ImageError):
            return None
        except Exception as error:  # zipfile's own errors on a damaged file
            if type(error).__module__ in ("zipfile", "zlib"):
                return None
            raise
        return CachedResult(data, pictures)

    def write(self, key: str, value: CachedResult) -> None:
        """Write a result atomically, and delete the least recently used ones beyond the limit.

        If the disk is full or cannot be written, the result is not stored; the tool's call is not affected.
        """
        with suppress(UserError, OSError):
            self._write(key, value)

    def _write(self, key: str, value: CachedResult) -> None:
        buffer = io.BytesIO()
        data = np.frombuffer(json.dumps(dict(value.data)).encode(), np.uint8)
        pictures = {f"p{i}": np.frombuffer(encode(picture), np.uint8) for i, picture in enumerate(value.pictures)}
        np.savez(buffer, data=data, **pictures)  # type: ignore[arg-type]
        archive = buffer.getvalue()
        write_bytes(self._path(key), archive)
        with self._lock:
            self._bytes = (self._bytes if self._bytes is not None else self._measure()) + len(archive)
            if self._bytes > self._limit:
                self._bytes = self._shrink()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npz"

    def _measure(self) -> int:
        return sum(size for _, size, _ in self._files())

    def _files(self) -> list[tuple[float, int, Path]]:
        files = []
        for path in self._folder.glob("*/*.npz"):
            try:
                status = path.stat()
            except FileNotFoundError:  # another process made room
                continue
            files.append((status.st_mtime, status.st_size, path))
        return sorted(files)

    def _shrink(self) -> int:
        """Delete the least recently used files until a tenth of the limit is free; return the remaining size."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= 0.9 * self._limit:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total


def estimate_bytes(value: Any) -> int:
    """Return roughly how many bytes a cached value takes."""
    if isinstance(value, CachedResult):
        return sum(p.nbytes for p in value.pictures) + len(json.dumps(dict(value.data))) + 200
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return 64 + sum(estimate_bytes(item) for item in value)
    return 200
