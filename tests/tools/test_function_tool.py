"""A decorated function is a tool: its annotations are the parameters, its source is its version."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import editloupe
from editloupe import Edit, Judge
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import Tool, ToolError, ToolResult, View
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
