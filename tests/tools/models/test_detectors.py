"""Boxes as detectors give them, through the real loading code with tiny random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.tools.contract import ToolError
from editloupe.tools.models.detectors import WholePictureFinder
from editloupe.tools.settings import ToolSettings
from tests.drawn_pictures import textured

pytest.importorskip("torch")
pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def grounding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    return save_tiny_grounding_dino(tmp_path_factory.mktemp("grounding"))


@pytest.fixture(scope="module")
def owl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tools.tiny_models import save_tiny_owl

    return save_tiny_owl(tmp_path_factory.mktemp("owl"))


def finder(folder: Path, floor: float) -> WholePictureFinder:
    return WholePictureFinder(ToolSettings(detector=str(folder), device="cpu"), floor)


@pytest.mark.parametrize("kind", ["grounding", "owl"])
def test_every_box_above_the_floor_comes_back_best_first_and_inside(kind: str, request: pytest.FixtureRequest) -> None:
    found = finder(request.getfixturevalue(kind), 0.0).find(textured(160, 120), "red cup")
    assert len(found) > 1, "with a floor of 0 even random weights propose boxes"
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    for one in found:
        assert 0 <= one.box.x1 < one.box.x2 <= 160
        assert 0 <= one.box.y1 < one.box.y2 <= 120


@pytest.mark.parametrize("kind", ["grounding", "owl"])
def test_a_higher_floor_keeps_exactly_the_better_boxes(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    picture = textured(160, 120)
    everything = finder(folder, 0.0).find(picture, "red cup")
    middle = everything[len(everything) // 2].score
    better = finder(folder, middle).find(picture, "red cup")
    expected = [(f.box, round(f.score, 5)) for f in everything if f.score > middle]
    assert sorted(map(str, ((f.box, round(f.score, 5)) for f in better))) == sorted(map(str, expected))


def test_the_floor_and_the_weights_are_part_of_the_fingerprint(grounding: Path, owl: Path) -> None:
    prints = {finder(grounding, 0.3).fingerprint, finder(grounding, 0.4).fingerprint, finder(owl, 0.3).fingerprint}
    assert len(prints) == 3


def test_weights_that_are_not_there_are_told(tmp_path: Path) -> None:
    away = finder(tmp_path, 0.3)
    assert "lacks" in str(away.unavailable())
    with pytest.raises(ToolError):
        away.find(textured(), "cup")
