"""Processes that are killed, interrupted, or meet on one run."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.batch.progress import Progress, Tally
from editloupe.evals.batch.stopping import StopControl
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, ScriptedServer, call, final

START = "from editloupe.__main__ import main; main()"
KEY = "sk-secret-0123456789abcdef"
CONCURRENCY = 6
EDITS, KILLS = 28, 10


def looks_then_answers(request: Request) -> Answer:
    turn = sum(message.role == "assistant" for message in request.messages)
    if turn < 2:
        return call("zoom_in_image", bbox_2d=[turn, turn, 20 + turn, 20], target_image="Edited Image")
    return final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action")


def arguments(server: ScriptedServer, manifest: Path, out: Path, *more: str) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "tools", "--tool-calls", "native"]
    return ["batch", str(manifest), "--out", str(out), *judge, "--concurrency", str(CONCURRENCY), *more]


def run_command(arguments: list[str], log: Path) -> None:
    """Run the command line in a child process and leave with its exit code."""
    from editloupe.cli.main import run

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ["OPENAI_API_KEY"] = KEY
    code = run(arguments)
    sys.stdout.flush()
    os._exit(code)


@pytest.fixture(scope="module")
def processes() -> Any:
    """A server that forks children with everything imported, so that a killed process costs no seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["editloupe.cli.batch", "langchain_openai", "tests.evals.batch.test_interruptions"])
    return context


def start(processes: Any, given: list[str], log: Path) -> Any:
    process = processes.Process(target=run_command, args=(given, log))
    process.start()
    return process


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


@pytest.mark.long
def test_after_kills_at_random_moments_every_unit_is_there_once_and_nothing_was_asked_twice(
    scripted: StartServer, processes: Any, tmp_path: Path
) -> None:
    server = scripted(looks_then_answers, delay=0.03, log=False)
    manifest = write_manifest(tmp_path, EDITS)
    given = arguments(server, manifest, tmp_path / "run", "--quiet")
    dice, kills = random.Random(3), 0
    for _ in range(KILLS):
        before = server.served
        process = start(processes, given, tmp_path / "log")
        goal = before + dice.randint(1, 20)
        wait_for(lambda goal=goal, process=process: server.served >= goal or process.exitcode is not None)
        kills += process.exitcode is None
        process.kill()
        process.join()
    last = start(processes, given, tmp_path / "log")
    last.join(60)
    assert last.exitcode == 0, (tmp_path / "log").read_text()
    assert kills >= KILLS - 2
    assert server.served <= EDITS * 2 * 3 + kills * CONCURRENCY
    with Run.open(tmp_path / "run") as run:
        units = [(unit.edit_id, unit.criterion) for unit in run.units()]
        assert len(units) == len(set(units)) == EDITS * 2
        assert all(unit.outcome.status == "judged" and unit.outcome.steps == 3 for unit in run.units())
        assert all(len(run.load_trace(edit.id)) == 2 for edit, *_ in run.edits())


@pytest.mark.long
def test_ctrl_c_once_finishes_what_is_under_way_and_says_how_to_continue(
    scripted: StartServer, processes: Any, tmp_path: Path
) -> None:
    server = scripted(looks_then_answers, delay=0.05, log=False)
    given = arguments(server, write_manifest(tmp_path, 40), tmp_path / "run")
    process = start(processes, given, tmp_path / "log")
    wait_for(lambda: server.served > 20)
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    told = (tmp_path / "log").read_text()
    assert process.exitcode == 130, told
    assert "Continue with the same command" in told
    assert "Traceback" not in told
    with Run.open(tmp_path / "run") as run:
        finished = {unit.edit_id for unit in run.units()}
        assert 0 < len(finished) < 40
        assert len(list(run.units())) == 2 * len(finished)
        assert run.read_spending()[0].requests == server.served == 6 * len(finished)


@pytest.mark.long
def test_ctrl_c_twice_leaves_at_once_and_still_loses_nothing(
    scripted: StartServer, processes: Any, tmp_path: Path
) -> None:
    server = scripted(lambda request: looks_then_answers(request).after(0.0 if server.served < 20 else 20.0), log=False)
    manifest = write_manifest(tmp_path, 10)
    process = start(processes, arguments(server, manifest, tmp_path / "run"), tmp_path / "log")
    wait_for(lambda: server.served >= 20 + 3)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    process.join(10)
    assert process.exitcode == 130, (tmp_path / "log").read_text()
    asked = server.served
    server.play(looks_then_answers)
    last = start(processes, arguments(server, manifest, tmp_path / "run", "--quiet"), tmp_path / "log")
    last.join(60)
    assert last.exitcode == 0, (tmp_path / "log").read_text()
    assert server.served <= 60 + CONCURRENCY
    assert server.served > asked


@pytest.mark.long
def test_a_second_process_on_one_run_is_told_so_and_the_first_goes_on(
    scripted: StartServer, processes: Any, tmp_path: Path
) -> None:
    server = scripted(looks_then_answers, delay=0.05, log=False)
    given = arguments(server, write_manifest(tmp_path, 12), tmp_path / "run", "--quiet")
    first = start(processes, given, tmp_path / "log")
    wait_for(lambda: server.served > 3)
    second = start(processes, given, tmp_path / "log2")
    second.join(30)
    assert second.exitcode == 2
    assert f"is being written by process {first.pid}" in (tmp_path / "log2").read_text()
    first.join(60)
    assert first.exitcode == 0
    assert server.served == 72


@pytest.mark.long
def test_the_api_key_is_nowhere_under_the_run_and_in_no_output(scripted: StartServer, tmp_path: Path) -> None:
    def indiscreet(request: Request) -> Answer:
        return final("Wrong Action", thought=f"You sent {request.headers['authorization']}")

    server = scripted(indiscreet, log=False)
    given = arguments(server, write_manifest(tmp_path, 2), tmp_path / "run", "--criterion", "instruction_following")
    environment = {**os.environ, "OPENAI_API_KEY": KEY}
    done = subprocess.run([sys.executable, "-c", START, *given], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert KEY.encode() not in done.stdout + done.stderr
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) >= 6
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    with Run.open(tmp_path / "run") as run:
        assert "You sent" in run.load_trace("e0")[0].steps[0].thought


def test_the_first_request_to_stop_is_answered_in_the_progress_line() -> None:
    tally, lines = Tally(total=40, under_way=8), io.StringIO()
    progress = Progress(tally, None, lines)
    progress.acknowledge_stop()
    assert lines.getvalue() == "editloupe: finishing 8 edits; again to leave at once\n"
    tally.under_way = 1
    assert progress.line().startswith("finishing 1 edit; again to leave at once")


async def test_only_the_first_request_to_stop_is_answered() -> None:
    stop, heard = StopControl(), []
    stop.acknowledge = lambda: heard.append(stop.requests)
    stop.request_stop()
    stop.force_exit_soon = lambda: None  # type: ignore[method-assign]
    stop.request_stop()
    assert heard == [1]
