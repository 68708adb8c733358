"""`editloupe serve` as a process: it says where it is, answers, keeps, and ends when it is told to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from editloupe.cli.main import run
from editloupe.evals.runs.store import Run
from tests.servers.reward.running import own


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command on a free port, and read its address."""
    command = [
        sys.executable,
        "-m",
        "editloupe",
        "serve",
        "--port",
        "0",
        "--judge",
        "rules",
        "--mode",
        "plain",
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                yield process, found[0]
                return
        raise AssertionError("the server did not start")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_serves_keeps_and_ends(number: signal.Signals, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with serving("--out", str(folder)) as (process, url):
        answer = httpx.post(f"{url}/v1/judge", json={"edits": [own(1, id="one")]}, timeout=60, trust_env=False)
        assert answer.json()["results"][0]["status"] == "judged"
        assert httpx.get(f"http://{url.partition('@')[2]}/health", trust_env=False).status_code == 401
        process.send_signal(number)
        _, told = process.communicate(timeout=30)
        assert process.returncode == code
        assert told.splitlines()[-1] == "editloupe: the reward server was stopped"
        assert "Traceback" not in told
    with Run.open(folder) as kept:
        assert [unit.edit_id for unit in kept.units()] == ["one", "one"]
    assert not (folder / "run.db-wal").exists()


@pytest.mark.long
def test_it_answers_without_a_token_only_if_asked_to_and_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("--no-token") as (_, url):
        assert "@" not in url
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
    assert run(["serve", "--port", "0", "--judge", "rules", "--no-token", "--host", "0.0.0.0"]) == 2
    assert "a server on 0.0.0.0 needs a token" in capsys.readouterr().err


@pytest.mark.long
def test_a_token_of_ones_own_is_not_printed() -> None:
    with serving("--token", "x" * 20) as (_, url):
        assert "@" not in url
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 401


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0", "--token", "short"], "at least 16 characters"),
        (["--host", "not an address"], "the reward server cannot listen on"),
        (["--judge", "nobody:x"], "nobody"),
        (["--deadline", "0"], "--deadline"),
        (["--no-token"], "--no-token cannot be combined with --token"),
        (["--protocol", "made-up"], "made-up"),
        (["--protocol", "edit-compass"], "rules judges DLEBench's two criteria only, not Edit-Compass"),
    ],
)
def test_a_mistake_is_one_sentence(options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--port", "0", "--judge", "rules", "--token", "x" * 20, *options]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert sentence in told[-1]
    assert len(told) == 1
