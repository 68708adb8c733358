"""Score how good a single picture looks, with HPSv3, and measure its brightest pixels."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.models.batching import Batcher

REC_709 = np.array([0.2126, 0.7152, 0.0722])
"""Weights of red, green and blue in luma (EdiVal-Agent, Appendix M)."""
QUANTILES = (0.99, 0.999)
SCORER = Path(__file__).with_name("hpsv3_scorer.py")
"""The program that runs in HPSv3's own environment."""
HOW_TO_GET = (
    "HPSv3 needs an environment of its own: python -m venv hpsv3-env && hpsv3-env/bin/pip install hpsv3, "
    "then set EDITLOUPE_HPSV3_PYTHON=hpsv3-env/bin/python"
)
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that ends a process in any case; Windows has only one."""
PICTURES_PER_CALL = 8
LOADING_SECONDS = 1800.0
"""Most seconds until the model is loaded. The first start downloads its weights."""
PICTURE_SECONDS = 120.0
"""Most seconds per picture of a call."""


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
    process starts with the first picture and ends with `close`. Pictures of one size of several threads share
    a call. A process that ends, breaks the protocol or does not answer in time is not started again: every later picture
    gets the same error at once.

    Args:
        python: Python of the environment that has `hpsv3`.
        device: `auto`, `cpu`, `cuda`…
        prompt: The prompt that the model scores the picture for.
    """

    def __init__(self, python: Path | None, device: str = "auto", prompt: str = "") -> None:
        self._python, self._device, self._prompt = python, device, prompt
        self._queue = Batcher(self._score_pictures, PICTURES_PER_CALL)
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
            probe = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError):
            return f"{self._python} is not a Python that runs. {HOW_TO_GET}"
        if probe.returncode or probe.stdout.strip() in ("", "None"):
            return f"{self._python} has no hpsv3: {self._python} -m pip install hpsv3"
        return None

    def score(self, pixels: Pixels) -> float:
        """Return the model's mean preference score.

        Raises:
            ToolError: If the package is missing, or the process fails on this picture or has ended.
        """
        if problem := self.unavailable():
            raise ToolError(f"{problem}.")
        score: float = self._queue.process([(pixels, None)])[0]
        return score

    def _score_pictures(self, requests: Sequence[tuple[Pixels, None]]) -> list[float]:
        """Score pictures in one call to the process."""
        if self._broken:
            raise ToolError(self._broken)
        try:
            with tempfile.TemporaryDirectory(prefix="editloupe-hpsv3-") as folder:
                paths = [str(Path(folder) / f"{number}.png") for number in range(len(requests))]
                for path, (pixels, _) in zip(paths, requests, strict=True):
                    Image.fromarray(pixels).save(path, compress_level=1)
                return self._ask(paths)
        except ToolError:
            raise
        except ScorerEnded as error:
            self._broken = self._broken or f"the HPSv3 process {error}."
            self.close()
            raise ToolError(self._broken) from None
        except Exception as error:
            raise ToolError(self._broken or f"HPSv3 failed: {error}.") from error
        except BaseException:  # an interrupt: the reply to this request would be read as that to the next one
            self.close()
            raise

    def _ask(self, paths: Sequence[str]) -> list[float]:
        if self._process is None:
            self._process = _ScorerProcess([str(self._python), "-I", str(SCORER), self._device])
            self._process.receive(LOADING_SECONDS)
        self._process.send({"pictures": paths, "prompt": self._prompt})
        reply = self._process.receive(PICTURE_SECONDS * len(paths))
        if "error" in reply:
            raise ToolError(f"HPSv3 failed: {str(reply['error'])[:300]}")
        return _read_scores(reply, len(paths))

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

    def receive(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout
        deadline = time.monotonic() + seconds
        timer = threading.Timer(seconds, _signal_group, (self._process, KILL))
        timer.daemon = True
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            late = time.monotonic() >= deadline
            raise ScorerEnded(f"did not answer within {seconds:g} seconds" if late else self._say_end())
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
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
    _signal_group(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(2)
    _signal_group(process, KILL)
    process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream:
            with suppress(OSError):  # a request that could not be written
                stream.close()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and those it started, which may hold its output open."""
    with suppress(ProcessLookupError, PermissionError):  # all have ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:  # Windows
            process.send_signal(number)


def _read_scores(reply: dict[str, Any], count: int) -> list[float]:
    """Return the scores of a reply; raise ScorerEnded if it does not have one number per picture."""
    scores = reply.get("scores")
    if not isinstance(scores, list) or len(scores) != count or not all(type(score) in (int, float) for score in scores):
        raise ScorerEnded(f"sent a reply without {count} scores")
    with suppress(OverflowError):
        numbers = [float(score) for score in scores]
        if all(map(math.isfinite, numbers)):
            return numbers
    raise ToolError("HPSv3 sent a score that is not a finite number.")


def luminance_quantiles(pixels: Pixels) -> tuple[float, float]:
    """Return the luma below which 99 % and 99.9 % of the pixels are, 0 to 1.

    >>> luminance_quantiles(np.full((4, 4, 3), 255, np.uint8))
    (1.0, 1.0)
    """
    luma = pixels.reshape(-1, 3) @ REC_709 / 255.0
    low, high = np.quantile(luma, QUANTILES)
    return round(float(low), 9), round(float(high), 9)
