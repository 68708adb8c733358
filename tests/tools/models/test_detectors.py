"""Boxes as detectors give them, through the real loading code with tiny random weights; tiles, and merging what they find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from editloupe.tools.contract import ToolError
from editloupe.tools.models.detectors import (
    OVERLAP,
    SMALLEST_TILE,
    Detection,
    WholePictureFinder,
    cut_tiles,
    merge_detections,
    to_picture_coordinates,
)
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
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


def found(x1: int, y1: int, x2: int, y2: int, score: float, cut: bool = False) -> Detection:
    return Detection(Box(x1=x1, y1=y1, x2=x2, y2=y2), score, "cup", cut)


@pytest.mark.parametrize("size", [(1000, 800), (4000, 3000), (640, 640)])
def test_tiles_cover_the_picture_and_overlap(size: tuple[int, int]) -> None:
    for level in (2, 3):
        seen = np.zeros((size[1], size[0]), np.uint8)
        parts = cut_tiles(size, (level,))
        for part in parts:
            seen[part.y1 : part.y2, part.x1 : part.x2] += 1

        assert len(parts) == level * level
        assert seen.min() == 1
        width = parts[0].size[0]
        assert parts[0].x2 - parts[1].x1 == pytest.approx(OVERLAP * width, abs=2)


def test_an_object_smaller_than_the_overlap_is_whole_in_some_tile() -> None:
    parts = cut_tiles((1000, 1000), (3,))
    side = int(OVERLAP * parts[0].size[0]) - 2
    for x in range(0, 1000 - side, 7):
        assert any(part.x1 <= x and x + side <= part.x2 for part in parts)


def test_pictures_too_small_for_tiles_get_none() -> None:
    assert cut_tiles((SMALLEST_TILE, SMALLEST_TILE), (2, 3)) == []


def test_boxes_of_a_tile_move_to_the_picture_and_know_when_they_are_cut() -> None:
    tile = Box(x1=300, y1=0, x2=700, y2=200)
    whole, at_inner_edge, at_picture_edge = (
        found(50, 50, 90, 90, 0.5),
        found(0, 50, 40, 90, 0.5),
        found(360, 0, 400, 40, 0.5),
    )

    moved = to_picture_coordinates([whole, at_inner_edge, at_picture_edge], tile, (700, 400))

    assert [list(m.box) for m in moved] == [[350, 50, 390, 90], [300, 50, 340, 90], [660, 0, 700, 40]]
    assert [m.cut for m in moved] == [False, True, False]


def test_a_box_that_fills_its_tile_is_dropped() -> None:
    assert to_picture_coordinates([found(0, 1, 400, 200, 0.9)], Box(x1=0, y1=0, x2=400, y2=200), (800, 400)) == []


def test_one_object_seen_in_several_tiles_is_one() -> None:
    best = found(100, 100, 200, 200, 0.8)

    assert merge_detections([found(102, 98, 203, 199, 0.6), best, found(95, 100, 200, 205, 0.5)]) == [best]


def test_a_piece_cut_off_by_a_tile_gives_way_to_the_whole_even_when_it_scores_higher() -> None:
    whole = found(100, 100, 300, 200, 0.5)

    assert merge_detections([found(100, 100, 180, 200, 0.9, cut=True), whole]) == [whole]


def test_a_group_box_gives_way_to_its_members() -> None:
    members = [found(10, 10, 40, 40, 0.5), found(60, 10, 90, 40, 0.4)]

    assert merge_detections([found(5, 5, 95, 45, 0.9), *members]) == members


def test_a_lone_box_inside_another_leaves_the_better_of_the_two() -> None:
    small, large = found(20, 20, 40, 40, 0.4), found(0, 0, 100, 100, 0.7)

    assert merge_detections([small, large]) == [large]


def test_different_objects_stay_best_first() -> None:
    weak, strong = found(0, 0, 50, 50, 0.4), found(200, 200, 260, 240, 0.9)

    assert merge_detections([weak, strong]) == [strong, weak]
    assert merge_detections([]) == []


def test_a_box_that_nearly_reaches_its_tiles_border_counts_as_cut() -> None:
    tile = Box(x1=300, y1=0, x2=700, y2=200)
    near, away = to_picture_coordinates([found(5, 50, 105, 90, 0.5), found(20, 50, 60, 90, 0.5)], tile, (700, 400))

    assert (near.cut, away.cut) == (True, False)


def test_two_pieces_of_a_cut_object_are_no_members_of_a_group() -> None:
    whole = found(100, 100, 300, 200, 0.5)
    pieces = [found(98, 100, 205, 200, 0.6, cut=True), found(200, 98, 306, 205, 0.6, cut=True)]

    assert merge_detections([whole, *pieces]) == [whole]
