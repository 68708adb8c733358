"""The real command in a process of its own: started, watched, stopped, and searched for what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scripted import Answer, Request, ScriptedServer, call, final

START = "from editloupe.__main__ import main; main()"
KEY = "sk-secret-0123456789abcdef"
_MARK = "EDITLOUPE_FAULT_TEST"
_SIGTERM_CAUGHT = 1 << 14

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are watched under /proc")


def looks_then_answers(request: Request) -> Answer:
    """Zoom twice where there are tools, then answer."""
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn < 2 and request.tools:
        return call("zoom_in_image", bbox_2d=[turn, turn, 20 + turn, 20], target_image="Edited Image")
    return final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action")


def compares_then_answers(request: Request) -> Answer:
    """Compare the pictures first, which other processes do."""
    if not any(message.role == "assistant" for message in request.messages) and request.tools:
        return call("localize_differences")
    return final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action")


def batch_arguments(server: ScriptedServer, manifest: Path, out: Path, *more: str) -> list[str]:
    """A batch against a scripted server."""
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--tool-calls", "native"]
    return ["batch", str(manifest), "--out", str(out), *judge, "--concurrency", "6", *more]


@dataclass
class Command:
    """One run of the command."""

    process: subprocess.Popen[bytes]
    mark: str
    log: Path

    @property
    def told(self) -> str:
        """What it has printed."""
        return self.log.read_text("utf-8", "replace")

    def ready(self) -> bool:
        """True once the command has taken the signals into its own hands, which it does in its first line."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return True
        caught = next((line for line in status.splitlines() if line.startswith("SigCgt")), "SigCgt: 0")
        return bool(int(caught.split()[1], 16) & _SIGTERM_CAUGHT) or self.process.poll() is not None

    def ended(self, seconds: float) -> int:
        """Wait for the end and return the exit code; a command that hangs is killed and the test fails."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"it was still running after {seconds:g} s: {self.told}")

    def left_behind(self, seconds: float = 3.0) -> list[str]:
        """Return the commands of processes that came of this one and still run so long after its end."""
        end = time.monotonic() + seconds
        while (found := self._marked()) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def _marked(self) -> list[str]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    if f"{_MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                        found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
                except OSError:
                    continue
        return [command for command in found if command]


def start(arguments: list[str], log: Path, code: str = START, **environment: str) -> Command:
    """Start the command; its output goes to the log. Other `code` may stand something in before it starts it."""
    mark = uuid.uuid4().hex
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OPENAI_API_KEY": KEY, _MARK: mark, **environment},
        )
    return Command(process, mark, log)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)
