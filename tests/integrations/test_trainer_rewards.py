"""Reward functions fit what trainers call: TRL's reward_funcs and verl's compute_score."""

from __future__ import annotations

import asyncio
import base64
import inspect
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import Judge, UserError
from editloupe.integrations.trainer_rewards import NotJudged, trl, verl
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import say
from tests.servers.reward.running import INSTRUCTION, asking, labelled


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return edit_pair(tmp_path)


def data_url(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def asked(text: str = INSTRUCTION) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "You edit pictures."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]},
    ]


def as_trl_calls(
    function: Any, prompts: list[Any], completions: list[Any], **columns: Any
) -> tuple[Any, dict[str, Any]]:
    """Call a reward function with everything that TRL gives it; return the rewards and what was logged."""
    logged: dict[str, Any] = {}
    found = function(
        prompts=prompts,
        completions=completions,
        completion_ids=[[1, 2]] * len(completions),
        **columns,
        trainer_state=SimpleNamespace(global_step=1),
        log_extra=logged.__setitem__,
        log_metric=logged.__setitem__,
    )
    return asyncio.run(found) if inspect.isawaitable(found) else found, logged


@pytest.mark.parametrize("asynchronous", [False, True])
def test_trl_gets_a_reward_a_completion_and_none_where_there_is_none(
    pair: tuple[Path, Path], scripted: StartServer, asynchronous: bool
) -> None:
    with asking(scripted(labelled, log=False)) as judge:
        function = trl(judge, asynchronous=asynchronous)
        assert function.__name__ == "editloupe"
        assert inspect.iscoroutinefunction(function) is asynchronous
        found, logged = as_trl_calls(
            function,
            [asked(), asked(), asked(), "Make it red", asked()],
            [
                [{"role": "assistant", "content": [{"type": "image", "image": Image.open(pair[1])}]}],
                [{"role": "assistant", "content": f"Here: {data_url(pair[1])} as you wished."}],
                [{"role": "assistant", "content": "I cannot do that."}],
                f"<img src='{data_url(pair[1])}'>",
                [{"role": "assistant", "content": [{"type": "image", "image": str(pair[1])}]}],
            ],
            image=[Image.open(pair[0])] * 5,
        )
    assert found == [0.5, 0.5, None, 0.5, None]
    assert logged["editloupe/unjudged"] == 0.4
    assert logged["editloupe_why"][2] == "there is no edited picture"
    assert "names a picture instead of containing it" in logged["editloupe_why"][4]


def test_columns_and_functions_say_where_the_parts_are(pair: tuple[Path, Path], scripted: StartServer) -> None:
    with asking(scripted(labelled, log=False)) as judge:
        function = trl(
            judge,
            source="before",
            edited=lambda row: np.asarray(Image.open(pair[1])) if row["completion"] == "draw" else None,
            instruction="wish",
            name="edits",
        )
        columns = {"before": [str(pair[0]), {"bytes": pair[0].read_bytes(), "path": None}], "wish": [INSTRUCTION] * 2}
        found, logged = as_trl_calls(function, ["p", "p"], ["draw", "draw"], **columns)
        assert found == [0.5, 0.5]
        assert set(logged) == {"edits/unjudged", "edits_why"}
        assert as_trl_calls(function, ["p"], ["x"], before=[str(pair[0])], wish=["y"])[0] == [None]
        (left,), logged = as_trl_calls(function, ["p"], ["draw"], other=["z"])
        assert left is None
        assert logged["edits_why"] == ['the dataset has no column "before"']


def test_what_the_judge_leaves_open_has_no_reward(pair: tuple[Path, Path], scripted: StartServer) -> None:
    with asking(scripted(lambda _: say("Hard to say."), log=False)) as judge:
        found, logged = as_trl_calls(trl(judge), [asked()], [f"{data_url(pair[1])}"], source=[str(pair[0])])
    assert found == [None]
    assert logged["editloupe_why"][0].startswith("instruction_following: ")


def test_a_spec_is_opened_once_with_its_options(pair: tuple[Path, Path]) -> None:
    function = trl("rules", mode="plain")
    for _ in range(2):
        found, _ = as_trl_calls(function, [asked()], [data_url(pair[1])], source=[str(pair[0])])
        assert 0 <= found[0] <= 1
    with Judge("rules") as judge, pytest.raises(UserError, match="takes no options"):
        trl(judge, mode="plain")


def test_verl_gets_a_score_for_every_form_of_a_sample(pair: tuple[Path, Path], scripted: StartServer) -> None:
    info = {"source": str(pair[0]), "instruction": INSTRUCTION}
    with asking(scripted(labelled, log=False)) as judge:
        found = [
            verl("edits", solution_image=Image.open(pair[1]), ground_truth="", extra_info=info, judge=judge),
            verl("edits", f"done {data_url(pair[1])}", "", info, judge=judge),
            verl("edits", "", {**info, "edited": str(pair[1])}, None, judge=judge),
        ]
    assert found == [{"score": 0.5, "judged": 1.0}] * 3


def test_verl_never_gets_a_number_that_nobody_gave(pair: tuple[Path, Path]) -> None:
    info = {"source": str(pair[0]), "instruction": INSTRUCTION}
    with Judge("rules", mode="plain") as judge:
        for solution in ("no picture", "data:image/png;base64,@@"):
            with pytest.raises(NotJudged, match="this edit has no reward"):
                verl("edits", solution, "", info, judge=judge)
            told = verl("edits", solution, "", info, judge=judge, unjudged="nan")
            assert math.isnan(told["score"])
            assert told["judged"] == 0


@pytest.mark.long
def test_verl_opens_one_judge_for_all_samples(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from editloupe.integrations import trainer_rewards as rewards

    monkeypatch.setattr(rewards, "_OPENERS", {})
    info = {"source": str(pair[0]), "instruction": INSTRUCTION, "edited": str(pair[1])}
    for _ in range(3):
        assert verl("edits", "", "", info, judge="rules", mode="plain")["judged"]
    assert len(rewards._OPENERS) == 1
    next(iter(rewards._OPENERS.values()))().close()
