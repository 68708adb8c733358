import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from skimage import data

from editloupe.tools.compare.difference import (
    GlobalChange,
    align,
    compare,
    find_boxes,
    find_regions,
)

Picture = NDArray[np.uint8]
Box = tuple[int, int, int, int]

PHOTOS: dict[str, Callable[[], Picture]] = {
    "astronaut": data.astronaut,
    "coffee": data.coffee,
    "chelsea": data.chelsea,
    "rocket": data.rocket,
}


def photo(name: str, width: int = 900) -> Picture:
    picture = PHOTOS[name]()
    height = round(picture.shape[0] * width / picture.shape[1])
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_CUBIC)


def warped(picture: Picture, scale: float = 1.0, dx: float = 0.0, dy: float = 0.0) -> Picture:
    matrix = np.array([[scale, 0, dx], [0, scale, dy]])
    return cv2.warpAffine(picture, matrix, picture.shape[1::-1], flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)


def clipped(values: NDArray[np.floating]) -> Picture:
    return np.clip(values, 0, 255).astype(np.uint8)


def smooth_field(shape: tuple[int, int], sigma: float, channels: int) -> NDArray[np.float32]:
    noise = np.random.default_rng(5).standard_normal((*shape, channels)).astype(np.float32)
    field = cv2.GaussianBlur(noise, (0, 0), sigma)
    return field / np.abs(field).max()


def brighter(picture: Picture) -> Picture:
    return clipped(picture * 1.12 + 6.0)


def softer(picture: Picture) -> Picture:
    return cv2.GaussianBlur(picture, (0, 0), 1.0)


def sharper(picture: Picture) -> Picture:
    return clipped(picture + 0.8 * (picture.astype(np.float32) - cv2.GaussianBlur(picture, (0, 0), 1.2)))


def recoded(picture: Picture) -> Picture:
    return cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 75])[1], cv2.IMREAD_COLOR)


def shifted(picture: Picture) -> Picture:
    return warped(picture, dx=1.4, dy=-0.8)


def reframed(picture: Picture) -> Picture:
    return warped(picture, scale=1.02, dx=-12.0, dy=-4.0)


def resized(picture: Picture) -> Picture:
    return cv2.resize(picture, None, fx=1.25, fy=1.1, interpolation=cv2.INTER_CUBIC)


def wobbling(picture: Picture) -> Picture:
    height, width = picture.shape[:2]
    field = 2.0 * smooth_field((height, width), 40.0, 2)
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)
    return cv2.remap(picture, grid + field, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)


def drifting(picture: Picture) -> Picture:
    return clipped(picture + 18.0 * smooth_field(picture.shape[:2], 120.0, 3))


GLOBAL_CHANGES = (brighter, softer, sharper, recoded, shifted, reframed, resized, wobbling, drifting)


def with_disc(picture: Picture, centre: tuple[int, int], radius: int, colour: tuple[int, int, int]) -> Picture:
    return cv2.circle(picture.copy(), centre, radius, colour, cv2.FILLED, cv2.LINE_AA)


def overlap(a: Box, b: Box) -> int:
    return max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))


def size(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


def agreement(a: Box, b: Box) -> float:
    common = overlap(a, b)
    return common / (size(a) + size(b) - common)


@pytest.mark.parametrize("name", PHOTOS)
def test_identical_pictures_have_no_regions(name: str) -> None:
    result = compare(photo(name), photo(name))
    assert result.regions == ()
    assert result.changed_share == 0.0
    assert not result.whole_scene
    assert result.global_change.sentence() == "The second image has no global change."


@pytest.mark.long
@pytest.mark.parametrize("change", GLOBAL_CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", PHOTOS)
def test_a_global_change_alone_has_no_regions(name: str, change: Callable[[Picture], Picture]) -> None:
    picture = photo(name)
    assert find_regions(picture, change(picture)) == []


@pytest.mark.long
@pytest.mark.parametrize("change", GLOBAL_CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", PHOTOS)
def test_an_added_object_is_the_only_region_under_a_global_change(
    name: str, change: Callable[[Picture], Picture]
) -> None:
    picture = photo(name)
    x, y = picture.shape[1] // 3, picture.shape[0] // 2
    found = find_regions(picture, change(with_disc(picture, (x, y), 25, (40, 200, 60))))
    assert len(found) == 1
    assert agreement(found[0].box, (x - 25, y - 25, x + 25, y + 25)) > 0.6


def test_a_small_recoloured_patch_is_found() -> None:
    picture = photo("coffee")
    edited = picture.copy()
    patch = edited[300:322, 500:530]
    edited[300:322, 500:530] = patch[..., ::-1] // 2
    assert agreement(find_regions(picture, edited)[0].box, (500, 300, 530, 322)) > 0.6


def test_separate_objects_are_separate_regions_and_the_more_noticeable_comes_first() -> None:
    picture = photo("chelsea")
    edited = with_disc(picture, (200, 150), 15, (60, 160, 90))
    edited = with_disc(edited, (700, 400), 60, (0, 0, 255))
    first, second = find_regions(picture, edited)
    assert agreement(first.box, (640, 340, 760, 460)) > 0.6
    assert agreement(second.box, (185, 135, 215, 165)) > 0.6
    assert 1.0 >= first.significance > second.significance > 0.0
    assert first.area > second.area


def with_bars(gap: int) -> tuple[Picture, Picture]:
    picture = np.full((400, 900, 3), (180, 190, 200), np.uint8)
    edited = picture.copy()
    for left in (300, 300 + 40 + gap, 300 + 2 * (40 + gap)):
        edited[150:250, left : left + 40] = (30, 30, 120)
    return picture, edited


def test_neighbouring_parts_are_one_region_and_distant_ones_are_not() -> None:
    assert len(find_regions(*with_bars(gap=20))) == 1
    assert len(find_regions(*with_bars(gap=50))) == 3


def test_a_difference_that_hardly_anyone_sees_is_no_region() -> None:
    picture = photo("coffee")
    edited = picture.copy()
    edited[200:260, 300:380] += np.minimum(8, 255 - edited[200:260, 300:380])
    assert find_regions(picture, edited) == []


def test_a_strip_along_the_border_is_no_region_and_an_object_that_reaches_the_border_is() -> None:
    picture = photo("coffee")
    strip, object_there = picture.copy(), picture.copy()
    strip[-2:, 300:500] = (30, 30, 250)
    object_there[-20:, 300:340] = (30, 30, 250)
    assert find_regions(picture, strip) == []
    (region,) = find_regions(picture, object_there)
    assert agreement(region.box, (300, picture.shape[0] - 20, 340, picture.shape[0])) > 0.6


def grainy(picture: Picture, seed: int) -> Picture:
    grain = cv2.GaussianBlur(np.random.default_rng(seed).standard_normal(picture.shape[:2]), (0, 0), 1.0)
    return clipped(picture + (15.0 / grain.std()) * grain[..., None])


@pytest.mark.long
def test_texture_made_anew_is_noise_and_an_object_in_it_is_not() -> None:
    picture = cv2.GaussianBlur(photo("coffee"), (0, 0), 8.0)
    first, second = grainy(picture, 1), grainy(with_disc(picture, (300, 300), 40, (30, 30, 250)), 2)
    assert find_regions(first, grainy(picture, 2)) == []
    (region,) = find_regions(first, second)
    assert agreement(region.box, (260, 260, 340, 340)) > 0.6


@pytest.mark.long
@pytest.mark.parametrize("pixels", [1, 7_000, 10**7])
def test_it_does_not_matter_how_many_rows_are_compared_at_a_time(pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = photo("astronaut")
    edited = wobbling(with_disc(picture, (200, 200), 20, (30, 30, 250)))
    expected = compare(picture, edited)
    assert len(expected.regions) == 1
    monkeypatch.setattr("editloupe.tools.compare.residual.BAND_PIXELS", pixels)
    assert compare(picture, edited) == expected


def test_boxes_are_in_the_first_pictures_pixels_when_the_second_is_smaller() -> None:
    picture = photo("astronaut", 1400)
    edited = cv2.resize(with_disc(picture, (1000, 300), 50, (20, 220, 220)), (700, 640), interpolation=cv2.INTER_AREA)
    (box,) = find_boxes(picture, edited)
    assert agreement((box[0], box[1], box[2], box[3]), (950, 250, 1050, 350)) > 0.6


def test_a_region_tells_its_colour_change_without_the_global_tone() -> None:
    picture = np.full((300, 400, 3), 100, np.uint8)
    picture += np.random.default_rng(1).integers(0, 20, picture.shape, np.uint8)
    edited = picture.copy()
    edited[100:160, 100:180] = (200, 100, 100)
    (region,) = find_regions(picture, clipped(edited * 1.1))
    lightness, green_red, _ = region.colour_change
    assert green_red > 20
    assert 5 < lightness < 30
    assert region.area == pytest.approx(60 * 80, rel=0.3)


def test_the_changed_share_is_the_area_of_the_change() -> None:
    picture = photo("coffee")
    edited = picture.copy()
    edited[100:300, 200:500] = (250, 20, 250)
    assert compare(picture, edited).changed_share == pytest.approx(200 * 300 / picture[..., 0].size, rel=0.2)


def test_a_third_of_the_picture_replaced_is_still_a_local_change() -> None:
    picture, other = photo("coffee"), photo("astronaut")
    edited = picture.copy()
    width = picture.shape[1] // 3
    edited[:, :width] = other[: picture.shape[0], :width]
    result = compare(picture, edited)
    assert not result.whole_scene
    assert agreement(result.regions[0].box, (0, 0, width, picture.shape[0])) > 0.5


@pytest.mark.parametrize(("name", "other"), [("coffee", "chelsea"), ("astronaut", "rocket"), ("rocket", "coffee")])
def test_another_picture_is_a_changed_scene_and_not_a_list_of_regions(name: str, other: str) -> None:
    picture = photo(name)
    result = compare(picture, photo(other))
    assert result.whole_scene
    assert [region.box for region in result.regions] == [(0, 0, picture.shape[1], picture.shape[0])]
    assert result.changed_share > 0.3


@pytest.mark.long
def test_the_global_change_is_told_in_numbers() -> None:
    picture = photo("coffee")
    shift = compare(picture, warped(picture, dx=1.2, dy=-0.5)).global_change.shift
    assert shift == pytest.approx((1.2, -0.5), abs=0.2)
    scale = compare(picture, warped(picture, scale=1.015)).global_change.scale
    assert scale == pytest.approx((1.015, 1.015), abs=0.002)
    dark = clipped(picture * 0.9)
    assert compare(picture, dark).global_change.brightness == pytest.approx(-0.1, abs=0.02)
    assert compare(picture, softer(picture)).global_change.sharpness < 0.9
    assert compare(picture, sharper(picture)).global_change.sharpness > 1.1
    grey = cv2.cvtColor(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    pale = cv2.addWeighted(picture, 0.8, grey, 0.2, 0)
    assert compare(picture, pale).global_change.saturation == pytest.approx(-0.2, abs=0.05)
    assert compare(picture, clipped(picture + np.array([8.0, 0.0, -8.0]))).global_change.warmth > 0.03


def test_a_local_edit_does_not_pass_for_a_global_change() -> None:
    picture = photo("coffee")
    change = compare(picture, with_disc(picture, (450, 300), 120, (255, 255, 255))).global_change
    assert change.sentence() == "The second image has no global change."


def test_the_sentence_names_what_was_removed() -> None:
    change = GlobalChange(shift=(1.2, 0.5), brightness=0.04)
    assert change.sentence("the edited image") == "The edited image is 4 % brighter and shifted by 1.3 px."
    change = GlobalChange(scale=(1.02, 1.02), brightness=-0.05, saturation=0.1, sharpness=0.8)
    assert change.sentence() == ("The second image is 5 % darker, 10 % more saturated, softer and enlarged by 2.0 %.")


@pytest.mark.long
@pytest.mark.parametrize("change", [shifted, reframed, resized, wobbling], ids=lambda change: change.__name__)
def test_aligning_brings_the_second_picture_into_the_first_ones_frame(change: Callable[[Picture], Picture]) -> None:
    picture = photo("astronaut")
    moved = change(picture)
    inner = (slice(40, -40), slice(40, -40))
    aligned = align(picture, moved)
    plain = cv2.resize(moved, picture.shape[1::-1])
    assert aligned.shape == picture.shape
    after = cv2.absdiff(aligned[inner], picture[inner]).mean()
    assert after < 3.0
    if change is not resized:
        assert after < 0.6 * cv2.absdiff(plain[inner], picture[inner]).mean()


def test_pictures_that_lie_over_each_other_are_cut_out_as_they_are() -> None:
    picture = photo("astronaut")
    painted = picture.copy()
    painted[100:160, 200:280] = (20, 180, 60)
    found = compare(picture, painted)
    assert found.alignment is not None
    crop = found.alignment.crop(painted, (190, 90, 290, 170))
    assert np.array_equal(crop, painted[90:170, 190:290])
    assert not np.shares_memory(crop, painted)
    beyond = found.alignment.crop(painted, (-3, -3, 4, 4))
    assert np.array_equal(beyond[3:, 3:], painted[:4, :4])


SIZES = [(1, 1), (1, 9), (9, 1), (5, 3), (33, 40), (20, 1500), (1500, 20), (730, 500)]


@pytest.mark.long
@pytest.mark.parametrize("first_size", SIZES, ids=str)
@pytest.mark.parametrize("second_size", SIZES, ids=str)
def test_any_sizes_can_be_compared(first_size: tuple[int, int], second_size: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    first, second = (rng.integers(0, 256, (*s, 3), np.uint8) for s in (first_size, second_size))
    height, width = first_size
    for x1, y1, x2, y2 in find_boxes(first, second):
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
    assert align(first, second).shape == first.shape
    assert find_boxes(first, first) == []
    assert find_boxes(np.zeros_like(first), np.zeros_like(second)) == []


def test_black_and_white_are_a_changed_scene() -> None:
    assert compare(np.zeros((90, 120, 3), np.uint8), np.full((90, 120, 3), 255, np.uint8)).whole_scene


@pytest.mark.long
def test_a_huge_picture_is_localized_to_a_few_pixels() -> None:
    picture = photo("coffee", 5200)
    edited = with_disc(picture, (3000, 1500), 150, (30, 60, 250))
    (region,) = find_regions(picture, edited)
    assert np.abs(np.subtract(region.box, (2850, 1350, 3150, 1650))).max() <= 24


@pytest.mark.long
def test_inputs_stay_as_they_are_and_threads_agree() -> None:
    picture = photo("rocket")
    edited = recoded(with_disc(picture, (300, 300), 30, (250, 250, 20)))
    picture.flags.writeable = edited.flags.writeable = False
    expected = compare(picture, edited)
    with ThreadPoolExecutor(4) as pool:
        assert all(result == expected for result in pool.map(lambda _: compare(picture, edited), range(12)))


def calibration() -> Path:
    fallback = Path(__file__).resolve().parents[4] / "shared" / "calibration"
    return Path(os.environ.get("EDITLOUPE_CALIBRATION", fallback))


def rgb(path: Path) -> Picture:
    return cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)


def is_found(truth: Box, found: list[Box], covering: bool) -> bool:
    return any((covering and overlap(truth, b) >= 0.5 * size(truth)) or agreement(truth, b) >= 0.3 for b in found)


def is_justified(box: Box, truths: list[Box]) -> bool:
    inside = np.zeros((box[3] - box[1], box[2] - box[0]), bool)
    for x1, y1, x2, y2 in truths:
        inside[max(0, y1 - box[1]) : max(0, y2 - box[1]), max(0, x1 - box[0]) : max(0, x2 - box[0])] = True
    return bool(inside.mean() >= 0.2)


@pytest.mark.long
@pytest.mark.skipif(not (calibration() / "manifest.jsonl").exists(), reason="the calibration set is not here")
@pytest.mark.parametrize(("folder", "tight", "recall"), [("", 84, 95), ("hard", 86, 96)])
def test_known_edits_are_found_and_unchanged_pictures_stay_silent(folder: str, tight: int, recall: int) -> None:
    root = calibration() / folder
    edits = [json.loads(line) for line in (root / "manifest.jsonl").read_text().splitlines()]
    tight_hits, hits, justified, quiet_alarms, collapse_hits, false_collapses = [], [], [], [], [], []
    for edit in edits:
        result = compare(rgb(root / edit["source"]), rgb(root / edit["edited"]))
        if edit["truth"]["visual_consistency"] == "Scene Collapse":
            collapse_hits.append(result.whole_scene)
            continue
        false_collapses.append(result.whole_scene)
        found = [region.box for region in result.regions]
        truths = [tuple(box) for box in edit["changed_boxes"]]
        if not truths:
            quiet_alarms.append(bool(found))
        tight_hits += [is_found(truth, found[:3], False) for truth in truths]
        hits += [is_found(truth, found[:5], True) for truth in truths]
        justified += [is_justified(box, truths) for box in found[:3] if truths]
    assert 100 * np.mean(tight_hits) >= tight
    assert 100 * np.mean(hits) >= recall
    assert 100 * np.mean(justified) >= 96
    assert sum(quiet_alarms) <= 1
    assert 100 * np.mean(collapse_hits) >= 90
    assert not any(false_collapses)
