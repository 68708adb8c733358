"""`--setup dlebench-paper` as it goes over the wire: the paper's pictures, tools and texts, and nothing else.

The networks are read by the code that reads the real weights; the enhancer's is one that anybody can compute: it enlarges four
times and inverts, so that every pixel it made is known by its colour.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from editloupe import Edit, Judge, Judgement, load_manifest
from editloupe.judge.settings import Setup, find_setup
from editloupe.pictures.pixels import Pixels
from editloupe.tools.models.detectors import GroundingDino
from editloupe.tools.models.real_esrgan import MODEL
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.scripted import Answer, Image, Request, ScriptedServer, call, final, think_and_call_text

pytestmark = pytest.mark.models
INVERTS = """7767517
3 3
Input data 0 1 data
Interp larger 1 1 data larger 0=1 1=4.0 2=4.0
BinaryOp inverted 1 1 larger output 0=7 1=1 2=1.0
"""
"""A network in ncnn's own notation: every pixel four times as wide and high, then 1 − x."""
PATCHES = ((60, 40, 100, 70), (200, 30, 230, 60), (40, 160, 75, 190), (220, 150, 260, 190))
"""Where the edited picture differs, the largest sum of differences first; one more than the paper shows."""
IF, VC = "instruction_following", "visual_consistency"
TOOLS = {
    "zoom_in_image": ["bbox_2d", "target_image"],
    "localize_differences": ["comparison_image_1", "comparison_image_2"],
    "detect_object": ["target_image", "detect_object_name"],
}
LOOKS = (
    call("localize_differences", comparison_image_1="Source Image", comparison_image_2="Edited Image"),
    call("zoom_in_image", bbox_2d=list(PATCHES[0]), target_image="Edited Image"),
    call("detect_object", target_image="Source Image", detect_object_name="red"),
)
SPECS = ("openai:gpt-4.1", "google_genai:gemini-3-pro")


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    """The paper's set-up, told where the networks are; whatever the random detector finds is shown.

    The enhancer's network inverts its input, so that its crops are recognised. It is not an RRDBNet, so the check is left out.
    """
    pytest.importorskip("ncnn")
    monkeypatch.setattr("editloupe.tools.models.real_esrgan.read_convolutions", lambda file: None)
    folder = tmp_path / "network"
    folder.mkdir()
    (folder / f"{MODEL}.param").write_text(INVERTS)
    (folder / f"{MODEL}.bin").write_bytes(b"")
    return find_setup("dlebench-paper").with_settings(judging={}, tools={"enhancer_weights": folder, "threads": 1})


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before = textured(320, 240) // 2
    after = before.copy()
    for place, (x1, y1, x2, y2) in enumerate(PATCHES):
        after[y1:y2, x1:x2] = (255, 255 - 40 * place, 255 - 40 * place)
    return Edit(
        id="four",
        source=save(before, tmp_path / "before.png"),
        edited=save(after, tmp_path / "after.png"),
        reference=save(after[::-1], tmp_path / "reference.png"),
        instruction="Change the color of the cup to red",
        instruction_type="Change Color",
        hint="It stands on the left.",
        target_boxes=((60, 40, 100, 70),),
    )


def looking(request: Request) -> Answer:
    """Take all three looks in one reply, then answer."""
    if len(request.messages) == 1 and "<tools>" in request.system:
        return think_and_call_text("I look.", *LOOKS)
    return final("Multiple Anomalies" if "Scene Collapse" in request.system else "Wrong Action")


def judged(server: ScriptedServer, spec: str, setup: Setup, edits: Sequence[Edit], **more: Any) -> list[Judgement]:
    url = server.gemini_url if spec.startswith("google") else server.openai_url
    with Judge(spec, base_url=url, setup=setup, **more) as judge:
        return [judge.judge(edit) for edit in edits]


def told_tools(request: Request) -> dict[str, Any]:
    """The tools that the system text describes, by name."""
    listed = re.search(r"<tools>\n(.*?)\n</tools>", request.system, re.DOTALL)
    described = [json.loads(line)["function"] for line in listed[1].splitlines()] if listed else []
    return {one["name"]: one for one in described}


def pixels(image: Image) -> Pixels:
    return np.asarray(PillowImage.open(io.BytesIO(image.data)).convert("RGB"))


def by_network(crop: Pixels) -> Pixels:
    return np.asarray(255 - crop.repeat(4, 0).repeat(4, 1))


def alike(one: Pixels, other: Pixels) -> bool:
    """True where two pictures are the same but for what JPEG makes of them."""
    return one.shape == other.shape and float(np.abs(one.astype(int) - other).mean()) < 6


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The sizes of all pictures that the detector's network is given."""
    given: list[tuple[int, ...]] = []
    passed: Callable[..., Any] = GroundingDino._batch

    def batch(self: GroundingDino, pictures: Sequence[Pixels], phrases: Sequence[str]) -> Any:
        given.extend(picture.shape for picture in pictures)
        return passed(self, pictures, phrases)

    monkeypatch.setattr(GroundingDino, "_batch", batch)
    return given


@pytest.mark.parametrize("spec", SPECS)
def test_the_wire_has_the_papers_pictures_tools_and_texts(
    spec: str, edit: Edit, paper: Setup, tiny_detector: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, searched = scripted(looking), watched(monkeypatch)
    given = {"detector": str(tiny_detector), "device": "cpu", "box_threshold": 0.0}
    (judgement,) = judged(server, spec, paper.with_settings(judging={}, tools=given), [edit])
    assert judgement.judged
    assert len(server.requests) == 4, "two criteria, a look and an answer each"
    for request in server.requests:
        assert request.tools == (), "tools are called in the text"
        assert not {"tools", "tool_choice", "toolConfig", "response_format"} & request.body.keys()
        assert all(message.role in ("user", "assistant") for message in request.messages)
        for word in (edit.hint, edit.instruction_type, "# By type of instruction", "thousandths", "already discounted"):
            assert str(word) not in request.text
    for request in (one for one in server.requests if len(one.messages) == 1):
        _first_request(request, edit)
    for request in (one for one in server.requests if len(one.messages) == 3):
        _second_request(request, edit)
    assert searched == [(240, 320, 3)], "the whole picture, no tiles, once for both criteria"
    differences = judgement.traces[0].steps[0].observations[0].data
    assert (len(differences["regions"]), len(differences["crops"])) == (4, 3)


def _first_request(request: Request, edit: Edit) -> None:
    tools = told_tools(request)
    assert {name: list(one["parameters"]["properties"]) for name, one in tools.items()} == TOOLS
    names = ["Source Image", "Edited Image"]
    enums = [
        tools[name]["parameters"]["properties"][field]["enum"]
        for name, field in (
            ("zoom_in_image", "target_image"),
            ("localize_differences", "comparison_image_1"),
            ("localize_differences", "comparison_image_2"),
            ("detect_object", "target_image"),
        )
    ]
    assert enums == [names] * 4
    assert "absolute pixels" in tools["zoom_in_image"]["parameters"]["properties"]["bbox_2d"]["description"]
    assert "strictly pixel by pixel" in tools["localize_differences"]["description"]
    assert "strictly pixel by pixel" in request.system.partition("# Tools")[0], "the set-up's notes"
    (message,) = request.messages
    assert [image.data for image in message.images] == [edit.source.read_bytes(), edit.edited.read_bytes()]
    criterion = "Visual Consistency" if "Scene Collapse" in request.system else "Instruction Following"
    assert [line for text in message.texts for line in text.splitlines()] == [
        "Source Image (320 × 240 pixels):",
        "Edited Image (320 × 240 pixels):",
        "Editing instruction:",
        f"> {edit.instruction}",
        "Positions are [x1, y1, x2, y2] in pixels of the picture as shown, its size is stated before it, from the top left.",
        f"Judge {criterion}.",
    ]


def _second_request(request: Request, edit: Edit) -> None:
    before, after = (np.asarray(PillowImage.open(path)) for path in (edit.source, edit.edited))
    images = request.messages[-1].images
    assert len(images) == 5, "three differences, a region, a picture with boxes"
    x1, y1, x2, y2 = PATCHES[0]
    assert np.array_equal(pixels(images[3]), by_network(after[y1:y2, x1:x2])), "the box as asked, by the network alone"
    assert pixels(images[4]).shape == before.shape
    boxes = re.findall(r"region \[(\d+), (\d+), (\d+), (\d+)\]", request.messages[-1].text)
    for image, place in zip(images[:3], boxes[:3], strict=True):
        x1, y1, x2, y2 = map(int, place)
        shown, width = pixels(image), 4 * (x2 - x1)
        assert alike(shown[:, :width], by_network(before[y1:y2, x1:x2]))
        assert alike(shown[:, -width:], by_network(after[y1:y2, x1:x2]))
        line = shown[:, width + 1 : shown.shape[1] - width - 1].reshape(-1, 3).mean(0)
        assert line[0] > 180
        assert line[1:].max() < 80, "a red line between the two"
    assert "not enlarged" not in request.messages[-1].text
    *_, reminder = request.messages[-1].texts
    assert reminder.startswith("Think first."), "Tables 8, 11 and 12"
    assert all(tag in reminder for tag in ("</Start Thinking>", "</tool_call>", "</Start Final Answer>"))


@pytest.mark.parametrize("spec", SPECS)
def test_oracle_mode_shows_crops_without_tools_and_white_targets_with_them(
    spec: str, edit: Edit, paper: Setup, scripted: StartServer
) -> None:
    server = scripted(lambda request: final("Single Anomaly" if "Scene Collapse" in request.system else "Wrong Action"))
    (judgement,) = judged(server, spec, paper, [edit], mode="oracle")
    assert judgement.judged
    follows, consistent = sorted(server.requests, key=lambda request: "Scene Collapse" in request.system)
    assert told_tools(follows) == {}
    assert [image.pixels for image in follows.images] == [(220, 160)] * 3, "λ is 6 for a side of 30, cut at the border"
    assert set(told_tools(consistent)) == {"zoom_in_image", "localize_differences"}, "the detector has no weights here"
    enum = told_tools(consistent)["zoom_in_image"]["parameters"]["properties"]["target_image"]["enum"]
    assert enum == ["Source Image", "Edited Image"], "Table 16; the reference is looked at and not called by name"
    assert "detect_object" not in consistent.system, "a tool that is not offered is not named"
    for image in consistent.images:
        assert image.pixels == (320, 240)
        assert (pixels(image)[45:65, 65:95] > 240).all()
    for request in (follows, consistent):
        assert "# By type of instruction" not in request.system
        assert request.tools == ()
        assert str(edit.hint) not in request.text


@pytest.mark.parametrize(("crop", "size"), [("adaptive", (220, 160)), ("each_end", (320, 240)), ("box", (40, 30))])
def test_how_much_an_oracles_crop_shows_is_a_setting(
    crop: str, size: tuple[int, int], edit: Edit, paper: Setup, scripted: StartServer
) -> None:
    """Equation 1 says how references were cut, and not whether the oracle's crops are cut so: both readings can be had."""
    server = scripted(lambda request: final("Wrong Action"))
    setup = paper.with_settings(judging={"target_crop": crop}, tools={})
    judged(server, SPECS[0], setup, [edit], mode="oracle", criteria=[IF])
    assert {image.pixels for image in server.requests[0].images} == {size}


def calibration() -> Path:
    fallback = Path(__file__).resolve().parents[3] / "shared" / "calibration"
    return Path(os.environ.get("EDITLOUPE_CALIBRATION", fallback))


CALIBRATION = calibration()


@pytest.mark.skipif(not (CALIBRATION / "manifest.jsonl").exists(), reason="the calibration set is not here")
@pytest.mark.parametrize("spec", SPECS)
def test_on_photographs_it_is_the_same(spec: str, paper: Setup, scripted: StartServer) -> None:
    looks = (LOOKS[0], call("zoom_in_image", bbox_2d=[100, 100, 260, 220], target_image="Edited Image"))

    def reply(request: Request) -> Answer:
        return think_and_call_text("I look.", *looks) if len(request.messages) == 1 else looking(request)

    server = scripted(reply)
    edits = [edit for edit, _ in zip(load_manifest(CALIBRATION / "manifest.jsonl"), range(2), strict=False)]
    assert all(judgement.judged for judgement in judged(server, spec, paper, edits))
    assert len(server.requests) == 8
    for request in server.requests:
        assert request.tools == ()
        assert set(told_tools(request)) == {"zoom_in_image", "localize_differences"}, "the detector has no weights here"
        (edit,) = (one for one in edits if f"> {one.instruction}" in request.text)
        files = [path.read_bytes() for path in (edit.source, edit.edited)]
        assert [image.data for image in request.messages[0].images] == files, "whole photographs, byte for byte"
        assert str(edit.instruction_type) not in request.messages[0].text
        if len(request.messages) == 3:
            *differences, zoomed = request.messages[-1].images
            assert 1 <= len(differences) <= 3
            after = np.asarray(PillowImage.open(edit.edited).convert("RGB"))
            assert alike(pixels(zoomed), by_network(after[100:220, 100:260]))
