"""An edited crop put back: nothing outside of it changes, its border cannot be seen, its tone and place are the source's."""

from __future__ import annotations

import random
from pathlib import Path

import cv2
import numpy as np
import pytest

from editloupe.making.paste import (
    EditorFrame,
    WrongShape,
    check_shape,
    frame_crop,
    measure_seam,
    outside_difference,
    paste_crop,
)
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.case_pictures import compute_crop
from editloupe.tools import drawing
from editloupe.types import Box
from tests.making.demo_questions import DEMO

PHOTOGRAPHS = [DEMO / "pictures" / f"{name}.jpg" for name in ("astronaut", "chelsea", "coffee", "rocket")]
LEAST_SEEN = 1.0
"""Grey levels; a step across a line that is smaller than this is not seen."""


def like_an_editor(frame: EditorFrame, target: Box, crop: Box, chance: random.Random) -> Pixels:
    """Paint the target and do what editors do besides: another tone, a shift, another size."""
    pixels = frame.pixels.astype(np.float32)
    x, y = frame.inner.size[0] / crop.size[0], frame.inner.size[1] / crop.size[1]
    left, top = frame.inner.x1 + (target.x1 - crop.x1) * x, frame.inner.y1 + (target.y1 - crop.y1) * y
    width, height = target.size[0] * x, target.size[1] * y
    part = (slice(round(top), round(top + height)), slice(round(left), round(left + width)))
    pixels[part] = 0.3 * pixels[part] + 0.7 * np.array([210, 40, 60], np.float32)
    pixels = pixels * [chance.uniform(0.9, 1.1) for _ in range(3)] + chance.uniform(-12, 12)
    moved = np.array([[1, 0, chance.randint(-6, 6)], [0, 1, chance.randint(-6, 6)]], np.float32)
    size = (pixels.shape[1], pixels.shape[0])
    pixels = cv2.warpAffine(np.clip(pixels, 0, 255), moved, size, borderMode=cv2.BORDER_REPLICATE)
    factor = chance.choice((0.5, 0.75, 1.0))
    return np.asarray(cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA), np.uint8)


def one_crop(source: Pixels, chance: random.Random, side: int) -> tuple[float, float, float, float]:
    """Edit a random crop; return what differs outside, the seam, that of a plain paste, and what changed in the target."""
    height, width = source.shape[:2]
    size = chance.randint(8, 140), chance.randint(8, 140)
    x, y = chance.randint(0, width - size[0]), chance.randint(0, height - size[1])
    target = Box(x1=x, y1=y, x2=x + size[0], y2=y + size[1])
    crop = compute_crop(target, width, height)
    frame = frame_crop(drawing.crop(source, crop), side)
    part = frame.extract_crop(like_an_editor(frame, target, crop, chance))
    result, facts = paste_crop(source, part, crop, [target])
    plain = source.copy()
    plain[crop.y1 : crop.y2, crop.x1 : crop.x2] = cv2.resize(part, crop.size, interpolation=cv2.INTER_AREA)
    assert facts.seam == pytest.approx(measure_seam(source, result, crop), abs=0.001)
    return outside_difference(source, result, crop), facts.seam, measure_seam(source, plain, crop), facts.changed


@pytest.mark.long
@pytest.mark.parametrize(("count", "side"), [(24, 512), pytest.param(500, 1024, marks=pytest.mark.slow)])
def test_crops_are_put_back_without_a_trace_outside_and_without_a_seam(count: int, side: int) -> None:
    chance, photographs = random.Random(22), [open_picture(path).pixels for path in PHOTOGRAPHS]

    measured = np.array([one_crop(photographs[place % 4], chance, side) for place in range(count)])

    outside, seams, plain, changed = measured.T
    assert (outside == 0).all()
    assert seams.max() < LEAST_SEEN
    assert plain.mean() > 5, "the same crops pasted as they come do show"
    assert (changed > 5).all()


def test_a_picture_changed_outside_is_found() -> None:
    before = np.zeros((40, 60, 3), np.uint8)
    after, crop = before.copy(), Box(x1=10, y1=10, x2=30, y2=30)
    after[12:20, 12:20] = 200
    assert outside_difference(before, after, crop) == 0
    for place in ((0, 0), (39, 59), (15, 9), (15, 30), (9, 15), (30, 15)):
        touched = after.copy()
        touched[place] = 255
        assert outside_difference(before, touched, crop) > 0


def test_several_targets_lie_in_one_crop_and_the_picture_s_own_border_is_not_blended() -> None:
    source = open_picture(PHOTOGRAPHS[3]).pixels
    height, width = source.shape[:2]
    targets = [Box(x1=0, y1=0, x2=30, y2=30), Box(x1=60, y1=10, x2=90, y2=40)]
    crop = Box(x1=0, y1=0, x2=150, y2=120)
    edited = drawing.crop(source, crop)
    edited[:30, :30] = (250, 0, 0)
    edited[10:40, 60:90] = (250, 0, 0)

    result, facts = paste_crop(source, edited, crop, targets)

    assert facts.seam < LEAST_SEEN
    assert (np.abs(result[2:28, 2:28].astype(int) - (250, 0, 0)).mean()) < 25
    assert result.shape == (height, width, 3)


def test_another_shape_is_no_edited_crop() -> None:
    frame = frame_crop(np.zeros((100, 100, 3), np.uint8))
    assert frame.pixels.shape == (1024, 1024, 3)
    with pytest.raises(WrongShape, match="1536 × 1024 pixels for 1024 × 1024"):
        frame.extract_crop(np.zeros((1024, 1536, 3), np.uint8))
    with pytest.raises(WrongShape, match="another shape than the crop's 100 × 50"):
        check_shape(np.zeros((60, 60, 3), np.uint8), Box(x1=0, y1=0, x2=100, y2=50))


@pytest.mark.parametrize("size", [(40, 300), (300, 40), (200, 130), (64, 64), (7, 5)])
def test_a_frame_gives_its_crop_back(size: tuple[int, int], tmp_path: Path) -> None:
    crop = np.random.default_rng(1).integers(0, 255, (size[1] // 4 + 1, size[0] // 4 + 1, 3), np.uint8)
    crop = np.asarray(cv2.resize(crop, size, interpolation=cv2.INTER_CUBIC), np.uint8)

    frame = frame_crop(crop)

    width, height = frame.pixels.shape[1], frame.pixels.shape[0]
    assert (width, height) in ((1024, 1024), (1536, 1024), (1024, 1536))
    back = cv2.resize(frame.extract_crop(frame.pixels), size, interpolation=cv2.INTER_AREA)
    assert np.abs(back.astype(int) - crop).mean() < 4
