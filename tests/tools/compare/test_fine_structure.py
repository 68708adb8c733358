"""Fine structure: words and digits on small signs in large pictures, where nothing else changed."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data

from editloupe.tools.compare.difference import compare, find_boxes
from editloupe.tools.compare.fine_structure import PatchAlignment, build_fine_frame, look_closely
from editloupe.tools.compare.registration import estimate_reframing

Picture = NDArray[np.uint8]
SIGN = (1500, 700, 1580, 736)
"""A sign of 0.08 % of the picture."""


def large_photo() -> Picture:
    picture = cv2.resize(data.coffee(), (2400, 1600), interpolation=cv2.INTER_CUBIC)
    grain = np.random.default_rng(2).normal(0, 3, picture.shape)
    return np.clip(picture + grain, 0, 255).astype(np.uint8)


def with_sign(picture: Picture, word: str) -> Picture:
    x1, y1, x2, y2 = SIGN
    written = picture.copy()
    written[y1:y2, x1:x2] = (230, 230, 220)
    cv2.putText(written, word, (x1 + 6, y2 - 10), cv2.FONT_HERSHEY_SIMPLEX, 0.75, (20, 20, 60), 2, cv2.LINE_AA)
    return written


def coded(picture: Picture, quality: int = 88) -> Picture:
    return cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def on_sign(box: list[int]) -> bool:
    common = max(0, min(box[2], SIGN[2]) - max(box[0], SIGN[0])) * max(0, min(box[3], SIGN[3]) - max(box[1], SIGN[1]))
    return common > 0.6 * (box[2] - box[0]) * (box[3] - box[1])


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [("OPEN", "OPUS"), ("1207", "1983"), ("EXIT", "STOP")])
def test_a_changed_word_on_a_small_sign_is_the_only_difference(before: str, after: str) -> None:
    picture = large_photo()
    found = find_boxes(with_sign(picture, before), coded(with_sign(picture, after)))
    assert len(found) == 1
    assert on_sign(found[0])


@pytest.mark.long
def test_the_same_word_is_no_difference_however_it_was_coded_or_sharpened() -> None:
    picture = with_sign(large_photo(), "OPEN")
    soft = cv2.GaussianBlur(picture, (0, 0), 0.8)
    sharp = np.clip(2.0 * picture - soft.astype(float), 0, 255).astype(np.uint8)
    for other in (coded(picture, 75), soft, sharp):
        assert find_boxes(picture, other) == []


@pytest.mark.long
def test_a_word_is_found_where_the_output_is_smaller_and_moved() -> None:
    picture = large_photo()
    small = cv2.resize(with_sign(picture, "STOP"), (1200, 800), interpolation=cv2.INTER_AREA)
    shift = np.array([[1.0, 0.0, 2.3], [0.0, 1.0, -1.6]])
    moved = cv2.warpAffine(small, shift, (1200, 800), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    found = find_boxes(with_sign(picture, "EXIT"), moved)
    assert len(found) == 1
    assert on_sign(found[0])
    assert find_boxes(with_sign(picture, "STOP"), moved) == []


@pytest.mark.long
@pytest.mark.parametrize("cut", [0.02, 0.05, 0.08])
def test_a_picture_that_was_cut_out_differs_only_where_it_was_edited(cut: float) -> None:
    picture = large_photo()
    matrix = np.array([[1 - cut, 0.0, 0.7 * cut * 2400], [0.0, 1 - cut, 0.3 * cut * 1600]])
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP

    def framed(one: Picture) -> Picture:
        return cv2.warpAffine(one, matrix, (2400, 1600), flags=flags)

    result = compare(with_sign(picture, "EXIT"), framed(with_sign(picture, "EXIT")))
    assert result.regions == ()
    assert result.global_change.scale == pytest.approx((1 / (1 - cut), 1 / (1 - cut)), abs=0.006)
    found = find_boxes(with_sign(picture, "EXIT"), framed(with_sign(picture, "STOP")))
    assert [on_sign(box) for box in found] == [True]


@pytest.mark.long
def test_the_frame_is_the_finest_that_both_pictures_have() -> None:
    picture = large_photo()
    small = cv2.resize(picture, (1000, 700))
    frame = build_fine_frame(picture, small)
    assert frame is not None
    assert frame.first.shape == frame.second.shape == (700, 1000)
    assert frame.step == (2.4, 1600 / 700)
    assert build_fine_frame(picture[:40], picture[:40]) is None


def test_reframing_is_found_without_a_first_guess() -> None:
    picture = cv2.cvtColor(cv2.resize(data.astronaut(), (300, 240)), cv2.COLOR_RGB2GRAY)
    matrix = np.array([[1.07, 0.0, -12.0], [0.0, 1.07, -4.0]])
    second = cv2.warpAffine(picture, matrix, (300, 240), borderMode=cv2.BORDER_REFLECT)
    found = estimate_reframing(picture, second)
    corners = np.array([[30.0, 30.0, 1.0], [270.0, 30.0, 1.0], [150.0, 200.0, 1.0]]).T
    assert np.abs((found - matrix) @ corners).max() < 5.0


@pytest.mark.long
def test_a_close_look_forgives_motion_tone_and_sharpness_but_no_other_letter() -> None:
    picture = cv2.cvtColor(with_sign(large_photo(), "OPEN"), cv2.COLOR_RGB2GRAY)
    bounds = (SIGN[0] - 10, SIGN[1] - 10, SIGN[2] + 10, SIGN[3] + 10)
    shift = np.array([[1.0, 0.0, 1.4], [0.0, 1.0, -0.7]])
    moved = cv2.warpAffine(cv2.GaussianBlur(picture, (0, 0), 0.7), shift, picture.shape[::-1], flags=cv2.INTER_CUBIC)
    same = np.clip(moved * 0.9 + 8.0, 0, 255).astype(np.uint8)
    lies = PatchAlignment((0, 0), np.eye(2))
    assert look_closely(picture, same, bounds, lies, noise=1.0) is None
    other = cv2.cvtColor(with_sign(large_photo(), "OPUS"), cv2.COLOR_RGB2GRAY)
    patch = look_closely(picture, other, bounds, lies, noise=1.0)
    assert patch is not None
    assert patch.box[0] > SIGN[0] + 30  # the first two letters are the same
