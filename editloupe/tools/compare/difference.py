"""Locate the differences of two pictures of the same scene, beyond what re-rendering changes everywhere.

The pictures are registered (:mod:`.registration`), the global tone is removed and the rest is measured against the
noise of the pair (:mod:`.residual`), and what remains is cut into regions (:mod:`.regions`). All of it works on reduced
copies, so time and memory are bounded for any picture. Changes of fine structure are searched at full resolution
(:mod:`.fine_structure`).

>>> import numpy as np
>>> first = np.full((120, 160, 3), 90, np.uint8)
>>> second = first.copy()
>>> second[40:70, 50:100] = (220, 40, 40)
>>> [region.box for region in find_regions(first, second)]
[(49, 39, 101, 71)]
>>> find_regions(first, first)
[]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.compare.arrays import Mask, enclose, overlap
from editloupe.tools.compare.fine_structure import FineSpot, build_fine_frame, find_fine_spots
from editloupe.tools.compare.regions import (
    Spot,
    find_spots,
    is_whole_scene,
    significance,
    visible_share,
)
from editloupe.tools.compare.registration import Registration, register, sample
from editloupe.tools.compare.residual import (
    apply_tone,
    average_blocks,
    fit_gray_line,
    fit_tone,
    measure_residual,
    measure_sharpness_ratio,
    measure_tone_change,
)
from editloupe.types import Box

# Longest side of the reduced copies: an object of 0.1 % of a 3:2 picture is still 16 pixels wide, while texture and
# coding noise are mostly averaged away.
WORK_LONG_SIDE = 720
# Rows per strip of full-resolution warping, which bounds the memory of the coordinate maps.
STRIP_ROWS = 256
# Width of the smoothing neighbourhood: nothing is compared closer than this to an area without content.
EDGE_MARGIN = 7
# Relative change of contrast from which nothing of the first picture is left in the second.
VANISHED = -0.9
# Smaller changes are not mentioned: half a pixel of the reduced copy, and what people do not see side by side.
WORTH_SHIFT = 0.3
WORTH_SCALE = 0.002
WORTH_TONE = 0.015
WORTH_SHARPNESS = 0.08

CROP_CONTEXT = 0.35
"""The margin around a region as a share of its longer side: enough to recognise the object and its surroundings."""
SMALLEST_CROP = 96
"""The least width and height of a crop, in pixels of the original."""
WHOLE_SIDE = 1024
"""The longer side at which whole pictures are shown side by side."""
MAX_READ_REGIONS = 3
"""The most regions whose text is read."""
READING_CONTEXT = 1.0
READING_SMALLEST = 160
"""The margin around a region whose text is read, and its least size. A word is read whole or not at all."""
_BITS, _OFFSET = 5, 48
"""In the run-length encoding of masks: bits of a number per character, and the code of the first character."""


@dataclass(frozen=True, slots=True)
class Region:
    """A place where the pictures differ.

    ``box`` is in pixels of the first picture. ``significance`` is 0..1; 0.5 is a clear object of 1 % of the picture.
    ``area`` counts the differing pixels. ``colour_change`` is the change of their mean colour (second minus first) in
    CIE L*, a*, b*, without the global change of tone.
    """

    box: tuple[int, int, int, int]
    significance: float
    area: int
    colour_change: tuple[float, float, float]
    mask: NDArray[np.bool_] | None = field(default=None, compare=False, repr=False)
    """The differing pixels of the box. None if they were not asked for, or if only the box is known."""


@dataclass(frozen=True)
class GlobalChange:
    """The change of the whole picture that is removed before regions are searched.

    ``shift`` is the motion of the centre in pixels of the first picture and ``scale`` the enlargement in x and y, both
    relative to plain resizing. ``brightness``, ``contrast`` and ``saturation`` are relative (+0.04 is 4 % more).
    ``warmth`` is the growth of red minus blue as a share of the full range. ``sharpness`` is the ratio of fine detail,
    below one for a softer second picture.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    scale: tuple[float, float] = (1.0, 1.0)
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    warmth: float = 0.0
    sharpness: float = 1.0

    @property
    def is_vanished(self) -> bool:
        """Whether hardly any contrast is left, as in a picture of one colour.

        A change of tone explains such a picture, so no region differs: what was removed as tone is the scene itself.

        >>> GlobalChange(contrast=-0.97).is_vanished
        True
        """
        return self.contrast <= VANISHED

    def sentence(self, subject: str = "the second image") -> str:
        """Describe the global change in words.

        >>> GlobalChange(shift=(1.2, 0.5), brightness=0.04).sentence("the edited image")
        'The edited image is 4 % brighter and shifted by 1.3 px.'
        >>> GlobalChange().sentence()
        'The second image has no global change.'
        """
        parts = [
            *_tone_words(self.brightness, "brighter", "darker"),
            *_tone_words(self.contrast, "higher in contrast", "lower in contrast"),
            *_tone_words(self.saturation, "more saturated", "less saturated"),
            *_tone_words(self.warmth, "warmer", "cooler"),
        ]
        if abs(np.log(max(self.sharpness, 1e-3))) >= WORTH_SHARPNESS:
            parts.append("sharper" if self.sharpness > 1 else "softer")
        stretch = float(np.sqrt(self.scale[0] * self.scale[1])) - 1.0
        if abs(stretch) >= WORTH_SCALE:
            parts.append(f"{'enlarged' if stretch > 0 else 'reduced'} by {100 * abs(stretch):.1f} %")
        distance = float(np.hypot(*self.shift))
        if distance >= WORTH_SHIFT:
            parts.append(f"shifted by {distance:.1f} px")
        start = subject[:1].upper() + subject[1:]
        if not parts:
            return f"{start} has no global change."
        listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
        return f"{start} is {listed}."


@dataclass(frozen=True)
class Alignment:
    """The map from the first picture to the second, for reading the second in the pixel frame of the first."""

    registration: Registration
    factor: int
    size: tuple[int, int]
    """Width and height of the first picture."""

    def crop(self, second: Pixels, box: tuple[int, int, int, int]) -> Pixels:
        """Return the part of the second picture that corresponds to a box of the first, at full resolution.

        Positions outside the second picture repeat its border.
        """
        x1, y1, x2, y2 = box
        if self.registration.is_identity and second.shape[1::-1] == self.size and _is_inside(box, self.size):
            return second[y1:y2, x1:x2].copy()  # the same as reading at whole pixels
        stretch = np.array([second.shape[1] / self.size[0], second.shape[0] / self.size[1]], np.float32)
        crop = np.empty((y2 - y1, x2 - x1, 3), np.uint8)
        for top in range(y1, y2, STRIP_ROWS):
            rows = min(STRIP_ROWS, y2 - top)
            positions = self.registration.map_pixels((x1, top, x2, top + rows), float(self.factor))
            positions = (positions + np.float32(0.5)) * stretch - np.float32(0.5)
            crop[top - y1 : top - y1 + rows] = _sample(second, positions)
        return crop


@dataclass(frozen=True)
class PictureComparison:
    """The full result of comparing two pictures.

    ``changed_share`` (0..1) is the share of the first picture's area that differs. If ``whole_scene`` is True, the
    pictures differ nearly everywhere, and ``regions`` holds the whole picture as its only region.
    """

    regions: tuple[Region, ...]
    changed_share: float
    whole_scene: bool
    global_change: GlobalChange
    alignment: Alignment | None = field(default=None, compare=False, repr=False)
    """For showing both sides of a region without registering the pictures again."""


def find_regions(first: Pixels, second: Pixels) -> list[Region]:
    """Return the regions where the second picture differs from the first, best first."""
    return list(compare(first, second).regions)


def find_boxes(first: Pixels, second: Pixels) -> list[list[int]]:
    """Return only the boxes of :func:`find_regions`, as lists."""
    return [list(region.box) for region in find_regions(first, second)]


def compare(first: Pixels, second: Pixels, *, masks: bool = False) -> PictureComparison:
    """Compare two RGB pictures of the same scene. They may differ in size, framing, tone and sharpness.

    Args:
        first: The first picture.
        second: The second picture.
        masks: Keep the differing pixels of every region.
    """
    height, width = first.shape[:2]
    a, b, factor = _reduce(first, second)
    gray_a, gray_b = _gray(a), _gray(b)
    registration = register(gray_a, gray_b)
    warped, valid = _overlay(b, registration)
    blocks_a, blocks_b = average_blocks(a), average_blocks(warped)
    compared_blocks = None if valid is None else average_blocks(valid.view(np.uint8)) > 0
    tone = fit_tone(blocks_a, blocks_b, compared_blocks)
    toned = apply_tone(a, tone)
    residual = measure_residual(toned, warped, (apply_tone(blocks_a, tone), blocks_b), valid, compared_blocks)
    shift, scale = _measure_geometry(registration, a.shape, factor)
    alignment = Alignment(registration, factor, (width, height))
    sharpness = measure_sharpness_ratio(gray_a, gray_b, residual.score)
    change = GlobalChange(shift, scale, sharpness=sharpness, **measure_tone_change(blocks_a, blocks_b, residual.score))
    if is_whole_scene(residual.coarse):
        share = visible_share(residual.coarse)
        scene = Region(
            (0, 0, width, height), 1.0, round(share * width * height), _measure_lab_change(toned, warped, None)
        )
        return PictureComparison((scene,), share, True, change, alignment)
    spots = find_spots(residual.score, residual.amount)
    regions = [_build_region(spot, toned, warped, factor, masks) for spot in spots]
    share = sum(spot.area for spot in spots) / residual.amount.size
    frame = build_fine_frame(first, second)
    if frame is not None:
        boxed = [region.box for region in regions]
        drift = np.ascontiguousarray(residual.drift[..., 0])
        fine = find_fine_spots(frame, registration, factor, fit_gray_line(blocks_a, tone), drift, boxed)
        for spot in fine:
            parts = [region for region in regions if overlap(region.box, spot.box)]
            regions = [region for region in regions if region not in parts]
            regions.append(_build_fine_region(spot, parts, toned, warped, factor))
        share += sum(spot.area for spot in fine) / (width * height)
    regions.sort(key=lambda region: -region.significance)
    return PictureComparison(tuple(regions), share, False, change, alignment)


def align(first: Pixels, second: Pixels) -> Pixels:
    """Resample the second picture into the pixel frame of the first, at full resolution."""
    height, width = first.shape[:2]
    a, b, factor = _reduce(first, second)
    alignment = Alignment(register(_gray(a), _gray(b)), factor, (width, height))
    return alignment.crop(second, (0, 0, width, height))


def _gray(picture: Pixels) -> Pixels:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.uint8)


def _is_inside(box: tuple[int, int, int, int], size: tuple[int, int]) -> bool:
    return min(box[:2]) >= 0 and box[2] <= size[0] and box[3] <= size[1]


def _sample(picture: Pixels, places: NDArray[np.float32]) -> Pixels:
    """Read a picture at these positions. Positions outside repeat the border."""
    # Positions rounded to 1/32 pixel take a third of the time without a visible difference.
    pixels, parts = cv2.convertMaps(places, cast(Any, None), cv2.CV_16SC2)
    return np.asarray(cv2.remap(picture, pixels, parts, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE), np.uint8)


def _reduce(first: Pixels, second: Pixels) -> tuple[Pixels, Pixels, int]:
    """Return both pictures at the first one's size divided by a whole factor, and that factor."""
    height, width = first.shape[:2]
    factor = -(-max(width, height) // WORK_LONG_SIDE)
    small = _shrink(first, factor)
    if second.shape[:2] == (height, width):
        return small, _shrink(second, factor), factor
    second_factor = max(1, min(second.shape[1] * factor // width, second.shape[0] * factor // height))
    reduced = _shrink(second, second_factor)
    step_x, step_y = second.shape[1] / width * factor / second_factor, second.shape[0] / height * factor / second_factor
    grid = np.array([[step_x, 0, 0.5 * step_x - 0.5], [0, step_y, 0.5 * step_y - 0.5]])
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    resized = cv2.warpAffine(reduced, grid, small.shape[1::-1], flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return small, np.asarray(resized, np.uint8), factor


def _shrink(picture: Pixels, factor: int) -> Pixels:
    """Average whole blocks of pixels. An incomplete block at the right or lower border is dropped."""
    height, width = max(1, picture.shape[0] // factor), max(1, picture.shape[1] // factor)
    if factor == 1:
        return picture
    blocks = picture[: height * factor, : width * factor]
    return np.asarray(cv2.resize(blocks, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _overlay(picture: Pixels, registration: Registration) -> tuple[Pixels, NDArray[np.bool_] | None]:
    """Warp a picture by the registration. Also return where it has content; None means everywhere."""
    if registration.is_identity:
        return picture, None
    height, width = picture.shape[:2]
    positions = registration.map_all_pixels(width, height)
    inside = _find_inside(positions, math.ceil(registration.max_displacement(width, height)))
    valid = cv2.erode(inside, np.ones((EDGE_MARGIN, EDGE_MARGIN), np.uint8)).astype(bool)
    return sample(picture, positions), valid


def _find_inside(positions: NDArray[np.float32], farthest: int) -> Pixels:
    """Mark the positions inside a picture of the same size with 255. No position has moved by more than ``farthest``."""
    height, width = positions.shape[:2]
    inside = np.full((height, width), 255, np.uint8)
    near = farthest + 1
    for border in (
        (slice(near),),
        (slice(-near, None),),
        (slice(None), slice(near)),
        (slice(None), slice(-near, None)),
    ):
        strip = np.ascontiguousarray(positions[border])
        inside[border] = cv2.inRange(strip, (-0.5, -0.5, 0.0, 0.0), (width - 0.5, height - 0.5, 0.0, 0.0))
    return inside


def _build_region(spot: Spot, a: Pixels, b: Pixels, factor: int, masks: bool) -> Region:
    """Convert a spot of the reduced pictures to a region of the first picture."""
    x1, y1, x2, y2 = spot.box
    box = (x1 * factor, y1 * factor, x2 * factor, y2 * factor)
    change = _measure_lab_change(a[y1:y2, x1:x2], b[y1:y2, x1:x2], spot.mask.view(np.uint8))
    mask = spot.mask.repeat(factor, axis=0).repeat(factor, axis=1) if masks else None
    return Region(box, round(spot.significance, 4), spot.area * factor * factor, change, mask)


def _build_fine_region(spot: FineSpot, parts: list[Region], a: Pixels, b: Pixels, factor: int) -> Region:
    """Convert a fine spot to a region that also encloses the coarse regions it overlaps."""
    box, size, rank = spot.box, spot.area, significance(spot.contrast, spot.area / (a[..., 0].size * factor * factor))
    for part in parts:
        box, size, rank = enclose(box, part.box), max(size, part.area), max(rank, part.significance)
    x1, y1, x2, y2 = (v // factor for v in box)
    window = (slice(y1, max(y2, y1 + 1)), slice(x1, max(x2, x1 + 1)))
    change = _measure_lab_change(np.ascontiguousarray(a[window]), np.ascontiguousarray(b[window]), None)
    return Region(box, round(rank, 4), size, change)


def _measure_lab_change(a: Pixels, b: Pixels, mask: Pixels | None) -> tuple[float, float, float]:
    """Return the change of the mean colour from ``a`` to ``b`` in CIE Lab."""
    means = np.array([[cv2.mean(a, mask)[:3], cv2.mean(b, mask)[:3]]], np.float32) / np.float32(255.0)
    before, after = cv2.cvtColor(means, cv2.COLOR_RGB2LAB)[0]
    lightness, green_red, blue_yellow = (round(float(v), 2) for v in after - before)
    return lightness, green_red, blue_yellow


def _measure_geometry(
    registration: Registration, shape: tuple[int, ...], factor: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the shift of the picture's centre in full-size pixels, and the enlargement in x and y."""
    matrix = registration.matrix
    centre = np.array([(shape[1] - 1) / 2, (shape[0] - 1) / 2])
    dx, dy = (float(v) for v in (matrix[:, :2] @ centre + matrix[:, 2] - centre) * factor)
    return (dx, dy), (float(matrix[0, 0]), float(matrix[1, 1]))


def _tone_words(amount: float, more: str, less: str) -> list[str]:
    if abs(amount) < WORTH_TONE:
        return []
    return [f"{100 * abs(amount):.0f} % {more if amount > 0 else less}"]


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison with the crops to show."""

    comparison: PictureComparison
    boxes: tuple[Box, ...]
    """The boxes of the crops in the first picture; empty if the whole scene differs."""
    sides: tuple[Pixels, ...]
    """Both sides of every crop in turn; if the whole scene differs, small copies of the whole pictures."""
    texts: tuple[dict[str, Any], ...] | None = None
    """The text of the first places on both sides. None if no text was to be read, or the whole scene differs."""


class LineReader(Protocol):
    """Interface of a text reader; see `ReadText.read_line_at`."""

    device: str

    def read_line_at(self, pixels: Pixels, at: Box, box: Box) -> dict[str, Any] | None:
        """Return the text that runs through a box of a region with its confidence, or None."""


class PictureComparer(Protocol):
    """Interface of a function that compares two pictures and cuts out at most `max_crops` places."""

    def __call__(
        self, first: Picture, second: Picture, max_crops: int, reader: LineReader | None = None
    ) -> ComparisonResult:
        """Compare two pictures. With a reader, also read the text of the first places."""


def compare_in_process(
    first: Picture, second: Picture, max_crops: int, reader: LineReader | None = None
) -> ComparisonResult:
    """Compare two pictures in this process."""
    return compare_and_crop(first.pixels, second.pixels, max_crops, reader)


def compare_and_crop(
    first: Pixels, second: Pixels, max_crops: int, reader: LineReader | None = None
) -> ComparisonResult:
    """Compare two pictures, cut out the most significant differences, and read the text of the first few."""
    comparison = compare(first, second)
    size = first.shape[1], first.shape[0]
    if comparison.whole_scene:
        scale = min(1.0, WHOLE_SIDE / max(size))
        small = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
        return ComparisonResult(comparison, (), (drawing.resize(first, small), drawing.resize(second, small)))
    regions = [Box.model_validate(region.box) for region in comparison.regions[:max_crops]]
    boxes = tuple(geometry.add_context(box, CROP_CONTEXT, SMALLEST_CROP, size) for box in regions)
    sides = tuple(side for box in boxes for side in crop_both_sides(first, second, comparison, box))
    texts = None if reader is None else read_places(reader, cut_text_places(first, second, comparison, max_crops))
    return ComparisonResult(comparison, boxes, sides, texts)


@dataclass(frozen=True)
class TextPlace:
    """A differing place whose text is to be read."""

    box: Box
    at: Box
    """The place with its surroundings."""
    first: Pixels
    second: Pixels
    """The surroundings in both pictures."""


def cut_text_places(
    first: Pixels, second: Pixels, comparison: PictureComparison, max_crops: int
) -> tuple[TextPlace, ...]:
    """Cut out the first differing places, as far as their text is read; none if the whole scene differs."""
    regions = () if comparison.whole_scene else comparison.regions[: min(max_crops, MAX_READ_REGIONS)]
    places = []
    for region in regions:
        box = Box.model_validate(region.box)
        at = geometry.add_context(box, READING_CONTEXT, READING_SMALLEST, (first.shape[1], first.shape[0]))
        places.append(TextPlace(box, at, *crop_both_sides(first, second, comparison, at)))
    return tuple(places)


def read_places(reader: LineReader, places: Sequence[TextPlace]) -> tuple[dict[str, Any], ...]:
    """Read the lines that run through differing places in both pictures."""
    return tuple(
        {
            "first": reader.read_line_at(place.first, place.at, place.box),
            "second": reader.read_line_at(place.second, place.at, place.box),
        }
        for place in places
    )


def crop_both_sides(first: Pixels, second: Pixels, comparison: PictureComparison, box: Box) -> tuple[Pixels, Pixels]:
    """Return a place of the first picture and the corresponding place of the second."""
    assert comparison.alignment is not None  # `compare` always sets it
    return drawing.crop(first, box), comparison.alignment.crop(second, (box.x1, box.y1, box.x2, box.y2))


def place_mask(region: Region, size: tuple[int, int]) -> Mask:
    """Return a region's mask in the whole picture.

    Args:
        region: A region of `compare(…, masks=True)`. A change of fine structure, of which only the box is known, has the whole
            box as its mask.
        size: Height and width of the first picture.
    """
    mask = np.zeros(size, np.bool_)
    x1, y1, x2, y2 = region.box
    inside = mask[y1:y2, x1:x2]
    inside[...] = True if region.mask is None else region.mask[: inside.shape[0], : inside.shape[1]]
    return mask


def join_masks(regions: Iterable[Region], size: tuple[int, int]) -> Mask:
    """Return the pixels that are in the mask of any region."""
    joined = np.zeros(size, np.bool_)
    for region in regions:
        joined |= place_mask(region, size)
    return joined


def encode_rle(mask: Mask) -> dict[str, Any]:
    """Return a mask as COCO's compressed run-length encoding: `size` (height, width) and `counts`.

    The counts are the lengths of runs in column order, the first one of pixels outside; from the fourth on, each is the
    difference to the one before the last. A number is written in groups of five bits, the lowest first.

    >>> mask = np.zeros((3, 4), bool)
    >>> mask[1:, 2] = True
    >>> encode_rle(mask)
    {'size': [3, 4], 'counts': '723'}
    >>> bool((decode_rle(encode_rle(mask)) == mask).all())
    True
    """
    flat = mask.ravel(order="F").view(np.uint8)
    edges = np.flatnonzero(np.diff(flat)) + 1
    bounds = np.concatenate([[0], edges, [flat.size]])
    runs = np.diff(bounds).tolist()
    if flat.size and flat[0]:
        runs.insert(0, 0)
    values = [run - runs[number - 2] if number > 2 else run for number, run in enumerate(runs)]
    return {"size": list(mask.shape), "counts": "".join(map(_write_number, values))}


def _write_number(value: int) -> str:
    text = ""
    while True:
        group, value = value & 31, value >> _BITS
        last = value == (-1 if group & 16 else 0)
        text += chr(_OFFSET + (group if last else group | 32))
        if last:
            return text


def decode_rle(record: Mapping[str, Any]) -> Mask:
    """Return the mask of a record of `encode_rle`."""
    height, width = record["size"]
    runs: list[int] = []
    value = shift = 0
    for code in (ord(character) - _OFFSET for character in record["counts"]):
        value |= (code & 31) << shift
        shift += _BITS
        if not code & 32:
            value -= (1 << shift) if code & 16 else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return np.asarray(flat.reshape((height, width), order="F"), np.bool_)
