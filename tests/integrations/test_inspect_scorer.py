"""The scorer for Inspect, in tasks that run from end to end with Inspect's own mock model."""

from __future__ import annotations

import base64
import inspect
import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, final, say, wrong_key

pytest.importorskip("inspect_ai")

from inspect_ai import Task
from inspect_ai import eval as run_task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, EvalSample, read_eval_log
from inspect_ai.model import ChatMessageAssistant as Assistant
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput, ModelUsage, get_model

from editloupe.integrations.inspect_scorer import edit_judge

ROOT = Path(__file__).parent.parent.parent
INSTRUCTION = "Change the color of the patch to red"
RunTask = Callable[..., EvalLog]


def data_url(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    before, after = edit_pair(tmp_path)
    return data_url(before), data_url(after)


def asked(source: str, *words: str, **fields: Any) -> Sample:
    """A sample whose user shows a picture and says what to do."""
    texts = [ContentText(text=text) for text in words or (INSTRUCTION,)]
    return Sample(input=[ChatMessageUser(content=[ContentImage(image=source), *texts])], **fields)


def shown(*content: Any) -> ModelOutput:
    """What a model that makes pictures answers; with its tokens, for which the mock would fetch a tokenizer."""
    made = ModelOutput.from_message(Assistant(content=list(content)))
    return made.model_copy(update={"usage": ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTask:
    """Run a task with these samples and these outputs of the mock model; the log is read back from its file."""
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path / "logs"))

    def start(samples: Sequence[Sample], outputs: Sequence[ModelOutput], **options: Any) -> EvalLog:
        task = Task(dataset=list(samples), scorer=edit_judge(**{"judge": "rules", "mode": "plain", **options}))
        model = get_model("mockllm/model", custom_outputs=list(outputs), memoize=False)
        (log,) = run_task(task, model=model, log_dir=str(tmp_path / "logs"), display="none", max_samples=1)
        return read_eval_log(log.location)

    return start


def only(log: EvalLog) -> tuple[EvalSample, Any]:
    assert log.status == "success", log.error
    assert log.samples
    (sample,) = log.samples
    assert sample.scores
    return sample, sample.scores["edit_judge"]


def labels(request: Request) -> Any:
    return final("Scene Collapse" if "Perfect Consistency" in request.system else "Flawless Execution", "It is red.")


@pytest.mark.long
def test_a_task_runs_from_end_to_end(run: RunTask, pair: tuple[str, str], scripted: StartServer) -> None:
    server = scripted(labels)
    log = run(
        [asked(pair[0])], [shown(ContentImage(image=pair[1]))], judge="openai:gpt-4.1", base_url=server.openai_url
    )
    _, score = only(log)

    assert score.value == pytest.approx(0.5)
    assert "instruction_following: Flawless Execution, 100.0 of 100. It is red." in score.explanation
    assert [one["label"] for one in score.metadata["verdicts"]] == ["Flawless Execution", "Scene Collapse"]
    assert {name: metric.value for name, metric in log.results.scores[0].metrics.items()}["mean"] == pytest.approx(0.5)
    request = server.requests[0]
    assert len(request.images) == 2
    assert INSTRUCTION in request.text


@pytest.mark.long
def test_a_picture_may_stand_in_the_words_of_the_output(run: RunTask, pair: tuple[str, str]) -> None:
    said = shown(ContentText(text=f"Here: ![edited]({pair[1]})"))
    _, score = only(run([asked(pair[0])], [said]))
    assert 0 <= score.value <= 1


@pytest.mark.long
def test_pictures_may_come_from_metadata(run: RunTask, tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)
    sample = Sample(input=INSTRUCTION, metadata={"source": str(before), "result": str(after), "say": INSTRUCTION})
    _, score = only(run([sample], [shown(ContentText(text="done"))], edited="result", instruction="say"))
    assert score.metadata["status"] == "judged"


@pytest.mark.long
def test_the_mean_of_the_criteria_that_are_named(run: RunTask, pair: tuple[str, str], scripted: StartServer) -> None:
    options = {"judge": "openai:gpt-4.1", "base_url": scripted(labels).openai_url, "criteria": ["visual_consistency"]}
    _, score = only(run([asked(pair[0])], [shown(ContentImage(image=pair[1]))], **options))
    assert score.value == 0.0
    assert len(score.metadata["verdicts"]) == 1


@pytest.mark.long
def test_a_log_is_scored_afterwards_by_the_scorers_registered_name(
    run: RunTask, pair: tuple[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    log = run([asked(pair[0])], [shown(ContentImage(image=pair[1]))])
    judged = {"judge": "openai:gpt-4.1", "base_url": scripted(labels).openai_url, "criteria": "instruction_following"}
    named = [part for name, value in judged.items() for part in ("-S", f"{name}={value}")]
    ask = [sys.executable, "-m", "inspect_ai", "score", log.location, "--scorer", "editloupe/edit_judge", *named]
    kept = ["--action", "overwrite", "--output-file", str(tmp_path / "again.eval"), "--display", "plain"]
    done = subprocess.run([*ask, *kept], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    _, score = only(read_eval_log(str(tmp_path / "again.eval")))
    assert score.value == 1.0
    assert [one["criterion"] for one in score.metadata["verdicts"]] == ["instruction_following"]


@pytest.mark.long
def test_what_the_judge_leaves_open_is_unscored_and_out_of_the_mean(
    run: RunTask, pair: tuple[str, str], scripted: StartServer
) -> None:
    def answer(request: Request) -> Any:
        return say("I would rather not say.") if "the second" in request.text else labels(request)

    server = scripted(answer)
    samples = [asked(pair[0]), asked(pair[0], "Paint the second one")]
    made = [shown(ContentImage(image=pair[1]))] * 2
    log = run(samples, made, judge="openai:gpt-4.1", base_url=server.openai_url)

    assert log.status == "success"
    judged, left = (sample.scores["edit_judge"] for sample in log.samples)
    assert judged.value == pytest.approx(0.5)
    assert math.isnan(left.value)
    assert left.reason == "grader_failed"
    assert "unjudged (unreadable_answer)" in left.explanation
    (found,) = log.results.scores
    assert (found.scored_samples, found.unscored_samples) == (1, 1)
    assert found.metrics["mean"].value == pytest.approx(0.5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("output", "reason", "why"),
    [
        (ContentText(text="I cannot."), "no_response", "the model's output holds no picture"),
        (ContentImage(image="/etc/passwd"), "scoring_failed", "names a picture instead of containing it"),
        (ContentImage(image="data:image/png;base64,bm8="), "scoring_failed", "not a picture this program reads"),
    ],
)
def test_an_output_without_a_picture_is_unscored(
    run: RunTask, pair: tuple[str, str], output: Any, reason: str, why: str
) -> None:
    _, score = only(run([asked(pair[0])], [shown(output)]))
    assert math.isnan(score.value)
    assert score.reason == reason
    assert why in score.explanation


@pytest.mark.long
def test_a_sample_without_a_source_or_an_instruction_is_unscored(run: RunTask, pair: tuple[str, str]) -> None:
    made = shown(ContentImage(image=pair[1]))
    samples = [
        Sample(input=INSTRUCTION),
        Sample(input=[ChatMessageUser(content=[ContentImage(image=pair[0])])]),
        asked(pair[0], metadata={"source": "https://example.org/a.png"}),
    ]
    log = run(samples[:2], [made, made])
    no_source, no_words = (sample.scores["edit_judge"].explanation for sample in log.samples)
    assert no_source == "the sample's input holds no source picture"
    assert no_words == "the instruction is empty"
    _, score = only(run(samples[2:], [made], source="source"))
    assert "addresses are not fetched" in score.explanation


@pytest.mark.slow  # Inspect draws the traceback, which takes ten seconds
def test_a_wrong_key_fails_the_task_and_stays_out_of_its_log(
    run: RunTask, pair: tuple[str, str], scripted: StartServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key-of-the-test")
    options = {"judge": "openai:gpt-4.1", "base_url": scripted(lambda _: wrong_key()).openai_url}
    log = run([asked(pair[0])], [shown(ContentImage(image=pair[1]))], **options)
    assert log.status == "error"
    assert "sk-very-secret" not in json.dumps(log.model_dump(mode="json"))


def test_an_address_with_a_key_is_refused_before_inspect_writes_it_down() -> None:
    with pytest.raises(UserError, match="keep the key out of base_url"):
        edit_judge(base_url="http://me:sk-secret@127.0.0.1/v1")


def test_the_entry_point_leads_to_the_scorer() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["inspect_ai"]
    assert EntryPoint("editloupe", points["editloupe"], "inspect_ai").load().edit_judge is edit_judge


def test_the_module_does_not_stand_in_for_the_standard_librarys() -> None:
    assert sys.modules["inspect"] is not sys.modules["editloupe.integrations.inspect_scorer"]
    assert inspect.signature(edit_judge).parameters["judge"].default is None
