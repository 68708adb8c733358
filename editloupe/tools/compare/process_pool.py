"""Compare pictures in other processes.

A comparison consists of about two hundred short numpy and OpenCV calls, each followed by a request for the GIL. Next to
a busy event loop it takes three times as long as alone, and delays the loop as often. A batch therefore compares its
pictures in other processes. The picture files are passed in a memory file and decoded there; the comparison and its
crops come back through a pipe. The numbers are the same.

The text of differing places is read in every second of these processes, with one thread each: a reader takes more memory
than a comparison. The places come back with the comparison and are passed on to a process that reads, which loads the
reader when it first reads.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import IO, Any

import cv2
import numpy as np

from editloupe.pictures.decode import Picture, decode
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import (
    ComparisonResult,
    LineReader,
    compare_and_crop,
    compare_in_process,
    cut_text_places,
    read_places,
)

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(64 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20)}
"""Make glibc keep the memory of a comparison for the next one: getting it from the kernel again costs a fifth of the time."""
_A_FILE = -1
"""Height and width of a picture that is passed as an encoded file."""
_LENGTH = struct.Struct("<q")
JPEG_MAGIC = b"\xff\xd8\xff"


class ComparisonPoolClosed(Exception):
    """The pool was closed and compares nothing more."""


class ComparisonPool:
    """A pool of processes that compare pictures. A process starts when the others are busy. Thread-safe.

    Args:
        processes: The most processes.
    """

    def __init__(self, processes: int) -> None:
        self._all = [ComparisonProcess() for _ in range(processes)]
        self._free: queue.PriorityQueue[tuple[int, ComparisonProcess]] = queue.PriorityQueue()
        self._readers: queue.PriorityQueue[tuple[int, ComparisonProcess]] = queue.PriorityQueue()
        for rank, process in enumerate(self._all):
            self._free.put((rank, process))
        for rank, process in enumerate(reversed(self._all[processes // 2 :])):  # they compare if the others are busy
            self._readers.put((rank, process))

    def __call__(
        self, first: Picture, second: Picture, max_crops: int, reader: LineReader | None = None
    ) -> ComparisonResult:
        """Compare two pictures as soon as a process is free.

        Args:
            first: The first picture.
            second: The second picture.
            max_crops: The most differences to cut out.
            reader: If not None, the text of the places is read by the reader of a process, on the device of this one.
        """
        rank, process = self._free.get()
        try:
            result, places = process.compare(first, second, max_crops, reader)
        finally:
            self._free.put((rank, process))
        if reader is None or places is None:
            return result
        rank, process = self._readers.get()
        try:
            return replace(result, texts=process.read(places, reader))
        finally:
            self._readers.put((rank, process))

    @property
    def pids(self) -> list[int]:
        """The ids of the started processes."""
        return [process.pid for process in self._all if process.pid is not None]

    def close(self) -> None:
        """Kill the processes, also busy ones. Waiting and later callers get `ComparisonPoolClosed`."""
        for process in self._all:
            process.close()


class ComparisonProcess:
    """One process of the pool. It ends with its parent, however that ends."""

    def __init__(self) -> None:
        self._pixels = _create_memory_file()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._turn = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id, or None before the first comparison."""
        return self._process.pid if self._process else None

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process with the same module search path."""
        file = self._pixels.fileno()
        return subprocess.Popen(
            [sys.executable, "-c", "from editloupe.tools.compare.process_pool import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(file,),
            env={**os.environ, **KEEP_MEMORY, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            process_group=0,  # Ctrl-C at the terminal does not reach it, not even while it starts
        )

    def compare(
        self, first: Picture, second: Picture, max_crops: int, reader: LineReader | None = None
    ) -> tuple[ComparisonResult, bytes | None]:
        """Compare two pictures. If the process was killed, compare in this process; the next call starts a new one.

        Returns:
            The comparison, and the places whose text is still to be read; None if there are none.
        """
        with self._turn:
            try:
                if not self._closed:
                    sizes = self._write(first, second)
                    result, places = self._ask((_compare, self._pixels.fileno(), max_crops, reader is not None, sizes))
                    return result, places
            except (OSError, EOFError):
                self._end()
            if self._closed:
                raise ComparisonPoolClosed("the batch has ended")
        return compare_in_process(first, second, max_crops, reader), None

    def read(self, places: bytes, reader: LineReader) -> tuple[dict[str, Any], ...]:
        """Read the text of places that `compare` returned. If the process was killed, read in this process."""
        with self._turn:
            try:
                if not self._closed:
                    texts: tuple[dict[str, Any], ...] = self._ask((_read, places, reader.device))
                    return texts
            except (OSError, EOFError):
                self._end()
            if self._closed:
                raise ComparisonPoolClosed("the batch has ended")
        return read_places(reader, pickle.loads(places))

    def _write(self, first: Picture, second: Picture) -> list[int]:
        """Write the pictures into the memory file; return height, width and bytes of each."""
        self._pixels.seek(0)
        sizes: list[int] = []
        for picture in (first, second):
            data, height, width = _serialize(picture)
            if self._pixels.write(data) != len(data):
                raise OSError("there is no room for the pixels")
            sizes += [height, width, len(data)]
        return sizes

    def _ask(self, request: tuple[Any, ...]) -> Any:
        """Have the process call a function of this module, the first of the request, with the rest."""
        self._process = self._process or self._start()
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        _send(requests, request)
        answer = _receive(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Kill the process, and close the memory file once no thread writes to it."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()  # whoever waits for its answer wakes up
        with self._turn:
            self._end()
            self._pixels.close()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError, ValueError):  # what was written into the pipe need not arrive any more
                self._process.communicate()
            self._process = None


def _create_memory_file() -> IO[bytes]:
    """Return an unnamed file in memory, or a temporary file if the system has no memory files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("editloupe"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def serve() -> None:
    """Answer requests until the pipe closes. SIGINT is ignored: the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    while True:
        try:
            function, *arguments = _receive(incoming)
        except EOFError:
            return
        try:
            answer = function(*arguments)
        except Exception as error:  # it is raised again by the process that asked
            answer = error
        _send(outgoing, answer)


def _compare(file: int, max_crops: int, reads: bool, sizes: list[int]) -> tuple[ComparisonResult, bytes | None]:
    """Compare the pictures of the memory file, and cut out the places whose text is to be read."""
    first, second = _read_picture(file, 0, *sizes[:3]), _read_picture(file, sizes[2], *sizes[3:])
    result = compare_and_crop(first, second, max_crops)
    if not reads or result.comparison.whole_scene:
        return result, None
    places = cut_text_places(first, second, result.comparison, max_crops)
    return (result, pickle.dumps(places)) if places else (replace(result, texts=()), None)


def _read(places: bytes, device: str) -> tuple[dict[str, Any], ...]:
    """Read the text of these places."""
    return read_places(_load_reader(device), pickle.loads(places))


@cache
def _load_reader(device: str) -> LineReader:
    """Return the reader of this process. It has one thread, since there is a process per core."""
    from editloupe.tools.read_text import ReadText
    from editloupe.tools.settings import ToolSettings

    return ReadText(ToolSettings(device=device, threads=1))


def _serialize(picture: Picture) -> tuple[bytes | memoryview, int, int]:
    """Return the encoded file of a picture that is not decoded yet, else its pixels with height and width."""
    if picture.file and not picture.decoded:
        return picture.file[1], _A_FILE, _A_FILE
    width, height = picture.size
    return np.ascontiguousarray(picture.pixels).reshape(-1).data, height, width


def _read_picture(file: int, start: int, height: int, width: int, size: int) -> Pixels:
    data = os.pread(file, size, start)
    if height == _A_FILE:
        pixels = decode_jpeg(data)
        return decode(data, "the picture").pixels if pixels is None else pixels
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def decode_jpeg(data: bytes) -> Pixels | None:
    """Decode a JPEG to the same pixels as Pillow, a fifth faster; None if it is not a JPEG or cannot be decoded.

    Use it only for files that were read before, and in a process that prints nothing: stderr is closed meanwhile,
    because OpenCV's decoder prints warnings about extra bytes.
    """
    if not data.startswith(JPEG_MAGIC):
        return None
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        bgr: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
    return None if bgr is None else np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=bgr), np.uint8)


def _send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    return pickle.loads(_read_exactly(stream, _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))[0]))


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side is gone")
    return data
