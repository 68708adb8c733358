"""Comparing pictures in processes beside this one.

A comparison is some two hundred short steps of numpy and OpenCV, and a thread asks for Python's lock after each of them. Next to
an event loop that reads replies all the time it takes three times as long as alone, and holds the loop up as often. A batch
therefore has its pictures compared next door: pixels go through a pipe, the comparison comes back, the numbers are the same.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from typing import IO

import cv2
import numpy as np

from editloupe.images import Pixels
from editloupe.tools.difference import Comparison, compare

_SHAPE = struct.Struct("<2q")
_LENGTH = struct.Struct("<q")
START = "from editloupe.tools.apart import serve; serve()"


class Comparers:
    """A few processes that compare pictures, each started when the others are busy; call it from any thread."""

    def __init__(self, processes: int) -> None:
        self._all = [Comparer() for _ in range(processes)]
        self._free: queue.LifoQueue[Comparer] = queue.LifoQueue()
        for one in self._all:
            self._free.put(one)

    def __call__(self, first: Pixels, second: Pixels) -> Comparison:
        """Compare two pictures as soon as a process is free."""
        one = self._free.get()
        try:
            return one.compare(first, second)
        finally:
            self._free.put(one)

    @property
    def pids(self) -> list[int]:
        """The processes that were started."""
        return [one.pid for one in self._all if one.pid is not None]

    def close(self) -> None:
        """End the processes."""
        for one in self._all:
            one.close()


class Comparer:
    """One process, which ends when this one does, however that ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process's number; None before it is needed."""
        return self._process.pid if self._process else None

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        """Start the process, which finds this program's modules where this one does."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", START]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def compare(self, first: Pixels, second: Pixels) -> Comparison:
        """Compare two pictures; where the process was killed it is done here, by the same code, and the next starts anew."""
        try:
            return self._ask(first, second)
        except (OSError, EOFError):
            self.close()
            return compare(first, second)

    def _ask(self, first: Pixels, second: Pixels) -> Comparison:
        self._process = self._process or self._start()
        there, back = self._process.stdin, self._process.stdout
        assert there is not None
        assert back is not None
        for pixels in (first, second):
            there.write(_SHAPE.pack(*pixels.shape[:2]))
            there.write(np.ascontiguousarray(pixels).data)
        there.flush()
        answer = pickle.loads(_read(back, _LENGTH.unpack(_read(back, _LENGTH.size))[0]))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Comparison)
        return answer

    def close(self) -> None:
        """Let the process end."""
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def serve() -> None:
    """Compare what comes in until nothing more comes; Ctrl-C is the business of whoever asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            first, second = _picture(incoming), _picture(incoming)
        except EOFError:
            return
        try:
            answer: Comparison | Exception = compare(first, second)
        except Exception as error:  # it is raised again where the comparison was asked for
            answer = error
        data = pickle.dumps(answer)
        outgoing.write(_LENGTH.pack(len(data)) + data)
        outgoing.flush()


def _picture(stream: IO[bytes]) -> Pixels:
    height, width = _SHAPE.unpack(_read(stream, _SHAPE.size))
    return np.frombuffer(_read(stream, height * width * 3), np.uint8).reshape(height, width, 3)


def _read(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side is gone")
    return data
