"""Cached results: the same look at the same pixels with the same settings is taken once, whoever asks."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from editloupe.pictures.decode import decode
from editloupe.pictures.encode import encode
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import CachedResult

T = TypeVar("T")


def key(tool: str, *parts: object) -> str:
    """Return the key of a result: a hash of everything it depends on.

    >>> key("zoom", "a", 1) == key("zoom", "a", 1) != key("zoom", "a", 2)
    True
    """
    return hashlib.sha256(json.dumps([tool, *map(str, parts)]).encode()).hexdigest()[:40]


class ToolResultCache:
    """Keeps results in memory and, where a folder is given, on disk; both bounded, the longest unused goes first.

    Two threads that ask for one key at the same time wait for one computation. What fails is not kept, and everyone who
    waited for it gets the same error. A damaged file on disk is computed anew.
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
        """How much is kept in memory."""
        return self._bytes

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """Return the kept result, or compute and keep it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: T = self._kept[key][0]
                return found
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
            known: T = stored
            return known
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
    """Results as files of one folder, one a key, within a bound."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._bytes: int | None = None

    def read(self, key: str) -> CachedResult | None:
        """Return what is stored under this key; None where there is nothing or it cannot be read."""
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
        """Store a result whole or not at all, and drop the longest unused ones beyond the bound."""
        buffer = io.BytesIO()
        data = np.frombuffer(json.dumps(dict(value.data)).encode(), np.uint8)
        pictures = {f"p{i}": np.frombuffer(encode(picture), np.uint8) for i, picture in enumerate(value.pictures)}
        np.savez(buffer, data=data, **pictures)  # type: ignore[arg-type]
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getbuffer())
        os.replace(temporary, path)
        with self._lock:
            self._bytes = (self._bytes if self._bytes is not None else self._measure()) + len(buffer.getbuffer())
            if self._bytes > self._limit:
                self._bytes = self._shrink()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npz"

    def _measure(self) -> int:
        return sum(size for _, size, _ in self._files())

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self._folder.glob("*/*.npz"):
            try:
                status = path.stat()
            except FileNotFoundError:  # another process made room
                continue
            found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _shrink(self) -> int:
        """Delete the longest unused files until a tenth of the bound is free; return what is left."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= 0.9 * self._limit:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total


def estimate_bytes(value: Any) -> int:
    """Return roughly how many bytes a kept value takes."""
    if isinstance(value, CachedResult):
        return sum(p.nbytes for p in value.pictures) + len(json.dumps(dict(value.data))) + 200
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return 64 + sum(estimate_bytes(item) for item in value)
    return 200
