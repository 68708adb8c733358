"""A run knows what it was to judge: every table, the JSON and the studio say how much of it is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe import Edit, Judge
from editloupe.cli.main import run as command
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import clock_seconds, count_completion, expected_units
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.registry import find_protocol
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, final
from tests.servers.studio.conftest import OpenStudio, studio

__all__ = ["studio"]
LABELS = {"Instruction Following": "Wrong Action", "Visual Consistency": "Flawless Consistency"}


def answer(request: Request) -> object:
    return final(next(label for title, label in LABELS.items() if f"# Criterion: {title}" in request.system), "So.")


@pytest.fixture
def stopped(tmp_path: Path, scripted: StartServer) -> Path:
    """A run of five edits, two criteria and two repeats that a cap ended after a few."""
    edits = []
    for number in range(5):
        (tmp_path / f"{number}").mkdir()
        before, after = edit_pair(tmp_path / f"{number}")
        text = f"Change the color of patch {number} to red"
        edits.append(Edit(id=f"edit-{number}", source=before, edited=after, instruction=text))
    server = scripted(answer)
    batch = Batch(
        edits=lambda: edits,
        out=tmp_path / "run",
        open_judge=lambda **hooks: Judge("openai:gpt-5.1", base_url=server.openai_url, **hooks),
        limits=Limits(concurrency=1, max_tokens=3000),
        repeats=2,
    )
    ending = judge_batch(batch, quiet=True)
    assert not ending.complete
    return tmp_path / "run"


@pytest.mark.long
def test_a_stopped_run_says_how_much_is_not_judged_yet(
    stopped: Path, capsys: pytest.CaptureFixture[str], studio: OpenStudio
) -> None:
    with Run.open(stopped) as run, run.reader() as reader:
        (one,) = run.configurations()
        found = count_completion(run, reader, one)
    done = found.judged + found.unjudged
    assert 0 < done < found.expected == 20
    words = f"{done} of 20 judged, {20 - done} not yet"
    assert found.describe() == words
    table = read_run_table(stopped)
    assert table.expected() == 20
    assert command(["report", str(stopped), "--format", "json"]) == 0
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert (coverage["expected"], coverage["not_yet"]) == (20, 20 - done)
    assert command(["report", str(stopped)]) == 0
    told = capsys.readouterr().out
    assert f"{20 - done} not yet" in told
    assert "nothing is unjudged" not in told
    assert command(["run", "info", str(stopped), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["configurations"][0]["not_yet"] == 20 - done
    client = studio(runs=(stopped,))
    assert words in client.get("/runs").text
    assert words in client.get("/runs/run").text


@pytest.mark.long
def test_repeats_of_some_edits_are_not_expected_of_edits_that_were_asked_for_once(tmp_path: Path) -> None:
    edits = []
    for number in range(3):
        (tmp_path / f"{number}").mkdir()
        before, after = edit_pair(tmp_path / f"{number}")
        text = f"Change the color of patch {number} to red"
        edits.append(Edit(id=f"edit-{number}", source=before, edited=after, instruction=text))

    def judge(chosen: list[Edit], repeats: int) -> None:
        batch = Batch(
            edits=lambda: chosen,
            out=tmp_path / "run",
            open_judge=lambda **hooks: Judge("rules", mode="plain", **hooks),
            repeats=repeats,
        )
        judge_batch(batch, quiet=True)

    judge(edits[:1], 3)
    judge(edits, 1)
    with Run.open(tmp_path / "run") as run, run.reader() as reader:
        found = count_completion(run, reader, run.configurations()[0])
    assert (found.expected, found.not_yet) == (2 * 3 + 2 * 2, 0)
    assert read_run_table(tmp_path / "run").expected() == found.expected
    judge(edits, 2)
    with Run.open(tmp_path / "run") as run, run.reader() as reader:
        found = count_completion(run, reader, run.configurations()[0])
    assert (found.expected, found.not_yet) == (2 * 3 + 4 * 2, 0)


def test_a_criterion_of_the_users_own_is_expected_of_every_edit_that_waits() -> None:
    edit = Edit(id="x", source="s.png", edited="e.png", instruction="Do it", instruction_type="ADD")
    protocol = find_protocol("edit-compass")
    assert protocol is not None
    asked = {rubric.criterion for rubric in protocol.rubrics_for(edit)}

    def expect(criteria: set[str]) -> int:
        return expected_units("edit-compass", criteria, edits=0, answered=0, waiting=1, waiting_edits=[edit], repeats=2)

    assert expect(asked) == 2 * len(asked)
    assert expect({*protocol.criteria}) == 2 * len(asked)
    assert expect({*asked, "my_own"}) == 2 * (len(asked) + 1)


def test_time_on_the_clock_counts_what_is_side_by_side_once() -> None:
    assert clock_seconds([(0.0, 10.0), (5.0, 12.0), (100.0, 101.0)]) == 13.0
    assert clock_seconds([]) == 0.0
