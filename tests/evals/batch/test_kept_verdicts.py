"""A failure never replaces a verdict: a unit that is judged again and ends unjudged keeps the verdict it had."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.cli.main import run as command
from editloupe.evals.batch.batch import Batch
from editloupe.evals.batch.planner import RejudgePolicy
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.edival import judge as edival_judge
from editloupe.evals.runs.store import Run
from editloupe.judge import JudgeSettings
from tests.conftest import StartServer
from tests.evals.batch import test_batch_api as batch_api
from tests.evals.batch import test_interruptions, test_ray
from tests.evals.batch.test_batch import answers, batch, run
from tests.evals.batch.test_interruptions import arguments, looks_then_answers, start, wait_for
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import stand_ins
from tests.evals.samples import write_manifest
from tests.judge import samples as combined
from tests.scripted import Reply, Request, ScriptedServer, fault, final, hang, say

processes = test_interruptions.processes
REPLACE = RejudgePolicy(replace=True)
IMPATIENT = JudgeSettings(retry=RetryPolicy(first_wait=0.01, longest_wait=0.01, max_attempts=2), timeout=10)


class Moody:
    """A script that answers, until it is told to reply with something else."""

    def __init__(self, healthy: Callable[[Request], Reply] = answers) -> None:
        self.healthy = healthy
        self.instead: Reply | None = None
        self.concerns = ""
        """Only requests with this text get the other reply."""

    def __call__(self, request: Request) -> Reply:
        return self.instead if self.instead and self.concerns in request.text else self.healthy(request)


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
def server(scripted: StartServer, moody: Moody, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    return scripted(moody)


def impatient(server: ScriptedServer, folder: Path, count: int = 6, **changes: Any) -> Batch:
    manifest = folder / "manifest.jsonl"
    if not manifest.exists():
        write_manifest(folder, count)
    settings = {"settings": IMPATIENT, **changes.pop("judge", {})}
    return batch(server, manifest, folder / "run", judge=settings, **changes)


def contents(folder: Path, table: str = "verdicts") -> list[tuple[Any, ...]]:
    """Return everything the run holds of its verdicts: the rows themselves, or those of their traces."""
    with Run.open(folder / "run") as opened:
        return opened.reader().connection.execute(f"SELECT * FROM {table}").fetchall()


def check_traces(folder: Path) -> None:
    """Check that every verdict's trace and the reply behind each of its steps can be read."""
    from editloupe.evals.runs.unit_rows import find_step_reply

    with Run.open(folder / "run") as opened:
        for unit in opened.units():
            (trace,) = opened.load_trace(unit.name, unit.criterion, unit.repeat)
            assert trace.steps
            for step in trace.steps:
                assert find_step_reply(opened, unit.edit_id, step) is not None


@pytest.mark.long
@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        (fault(500), "model_error"),
        (fault(429, "slow down", retry_after=0.01), "model_error"),
        (fault(400, "The engine is being restarted."), "server_refused"),
        (fault(400, "Your input was flagged by our safety system"), "request_refused"),
        (say("I cannot tell."), "unreadable_answer"),
    ],
)
def test_a_replacement_that_fails_keeps_every_verdict_and_a_plain_rerun_asks_nothing(
    server: ScriptedServer, moody: Moody, tmp_path: Path, instead: Reply, reason: str
) -> None:
    run(impatient(server, tmp_path))
    before, steps = contents(tmp_path), contents(tmp_path, "steps")
    moody.instead = instead
    failed = run(impatient(server, tmp_path, again=REPLACE))
    assert (failed.tally.judged, dict(failed.tally.unjudged)) == (0, {})
    assert dict(failed.tally.not_replaced) == {reason: 12}
    assert failed.exit_code(unjudged=False) == 3
    kept = [(row[3], row[7:9], row[9], row[13:]) for row in contents(tmp_path)]
    assert kept == [(row[3], row[7:9], row[9], row[13:]) for row in before]
    assert contents(tmp_path, "steps") == steps
    check_traces(tmp_path)
    moody.instead, asked = None, server.served
    again = run(impatient(server, tmp_path))
    assert (again.tally.held, server.served) == (12, asked)


@pytest.mark.long
def test_a_replacement_the_server_failed_goes_on_and_replaces_what_it_left(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    run(impatient(server, tmp_path))
    moody.instead, moody.concerns = fault(500), "Do 1"
    failed = run(impatient(server, tmp_path, again=REPLACE))
    assert (failed.tally.judged, failed.tally.not_replaced.total()) == (10, 2)
    moody.instead, asked = None, server.served
    assert run(impatient(server, tmp_path, again=REPLACE)).tally.judged == 2
    assert server.served == asked + 2
    with Run.open(tmp_path / "run") as opened:
        assert [unit.tries for unit in opened.units()] == [2] * 12
        assert "replacing" not in opened.about()


@pytest.mark.long
def test_an_unreadable_answer_keeps_the_verdict_and_the_next_replacement_asks_again(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    run(impatient(server, tmp_path, 2))
    moody.instead = say("I cannot tell.")
    run(impatient(server, tmp_path, again=REPLACE))
    moody.instead, asked = None, server.served
    again = run(impatient(server, tmp_path, again=REPLACE))
    assert (again.tally.judged, server.served) == (4, asked + 4), "the unreadable replies are not read again"


@pytest.mark.long
def test_a_stopped_replacement_does_not_ask_again_what_the_judge_left_open(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    run(impatient(server, tmp_path, 2))
    moody.instead, moody.concerns = say("I cannot tell."), "Do 0"
    limits = Limits(concurrency=1, max_tokens=120 * (4 + 7))
    stopped = run(impatient(server, tmp_path, again=REPLACE, limits=limits))
    assert not stopped.complete
    asked = server.served
    went_on = run(impatient(server, tmp_path, again=REPLACE, limits=Limits(concurrency=1)))
    assert went_on.complete
    assert server.served == asked + 4 - stopped.tally.done


@pytest.mark.long
def test_one_edit_judged_again_keeps_its_verdicts_and_the_command_says_so(
    server: ScriptedServer, moody: Moody, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["batch", str(write_manifest(tmp_path, 3)), "--out", str(tmp_path / "run"), "--judge", "openai:gpt-4.1"]
    given += ["--base-url", server.openai_url, "--mode", "plain", "--quiet"]
    assert command(given) == 0
    before = contents(tmp_path)
    moody.instead = fault(400, "The engine is being restarted.")
    assert command([*given, "--only", "e1"]) == 3
    told = capsys.readouterr()
    assert "2 verdicts could not be replaced (2 server_refused); the old ones are kept" in told.err
    assert "run the same command again to retry what failed" in told.err
    assert contents(tmp_path) == before
    assert command([*given, "--only", "e1", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["not_replaced"] == {"server_refused": 2}
    asked, moody.instead = server.served, None
    assert command(given) == 0
    assert server.served == asked


@pytest.mark.long
def test_repeats_are_kept_and_replaced_each_for_itself(server: ScriptedServer, moody: Moody, tmp_path: Path) -> None:
    run(impatient(server, tmp_path, 2, repeats=3))
    moody.instead, moody.concerns = fault(500), "Scene Collapse"
    failed = run(impatient(server, tmp_path, repeats=3, again=REPLACE))
    assert (failed.tally.judged, failed.tally.not_replaced.total(), failed.tally.missing) == (6, 6, 0)
    moody.instead, asked = None, server.served
    assert run(impatient(server, tmp_path, repeats=3)).tally.held == 12
    assert server.served == asked
    assert run(impatient(server, tmp_path, repeats=3, again=REPLACE)).tally.judged == 6
    later = run(impatient(server, tmp_path, repeats=3, again=REPLACE))
    assert (later.tally.judged, later.tally.missing) == (12, 0)


@pytest.mark.long
def test_criteria_at_different_tries_are_all_asked_in_every_repeat(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    alone = {"criteria": ["instruction_following"]}
    run(impatient(server, tmp_path, 2, repeats=3))
    run(impatient(server, tmp_path, repeats=1, again=REPLACE, judge=alone))
    both = run(impatient(server, tmp_path, repeats=3, again=REPLACE))
    assert (both.tally.judged, both.tally.missing) == (12, 0)


@pytest.mark.long
def test_a_shared_verdict_that_could_not_be_replaced_answers_every_edit_as_before(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    manifest = write_manifest(tmp_path, 1)
    row = json.loads(manifest.read_text())
    manifest.write_text("".join(json.dumps({**row, "model": model}) + "\n" for model in "abc"))
    run(impatient(server, tmp_path))
    assert server.served == 2
    moody.instead = fault(500)
    failed = run(impatient(server, tmp_path, again=REPLACE))
    assert (failed.tally.not_replaced.total(), failed.tally.missing) == (2, 0)
    with Run.open(tmp_path / "run") as opened:
        assert [unit.outcome.status for unit in opened.units()] == ["judged"] * 6


@pytest.mark.long
def test_a_picture_that_is_gone_is_no_reason_to_lose_its_verdict(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    run(impatient(server, tmp_path, 2))
    picture = tmp_path / "img/e1.png"
    content = picture.read_bytes()
    picture.unlink()
    failed = run(impatient(server, tmp_path, again=REPLACE))
    assert (failed.tally.judged, failed.tally.not_replaced.total()) == (2, 2)
    picture.write_bytes(content)
    asked = server.served
    assert run(impatient(server, tmp_path)).tally.held == 4
    assert server.served == asked
    with Run.open(tmp_path / "run") as opened:
        assert [unit.outcome.status for unit in opened.units()] == ["judged"] * 4


@pytest.mark.long
def test_a_verdict_of_an_older_way_of_asking_is_kept_too(
    server: ScriptedServer, moody: Moody, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = impatient(server, tmp_path, 2, judge={"mode": "tools"})
    run(wanted)
    monkeypatch.setattr("editloupe.tools.zoom.ZoomInImage.version", "another")
    moody.instead = fault(500)
    failed = run(replace(wanted, again=REPLACE))
    assert failed.tally.not_replaced.total() == 4
    moody.instead, asked = None, server.served
    assert run(wanted).tally.held == 4
    assert server.served == asked


@pytest.mark.long
def test_a_cap_in_the_middle_of_a_replacement_leaves_the_old_verdicts(
    server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    run(impatient(server, tmp_path))
    moody.instead, moody.concerns = fault(500), "Do 0"
    limits = Limits(concurrency=1, max_tokens=120 * 16)
    stopped = run(impatient(server, tmp_path, again=REPLACE, limits=limits))
    assert stopped.tally.missing > 0
    with Run.open(tmp_path / "run") as opened:
        assert [unit.outcome.status for unit in opened.units()] == ["judged"] * 12
    asked = server.served
    assert run(impatient(server, tmp_path)).tally.held == 12
    assert server.served == asked


@pytest.mark.long
def test_a_batch_job_that_fails_keeps_every_verdict(scripted: StartServer, tmp_path: Path) -> None:
    batches = batch_api.Batches(scripted(batch_api.answers), tmp_path)
    batches.judge()
    batches.service._answer = lambda request: fault(500)
    failed = batches.judge(again=REPLACE)
    assert (dict(failed.tally.not_replaced), failed.tally.missing) == ({"model_error": 4}, 0)
    assert batches.labels() == [("judged", "Wrong Action")] * 4
    asked = batches.service.asked
    assert batches.judge().tally.held == 4
    assert batches.service.asked == asked
    batches.service._answer = batch_api.answers
    assert batches.judge(again=REPLACE).tally.judged == 4


@pytest.mark.long
@pytest.mark.parametrize("spec", [f"panel:{combined.SMALL},{combined.LARGE}", "cascade"])
def test_a_panel_and_a_cascade_that_fail_keep_every_verdict(scripted: StartServer, tmp_path: Path, spec: str) -> None:
    moody = Moody(lambda request: final(combined.GOOD))
    server = scripted(moody)
    manifest = write_manifest(tmp_path, 3)
    judge = f"cascade:{combined.two_stages(server, tmp_path)}" if spec == "cascade" else spec
    combined.run(combined.batch(server, judge, manifest, tmp_path / "run"))
    before = contents(tmp_path)
    moody.instead = fault(500)
    failed = combined.run(combined.batch(server, judge, manifest, tmp_path / "run", again=REPLACE))
    assert (failed.tally.judged, failed.tally.not_replaced.total()) == (0, 3)
    assert contents(tmp_path) == before
    asked = server.served
    combined.run(combined.batch(server, judge, manifest, tmp_path / "run"))
    assert server.served == asked


@pytest.mark.long
def test_a_failing_evaluation_of_chains_keeps_every_verdict(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(edival_judge, "open_instruments", stand_ins)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    s.kitchen_chain(tmp_path / "chains", s.save_base(tmp_path / "photos"))
    s.put(tmp_path / "results", "m0", "multi", dict(enumerate(s.GOOD, 1)))
    moody = Moody(s.seeing)
    server = scripted(moody)
    given = ["edival", "evaluate", str(tmp_path / "chains"), str(tmp_path / "results"), "--out", str(tmp_path / "run")]
    given += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--features", "none", "--quality", "none"]
    assert command([*given, "--quiet"]) == 0
    before = [row[13:] for row in contents(tmp_path)]
    moody.instead = fault(400, "The engine is being restarted.")
    assert command([*given, "--quiet", "--replace"]) == 3
    assert "could not be replaced" in capsys.readouterr().err
    labels = [row[13:18] for row in contents(tmp_path)]
    assert labels == [row[:5] for row in before]
    asked = server.served
    assert command([*given, "--quiet"]) == 0
    assert server.served == asked


@pytest.mark.long
def test_a_replacement_that_is_interrupted_leaves_the_old_verdicts(
    server: ScriptedServer, moody: Moody, processes: Any, tmp_path: Path
) -> None:
    given = arguments(server, write_manifest(tmp_path, 4), tmp_path / "run", "--quiet")
    assert command(given) == 0
    before = contents(tmp_path)
    moody.instead, asked = hang(60), server.served
    replacing = start(processes, [*given, "--replace"], tmp_path / "log")
    wait_for(lambda: server.served > asked)
    for _ in range(2):
        os.kill(replacing.pid, signal.SIGINT)
        time.sleep(0.2)
    replacing.join(20)
    assert replacing.exitcode == 130, (tmp_path / "log").read_text()
    assert contents(tmp_path) == before
    moody.instead, asked = None, server.served
    assert command(given) == 0
    assert server.served == asked


@pytest.mark.ray
def test_a_cluster_that_fails_keeps_every_verdict(
    cluster: Any, server: ScriptedServer, moody: Moody, tmp_path: Path
) -> None:
    moody.healthy = looks_then_answers
    manifest = write_manifest(tmp_path, 3)
    on_ray = test_ray.batch(server, manifest, tmp_path / "run", executor="ray", ray_workers=1)
    run(on_ray)
    before = contents(tmp_path)
    moody.instead = fault(400, "The engine is being restarted.")
    failed = run(replace(on_ray, again=REPLACE))
    assert dict(failed.tally.not_replaced) == {"server_refused": 6}
    assert contents(tmp_path) == before
    check_traces(tmp_path)
