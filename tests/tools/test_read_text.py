from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.geometry import share_inside
from editloupe.tools.models.weights import find_cuda_device
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
    """Reads every region with these confidences, first and again, and notes the sizes."""

    def __init__(self, first: float | None, again: float, text: str = "OPEN") -> None:
        super().__init__(ToolSettings())
        self.text = text
        self.confidences = [first, again]
        self.sides: list[int] = []

    def read_lines_through(self, pixels: Pixels, at: Box, box: Box, side: int) -> list[dict[str, Any]]:
        confidence = self.confidences[len(self.sides)]
        self.sides.append(side)
        return [] if confidence is None else [{"text": self.text, "box": list(at), "confidence": confidence}]


def test_a_place_is_read_again_at_twice_the_size_only_if_the_reading_is_unsure() -> None:
    region, at = np.zeros((160, 160, 3), np.uint8), Box(x1=0, y1=0, x2=160, y2=160)
    sure, unsure, empty = UnsureReader(0.99, 0.5), UnsureReader(0.9, 0.97), UnsureReader(None, 0.5)
    dot = UnsureReader(0.6, 0.5, text="·")

    assert sure.read_line_at(region, at, at) == {"text": "OPEN", "confidence": 0.99}
    assert unsure.read_line_at(region, at, at) == {"text": "OPEN", "confidence": 0.97}
    assert empty.read_line_at(region, at, at) is None
    assert dot.read_line_at(region, at, at) == {"text": "·", "confidence": 0.6}
    assert [reader.sides for reader in (sure, unsure, empty, dot)] == [[160], [160, 320], [160], [160]]


def test_lines_are_searched_at_the_size_of_a_large_place() -> None:
    region, at = np.zeros((900, 1200, 3), np.uint8), Box(x1=0, y1=0, x2=1200, y2=900)
    reader = UnsureReader(0.9, 0.97)
    reader.read_line_at(region, at, Box(x1=400, y1=300, x2=800, y2=600))
    assert reader.sides == [400, 800]


@pytest.mark.models
def test_only_the_lines_through_a_place_are_recognized(reader: ReadText, photo: Pixels) -> None:
    board = np.full((240, 320, 3), 235, np.uint8)
    for number, word in enumerate(("BAKERY", "MARKET", "MUSEUM")):
        cv2.putText(board, word, (60, 60 + 70 * number), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (20, 20, 20), 2, cv2.LINE_AA)
    recognized = counted_lines(reader)
    at = Box(x1=100, y1=200, x2=420, y2=440)

    assert reader.read_line_at(board, at, Box(x1=180, y1=305, x2=220, y2=325)) == {
        "text": "MARKET",
        "confidence": pytest.approx(1, abs=0.05),
    }
    assert recognized == [1]


@pytest.mark.models
def test_the_recognizer_is_loaded_for_the_first_line() -> None:
    reader, at = ReadText(ToolSettings(threads=1)), Box(x1=0, y1=0, x2=200, y2=160)
    board = np.full((160, 200, 3), 235, np.uint8)
    assert reader.read_line_at(board, at, at) is None
    assert reader._engine.text_rec is None

    cv2.putText(board, "OPEN", (40, 90), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (20, 20, 20), 2, cv2.LINE_AA)
    assert (reader.read_line_at(board, at, at) or {}).get("text") == "OPEN"
    assert reader._engine.text_rec is not None


def counted_lines(reader: ReadText) -> list[int]:
    """Count the lines of each call of the recognizer from now on."""
    reader.read_lines(np.zeros((96, 96, 3), np.uint8), Box(x1=0, y1=0, x2=96, y2=96))  # loads it
    recognizer, counts = reader._engine.text_rec, []
    session = recognizer.session

    def count(batch: Any) -> Any:
        counts.append(len(batch))
        return session(batch)

    recognizer.session = count
    return counts


@pytest.mark.models
def test_a_reading_takes_its_own_resolution_after_any_other(reader: ReadText, sign: Pixels) -> None:
    region, at = sign[430:500, 60:350], Box(x1=60, y1=430, x2=350, y2=500)
    whole, place = ReadText(ToolSettings(threads=1)), ReadText(ToolSettings(threads=1))
    lines, line = whole.read_lines(region, at), place.read_line_at(region, at, at)

    for _ in range(2):
        assert reader.read_lines(region, at) == lines
        assert reader.read_line_at(region, at, at) == line
    assert line is not None
    assert "LOUPE" in line["text"]


@pytest.mark.models
def test_small_signs_are_read_letter_by_letter(reader: ReadText, photo: Pixels) -> None:
    rng = np.random.default_rng(3)
    right = 0
    for number in range(20):
        word = ("OPEN", "CLOSED", "EXIT", "BAKERY", "MARKET")[number % 5] if number % 4 else str(rng.integers(100, 999))
        y, x = (int(v) for v in rng.integers(60, 380, 2))
        region = photo[y - 60 : y + 100, x - 60 : x + 100].copy()
        region[60:80, 40:120] = 230
        cv2.putText(region, word, (46, 75), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (30, 30, 90), 1, cv2.LINE_AA)
        line = reader.read_line_at(region, Box(x1=0, y1=0, x2=160, y2=160), Box(x1=46, y1=64, x2=100, y2=76))
        right += line is not None and line["text"].replace(" ", "") == word
    assert right >= 18


@pytest.mark.parametrize(("device", "number"), [("cpu", None), ("mps", None), ("cuda", 0), ("cuda:1", 1)])
def test_the_device_reaches_onnxruntime(device: str, number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert find_cuda_device(device) is None, "there is no GPU here"
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    assert find_cuda_device(device) == number


def test_a_device_that_onnxruntime_lacks_is_noted_once() -> None:
    pytest.importorskip("rapidocr")

    def notes(device: str) -> list[str]:
        toolbox = build_toolbox(ToolSettings(device=device, enhancer="none", plugins=False))
        return [note for note in toolbox.notes if note.startswith("read_text")]

    assert notes("auto") == notes("cpu") == []
    [note] = notes("cuda:1")
    assert "read_text runs on the CPU: onnxruntime has no provider for cuda:1 here" in note


@pytest.mark.models
def test_cuda_that_does_not_start_is_an_error_and_not_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rapidocr")
    monkeypatch.setattr("editloupe.tools.read_text.find_cuda_device", lambda device: 0)
    region, at = np.zeros((96, 96, 3), np.uint8), Box(x1=0, y1=0, x2=96, y2=96)
    with pytest.raises(ToolError, match="read_text cannot run on cuda: onnxruntime could not start its CUDA provider"):
        ReadText(ToolSettings(device="cuda")).read_lines(region, at)


@pytest.mark.models
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, and needs glibc")
def test_the_memory_of_a_large_reading_is_returned(reader: ReadText, photo: Pixels) -> None:
    large = cv2.resize(photo, (1280, 960))
    reader.read_lines(photo, Box(x1=0, y1=0, x2=512, y2=512))  # loads it

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

    before = resident()
    thread = threading.Thread(target=reader.read_lines, args=(large, Box(x1=0, y1=0, x2=1280, y2=960)))
    thread.start()
    thread.join()
    assert resident() - before < 100


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
