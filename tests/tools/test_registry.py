from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import CachedResult, Tool, ToolError, ToolResult, View
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.registry import BUILT_IN, Toolbox, build_toolbox
from editloupe.tools.result_cache import key
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError
from tests.tools.conftest import MakeView

DOCS = Path(__file__).parents[2] / "docs" / "guides" / "extending.md"


class Brightness:
    """A tool of the tests' own."""

    name = "measure_brightness"
    description = "Says how bright a picture is."

    def __init__(self, problem: str | None = None) -> None:
        self.problem = problem
        self.threads: set[str] = set()

    def schema(self, view: View) -> dict[str, Any]:
        properties = {
            "target_image": {"type": "string", "enum": list(view.pictures)},
            "times": {"type": "integer"},
            "bad": {"type": "boolean"},
        }
        return {"type": "object", "properties": properties, "required": ["target_image"]}

    def unavailable(self) -> str | None:
        return self.problem

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        self.threads.add(threading.current_thread().name)
        if parameters.get("bad"):
            raise RuntimeError("the lamp broke")
        _, picture = view.picture(parameters["target_image"])
        found = view.memory.get(
            key(self.name, picture.sha), lambda: CachedResult({"mean": float(picture.pixels.mean())})
        )
        return ToolResult(f"Brightness {found.data['mean']:.0f}, {parameters.get('times')} times.", (), found.data)


@pytest.fixture
def toolbox() -> Toolbox:
    return build_toolbox(ToolSettings(plugins=False, extra_tools=(Brightness(),)))


def test_the_list_names_every_built_in_tool_as_the_tool_itself_does() -> None:
    settings = ToolSettings(plugins=False)
    box = build_toolbox(settings)

    assert [b.name for b in BUILT_IN] == ["zoom_in_image", "localize_differences", "detect_object", "read_text"]
    assert {*box.names, *box.withheld} == {b.name for b in BUILT_IN}


@pytest.mark.long
def test_building_a_toolbox_imports_no_heavy_package() -> None:
    code = (
        "import sys; from editloupe.tools.registry import build_toolbox; build_toolbox();"
        "print([m for m in ('torch', 'transformers', 'ncnn', 'rapidocr', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_a_tool_that_cannot_run_is_withheld_with_its_reason() -> None:
    box = build_toolbox(ToolSettings(plugins=False, extra_tools=(Brightness("it needs a lamp: buy one"),)))

    assert box.withheld["measure_brightness"] == "it needs a lamp: buy one"
    assert "measure_brightness" not in [tool.name for tool in box.tools_for("Remove the cat")]
    with pytest.raises(ToolError, match="buy one"):
        box.tool("measure_brightness")


def test_a_second_tool_of_one_name_is_withheld() -> None:
    box = build_toolbox(ToolSettings(plugins=False, extra_tools=(Brightness(), Brightness())))

    assert "already called" in box.withheld["measure_brightness (plug-in)"]
    assert box.names.count("measure_brightness") == 1


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("look_harder", {}, 'no tool called "look_harder". The tools are: zoom_in_image'),
        ("measure_brightness", {}, 'needs "target_image"'),
        ("measure_brightness", {"target_image": "Source Image", "zoom": 2}, 'no parameter "zoom"'),
        ("measure_brightness", {"target_image": "Mask"}, 'one of "Source Image"'),
        (
            "measure_brightness",
            {"target_image": "Source Image", "times": "often"},
            "times of measure_brightness is an integer",
        ),
        ("measure_brightness", {"target_image": "Source Image", "times": True}, "is an integer, not true"),
        ("measure_brightness", {"target_image": "Source Image", "bad": "yes"}, 'is a boolean, not "yes"'),
        ("measure_brightness", ["Source Image"], "are an object"),
        ("measure_brightness", {"target_image": "Source Image", "bad": True}, "failed on this call.*the lamp broke"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_sentence(
    name: str, parameters: Any, says: str, toolbox: Toolbox, photo: Pixels, make_view: MakeView
) -> None:
    with pytest.raises(ToolError, match=says):
        toolbox.run(name, parameters, make_view(photo))


@pytest.mark.parametrize("name", ["Source Image", "source image", " Original Image "])
def test_a_picture_is_known_by_its_synonyms(name: str, toolbox: Toolbox, photo: Pixels, make_view: MakeView) -> None:
    assert toolbox.run("measure_brightness", {"target_image": name}, make_view(photo)).text.startswith("Brightness")


def test_numbers_and_lists_sent_as_their_json_text_are_read(
    toolbox: Toolbox, photo: Pixels, make_view: MakeView
) -> None:
    view = make_view(photo)

    assert "3 times" in toolbox.run("measure_brightness", {"target_image": "Source Image", "times": "3"}, view).text
    zoomed = toolbox.run("zoom_in_image", {"target_image": "Source Image", "bbox_2d": "[0, 0, 99, 99]"}, view)
    assert zoomed.data["box"] == [0, 0, 99, 99]


def test_a_repeated_look_is_marked_as_remembered(toolbox: Toolbox, photo: Pixels, make_view: MakeView) -> None:
    call = {"target_image": "Source Image"}

    assert [toolbox.run("measure_brightness", call, make_view(photo)).cached for _ in range(2)] == [False, True]
    assert toolbox.run("measure_brightness", call, make_view(photo[::-1].copy())).cached is False


async def test_tools_run_in_worker_threads_while_the_event_loop_goes_on(photo: Pixels, make_view: MakeView) -> None:
    tool = Brightness()
    box = build_toolbox(ToolSettings(plugins=False, extra_tools=(tool,)))
    view = make_view(photo)

    results = await asyncio.gather(
        *(
            box.run_in_worker(
                "measure_brightness", box.run, "measure_brightness", {"target_image": "Source Image"}, view
            )
            for _ in range(4)
        )
    )

    assert len(results) == 4
    assert all(name.startswith("editloupe-tool") for name in tool.threads)


def test_the_facts_follow_what_an_answer_can_depend_on() -> None:
    def of(**settings: Any) -> str:
        return json.dumps(build_toolbox(ToolSettings(plugins=False, **settings)).facts())

    assert of() == of(workers=3) == of(memory_bytes=1) == of(network_share=0.1)  # no network enlarges here
    changes: list[dict[str, Any]] = [
        {},
        {"enhancer": "none"},
        {"max_regions": 2},
        {"overview": True},
        {"read_text": "off"},
        {"extra_tools": (Brightness(),)},
        {"comparison": "pixels"},
        {"comparison": "pixels", "pixel_threshold": 3},
        {"offered": ("zoom_in_image",)},
        {"offered": ()},
    ]
    assert len({of(**settings) for settings in changes}) == len(changes)


def names_offered(*offered: str) -> tuple[str, ...]:
    box = build_toolbox(ToolSettings(plugins=False, extra_tools=(Brightness(),), offered=offered))
    assert not box.withheld
    return tuple(tool.name for tool in box.tools_for("Paint it red"))


def test_exactly_the_named_tools_are_offered() -> None:
    assert names_offered("zoom_in_image", "measure_brightness") == ("zoom_in_image", "measure_brightness")
    assert names_offered() == ()
    with pytest.raises(UserError, match='unknown tool "zoom"; the tools are: detect_object, localize_differences'):
        names_offered("zoom")


@pytest.mark.models
def test_a_named_text_reader_is_offered_whatever_the_instruction_is_about() -> None:
    assert names_offered("read_text") == ("read_text",)


def test_a_named_tool_that_cannot_run_here_is_told_and_not_offered() -> None:
    box = build_toolbox(
        ToolSettings(plugins=False, extra_tools=(Brightness("no lamp"),), offered=("measure_brightness",))
    )

    assert box.names == ()
    assert box.withheld == {"measure_brightness": "no lamp"}


def test_the_share_of_the_network_is_part_of_what_enlarged_crops_depend_on() -> None:
    def of(**settings: Any) -> str:
        return build_enhancer(ToolSettings(enhancer="realesrgan", **settings))[0].fingerprint

    assert len({of(), of(network_share=1), of(network_share=0), of(enhance_up_to=900)}) == 4


@pytest.mark.parametrize(
    "wrong", [{"enhancer": "magic"}, {"box_threshold": 2.0}, {"max_regions": 0}, {"read_text": "maybe"}]
)
def test_a_setting_that_does_not_exist_is_the_users_mistake(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        ToolSettings(**wrong)


def test_settings_come_from_the_environment() -> None:
    found = ToolSettings.from_environment(
        {"EDITLOUPE_ENHANCER": "none", "EDITLOUPE_CACHE_FOLDER": "looks", "HOME": "x"}
    )

    assert found == ToolSettings(enhancer="none", cache_folder=Path("looks"))


def install_plugin(site: Path, code: str, entry: str) -> None:
    """Lay out an installed package: a module, and metadata with an entry point."""
    (site / "colour_tools.py").write_text(code)
    info = site / "colour_tools-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: colour-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[editloupe.tools]\n{entry}\n")


def documented(language: str) -> str:
    [block] = re.findall(rf"<!-- plug-in -->\n```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return str(block)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colour_tools", raising=False)
    return tmp_path


def test_the_documented_plugin_appears_in_the_toolbox_and_runs(site: Path, photo: Pixels, make_view: MakeView) -> None:
    entry = re.search(r"^(\w+ = .*)$", documented("toml").replace('"', ""), re.MULTILINE)
    assert entry is not None
    install_plugin(site, documented("python"), entry.group(1))
    box = build_toolbox()
    view = make_view(photo, np.full_like(photo, 200))

    result = box.run("measure_colour", {"target_image": "Edited Image", "bbox_2d": [0, 0, 10, 10]}, view)

    assert "measure_colour" in [tool.name for tool in box.tools_for(view)]
    assert isinstance(box.tool("measure_colour"), Tool)
    assert result.data["rgb"] == [200, 200, 200]
    assert len(result.pictures) == 1
    with pytest.raises(ToolError, match="bbox_2d"):
        box.run("measure_colour", {"target_image": "Edited Image"}, view)


@pytest.mark.parametrize(
    ("code", "entry", "says"),
    [
        ("1/0", "broken = colour_tools:Tool", "ZeroDivisionError"),
        ("", "broken = colour_tools:Missing", "Missing"),
        ("class NotATool: pass", "broken = colour_tools:NotATool", "is not a tool"),
        ("def make(): raise OSError('no lamp')", "broken = colour_tools:make", "no lamp"),
    ],
)
def test_a_broken_plugin_is_reported_and_never_ends_a_run(code: str, entry: str, says: str, site: Path) -> None:
    install_plugin(site, code, entry)

    box = build_toolbox()

    assert says in box.withheld["broken"]
    assert "zoom_in_image" in box.names
