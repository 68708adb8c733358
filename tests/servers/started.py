"""Starts real servers as processes of their own, on a free port of this machine, and ends them with everything they started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent.parent
_FOREIGN = ("OPENAI_", "GOOGLE_", "GEMINI_", "LANGSMITH", "LANGCHAIN_", "EDITLOUPE_", "LITELLM_")


def command(name: str, package: str) -> str:
    """Return the path of a server's command; the test is skipped with a sentence where it is not installed.

    LiteLLM's proxy would take the openai package back a version, so it may live in `.venv-litellm` beside `.venv`,
    and Inspect in `.venv-inspect`.
    """
    places = (Path(sys.executable).parent, ROOT / f".venv-{name}" / "bin")
    given = os.environ.get(f"TEST_{name.upper()}")
    found = given or next((str(p / name) for p in places if (p / name).exists()), None) or shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed: `make slow` installs {package}", allow_module_level=True)
    return found


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(
    arguments: Sequence[str], health: str, log: Path, folder: Path, more: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a server until it answers at `health`, and until the block ends."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(_FOREIGN) and "proxy" not in n.lower()}
    env = {**kept, "NO_PROXY": "127.0.0.1,localhost", **(more or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            _wait(process, health, log)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(process: subprocess.Popen[bytes], health: str, log: Path, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(health, timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.3)
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
