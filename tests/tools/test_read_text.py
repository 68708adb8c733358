from __future__ import annotations

import threading

import cv2
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.geometry import inside
from editloupe.tools.read_text import ReadText, about_text
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
        "把招牌上的文字改成“你好”",
    ],
)
def test_instructions_about_text_are_recognised(instruction: str) -> None:
    assert about_text(instruction)


@pytest.mark.parametrize(
    "instruction",
    [
        "Remove the cat",
        "Make the child's ball red",
        "Change the color of the man's and the dog's hats",
        "Change the number of birds to three",
        "Use another type of flower",
    ],
)
def test_instructions_about_other_things_are_not(instruction: str) -> None:
    assert not about_text(instruction)


@pytest.mark.models
def test_it_is_offered_for_text_always_or_never_as_set() -> None:
    pytest.importorskip("rapidocr")

    def offered(switch: str, instruction: str) -> bool:
        toolbox = build_toolbox(ToolSettings(read_text=switch, plugins=False))  # type: ignore[arg-type]
        return "read_text" in [tool.name for tool in toolbox.offered(instruction)]

    assert [offered(s, "Remove the cat") for s in ("auto", "on", "off")] == [False, True, False]
    assert [offered(s, "Change the text") for s in ("auto", "on", "off")] == [True, True, False]


@pytest.mark.models
def test_it_reads_text_over_a_photograph_with_its_place(reader: ReadText, sign: Pixels, make_view: MakeView) -> None:
    result = reader.run({"target_image": "Source Image"}, make_view(sign))
    [line] = [line for line in result.data["lines"] if "LOUPE" in line["text"]]

    assert line["text"].replace(" ", "") == "LOUPE42"
    assert line["confidence"] > 0.8
    assert inside(Box.model_validate([70, 455, 240, 475]), Box.model_validate(line["box"])) == 1
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
