"""Ctrl-C and SIGTERM at any moment, from the first import to the last write; and `kill -9` at any moment."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.faults.commands import (
    batch_arguments,
    compares_then_answers,
    looks_then_answers,
    needs_proc,
    start,
    wait_for,
)

pytestmark = [needs_proc, pytest.mark.timeout(170)]
EDITS = 10
KINDS: dict[str, tuple[Any, list[str], int]] = {
    "plain": (looks_then_answers, ["--mode", "plain"], 1),
    "tools": (compares_then_answers, ["--mode", "tools"], 1),
    "repeats": (looks_then_answers, ["--mode", "tools", "--repeats", "2"], 2),
    "ray": (looks_then_answers, ["--mode", "tools", "--executor", "ray", "--ray-workers", "1"], 1),
}
WHOLE = {"plain": 5.0, "tools": 6.0, "repeats": 6.0, "ray": 16.0}
"""Seconds in which the moments of stopping lie: a little more than such a batch takes."""

RAY_ENDS_IT = (-signal.SIGABRT, -signal.SIGTERM)
"""How a SIGTERM ends that comes while Ray's native part connects: it takes the signal and holds the interpreter."""


def check_whole(folder: Path, repeats: int) -> None:
    """Every unit is there once, judged."""
    with Run.open(folder) as run:
        units = [(unit.edit_id, unit.criterion, unit.repeat) for unit in run.units()]
        assert len(units) == len(set(units)) == EDITS * 2 * repeats
        assert all(unit.outcome.status == "judged" for unit in run.units())


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "stops"),
    [
        ("plain", 2),
        ("tools", 2),
        ("repeats", 2),
        pytest.param("ray", 1, marks=pytest.mark.slow),
        *(
            pytest.param(kind, 10 if kind == "ray" else 30, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])
            for kind in KINDS
        ),
    ],
)
def test_a_stop_at_any_moment_ends_with_its_code_and_a_sentence_and_the_same_command_continues(
    kind: str, stops: int, scripted: StartServer, tmp_path: Path
) -> None:
    script, options, repeats = KINDS[kind]
    server = scripted(script, delay=0.1, log=False)
    manifest = write_manifest(tmp_path, EDITS)
    dice = random.Random(f"{kind} {stops}")
    for number in range(stops):
        given, asked = batch_arguments(server, manifest, tmp_path / f"run{number // 3}", *options), server.served
        command = start(given, tmp_path / "log", HOME=str(tmp_path))
        wait_for(command.ready)
        time.sleep(dice.uniform(0, WHOLE[kind]))
        sent = dice.choice((signal.SIGINT, signal.SIGTERM))
        command.process.send_signal(sent)
        if dice.random() < 0.3:
            time.sleep(dice.uniform(0, 0.3))
            command.process.send_signal(sent)
        code = command.ended(40)
        if kind == "ray" and sent == signal.SIGTERM and code in RAY_ENDS_IT and server.served == asked:
            continue
        moment = f"{kind}, stop {number}, signal {sent}: {command.told}"
        assert code in (130, 0), moment
        assert code == 0 or "interrupted" in command.told or "stopped" in command.told, moment
        assert "Traceback" not in command.told, moment
        assert "rror" not in command.told, moment
        assert command.left_behind() == [], moment
    for folder in sorted(tmp_path.glob("run*")):
        last = start(batch_arguments(server, manifest, folder, *options), tmp_path / "log", HOME=str(tmp_path))
        assert last.ended(120) == 0, last.told
        check_whole(folder, repeats)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("repeats", 4),
        *(
            pytest.param(kind, 30, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])
            for kind in ("plain", "tools", "repeats")
        ),
        pytest.param("ray", 10, marks=[pytest.mark.slow, pytest.mark.timeout(1500)]),
    ],
)
def test_a_kill_at_any_moment_loses_nothing_and_asks_again_only_what_was_under_way(
    kind: str, kills: int, scripted: StartServer, tmp_path: Path
) -> None:
    script, options, repeats = KINDS[kind]
    server = scripted(script, delay=0.1, log=False)
    manifest = write_manifest(tmp_path, EDITS)
    given = batch_arguments(server, manifest, tmp_path / "run", *options, "--quiet")
    dice, killed = random.Random(f"{kind} {kills}"), 0
    for _ in range(kills):
        command = start(given, tmp_path / "log", HOME=str(tmp_path))
        goal = server.served + dice.randint(0, 6)
        wait_for(lambda goal=goal, command=command: server.served >= goal or command.process.poll() is not None)
        time.sleep(dice.uniform(0, 0.2))
        killed += command.process.poll() is None
        command.process.kill()
        command.process.wait()
        assert kind == "ray" or command.left_behind() == [], (
            "Ray's own agents take their time to notice a killed driver"
        )
    last = start(given, tmp_path / "log", HOME=str(tmp_path))
    assert last.ended(120) == 0, last.told
    check_whole(tmp_path / "run", repeats)
    turns = {"plain": 1, "tools": 2}.get(kind, 3)
    assert server.served <= EDITS * 2 * repeats * turns + killed * 6


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("arguments", [["doctor"], ["demo", "--limit", "6"]])
def test_every_command_stops_with_one_sentence(number: signal.Signals, arguments: list[str], tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")] if arguments[0] == "demo" else []
    command = start([*arguments, *out], tmp_path / "log")
    wait_for(command.ready)
    time.sleep(random.Random(number).uniform(0.05, 0.25))
    command.process.send_signal(number)
    assert command.ended(10) == 130, command.told
    assert command.told.splitlines()[-1] == "editloupe: interrupted"
    assert "Traceback" not in command.told


@pytest.mark.long
def test_a_server_that_does_not_answer_cannot_hold_up_a_second_stop(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(lambda request: looks_then_answers(request).after(120.0), log=False)
    given = batch_arguments(server, write_manifest(tmp_path, EDITS), tmp_path / "run", "--mode", "plain")
    command = start(given, tmp_path / "log")
    wait_for(lambda: server.served >= 3)
    for _ in range(2):
        command.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert command.ended(8) == 130, command.told
    assert "Continue with the same command" in command.told


@pytest.mark.slow
def test_one_stop_ends_within_its_time_whatever_the_server_does(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(lambda request: looks_then_answers(request).after(120.0), log=False)
    given = batch_arguments(server, write_manifest(tmp_path, EDITS), tmp_path / "run", "--mode", "plain")
    command = start(given, tmp_path / "log")
    wait_for(lambda: server.served >= 3)
    command.process.send_signal(signal.SIGTERM)
    assert command.ended(30) == 130, command.told
