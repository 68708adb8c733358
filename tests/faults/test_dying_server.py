"""A server that fails half-way through `drift` or `ablate`: every verdict or its reason is kept, and nothing is asked twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.faults.commands import looks_then_answers
from tests.scripted import Garbage, Reply, Request, ScriptedServer, drop, fault, wrong_key

pytestmark = pytest.mark.long
EDITS = 20
FAILURES: dict[str, Reply] = {
    "errors": fault(500),
    "dropped connections": drop(),
    "a page": Garbage(b"<html>"),
    "a key that was withdrawn": wrong_key(),
}
QUICK = ("--set", "retry.first_wait=0.005", "--set", "retry.longest_wait=0.01", "--set", "retry.max_attempts=2")


class Dying:
    """A model that fails after some requests, until it is revived."""

    def __init__(self) -> None:
        self.served, self.left, self.failure = 0, EDITS * 100, fault(500)

    def __call__(self, request: Request) -> Reply:
        self.left -= 1
        if self.left < 0:
            return self.failure
        self.served += 1
        return looks_then_answers(request)

    def die_after(self, requests: int, failure: Reply) -> None:
        self.served, self.left, self.failure = 0, requests, failure

    def revive(self) -> None:
        self.left = EDITS * 100


@pytest.fixture
def model() -> Dying:
    return Dying()


@pytest.fixture
def asking(model: Dying, scripted: StartServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    server: ScriptedServer = scripted(model, log=False, checks=False)
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--tool-calls", "native", *QUICK]
    return lambda *arguments: [*map(str, arguments), *judge]


def judged(folder: Path) -> tuple[int, int]:
    """Return how many units of a run have a verdict, and how many a reason instead."""
    with Run.open(folder) as run:
        verdicts = [unit.outcome.status == "judged" for unit in run.units()]
    return sum(verdicts), len(verdicts) - sum(verdicts)


@pytest.mark.parametrize("name", FAILURES)
def test_drift_names_what_is_unjudged_and_the_same_command_asks_only_that(
    name: str, model: Dying, asking: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, anchor, again = write_manifest(tmp_path, EDITS), tmp_path / "anchor", tmp_path / "again"
    assert command(asking("batch", manifest, "--out", anchor, "--mode", "plain", "--quiet")) == 0
    drift = asking("drift", anchor, "--edits", EDITS, "--margin", 50, "--out", again)
    model.die_after(14, FAILURES[name])
    capsys.readouterr()
    code = command(drift)
    told = capsys.readouterr()
    if name == "a key that was withdrawn":
        assert (code, "was not accepted" in told.err) == (2, True)
    else:
        assert code == 4, told.err
        assert "unjudged verdicts: " in told.err
        assert "the same command asks these again" in told.err
        assert "have no verdict in one of the two" in told.out
    assert judged(again)[0] <= 14
    model.revive()
    assert command(drift) == 0
    assert judged(again) == (2 * EDITS, 0)
    assert model.served == 2 * EDITS, "no reply that was kept is asked again"


@pytest.mark.parametrize("name", FAILURES)
def test_ablate_stops_with_a_sentence_and_continues(
    name: str, model: Dying, asking: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    ablate = asking("ablate", write_manifest(tmp_path, EDITS), "--vary", "mode=plain,tools", "--out", out, "--quiet")
    model.die_after(2 * EDITS + 10, FAILURES[name])
    assert command(ablate) in (2, 3)
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert judged(out)[0] <= 2 * EDITS + 10
    model.revive()
    assert command(ablate) == 0
    assert judged(out) == (4 * EDITS, 0)
    assert model.served == 2 * EDITS + 2 * EDITS * 3, "no reply that was kept is asked again"
