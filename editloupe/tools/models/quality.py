"""Score how good a single picture looks, with HPSv3, and measure its brightest pixels."""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError

REC_709 = np.array([0.2126, 0.7152, 0.0722])
"""Weights of red, green and blue in luma (EdiVal-Agent, Appendix M)."""
QUANTILES = (0.99, 0.999)
SCORER = Path(__file__).with_name("hpsv3_scorer.py")
"""The program that runs in HPSv3's own environment."""
HOW_TO_GET = (
    "HPSv3 needs an environment of its own: python -m venv hpsv3-env && hpsv3-env/bin/pip install hpsv3, "
    "then set EDITLOUPE_HPSV3_PYTHON=hpsv3-env/bin/python"
)
PICTURES_PER_CALL = 8


class Quality(Protocol):
    """Interface of a model that scores the looks of a picture."""

    @property
    def fingerprint(self) -> str:
        """Everything the score depends on except the picture."""

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""

    def score(self, pixels: Pixels) -> float:
        """Return the score of a picture; higher is better. Threads may call it at the same time."""

    def close(self) -> None:
        """Release what the model holds. Can be called again."""


class HpsV3:
    """Human Preference Score v3, in a process of its own. It needs a GPU with 16 GB.

    The package `hpsv3` needs an older transformers than EditLoupe's detector, so it has an environment of its own. The
    process starts with the first picture and ends with `close`. Pictures of several threads share a call. A process that
    ends or breaks the protocol is not started again: every later picture gets the same error at once.

    Args:
        python: Python of the environment that has `hpsv3`.
        device: `auto`, `cpu`, `cuda`…
        prompt: The prompt that the model scores the picture for.
    """

    def __init__(self, python: Path | None, device: str = "auto", prompt: str = "") -> None:
        self._python, self._device, self._prompt = python, device, prompt
        self._waiting: deque[tuple[Pixels, Future[float]]] = deque()
        self._lock = threading.Lock()
        """Held during a call."""
        self._process: _ScorerProcess | None = None
        self._broken: str | None = None
        self.fingerprint = f"hpsv3:{prompt}"

    def unavailable(self) -> str | None:
        """Return what is missing, or None. Asks the other Python once."""
        return self._missing

    @cached_property
    def _missing(self) -> str | None:
        if self._python is None:
            return HOW_TO_GET
        command = [str(self._python), "-I", "-c", "import importlib.util; print(importlib.util.find_spec('hpsv3'))"]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError):
            return f"{self._python} is not a Python that runs. {HOW_TO_GET}"
        if asked.returncode or asked.stdout.strip() in ("", "None"):
            return f"{self._python} has no hpsv3: {self._python} -m pip install hpsv3"
        return None

    def score(self, pixels: Pixels) -> float:
        """Return the model's mean preference score.

        Raises:
            ToolError: If the package is missing, or the process fails on this picture or has ended.
        """
        if problem := self.unavailable():
            raise ToolError(f"{problem}.")
        result: Future[float] = Future()
        self._waiting.append((pixels, result))
        with self._lock:
            # While this thread waited for the lock, another one may have sent its picture.
            while not result.done():
                some = [self._waiting.popleft() for _ in range(min(PICTURES_PER_CALL, len(self._waiting)))]
                self._answer(some)
        return result.result()

    def _answer(self, some: Sequence[tuple[Pixels, Future[float]]]) -> None:
        """Send pictures in one call and resolve their futures."""
        try:
            scores = self._ask([pixels for pixels, _ in some])
        except (ToolError, OSError) as error:
            if len(some) > 1 and not self._broken:  # one picture that fails does not take the others with it
                for picture in some:
                    self._answer([picture])
                return
            for _, result in some:
                result.set_exception(error if isinstance(error, ToolError) else ToolError(f"HPSv3 failed: {error}."))
            return
        for (_, result), score in zip(some, scores, strict=True):
            result.set_result(score)

    def _ask(self, pictures: Sequence[Pixels]) -> list[float]:
        if self._broken:
            raise ToolError(self._broken)
        try:
            if self._process is None:
                self._process = _ScorerProcess([str(self._python), "-I", str(SCORER), self._device])
                self._process.receive()
            with tempfile.TemporaryDirectory(prefix="editloupe-hpsv3-") as folder:
                paths = [str(Path(folder) / f"{number}.png") for number in range(len(pictures))]
                for path, pixels in zip(paths, pictures, strict=True):
                    Image.fromarray(pixels).save(path, compress_level=1)
                self._process.send({"pictures": paths, "prompt": self._prompt})
                reply = self._process.receive()
            if "error" in reply:
                raise ToolError(f"HPSv3 failed: {str(reply['error'])[:300]}")
            scores = _read_scores(reply, len(pictures))
        except ScorerEnded as error:
            self._broken = self._broken or f"the HPSv3 process {error}."
            self.close()
            raise ToolError(self._broken) from None
        if not all(map(math.isfinite, scores)):
            raise ToolError("HPSv3 sent a score that is not a finite number.")
        return scores

    def close(self) -> None:
        """End the process. Pictures in work fail."""
        self._broken = self._broken or "the HPSv3 process was closed."
        if (process := self._process) is not None:
            process.end()


class ScorerEnded(Exception):
    """The scorer process ended or broke the protocol."""


class _ScorerProcess:
    """A running scorer: JSON lines in and out. It ends when this object is collected or the program ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process
        # In a session of its own, Ctrl-C reaches the batch only, which lets pictures in work finish.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        self.end = weakref.finalize(self, _end_process, self._process, self._errors)

    def send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ScorerEnded(self._say_end()) from None

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise ScorerEnded(self._say_end())
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise ScorerEnded(f"sent a line that is not a reply: {line[:80]!r}")
        return reply

    def _say_end(self) -> str:
        lines: list[str] = []
        with suppress(subprocess.TimeoutExpired, ValueError):  # still running, or closed by another thread
            self._process.wait(5)
            self._errors.seek(0)
            lines = self._errors.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()[:300]}" if lines else ""
        return f"ended with code {self._process.returncode}{last}"


def _end_process(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.terminate()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream:
            with suppress(OSError):  # a request that could not be written
                stream.close()


def _read_scores(reply: dict[str, Any], count: int) -> list[float]:
    """Return the scores of a reply; raise ScorerEnded if it does not have one number per picture."""
    scores = reply.get("scores")
    if not isinstance(scores, list) or len(scores) != count or not all(isinstance(s, (int, float)) for s in scores):
        raise ScorerEnded(f"sent a reply without {count} scores")
    return [float(score) for score in scores]


def luminance_quantiles(pixels: Pixels) -> tuple[float, float]:
    """Return the luma below which 99 % and 99.9 % of the pixels are, 0 to 1.

    >>> luminance_quantiles(np.full((4, 4, 3), 255, np.uint8))
    (1.0, 1.0)
    """
    luma = pixels.reshape(-1, 3) @ REC_709 / 255.0
    low, high = np.quantile(luma, QUANTILES)
    return round(float(low), 9), round(float(high), 9)
