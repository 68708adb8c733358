"""Changes at a step that exclude each other, or that a trace cannot take: one sentence each, and nothing is asked."""

from __future__ import annotations

import math

import pytest

from editloupe import UserError, fork
from editloupe.cli.main import run as command
from editloupe.evals.forks.fork_judge import JudgeChange
from editloupe.graphs.forking import StepChange
from editloupe.types import Observation, Step, ToolCall
from tests.evals.forks.kept_runs import CRITERION, Keep

STEP = Step(
    index=0,
    calls=(
        ToolCall(id="a", name="zoom_in_image", parameters={"bbox_2d": [1, 2, 30, 40]}),
        ToolCall(id="b", name="zoom_in_image", parameters={"bbox_2d": [1, 2, 30, 40]}),
    ),
    observations=(Observation(call_id="a", tool="zoom_in_image", text="A cup.", pictures=("0" * 32,)),),
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (StepChange(dropped=(1,), again=(1,)), "observation 1 cannot be dropped and carried out again"),
        (
            StepChange(dropped=(1,), boxes={1: (0, 0, 9, 9)}),
            "observation 1 cannot be dropped and made with another box",
        ),
        (StepChange(dropped=(1,), pictures={"1": "f" * 32}), "observation 1 cannot be dropped and shown with another"),
        (
            StepChange(again=(1,), pictures={"1": "f" * 32}),
            "cannot be carried out again and shown with another picture",
        ),
        (StepChange(boxes={1: (0, 0, 9, 9)}, pictures={"1": "f" * 32}), "made with another box and shown with another"),
        (StepChange(pictures={"1.2": "f" * 32}), "observation 1 of step 3 has 1 picture, so there is no 2"),
        (StepChange(pictures={"2": "f" * 32}), "observation 2 of step 3 has no picture, so there is no 1"),
    ],
)
def test_changes_of_one_call_that_exclude_each_other_are_refused(change: StepChange, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        change.check(STEP, 3)


@pytest.mark.parametrize(
    "change",
    [
        StepChange(dropped=(1,), again=(2,)),
        StepChange(again=(1,), boxes={1: (0, 0, 9, 9)}),
        StepChange(pictures={"1": "f" * 32}, boxes={2: (0, 0, 9, 9)}),
    ],
)
def test_changes_of_several_calls_go_together(change: StepChange) -> None:
    change.check(STEP, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--configuration", "other"],
            'edit "patch" has no configuration "other" in run; it has: gpt-4.1/tools (1 unit, ',
        ),
        (["--target", "4"], "has no target 4: it was judged as a whole"),
        (["--boxes", "1=nan,1,2,3"], "--boxes takes I=x1,y1,x2,y2"),
        (["--boxes", "1=1,1,inf,3"], "--boxes takes I=x1,y1,x2,y2"),
        (["--thought", "@nowhere.txt"], "the thought cannot be read from nowhere.txt: No such file or directory"),
    ],
)
def test_what_the_trace_cannot_take_is_one_sentence(
    options: list[str],
    sentence: str,
    keep: Keep,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = keep()
    assert command(["fork", str(kept.run), "patch", "--criterion", CRITERION, "--step", "2", *options]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert kept.more == []


def test_a_box_that_is_no_number_is_refused_in_python_too(keep: Keep) -> None:
    kept = keep()
    with pytest.raises(UserError, match="the box of call 1 must be four finite numbers"):
        fork(kept.run, "patch", CRITERION, 2, boxes={1: (math.nan, 1, 2, 3)})
    assert kept.more == []


def test_who_goes_on_stands_before_what_follows_from_it(keep: Keep) -> None:
    made = keep().fork(2, other=JudgeChange(mode="plain"))
    assert made.changes[0] == "mode (tools, then plain)"
