"""The examples run as their docstrings say, with the embedded judge and against a server."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import Judge
from editloupe.demo import demo_manifest
from tests.conftest import StartServer
from tests.scripted import Reply, Request, final, say
from tests.scripted.batch_service import BatchService
from tests.servers.reward.running import running

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


@pytest.mark.long
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
    (line,) = example("own_rubric.py")

    assert line.startswith("visible_at_a_glance: unjudged (not_understood)")


def test_an_own_rubric_is_scored_by_a_server(example: RunExample, ask_a_server: Callable[..., None]) -> None:
    ask_a_server(lambda _: say('{"reason": "Blue on grey.", "score": 4}'))

    assert example("own_rubric.py") == ["visible_at_a_glance: 4, that is 75 of 100"]


@pytest.mark.long
def test_the_reward_prefers_the_edit_that_was_asked_for(example: RunExample) -> None:
    advantages = {name: float(value) for name, value in (line.split(": ") for line in example("reward_function.py"))}

    assert list(advantages) == ["cat-eye-edited", "cat-eye-reference", "chelsea"]
    assert advantages["cat-eye-edited"] == max(advantages.values()) > 0
    assert sum(advantages.values()) == pytest.approx(0, abs=0.02)


@pytest.mark.long
def test_a_candidate_without_a_verdict_has_no_reward(example: RunExample, ask_a_server: Callable[..., None]) -> None:
    ask_a_server(lambda _: say("I would rather not say."))

    assert {line.partition(": ")[2] for line in example("reward_function.py")} == {"unjudged"}


@pytest.mark.long
def test_candidates_that_were_never_files_are_rewarded(example: RunExample) -> None:
    edited, untouched, broken = (line.partition(": ")[2] for line in example("memory_rewards.py"))

    assert float(edited) > float(untouched)
    assert broken == "unjudged"


@pytest.mark.long
def test_a_trainer_gets_rewards_and_none_without_a_picture(example: RunExample) -> None:
    edited, untouched, left = example("trl_reward.py")

    assert float(edited) > float(untouched)
    assert left == "no reward"


@pytest.mark.long
def test_a_reward_server_is_asked(example: RunExample) -> None:
    with running(Judge("rules")) as server:
        edited, broken = example("ask_reward_server.py", server.url)

    assert float(edited.partition(": ")[2]) > 0.5
    assert "is not a picture this program reads" in broken


@pytest.mark.long
def test_an_assistant_asks_the_mcp_server(example: RunExample) -> None:
    pytest.importorskip("mcp")
    following, consistency, sentence, caption, picture = example("mcp_client.py")

    assert following.startswith("instruction_following: ")
    assert consistency == "visual_consistency: Perfect Consistency"
    assert sentence.startswith("Left of the red line: First Image, region")
    assert caption.startswith("Picture 1: ")
    assert picture == "a picture, image/jpeg"


@pytest.mark.long
def test_a_task_of_inspect_is_scored(example: RunExample, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    edited, left = example("inspect_task.py", tmp_path / "logs")

    assert float(edited.partition(": ")[2]) > 0.5
    assert left == "second: unscored, the model's output holds no picture"
    assert len(list((tmp_path / "logs").glob("*.eval"))) == 1


@pytest.mark.long
def test_an_evaluator_of_langsmith_has_no_score_without_a_picture(example: RunExample) -> None:
    edited, left = example("langsmith_evaluator.py")

    assert float(edited.partition(": ")[2].partition(",")[0]) > 0.5
    assert left == "edit: None, unjudged: there is no edited picture"


@pytest.mark.long
def test_a_reward_server_is_started_and_asked_in_three_dialects(example: RunExample) -> None:
    who, unirl, flow_factory, openrlhf, *counted = example("serve_rewards.py")

    assert who == "rules gives editloupe, instruction_following, visual_consistency from 0 to 1"
    assert unirl.startswith("/score: {'editloupe': {'score': 1.0")
    assert flow_factory.removeprefix("/compute") == openrlhf.removeprefix("/get_reward")
    assert counted == ['editloupe_edits_total{outcome="judged"} 1', 'editloupe_edits_total{outcome="known"} 2']


def test_a_reward_of_verl_is_nan_without_a_picture(example: RunExample) -> None:
    scored, raised, left = example("verl_reward.py")

    assert scored.startswith("{'score': 1.0")
    assert raised == "this edit has no reward: there is no edited picture"
    assert left == "{'score': nan, 'judged': 0.0}"


@pytest.mark.long
def test_every_provider_is_asked_the_same_way(
    example: RunExample, scripted: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("langchain_anthropic", "langchain_aws", "langchain_ollama"):
        pytest.importorskip(package)
    server = scripted(lambda _: final("Wrong Action"))
    addresses = {"OPENAI_BASE_URL": server.openai_url, "OPENROUTER_BASE_URL": server.openai_url}
    plain = ("GOOGLE_GEMINI_BASE_URL", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT", "OLLAMA_HOST")
    addresses |= dict.fromkeys((*plain, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"), server.url)
    keys = ("OPENAI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "OPENROUTER_API_KEY")
    addresses |= dict.fromkeys((*keys, "AWS_BEARER_TOKEN_BEDROCK"), "key-of-the-examples")
    for name, value in {**addresses, "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    lines = example("providers.py")

    assert [line.partition(":")[0] for line in lines] == [
        "openai",
        "google_genai",
        "anthropic",
        "azure_openai",
        "bedrock",
        "openrouter",
        "ollama",
    ]
    assert {line.rpartition(": ")[2].partition(",")[0] for line in lines} == {"Wrong Action"}
    assert [request.provider for request in server.requests if len(request.images) == 2] == [
        "openai",
        "gemini",
        "anthropic",
        "openai",
        "bedrock",
        "openai",
        "ollama",
    ]


def test_a_provider_that_cannot_be_asked_is_reported_in_a_sentence(
    example: RunExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (line,) = example("providers.py", "anthropic:claude-sonnet-5")

    assert line.startswith("anthropic:claude-sonnet-5: not asked: anthropic:claude-sonnet-5 needs a key")


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-flash"])
def test_edits_are_judged_through_batch_files(
    example: RunExample, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    def answers(request: Request) -> Reply:
        return final("Scene Collapse" if "Perfect Consistency" in request.system else "Flawless Execution")

    server = scripted(answers)
    server.batches = BatchService(answers)
    settings = {"EDITLOUPE_JUDGE": spec, "OPENAI_BASE_URL": server.openai_url, "GOOGLE_GEMINI_BASE_URL": server.url}
    keys = dict.fromkeys(("OPENAI_API_KEY", "GOOGLE_API_KEY"), "key-of-the-examples")
    for name, value in {**settings, **keys, "POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    first = example("half_price.py", tmp_path / "run")
    again = example("half_price.py", tmp_path / "run")

    judged = 2 * len(demo_manifest().read_text("utf-8").splitlines())
    assert any(line.startswith("submitted as batch job") for line in first)
    assert first[-2:] == [f"{judged} verdicts by {spec}, 0 were there before", "overall 50.0 [4 sources] of 100"]
    assert again[-2] == f"0 verdicts by {spec}, {judged} were there before"
    assert server.batches.asked == judged
    assert server.served == 0


@pytest.mark.long
def test_a_trace_is_read_back_from_a_run(example: RunExample, tmp_path: Path) -> None:
    output = "\n".join(example("read_trace.py", tmp_path / "run"))

    assert "asked for localize_differences" in output
    assert "saw About " in output
    assert "answered Multiple Anomalies" in output


@pytest.mark.long
def test_six_questions_become_a_benchmark(example: RunExample, tmp_path: Path) -> None:
    first = example("make_benchmark.py", tmp_path / "bench")

    assert "metadata: 6 made, 0 held before" in first
    assert first[-1].startswith(f"6 samples in {tmp_path / 'bench' / 'manifest.jsonl'}")
    kinds = [json.loads(line)["instruction_type"] for line in (tmp_path / "bench" / "manifest.jsonl").open()]
    assert sorted(set(kinds)) == ["Change Color", "Change Material", "Change OCR", "Removal Object", "Replace Object"]


def test_every_example_has_a_test_and_says_how_to_run_it() -> None:
    tests = Path(__file__).read_text("utf-8")
    for script in EXAMPLES.glob("*.py"):
        assert f'example("{script.name}"' in tests
        assert f"python examples/{script.name}" in script.read_text("utf-8")
