"""The evaluator for LangSmith and openevals: their signature, their results, and None where nothing was judged."""

from __future__ import annotations

import base64
import inspect
import io
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langsmith.evaluation.evaluator import run_evaluator
from langsmith.schemas import Example, Run
from PIL import Image

from editloupe import Judge
from editloupe.integrations.evaluators import edit_evaluator
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, textured
from tests.scripted import Request, final, say

INSTRUCTION = "Change the color of the patch to red"


def labels(request: Request) -> Any:
    return final("Scene Collapse" if "Perfect Consistency" in request.system else "Flawless Execution", "It is red.")


@pytest.fixture
def options(scripted: StartServer) -> dict[str, Any]:
    return {"judge": "openai:gpt-4.1", "base_url": scripted(labels).openai_url, "mode": "plain"}


@pytest.fixture
def parts(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    before, after = edit_pair(tmp_path)
    return {"source": str(before), "instruction": INSTRUCTION}, {"edited": after.read_bytes()}


def test_a_result_has_key_score_comment_and_facts(options: dict[str, Any], parts: tuple[Any, Any]) -> None:
    result = edit_evaluator(**options)(inputs=parts[0], outputs=parts[1], reference_outputs={"anything": 1})

    assert result["key"] == "editloupe"
    assert result["score"] == pytest.approx(0.5)
    assert "instruction_following: Flawless Execution, 100.0 of 100. It is red." in result["comment"]
    assert [one["score"] for one in result["metadata"]["verdicts"]] == [1.0, 0.0]


async def test_an_asynchronous_one_is_a_coroutine_function(options: dict[str, Any], parts: tuple[Any, Any]) -> None:
    evaluate = edit_evaluator(**options, asynchronous=True, key="edit")
    assert inspect.iscoroutinefunction(evaluate)
    assert (await evaluate(inputs=parts[0], outputs=parts[1]))["score"] == pytest.approx(0.5)
    assert evaluate.__name__ == "edit"


def test_every_criterion_may_be_a_result_of_its_own(options: dict[str, Any], parts: tuple[Any, Any]) -> None:
    found = edit_evaluator(**options, each_criterion=True)(inputs=parts[0], outputs=parts[1])
    assert {one["key"]: one["score"] for one in found} == {
        "editloupe": pytest.approx(0.5),
        "editloupe_instruction_following": 1.0,
        "editloupe_visual_consistency": 0.0,
    }


def test_only_the_criteria_that_are_named_make_up_the_score(options: dict[str, Any], parts: tuple[Any, Any]) -> None:
    evaluate = edit_evaluator(**options, criteria=["instruction_following"])
    assert evaluate(inputs=parts[0], outputs=parts[1])["score"] == 1.0


def test_what_the_judge_leaves_open_has_no_score_and_a_reason(scripted: StartServer, parts: tuple[Any, Any]) -> None:
    with Judge("openai:gpt-4.1", base_url=scripted(lambda _: say("Hm.")).openai_url, mode="plain") as judge:
        result = edit_evaluator(judge)(inputs=parts[0], outputs=parts[1])
    assert result["score"] is None
    assert "unjudged (unreadable_answer)" in result["comment"]
    assert result["metadata"]["status"] == "unjudged"


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        ({"instruction": "x"}, {"edited": b"x"}, "there is no source picture"),
        ({"source": b"x", "instruction": "x"}, {}, "there is no edited picture"),
        ({"source": b"x"}, {"edited": b"x"}, "there is no instruction"),
        ({"source": 7, "instruction": "x"}, {"edited": b"x"}, "a picture is a path, bytes"),
        ({"source": b"x", "instruction": "x"}, {"edited": b"no picture"}, "is not a picture"),
        (
            {"source": b"x", "instruction": "x"},
            {
                "messages": [
                    {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}
                ]
            },
            "names a picture instead of containing it",
        ),
    ],
)
def test_an_example_that_makes_no_edit_has_no_score_and_a_reason(inputs: Any, outputs: Any, why: str) -> None:
    result = edit_evaluator("rules", mode="plain")(inputs=inputs, outputs=outputs)
    assert result["score"] is None
    assert why in result["comment"]


def test_pictures_come_in_many_shapes() -> None:
    pixels = textured()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    shown = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "Do"}]}
    ]
    evaluate = edit_evaluator("rules", mode="plain")
    for inputs, outputs, more in (
        ({"messages": shown}, {"messages": [{"role": "assistant", "content": f"Here: {url}"}]}, {}),
        ({"image": pixels, "prompt": "Do"}, pixels, {}),
        ({"images": [Image.fromarray(pixels)], "prompt": "Do"}, {"image": {"bytes": file.getvalue()}}, {}),
        ("Do", url, {"attachments": {"source": {"reader": io.BytesIO(file.getvalue()), "mime_type": "image/png"}}}),
        ("Do", url, {"attachments": {"image": {"mime_type": "image/png", "data": url}}}),
    ):
        assert evaluate(inputs=inputs, outputs=outputs, **more)["metadata"]["verdicts"], (inputs, outputs)


def test_parts_are_taken_from_where_the_caller_says(parts: tuple[Any, Any]) -> None:
    evaluate = edit_evaluator(
        "rules",
        mode="plain",
        source="before",
        instruction=lambda example: example["reference_outputs"]["asked"],
        edited=lambda example: example["outputs"]["files"][0],
    )
    given = {"inputs": {"before": parts[0]["source"]}, "outputs": {"files": [parts[1]["edited"]]}}
    assert evaluate(**given, reference_outputs={"asked": INSTRUCTION})["metadata"]["status"] == "judged"
    assert (
        evaluate(inputs={}, outputs={}, reference_outputs={"asked": "x"})["comment"] == 'unjudged: there is no "before"'
    )


def test_an_open_judge_takes_no_options() -> None:
    with Judge("rules") as judge, pytest.raises(UserError, match="takes no options"):
        edit_evaluator(judge, mode="plain")


def test_langsmith_takes_it_for_an_evaluator_and_reads_its_result(
    options: dict[str, Any], parts: tuple[Any, Any]
) -> None:
    now, key = datetime.now(UTC), uuid.uuid4()
    run = Run(
        id=key, trace_id=key, name="edit", run_type="chain", start_time=now, end_time=now, inputs={}, outputs=parts[1]
    )
    example = Example(
        id=uuid.uuid4(), dataset_id=uuid.uuid4(), inputs=parts[0], outputs={"anything": 1}, created_at=now
    )

    found = run_evaluator(edit_evaluator(**options)).evaluate_run(run, example)
    assert (found.key, found.score) == ("editloupe", pytest.approx(0.5))
    several = run_evaluator(edit_evaluator(**options, each_criterion=True)).evaluate_run(run, example)
    assert [one.score for one in several["results"]] == [pytest.approx(0.5), 1.0, 0.0]
    left = run_evaluator(edit_evaluator(**options)).evaluate_run(run.model_copy(update={"outputs": {}}), example)
    assert left.score is None
    assert left.comment == "unjudged: there is no edited picture"


def test_openevals_has_the_same_fields_and_calls_it_by_the_same_names(
    options: dict[str, Any], parts: tuple[Any, Any]
) -> None:
    types = pytest.importorskip("openevals.types")
    evaluate: Any = edit_evaluator(**options)

    result = evaluate(inputs=parts[0], outputs=parts[1], reference_outputs=None)
    assert set(result) <= set(types.EvaluatorResult.__annotations__)
    wanted = inspect.signature(types.SimpleEvaluator.__call__).parameters
    given = {name: None for name, one in wanted.items() if name != "self" and one.kind is one.KEYWORD_ONLY}
    inspect.signature(evaluate).bind(**given, anything_else=1)
