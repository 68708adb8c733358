"""A decorated function is a tool: its annotations are the parameters, its source is its version."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import editloupe
from editloupe import Edit, Judge
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import Tool, ToolError, ToolPicture, ToolResult, View
from editloupe.tools.function_tool import FunctionTool, tool
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box, UserError
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import call, final
from tests.tools.conftest import MakeView


@tool
def measure_colour(picture: Pixels, region: Box, digits: Annotated[int, "Digits after the point"] = 0) -> str:
    """Measures the mean colour of a region."""
    mean = picture[region.y1 : region.y2, region.x1 : region.x2].mean(axis=(0, 1))
    picture[:] = 0
    return f"The mean colour is {[round(float(value), digits) for value in mean]}."


def test_it_is_a_tool_whose_parameters_are_the_annotations(edited: Pixels, photo: Pixels, make_view: MakeView) -> None:
    assert editloupe.tool is tool
    assert isinstance(measure_colour, Tool)
    schema = measure_colour.schema(make_view(photo, edited))
    assert schema["required"] == ["picture", "region"]
    assert schema["properties"]["picture"] == {"type": "string", "enum": ["Source Image", "Edited Image"]}
    assert schema["properties"]["digits"] == {"type": "integer", "description": "Digits after the point"}


def test_a_box_in_the_models_numbers_becomes_pixels_of_the_original(photo: Pixels, make_view: MakeView) -> None:
    toolbox, view = build_toolbox(ToolSettings(extra_tools=(measure_colour,))), make_view(photo, per_mille=True)
    before = photo.copy()
    result = toolbox.run("measure_colour", {"picture": "Source Image", "region": [0, 0, 500, 500]}, view)
    expected = [round(float(value)) for value in before[:256, :256].mean(axis=(0, 1))]
    assert result.text == f"The mean colour is {[float(value) for value in expected]}."
    assert (view.picture("Source Image")[1].pixels == before).all(), "the function drew on a copy"
    with pytest.raises(ToolError, match="lies outside the picture"):
        toolbox.run("measure_colour", {"picture": "Source Image", "region": [2000, 0, 2100, 10]}, view)


def test_a_literal_is_a_choice_and_a_view_is_passed_but_not_offered(photo: Pixels, make_view: MakeView) -> None:
    @tool(name="say_it", description="Repeats the instruction.")
    def say(view: View, case: Literal["upper", "lower"]) -> ToolResult:
        return ToolResult(getattr(view.instruction, case)(), data={"case": case})

    toolbox, view = build_toolbox(ToolSettings(extra_tools=(say,))), make_view(photo)
    assert say.schema(view)["properties"] == {"case": {"enum": ["upper", "lower"]}}
    assert toolbox.run("say_it", {"case": "UPPER"}, view).text == "PAINT A RED CUP."
    with pytest.raises(ToolError, match="cannot be"):
        toolbox.run("say_it", {"case": "title"}, view)


def test_a_result_that_is_no_text_is_an_error_of_the_call(photo: Pixels, make_view: MakeView) -> None:
    @tool
    def count() -> int:
        """Counts."""
        return 3

    assert count() == 3
    with pytest.raises(ToolError, match="count returned a int, not a text or a ToolResult"):
        build_toolbox(ToolSettings(extra_tools=(count,))).run("count", {}, make_view(photo))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: BaseException) -> Any:
    raise error


HUGE = np.zeros((8, 8, 4), np.uint8)


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (lambda: raising(Unprintable()), "probe failed on this call (Unprintable:)"),
        (lambda: raising(SystemExit(3)), "probe failed on this call (SystemExit: 3)"),
        (lambda: raising(KeyboardInterrupt()), "probe failed on this call (KeyboardInterrupt:)"),
        (
            lambda: ToolResult(5),  # type: ignore[arg-type]
            "not a ToolResult with a text",
        ),
        (
            lambda: ToolResult("t", data=[1]),  # type: ignore[arg-type]
            "not a ToolResult with a text",
        ),
        (
            lambda: ToolResult("t", pictures=(HUGE,)),  # type: ignore[arg-type]
            "its pictures must be a ToolPicture each",
        ),
        (lambda: ToolResult("t", pictures=(ToolPicture(HUGE, "c"),)), "its pictures must be a ToolPicture each"),
        (lambda: ToolResult("t", pictures=(ToolPicture(HUGE[:0, :, :3], "c"),)), "its pictures must be a ToolPicture"),
        (lambda: "x" * 60_000, "its text has 60,000 characters, and at most 50,000 are sent"),
    ],
)
def test_whatever_a_function_does_is_a_sentence_for_the_model(
    work: Callable[[], Any], sentence: str, scripted: StartServer, tmp_path: Path
) -> None:
    def probe() -> str:
        """Probes."""
        return work()  # type: ignore[no-any-return]

    before, after = edit_pair(tmp_path)
    server = scripted(call("probe"), final("Wrong Action"))
    tools = ToolSettings(extra_tools=(tool(probe),))
    with Judge(
        "openai:gpt-4.1", mode="tools", criteria=["instruction_following"], base_url=server.openai_url, tools=tools
    ) as judge:
        judgement = judge.judge(Edit(source=before, edited=after, instruction="Paint it red"))
    (seen,) = judgement.traces[0].steps[0].observations
    assert judgement.judged
    assert seen.failed
    assert sentence in seen.text


def test_what_a_function_returns_can_be_stored(photo: Pixels, make_view: MakeView) -> None:
    @tool
    def odd() -> ToolResult:
        """Measures."""
        return ToolResult("half \ud83d", data={"n": float("nan"), "o": object()})

    result = build_toolbox(ToolSettings(extra_tools=(odd,))).run("odd", {}, make_view(photo))
    assert result.text == "half \ufffd"
    json.dumps(dict(result.data), allow_nan=False)


def test_other_code_is_another_version() -> None:
    def make(code: str) -> FunctionTool:
        names: dict[str, Any] = {}
        exec(f"def f(x: int) -> str:\n    'Says it.'\n    return str({code})", names)
        return tool(names["f"])

    assert make("x + 1").version == make("x + 1").version
    assert len({make(code).version for code in ("x + 1", "x + 2", "-x")}) == 3


def test_a_tool_of_a_module_is_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(measure_colour)) is measure_colour


def no_docstring(picture: np.ndarray[Any, Any]) -> str:
    return ""


def untyped(picture) -> str:  # type: ignore[no-untyped-def]
    """Measures."""
    return ""


def box_alone(region: Box) -> str:
    """Measures."""
    return ""


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (no_docstring, "the tool no_docstring needs a docstring"),
        (untyped, "the parameter picture of the tool untyped needs an annotation"),
        (box_alone, "has a Box but no picture"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused(function: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        tool(function)


def test_a_judge_calls_it_and_its_version_is_part_of_the_question(scripted: StartServer, tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)
    server = scripted(call("measure_colour", picture="Edited Image", region=[0, 0, 10, 10]), final("Wrong Action"))
    settings = ToolSettings(extra_tools=(measure_colour,))
    with Judge(
        "openai:gpt-4.1", mode="tools", criteria=["instruction_following"], base_url=server.openai_url, tools=settings
    ) as judge:
        judgement = judge.judge(Edit(source=before, edited=after, instruction="Paint it red"))
        assert judge.toolbox.facts()["measure_colour"] == {"version": measure_colour.version}
    assert judgement.judged
    assert "The mean colour is" in str(server.requests[1].body)
