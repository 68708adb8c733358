"""The examples run as their docstrings say, with the embedded judge and against a server."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import Judge
from tests.conftest import StartServer
from tests.reward_server.running import running
from tests.scripted import Reply, Request, final, say

EXAMPLES = Path(__file__).parent.parent / "examples"
RunExample = Callable[..., list[str]]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunExample:
    """Run an example as a script and return the lines it printed."""

    def start(name: str, *arguments: object) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return start


@pytest.fixture
def ask_a_server(scripted: StartServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Name a scripted server as the judge, as a user names a real one."""

    def start(script: Callable[[Request], Reply]) -> None:
        monkeypatch.setenv("EDITLOUPE_JUDGE", "openai:gpt-4.1")
        monkeypatch.setenv("OPENAI_BASE_URL", scripted(script).openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-examples")

    return start


def test_one_edit(example: RunExample) -> None:
    following, consistency = example("one_edit.py")

    assert following.startswith("instruction_following: Flawless Execution, 100 of 100")
    assert consistency.startswith("visual_consistency: Perfect Consistency, 100 of 100")


def test_one_edit_by_a_server(example: RunExample, ask_a_server: Callable[..., None]) -> None:
    ask_a_server(lambda request: final("Wrong Action" if "Wrong Action" in request.system else "Single Anomaly"))

    assert example("one_edit.py") == [
        "instruction_following: Wrong Action, 33 of 100, after 1 steps",
        "visual_consistency: Single Anomaly, 67 of 100, after 1 steps",
    ]


@pytest.mark.long
def test_many_edits_are_judged_once_and_scored(example: RunExample, tmp_path: Path) -> None:
    first = example("batch.py", tmp_path / "run")
    again = example("batch.py", tmp_path / "run")

    assert first[0] == f"rules judged into {tmp_path / 'run'}: complete"
    assert first[1].startswith("overall ")
    assert first[1].endswith(" 0 unjudged")
    assert {line.partition(":")[0] for line in first[2:]} == {
        "Change Color",
        "Change Material",
        "Change OCR",
        "Removal Object",
        "Replace Object",
    }
    assert again == first


def test_an_own_rubric_is_left_open_by_the_embedded_judge(example: RunExample) -> None:
    (said,) = example("own_rubric.py")

    assert said.startswith("visible_at_a_glance: unjudged (not_understood)")


def test_an_own_rubric_is_scored_by_a_server(example: RunExample, ask_a_server: Callable[..., None]) -> None:
    ask_a_server(lambda _: say('{"reason": "Blue on grey.", "score": 4}'))

    assert example("own_rubric.py") == ["visible_at_a_glance: 4, that is 75 of 100"]


def test_the_reward_prefers_the_asked_edit(example: RunExample) -> None:
    found = {name: float(value) for name, value in (line.split(": ") for line in example("reward_function.py"))}

    assert list(found) == ["rocket-rod-edited", "rocket-emblem-edited", "rocket"]
    assert found["rocket-rod-edited"] == max(found.values()) > 0
    assert sum(found.values()) == pytest.approx(0, abs=0.02)


def test_a_candidate_without_a_verdict_has_no_reward(example: RunExample, ask_a_server: Callable[..., None]) -> None:
    ask_a_server(lambda _: say("I would rather not say."))

    assert {line.partition(": ")[2] for line in example("reward_function.py")} == {"unjudged"}


def test_candidates_that_were_never_files_are_rewarded(example: RunExample) -> None:
    asked, untouched, broken = (line.partition(": ")[2] for line in example("memory_rewards.py"))

    assert float(asked) > float(untouched)
    assert broken == "unjudged"


def test_a_trainer_is_given_rewards_and_none_where_there_is_no_picture(example: RunExample) -> None:
    asked, untouched, left = example("trl_reward.py")

    assert float(asked) > float(untouched)
    assert left == "no reward"


def test_a_reward_server_is_asked(example: RunExample) -> None:
    with running(Judge("rules")) as server:
        asked, broken = example("ask_reward_server.py", server.url)

    assert float(asked.partition(": ")[2]) > 0.5
    assert "is not a picture this program reads" in broken


@pytest.mark.long
def test_an_assistant_asks_the_mcp_server(example: RunExample) -> None:
    pytest.importorskip("mcp")
    following, consistency, said, caption, picture = example("mcp_client.py")

    assert following.startswith("instruction_following: ")
    assert consistency == "visual_consistency: Perfect Consistency"
    assert said.startswith("Left of the red line: First Image, region")
    assert caption.startswith("Picture 1: ")
    assert picture == "a picture, image/jpeg"


@pytest.mark.long
def test_a_task_of_inspect_is_scored(example: RunExample, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    asked, left = example("inspect_task.py", tmp_path / "logs")

    assert float(asked.partition(": ")[2]) > 0.5
    assert left == "second: unscored, the model's output holds no picture"
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 1


def test_an_evaluator_of_langsmith_has_no_score_without_a_picture(example: RunExample) -> None:
    asked, left = example("langsmith_evaluator.py")

    assert float(asked.partition(": ")[2].partition(",")[0]) > 0.5
    assert left == "edit: None, unjudged: there is no edited picture"


def test_a_trace_is_read_back_from_a_run(example: RunExample, tmp_path: Path) -> None:
    told = "\n".join(example("read_trace.py", tmp_path / "run"))

    assert "asked for localize_differences" in told
    assert "saw About " in told
    assert "answered Multiple Anomalies" in told


def test_every_example_has_a_test_and_says_how_to_run_it() -> None:
    tests = Path(__file__).read_text("utf-8")
    for script in EXAMPLES.glob("*.py"):
        assert f'example("{script.name}"' in tests
        assert f"python examples/{script.name}" in script.read_text("utf-8")
