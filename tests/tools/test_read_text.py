from __future__ import annotations

import threading
from typing import Any

import cv2
import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.geometry import share_inside
from editloupe.tools.read_text import ReadText, is_about_text
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
from tests.tools.conftest import MakeView


@pytest.fixture(scope="module")
def reader() -> ReadText:
    pytest.importorskip("rapidocr")
    return ReadText(ToolSettings(threads=1))


@pytest.fixture
def sign(photo: Pixels) -> Pixels:
    """The photograph with a word written over it."""
    written = photo.copy()
    cv2.putText(written, "LOUPE 42", (60, 480), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (255, 255, 0), 4, cv2.LINE_AA)
    return written


@pytest.mark.parametrize(
    "instruction",
    [
        'Change "OPEN" to "CLOSED"',
        "Change the text on the mug",
        "Replace the word 'SALE' on the bag",
        "Change the number plate of the car",
        "Make the sign read Hello",
        "Change the number on the jersey from 7 to 9",
        "Change the number 12 on the door to 15",
        "Change the house number to 15",
        "Change the license plate",
        "Fix the spelling on the poster",
        "把招牌上的文字改成“你好”",
    ],
)
def test_instructions_about_text_are_recognised(instruction: str) -> None:
    assert is_about_text(instruction)


@pytest.mark.parametrize(
    "instruction",
    [
        "Remove the cat",
        "Make the child's ball red",
        "Change the color of the man's and the dog's hats",
        "Change the number of birds to three",
        "Change the number of cups on the table to two",
        "Paint ball number 3 red",
        "Put ball number 3 on the table",
        "Increase the number from two to three",
        "Add three more candles",
        "Use another type of flower",
    ],
)
def test_instructions_about_other_things_are_not(instruction: str) -> None:
    assert not is_about_text(instruction)


@pytest.mark.models
def test_it_is_offered_for_text_always_or_never_as_set() -> None:
    pytest.importorskip("rapidocr")

    def offered(switch: str, instruction: str) -> bool:
        toolbox = build_toolbox(ToolSettings(read_text=switch, plugins=False))  # type: ignore[arg-type]
        return "read_text" in [tool.name for tool in toolbox.tools_for(instruction)]

    assert [offered(s, "Remove the cat") for s in ("auto", "on", "off")] == [False, True, False]
    assert [offered(s, "Change the text") for s in ("auto", "on", "off")] == [True, True, False]


@pytest.mark.models
def test_it_reads_text_over_a_photograph_with_its_place(reader: ReadText, sign: Pixels, make_view: MakeView) -> None:
    result = reader.run({"target_image": "Source Image"}, make_view(sign))
    [line] = [line for line in result.data["lines"] if "LOUPE" in line["text"]]

    assert line["text"].replace(" ", "") == "LOUPE42"
    assert line["confidence"] > 0.8
    assert share_inside(Box.model_validate([70, 455, 240, 475]), Box.model_validate(line["box"])) == 1
    assert str(line["box"]) in result.text


@pytest.mark.models
def test_a_region_is_read_alone_and_placed_in_the_whole_picture(
    reader: ReadText, sign: Pixels, make_view: MakeView
) -> None:
    view = make_view(sign, per_mille=True)

    lower = reader.run({"target_image": "Source Image", "bbox_2d": [80, 800, 600, 1000]}, view)
    upper = reader.run({"target_image": "Source Image", "bbox_2d": [0, 0, 500, 100]}, view)

    assert any("LOUPE" in line["text"] and line["box"][1] > 400 for line in lower.data["lines"])
    assert upper.data["lines"] == []
    assert "No text was found" in upper.text


class UnsureReader(ReadText):
    """Reads every region with these confidences, quickly and in detail, and notes how often."""

    def __init__(self, quick: float | None, detailed: float, text: str = "OPEN") -> None:
        super().__init__(ToolSettings())
        self.text = text
        self.confidences = {True: quick, False: detailed}
        self.readings: list[bool] = []

    def read_lines(self, pixels: Pixels, at: Box, quick: bool = False) -> list[dict[str, Any]]:
        self.readings.append(quick)
        confidence = self.confidences[quick]
        return [] if confidence is None else [{"text": self.text, "box": list(at), "confidence": confidence}]


def test_a_place_is_read_in_detail_only_if_the_quick_reading_is_unsure() -> None:
    region, at = np.zeros((160, 160, 3), np.uint8), Box(x1=0, y1=0, x2=160, y2=160)
    sure, unsure, empty = UnsureReader(0.99, 0.5), UnsureReader(0.9, 0.97), UnsureReader(None, 0.5)
    dot = UnsureReader(0.6, 0.5, text="·")

    assert sure.read_line_at(region, at, at) == {"text": "OPEN", "confidence": 0.99}
    assert unsure.read_line_at(region, at, at) == {"text": "OPEN", "confidence": 0.97}
    assert empty.read_line_at(region, at, at) is None
    assert dot.read_line_at(region, at, at) == {"text": "·", "confidence": 0.6}
    assert [reader.readings for reader in (sure, unsure, empty, dot)] == [[True], [True, False], [True], [True]]


@pytest.mark.models
@pytest.mark.parametrize("quick", [False, True])
def test_a_reading_takes_its_own_resolution_after_any_other(reader: ReadText, sign: Pixels, quick: bool) -> None:
    region, at = sign[430:500, 60:350], Box(x1=60, y1=430, x2=350, y2=500)
    alone = ReadText(ToolSettings(threads=1)).read_lines(region, at, quick=quick)
    reader.read_lines(region, at, quick=not quick)

    assert reader.read_lines(region, at, quick=quick) == alone
    assert "LOUPE" in " ".join(line["text"] for line in alone)


@pytest.mark.models
def test_two_threads_at_once_load_the_reader_once(sign: Pixels, make_view: MakeView) -> None:
    pytest.importorskip("rapidocr")
    reader = ReadText(ToolSettings(threads=1))
    start = threading.Barrier(2)
    texts: list[str] = []

    def work() -> None:
        start.wait()
        box = [60, 430, 350, 500]
        texts.append(reader.run({"target_image": "Source Image", "bbox_2d": box}, make_view(sign)).text)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert reader.loads == 1
    assert texts[0] == texts[1]
    assert "LOUPE" in texts[0]
