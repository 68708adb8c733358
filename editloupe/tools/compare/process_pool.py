"""Comparing pictures in processes beside this one.

A comparison is some two hundred short steps of numpy and OpenCV, and a thread asks for Python's lock after each of them. Next to
an event loop that reads replies all the time it takes three times as long as alone, and holds the loop up as often. A batch
therefore has its pictures compared next door: their files go there through a file in memory and are decoded there, the comparison
and the crops it shows come back through a pipe, and the numbers are the same. Here nobody decodes a picture to compare it.

The text of differing places is read there, too, with one thread per process. A process loads the reader when it first reads.
"""

from __future__ import annotations

import ctypes
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
from functools import cache
from typing import IO, Any

import cv2
import numpy as np

from editloupe.pictures.decode import Picture, decode
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import ComparisonResult, LineReader, compare_and_crop, compare_in_process

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(64 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20)}
"""Has glibc keep what a comparison used for the next one: getting it anew from the kernel is a fifth of a comparison."""
_ASKED = struct.Struct("<8q")
"""How many places to show, whether to read their text; of both pictures height, width and bytes."""
_A_FILE = -1
"""The height and width of a file, which is to be decoded."""
_LENGTH = struct.Struct("<q")
JPEG_MAGIC = b"\xff\xd8\xff"


class ComparisonPoolClosed(Exception):
    """Nothing is compared any more."""


class ComparisonPool:
    """A few processes that compare pictures, each started when the others are busy; call it from any thread."""

    def __init__(self, processes: int) -> None:
        self._all = [ComparisonProcess() for _ in range(processes)]
        self._free: queue.LifoQueue[ComparisonProcess] = queue.LifoQueue()
        for one in self._all:
            self._free.put(one)

    def __call__(
        self, first: Picture, second: Picture, most: int, reader: LineReader | None = None
    ) -> ComparisonResult:
        """Compare two pictures as soon as a process is free.

        With a ``reader``, the process reads the text of the places with a reader of its own.
        """
        one = self._free.get()
        try:
            return one.compare(first, second, most, reader)
        finally:
            self._free.put(one)

    @property
    def pids(self) -> list[int]:
        """The processes that were started."""
        return [one.pid for one in self._all if one.pid is not None]

    def close(self) -> None:
        """End the processes, also those at work; whoever waits for them or asks again is told so."""
        for one in self._all:
            one.close()


class ComparisonProcess:
    """One process, which ends when this one does, however that ends."""

    def __init__(self) -> None:
        self._pixels = _file_in_memory()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._turn = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process's number; None before it is needed."""
        return self._process.pid if self._process else None

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process, which finds this program's modules where this one does."""
        file = self._pixels.fileno()
        return subprocess.Popen(
            [sys.executable, "-c", f"from editloupe.tools.compare.process_pool import serve; serve({file})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(file,),
            env={**os.environ, **KEEP_MEMORY, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            process_group=0,  # Ctrl-C at the terminal does not reach it, not even while it starts
        )

    def compare(self, first: Picture, second: Picture, most: int, reader: LineReader | None = None) -> ComparisonResult:
        """Compare two pictures; where the process was killed it is done here, by the same code, and the next starts anew."""
        with self._turn:
            try:
                if not self._closed:
                    return self._ask(first, second, most, reader is not None)
            except (OSError, EOFError):
                self._end()
            if self._closed:
                raise ComparisonPoolClosed("the batch has ended")
        return compare_in_process(first, second, most, reader)

    def _ask(self, first: Picture, second: Picture, most: int, reads: bool) -> ComparisonResult:
        self._process = self._process or self._start()
        there, back = self._process.stdin, self._process.stdout
        assert there is not None
        assert back is not None
        self._pixels.seek(0)
        sizes: list[int] = []
        for picture in (first, second):
            data, height, width = _handed_over(picture)
            if self._pixels.write(data) != len(data):
                raise OSError("there is no room for the pixels")
            sizes += [height, width, len(data)]
        there.write(_ASKED.pack(most, reads, *sizes))
        there.flush()
        answer = pickle.loads(_read(back, _LENGTH.unpack(_read(back, _LENGTH.size))[0]))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, ComparisonResult)
        return answer

    def close(self) -> None:
        """End the process, and the file with it once nobody writes to it."""
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


def _file_in_memory() -> IO[bytes]:
    """Return a nameless file; where the system has none in memory, one that hardly gets to the disk."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("editloupe"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def serve(file: int) -> None:
    """Compare what lies in the file until nothing more is asked; Ctrl-C is the business of whoever asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get among the answers
    while asked := incoming.read(_ASKED.size):
        most, reads, *sizes = _ASKED.unpack(asked)
        try:
            first, second = _picture(file, 0, *sizes[:3]), _picture(file, sizes[2], *sizes[3:])
            answer: ComparisonResult | Exception = compare_and_crop(first, second, most, _reader() if reads else None)
        except Exception as error:  # it is raised again where the comparison was asked for
            answer = error
        data = pickle.dumps(answer)
        outgoing.write(_LENGTH.pack(len(data)) + data)
        outgoing.flush()
        if reads:
            _release_memory()


@cache
def _reader() -> LineReader:
    """Return the reader of this process; with one thread, since there is a process for every core."""
    from editloupe.tools.read_text import ReadText
    from editloupe.tools.settings import ToolSettings

    return ReadText(ToolSettings(threads=1))


def _release_memory() -> None:
    """Return free memory to the system, if its C library can: a reading uses far more than a comparison."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _handed_over(picture: Picture) -> tuple[bytes | memoryview, int, int]:
    """Return a picture as it is handed over: its file where nobody has decoded it, else its pixels with height and width."""
    if picture.file and not picture.decoded:
        return picture.file[1], _A_FILE, _A_FILE
    width, height = picture.size
    return np.ascontiguousarray(picture.pixels).reshape(-1).data, height, width


def _picture(file: int, start: int, height: int, width: int, size: int) -> Pixels:
    data = os.pread(file, size, start)
    if height == _A_FILE:
        found = _jpeg_pixels(data)
        return decode(data, "the picture").pixels if found is None else found
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def _jpeg_pixels(data: bytes) -> Pixels | None:
    """Decode a JPEG a fifth faster than Pillow, to the same pixels; None for what is none or cannot be decoded.

    Only for files that were read through before, and only where nothing else writes to the terminal: what OpenCV's decoder
    prints about bytes that do not belong into a file is kept from it.
    """
    if not data.startswith(JPEG_MAGIC):
        return None
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        found: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
    return None if found is None else np.asarray(cv2.cvtColor(found, cv2.COLOR_BGR2RGB, dst=found), np.uint8)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side is gone")
    return data
