from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.detect import DetectObject
from editloupe.tools.drawing import draw_boxes
from editloupe.tools.models.detectors import Detection, GroundingDino
from editloupe.tools.registry import build_toolbox
from editloupe.tools.result_cache import ToolResultCache
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
from tests.tools.conftest import MakeView

CALL = {"target_image": "Source Image", "detect_object_name": "red cup"}


class Scripted(DetectObject):
    """The tool with given findings in place of the network's, so that words and drawing have something to say."""

    def __init__(self, *found: Detection, settings: ToolSettings | None = None) -> None:
        super().__init__(settings or ToolSettings())
        self.searches: list[str] = []
        self._found = list(found)
        self.model.detect = self._give  # type: ignore[method-assign]

    def _give(self, pixels: Pixels, phrase: str) -> list[Detection]:
        self.searches.append(phrase)
        return self._found


def settings(folder: Path, **more: object) -> ToolSettings:
    return ToolSettings(detector=str(folder), threads=1, device="cpu", **more)  # type: ignore[arg-type]


def test_name_and_parameters_are_the_published_ones(photo: Pixels, make_view: MakeView) -> None:
    tool = DetectObject(ToolSettings())
    schema = tool.schema(make_view(photo))

    assert tool.name == "detect_object"
    assert list(schema["properties"]) == ["target_image", "detect_object_name"] == schema["required"]


def test_found_objects_are_told_in_the_numbers_of_the_model_and_drawn(photo: Pixels, make_view: MakeView) -> None:
    tool = Scripted(Detection(Box(x1=100, y1=200, x2=140, y2=260), 0.81, "red cup"))

    result = tool.run(CALL, make_view(photo, sent=(256, 256)))
    drawn = result.pictures[0].pixels

    assert result.text == '"red cup" in Source Image: 1 box. 1. [50, 100, 70, 130], confidence 0.81.'
    assert result.data["objects"] == [{"box": [100, 200, 140, 260], "confidence": 0.81, "label": "red cup"}]
    assert drawn.shape == photo.shape
    assert np.array_equal(drawn[200:260, 100:140], photo[200:260, 100:140]), "the object itself is painted over"
    assert not np.array_equal(drawn, photo)


def test_nothing_found_is_a_sentence_without_a_picture(photo: Pixels, make_view: MakeView) -> None:
    result = Scripted().run(CALL, make_view(photo))

    assert result.text == 'No "red cup" was found in Source Image.'
    assert result.pictures == ()


@pytest.mark.parametrize("phrase", ["red cup", "Red  Cup", " red cup. ", '"red cup"', "cup", "cup red", "table cup"])
def test_a_name_of_words_of_the_instruction_is_taken_whatever_its_capitals_and_order(
    phrase: str, photo: Pixels, make_view: MakeView
) -> None:
    view = make_view(photo, instruction="Remove the red\ncup from the table")

    assert "was found" in Scripted().run({**CALL, "detect_object_name": phrase}, view).text


@pytest.mark.parametrize("phrase", ["teapot", "green cup", "red red cup", "", "  "])
def test_a_name_that_is_not_in_the_instruction_is_told_so(phrase: str, photo: Pixels, make_view: MakeView) -> None:
    tool = Scripted()
    with pytest.raises(ToolError, match="instruction"):
        tool.run({**CALL, "detect_object_name": phrase}, make_view(photo))
    assert tool.searches == []


def test_the_same_search_is_made_once(photo: Pixels, make_view: MakeView) -> None:
    tool = Scripted(Detection(Box(x1=10, y1=20, x2=40, y2=60), 0.5, "red cup"))
    view = replace(make_view(photo), memory=ToolResultCache(10**7))

    first, second = tool.run(CALL, view), tool.run({**CALL, "detect_object_name": "Red cup"}, view)

    assert len(tool.searches) == 1
    assert first.data["objects"] == second.data["objects"]


def test_many_boxes_are_cut_to_the_best_twenty_in_words(photo: Pixels, make_view: MakeView) -> None:
    tool = Scripted(*(Detection(Box(x1=i, y1=0, x2=i + 9, y2=9), 0.9 - i / 100, "red cup") for i in range(30)))

    result = tool.run(CALL, make_view(photo))

    assert "30 boxes, the best 20 of them" in result.text
    assert len(result.data["objects"]) == 30


def test_labels_of_neighbouring_boxes_do_not_cover_each_other() -> None:
    canvas = np.zeros((400, 400, 3), np.uint8)
    boxes = [Box(x1=100, y1=100, x2=130, y2=130), Box(x1=135, y1=100, x2=165, y2=130)]

    alone = [int((draw_boxes(canvas, [box], ["1: 0.90"]) > 0).any(axis=2).sum()) for box in boxes]
    together = int((draw_boxes(canvas, boxes, ["1: 0.90", "1: 0.90"]) > 0).any(axis=2).sum())

    assert together > 0.9 * sum(alone)


@pytest.mark.models
def test_without_weights_the_tool_says_what_to_do_and_asks_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("went to the network"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    assert "hf download some/model" in str(DetectObject(ToolSettings(detector="some/model")).unavailable())
    assert "lacks config.json" in str(DetectObject(ToolSettings(detector=str(tmp_path))).unavailable())
    assert DetectObject(ToolSettings(detector="some/model", detector_download=True)).unavailable() is None


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert ".[detect]" in str(DetectObject(ToolSettings()).unavailable())


def test_grounding_dino_loads_from_a_folder_and_searches_whole_and_in_tiles(
    tiny_detector: Path, photo: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = GroundingDino(
        settings(tiny_detector, box_threshold=0.0, text_threshold=0.0, tile_levels=(2,), batch_size=3)
    )
    seen: list[tuple[int, ...]] = []
    real = model._batch
    monkeypatch.setattr(
        model,
        "_batch",
        lambda pictures, phrases: seen.append(tuple(p.shape[0] for p in pictures)) or real(pictures, phrases),
    )

    assert model.unavailable() is None
    found = model.detect(photo, "Red cup")

    assert seen == [(512,), (293, 293, 293), (293,)]
    assert found
    scores = [item.score for item in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= f.box.x1 < f.box.x2 <= 512 and 0 <= f.box.y1 < f.box.y2 <= 512 for f in found)
    assert model.detect(photo, "red cup.") == found


def test_many_pictures_at_once_are_found_in_as_one_by_one_with_fewer_forward_passes(
    tiny_detector: Path, photo: Pixels, edited: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(tiny_detector, box_threshold=0.0, text_threshold=0.0, tile_levels=(2,), batch_size=4)
    model = GroundingDino(chosen)
    passes: list[tuple[set[tuple[int, ...]], set[str]]] = []
    real = model._batch

    def count(pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        assert len(pictures) <= 4
        passes.append(({p.shape for p in pictures}, set(phrases)))
        return real(pictures, phrases)

    monkeypatch.setattr(model, "_batch", count)
    mirrored = np.ascontiguousarray(photo[:, ::-1])
    asked = [
        (photo, "cup"),
        (edited, "the red cup on the table"),
        (mirrored, "blue car"),
        (photo[:300], "dog"),
        (photo, "the ball"),
    ]

    alone = [model.detect(*search) for search in asked]
    one_by_one, passes[:] = len(passes), []
    together = model.detect_many(asked)

    # Four pictures of 512 with 16 tiles of 293, and one of 300 whose tiles would be too small.
    assert (one_by_one, len(passes)) == (9, 6)
    assert all(len(shapes) == 1 for shapes, _ in passes), "pictures of different sizes were padded to one"
    assert passes[0][1] == {"cup", "the red cup on the table", "blue car", "the ball"}
    assert all(alone)
    for one, other in zip(alone, together, strict=True):
        assert [f.label for f in other] == [f.label for f in one]
        assert [f.score for f in other] == pytest.approx([f.score for f in one], abs=1e-5)
        # A box is in whole pixels: rounding can turn the last digit of a float into one.
        assert np.abs(np.array([list(f.box) for f in other]) - [list(f.box) for f in one]).max() <= 1
    assert len({tuple(f.box for f in found) for found in together}) == len(asked), "answers got mixed up"


def test_searches_of_concurrent_edits_share_forward_passes(
    tiny_detector: Path, photo: Pixels, edited: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(tiny_detector, box_threshold=0.0, text_threshold=0.0, tile_levels=(2,), batch_size=4)
    alone, model = GroundingDino(chosen), GroundingDino(chosen)
    model.detect(photo[:64, :64], "cup")
    monkeypatch.setattr("editloupe.tools.models.batching.GATHER", 0.5)
    with ThreadPoolExecutor(4) as threads:
        pictures = [photo, edited, photo[::-1], edited[::-1]]
        found = list(threads.map(model.detect, pictures, ["cup", "red cup", "dog", "the ball"]))
    assert model.queue.batches == {1: 1, 4: 5}, "four whole pictures and sixteen tiles are five passes"
    assert model.queue.fill == pytest.approx(21 / 24)
    for detections, pixels, phrase in zip(found, pictures, ["cup", "red cup", "dog", "the ball"], strict=True):
        expected = alone.detect(pixels, phrase)
        assert [f.label for f in detections] == [f.label for f in expected]
        assert [f.score for f in detections] == pytest.approx([f.score for f in expected], abs=1e-5)


def test_no_search_at_all_has_no_answers(tiny_detector: Path) -> None:
    assert GroundingDino(settings(tiny_detector)).detect_many([]) == []


def test_another_model_object_reads_the_same_weights_to_the_same_boxes(tiny_detector: Path, photo: Pixels) -> None:
    chosen = settings(tiny_detector, box_threshold=0.0, tile_levels=())

    assert GroundingDino(chosen).detect(photo, "car") == GroundingDino(chosen).detect(photo, "car")


def test_thresholds_and_precision_are_settings(tiny_detector: Path, photo: Pixels) -> None:
    def count(**more: object) -> int:
        return len(GroundingDino(settings(tiny_detector, tile_levels=(), **more)).detect(photo, "red cup"))

    assert count(box_threshold=1.0) == 0 < count(box_threshold=0.0)
    assert count(box_threshold=0.0, precision="bfloat16") > 0
    assert count(box_threshold=0.0, precision="float16") > 0


def test_two_threads_at_once_load_the_detector_once(tiny_detector: Path, photo: Pixels) -> None:
    model = GroundingDino(settings(tiny_detector, tile_levels=()))
    start = threading.Barrier(2)
    done: list[int] = []

    def work() -> None:
        start.wait()
        done.append(len(model.detect(photo[:100, :100], "cup")))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert model.loads == 1
    assert len(done) == 2


def test_the_tool_runs_on_the_real_model(tiny_detector: Path, photo: Pixels, make_view: MakeView) -> None:
    tool = DetectObject(settings(tiny_detector, box_threshold=0.0, tile_levels=()))

    result = tool.run(CALL, make_view(photo))

    assert result.text.startswith('"red cup" in Source Image: ')
    assert len(result.pictures) == 1


def test_a_device_that_is_not_there_is_named_and_the_weights_are_not_blamed(tiny_detector: Path, photo: Pixels) -> None:
    model = GroundingDino(replace(settings(tiny_detector), device="cuda:99"))
    for _ in range(2):
        with pytest.raises(ToolError) as raised:
            model.detect(photo, "cup")
        assert "the device cuda:99 cannot be used: torch " in str(raised.value)
        assert "weights" not in str(raised.value)
    assert model.loads == 0


def test_damaged_weights_are_a_sentence_and_not_tried_again(
    tiny_detector: Path, tmp_path: Path, photo: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in tiny_detector.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    model = GroundingDino(settings(tmp_path))

    assert model.unavailable() is None
    with pytest.raises(ToolError, match="could not be loaded"):
        model.detect(photo, "cup")
    monkeypatch.setattr(model, "_read_weights", lambda device: pytest.fail("tried again"))
    with pytest.raises(ToolError, match="could not be loaded"):
        model.detect(photo, "cup")


@pytest.mark.parametrize(("device", "levels"), [("cpu", None), ("cuda", [4]), ("mps", [4])])
def test_the_facts_hold_the_tiles_that_the_device_leads_to(
    device: str, levels: list[int] | None, tiny_detector: Path
) -> None:
    """None stands for a CPU's tiles: runs made on a CPU before devices were looked at keep their keys."""
    given = ToolSettings(detector=str(tiny_detector), device=device, plugins=False)
    assert build_toolbox(given).facts()["detect_object"]["tile_levels"] == levels
    for explicit in ((), (2,), (4,), (2, 3)):
        facts = build_toolbox(replace(given, tile_levels=explicit)).facts()
        assert facts["detect_object"]["tile_levels"] == list(explicit)


@pytest.mark.parametrize(("found", "levels"), [(True, [4]), (False, None)])
def test_the_device_that_is_picked_decides_the_tiles(
    found: bool, levels: list[int] | None, tiny_detector: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.tools.models.weights.may_have_gpu", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: found)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    toolbox = build_toolbox(ToolSettings(detector=str(tiny_detector), plugins=False))
    assert toolbox.facts()["detect_object"]["tile_levels"] == levels


def test_a_toolbox_without_the_detector_is_the_same_on_every_device() -> None:
    given = ToolSettings(detector="/nowhere", plugins=False)
    cpu, gpu = (build_toolbox(replace(given, device=device)).facts() for device in ("cpu", "cuda"))
    assert cpu == gpu
    assert "detect_object" not in cpu


def test_a_search_on_another_device_is_made_again_unless_the_tiles_are_the_same(
    photo: Pixels, make_view: MakeView
) -> None:
    view = replace(make_view(photo), memory=ToolResultCache(2**20))

    def searches(**given: Any) -> int:
        tool = Scripted(settings=ToolSettings(**given))
        tool.run(CALL, view)
        return len(tool.searches)

    assert searches(device="cpu") == 1
    assert searches(device="cpu") == 0
    assert searches(device="cuda") == 1
    assert searches(device="mps") == 0
    assert searches(device="cpu", tile_levels=(4,)) == 0


def test_pictures_are_prepared_alike_whether_or_not_torchvision_is_installed(
    tiny_detector: Path, photo: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    asked: list[dict[str, Any]] = []
    load = transformers.AutoProcessor.from_pretrained
    monkeypatch.setattr(
        transformers.AutoProcessor,
        "from_pretrained",
        lambda *given, **named: asked.append(named) or load(*given, **named),
    )
    model = GroundingDino(settings(tiny_detector, tile_levels=()))
    model.detect(photo, "red cup")
    assert [named.get("backend") for named in asked] == ["pil"]
    assert type(model._load()[1].image_processor).__name__.endswith("Pil")
