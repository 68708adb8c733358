"""A detector with real weights: boxes on photographs through tiles, merging, thresholds, the tool and the loop."""

from __future__ import annotations

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

from editloupe import Edit, Judge
from editloupe.judge.settings import find_setup
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.detect import DetectObject, build_detector
from editloupe.tools.geometry import iou
from editloupe.tools.models.detectors import WholePictureFinder
from editloupe.tools.models.nanodet import CLASSES, NanoDet, find_class
from editloupe.tools.models.weights import WeightsMissing, find_weights
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
from tests.conftest import StartServer
from tests.drawn_pictures import save
from tests.scripted import Answer, Request, call, final
from tests.tools.conftest import MakeView

WEIGHTS = os.environ.get("EDITLOUPE_WEIGHTS")
WOMAN, CUP = Box(x1=14, y1=14, x2=365, y2=508), Box(x1=148, y1=11, x2=427, y2=399)
"""Where the woman is in skimage's astronaut, and the cup in its coffee."""
SMALL = Box(x1=700, y1=500, x2=774, y2=600)


@pytest.fixture
def nanodet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip without the weights, which `editloupe weights fetch nanodet` downloads."""
    pytest.importorskip("torch")
    if WEIGHTS:
        monkeypatch.setenv("EDITLOUPE_WEIGHTS", WEIGHTS)
    try:
        find_weights("nanodet")
    except WeightsMissing as error:
        pytest.skip(str(error))


real = pytest.mark.usefixtures("nanodet")


def settings(**more: Any) -> ToolSettings:
    return ToolSettings(**{"detector": "nanodet", "device": "cpu", "threads": 1, "tile_levels": (), **more})


def test_a_phrase_of_any_length_is_read_at_once_and_shortened_in_the_error() -> None:
    assert find_class("very " * 100_000 + "teddy bears") == "teddy bear"
    with pytest.raises(ToolError) as error:
        find_class("very " * 100_000)
    assert len(str(error.value)) < 300


def coffee() -> Pixels:
    return np.ascontiguousarray(data.coffee())


def scene(photo: Pixels) -> Pixels:
    """Return a picture of 1600 × 1200 with the woman in 100 rows of it, at `SMALL`."""
    rng = np.random.default_rng(0)
    ground = cv2.resize(rng.integers(90, 160, (6, 8, 3), dtype=np.uint8), (1600, 1200), interpolation=cv2.INTER_CUBIC)
    ground[SMALL.y1 : SMALL.y2, SMALL.x1 : SMALL.x2] = cv2.resize(
        np.ascontiguousarray(photo[:, :380]), SMALL.size, interpolation=cv2.INTER_AREA
    )
    return ground


@pytest.mark.parametrize(
    ("phrase", "name"),
    [
        *((name, name) for name in CLASSES),
        *(("the red cups on the table", "cup"), ("race car", "car"), ("two people", "person"), ("buses", "bus")),
        *(
            ("second dog from the left", "dog"),
            ("bottle of wine", "bottle"),
            ("orange car", "car"),
            ("Hot Dog", "hot dog"),
        ),
    ],
)
def test_a_phrase_names_a_class_by_its_last_word(phrase: str, name: str) -> None:
    assert find_class(phrase) == name


@pytest.mark.parametrize("phrase", ["guitar", "car door", "orange juice", "dog and cat", "on the left", ""])
def test_a_phrase_that_names_no_class_is_refused_by_a_sentence(phrase: str) -> None:
    with pytest.raises(ToolError, match="80 kinds of everyday things only"):
        find_class(phrase)


@real
def test_things_on_photographs_are_found_where_they_are(photo: Pixels) -> None:
    model = NanoDet(settings())
    for picture, phrase, place in ((photo, "woman", WOMAN), (coffee(), "cup", CUP)):
        (found,) = model.detect(picture, phrase)
        assert iou(found.box, place) > 0.9
        assert found.label == find_class(phrase)
    assert model.detect(photo, "zebra") == []
    assert NanoDet(settings(box_threshold=0.9)).detect(photo, "woman") == []
    assert model.loads == 1


@real
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_lower_precisions_find_the_same(precision: str, photo: Pixels) -> None:
    (found,) = NanoDet(settings(precision=precision)).detect(photo, "woman")
    assert iou(found.box, WOMAN) > 0.9


@real
def test_a_small_thing_is_found_in_tiles_only_and_once(photo: Pixels) -> None:
    picture = scene(photo)
    assert NanoDet(settings()).detect(picture, "person") == []
    # On level 2 it is in the overlap of all four tiles.
    for levels in ((2,), (4,), (2, 4)):
        (found,) = NanoDet(settings(tile_levels=levels)).detect(picture, "person")
        assert iou(found.box, SMALL) > 0.8


@real
def test_concurrent_searches_share_passes_and_find_the_same(photo: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = [(photo, "woman"), (photo[:, ::-1], "person"), (coffee(), "cup"), (coffee()[:, ::-1], "cup")]
    model = NanoDet(settings())
    alone = [model.detect(*search) for search in searches]
    monkeypatch.setattr("editloupe.tools.models.batching.GATHER", 0.5)
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda search: model.detect(*search), searches))
    assert model.queue.batches == {1: 4, 2: 2}
    assert [[found.box for found in detections] for detections in together] == [[f.box for f in a] for a in alone]


@real
def test_the_tool_draws_real_boxes_and_says_which_words_were_not_used(make_view: MakeView) -> None:
    tool = DetectObject(settings())
    view = make_view(coffee(), instruction="Move the white cup and the guitar.")

    def run(name: str) -> Any:
        return tool.run({"target_image": "Source Image", "detect_object_name": name}, view)

    assert run("cup").text == '"cup" in Source Image: 1 box. 1. [148, 11, 427, 399], confidence 0.53.'
    result = run("white cup")
    assert result.text.endswith('confidence 0.53. The detector looked for "cup" and did not use other words.')
    drawn = result.pictures[0].pixels
    inner = np.s_[CUP.y1 + 4 : CUP.y2 - 4, CUP.x1 + 4 : CUP.x2 - 4]
    assert np.array_equal(drawn[inner], coffee()[inner])
    assert not np.array_equal(drawn, coffee())
    with pytest.raises(ToolError, match='cannot look for "guitar"'):
        run("guitar")


@real
def test_a_judge_sees_the_box_and_reads_why_a_thing_cannot_be_looked_for(tmp_path: Path, scripted: StartServer) -> None:
    calls = [call("detect_object", target_image="Edited Image", detect_object_name=name) for name in ("cup", "saucer")]

    def looks(request: Request) -> Answer:
        turns = sum(message.role == "assistant" for message in request.messages)
        return calls[turns] if turns < len(calls) else final("Wrong Action")

    path = save(coffee(), tmp_path / "coffee.png")
    edit = Edit(id="e", source=path, edited=path, instruction="Remove the cup from the saucer.")
    setup = find_setup(None).with_settings(judging={}, tools={"detector": "nanodet", "device": "cpu", "threads": 1})
    with Judge("openai:gpt-4.1", base_url=scripted(looks).openai_url, setup=setup, mode="tools") as judge:
        judgement = judge.judge(edit, criteria=["instruction_following"])
    (trace,) = judgement.traces
    found, refused = (step.observations[0] for step in trace.steps[:2])
    assert not found.failed
    assert iou(Box.model_validate(found.data["objects"][0]["box"]), CUP) > 0.9
    assert len(found.pictures) == 1
    assert refused.failed
    assert "NanoDet knows 80 kinds" in refused.text
    assert judgement.judged


def test_without_weights_or_torch_the_tool_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path))
    detector = build_detector(ToolSettings(detector="nanodet"))
    if importlib.util.find_spec("torch"):
        assert "editloupe weights fetch nanodet" in str(detector.unavailable())
    assert "detect_object" in build_toolbox(ToolSettings(detector="nanodet", plugins=False)).withheld
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "needs torch" in str(detector.unavailable())


@pytest.mark.models
def test_another_graph_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photo: Pixels) -> None:
    pytest.importorskip("torch")
    (tmp_path / "nanodet.json").write_text(
        '{"modelTopology": {"node": [{"name": "a", "op": "Fft"}]}, "weightsManifest": [{"weights": []}]}'
    )
    (tmp_path / "nanodet.bin").write_bytes(b"")
    monkeypatch.setattr("editloupe.tools.models.nanodet.find_weights", lambda name: tmp_path)
    with pytest.raises(ToolError, match=r"could not be loaded \(not the NanoDet graph: Fft\)"):
        NanoDet(settings()).detect(photo, "cup")


@real
def test_its_name_is_in_the_facts_of_a_run() -> None:
    facts = build_toolbox(ToolSettings(detector="nanodet", device="cpu", plugins=False)).facts()
    assert facts["detect_object"]["detector"] == "nanodet"


def test_edival_refuses_it() -> None:
    assert "free names" in str(WholePictureFinder(ToolSettings(detector="nanodet"), 0.3).unavailable())
