"""Where two pictures of the same scene differ, beyond what re-rendering changes everywhere.

The pictures are compared as a person would compare them: laid over each other (:mod:`._registration`), with the global
tone taken out and the rest measured against the noise of this very pair (:mod:`._residual`), and cut into regions
(:mod:`._regions`). All of it happens on reduced copies, so time and memory stay bounded for any picture.

>>> import numpy as np
>>> first = np.full((120, 160, 3), 90, np.uint8)
>>> second = first.copy()
>>> second[40:70, 50:100] = (220, 40, 40)
>>> [region.box for region in localize(first, second)]
[(49, 39, 101, 71)]
>>> localize(first, first)
[]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing, geometry
from editloupe.tools.compare.arrays import enclose, overlap
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
# Full-resolution warping goes in strips of this many rows, which bounds the memory of the coordinate maps.
STRIP_ROWS = 256
# Width of the neighbourhood over which pixels are smoothed: nearer to a place without content nothing is compared.
EDGE_MARGIN = 7
# A change below these sizes is not worth words: half a work pixel, and what people do not see side by side.
WORTH_SHIFT = 0.3
WORTH_SCALE = 0.002
WORTH_TONE = 0.015
WORTH_SHARPNESS = 0.08


@dataclass(frozen=True, slots=True)
class Region:
    """One place where the pictures differ: a box in the first picture's pixels and how noticeable it is.

    ``significance`` is 0..1, higher is more noticeable (0.5 is a clear object of 1 % of the picture); ``area`` counts
    the differing pixels of the first picture;
    ``colour_change`` is the change of their mean colour (second minus first) in CIE L*, a*, b*, with the global
    change of tone taken out.
    """

    box: tuple[int, int, int, int]
    significance: float
    area: int
    colour_change: tuple[float, float, float]


@dataclass(frozen=True)
class GlobalChange:
    """What differs everywhere and was removed before looking for regions.

    ``shift`` is the move of the picture's centre in the first picture's pixels and ``scale`` the enlargement in x and
    y, both relative to plain resizing. ``brightness``, ``contrast`` and ``saturation`` are relative (+0.04 is 4 %
    more), ``warmth`` is the growth of red minus blue as a share of the full range, and ``sharpness`` is the ratio of
    fine detail, below one for a softer second picture.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    scale: tuple[float, float] = (1.0, 1.0)
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    warmth: float = 0.0
    sharpness: float = 1.0

    def sentence(self, subject: str = "the second image") -> str:
        """Return what was removed in words.

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
    """How the second picture lies over the first one, for reading it in the first one's pixel frame."""

    registration: Registration
    factor: int
    size: tuple[int, int]
    """Width and height of the first picture."""

    def crop(self, second: Pixels, box: tuple[int, int, int, int]) -> Pixels:
        """Return the part of the second picture that lies over a box of the first one, at full resolution.

        Places outside the second picture repeat its border.
        """
        x1, y1, x2, y2 = box
        if self.registration.is_identity and second.shape[1::-1] == self.size and _lies_in(box, self.size):
            return second[y1:y2, x1:x2].copy()  # what reading at whole pixels gives
        stretch = np.array([second.shape[1] / self.size[0], second.shape[0] / self.size[1]], np.float32)
        read = np.empty((y2 - y1, x2 - x1, 3), np.uint8)
        for top in range(y1, y2, STRIP_ROWS):
            rows = min(STRIP_ROWS, y2 - top)
            places = self.registration.map_pixels((x1, top, x2, top + rows), float(self.factor))
            places = (places + np.float32(0.5)) * stretch - np.float32(0.5)
            read[top - y1 : top - y1 + rows] = _sample(second, places)
        return read


@dataclass(frozen=True)
class PictureComparison:
    """The full result of comparing two pictures.

    ``changed_share`` (0..1) is the share of the first picture's area that differs; ``whole_scene`` says that the
    pictures differ nearly everywhere, in which case ``regions`` holds the whole picture as its single region.
    """

    regions: tuple[Region, ...]
    changed_share: float
    whole_scene: bool
    global_change: GlobalChange
    alignment: Alignment | None = field(default=None, compare=False, repr=False)
    """For showing both sides of a region without registering the pictures again."""

    def sentence(self, subject: str = "the second image") -> str:
        """Return how much differs and what global change was removed, in words."""
        if self.whole_scene:
            return f"The whole scene differs: {subject} is not a local edit of the other one."
        if not self.regions:
            found = "No local difference stands out from the noise."
        else:
            share = f"{100 * self.changed_share:.1f}" if self.changed_share >= 0.001 else "less than 0.1"
            places = "1 place" if len(self.regions) == 1 else f"{len(self.regions)} places"
            found = f"About {share} % of the picture differs, in {places}."
        return f"{found} {self.global_change.sentence(subject)}"


def find_regions(first: Pixels, second: Pixels) -> list[Region]:
    """Return the regions where the second picture differs from the first one, best first."""
    return list(compare(first, second).regions)


def find_boxes(first: Pixels, second: Pixels) -> list[list[int]]:
    """Return only the boxes of :func:`find_regions`, as lists."""
    return [list(region.box) for region in find_regions(first, second)]


def compare(first: Pixels, second: Pixels) -> PictureComparison:
    """Compare two RGB pictures of the same scene; they may differ in size, framing, tone and sharpness."""
    height, width = first.shape[:2]
    a, b, factor = _reduce(first, second)
    gray_a, gray_b = _gray(a), _gray(b)
    registration = register(gray_a, gray_b)
    warped, valid = _overlay(b, registration)
    blocks_a, blocks_b = average_blocks(a), average_blocks(warped)
    known = None if valid is None else average_blocks(valid.view(np.uint8)) > 0
    tone = fit_tone(blocks_a, blocks_b, known)
    toned = apply_tone(a, tone)
    residual = measure_residual(toned, warped, (apply_tone(blocks_a, tone), blocks_b), valid, known)
    shift, scale = _geometry(registration, a.shape, factor)
    lies = Alignment(registration, factor, (width, height))
    sharpness = measure_sharpness_ratio(gray_a, gray_b, residual.score)
    change = GlobalChange(shift, scale, sharpness=sharpness, **measure_tone_change(blocks_a, blocks_b, residual.score))
    if is_whole_scene(residual.coarse):
        share = visible_share(residual.coarse)
        scene = Region((0, 0, width, height), 1.0, round(share * width * height), _lab_change(toned, warped, None))
        return PictureComparison((scene,), share, True, change, lies)
    spots = find_spots(residual.score, residual.amount)
    regions = [_region(spot, toned, warped, factor) for spot in spots]
    share = sum(spot.area for spot in spots) / residual.amount.size
    frame = build_fine_frame(first, second)
    if frame is not None:
        boxed = [region.box for region in regions]
        drift = np.ascontiguousarray(residual.drift[..., 0])
        fine = find_fine_spots(frame, registration, factor, fit_gray_line(blocks_a, tone), drift, boxed)
        for spot in fine:
            parts = [region for region in regions if overlap(region.box, spot.box)]
            regions = [region for region in regions if region not in parts]
            regions.append(_fine_region(spot, parts, toned, warped, factor))
        share += sum(spot.area for spot in fine) / (width * height)
    regions.sort(key=lambda region: -region.significance)
    return PictureComparison(tuple(regions), share, False, change, lies)


def align(first: Pixels, second: Pixels) -> Pixels:
    """Return the second picture resampled into the first one's pixel frame, at full resolution."""
    height, width = first.shape[:2]
    a, b, factor = _reduce(first, second)
    lies = Alignment(register(_gray(a), _gray(b)), factor, (width, height))
    return lies.crop(second, (0, 0, width, height))


def _gray(picture: Pixels) -> Pixels:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.uint8)


def _lies_in(box: tuple[int, int, int, int], size: tuple[int, int]) -> bool:
    return min(box[:2]) >= 0 and box[2] <= size[0] and box[3] <= size[1]


def _sample(picture: Pixels, places: NDArray[np.float32]) -> Pixels:
    """Return the picture read at the given positions; positions outside repeat the border."""
    # At thirty-second parts of a pixel, which nobody sees, it takes a third of the time.
    whole, parts = cv2.convertMaps(places, cast(Any, None), cv2.CV_16SC2)
    return np.asarray(cv2.remap(picture, whole, parts, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE), np.uint8)


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
    """Average whole blocks of pixels; an incomplete block at the right or lower border is left out."""
    height, width = max(1, picture.shape[0] // factor), max(1, picture.shape[1] // factor)
    if factor == 1:
        return picture
    blocks = picture[: height * factor, : width * factor]
    return np.asarray(cv2.resize(blocks, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _overlay(picture: Pixels, registration: Registration) -> tuple[Pixels, NDArray[np.bool_] | None]:
    """Return the picture warped by the registration and where it really has content; None is everywhere."""
    if registration.is_identity:
        return picture, None
    height, width = picture.shape[:2]
    places = registration.map_all_pixels(width, height)
    inside = _inside(places, math.ceil(registration.max_displacement(width, height)))
    valid = cv2.erode(inside, np.ones((EDGE_MARGIN, EDGE_MARGIN), np.uint8)).astype(bool)
    return sample(picture, places), valid


def _inside(places: NDArray[np.float32], farthest: int) -> Pixels:
    """Return which places lie in a picture of the same size, as 255; none is moved farther than that."""
    height, width = places.shape[:2]
    inside = np.full((height, width), 255, np.uint8)
    near = farthest + 1
    for border in (
        (slice(near),),
        (slice(-near, None),),
        (slice(None), slice(near)),
        (slice(None), slice(-near, None)),
    ):
        some = np.ascontiguousarray(places[border])
        inside[border] = cv2.inRange(some, (-0.5, -0.5, 0.0, 0.0), (width - 0.5, height - 0.5, 0.0, 0.0))
    return inside


def _region(spot: Spot, a: Pixels, b: Pixels, factor: int) -> Region:
    """Return a spot of the reduced pictures as a region of the first one."""
    x1, y1, x2, y2 = spot.box
    box = (x1 * factor, y1 * factor, x2 * factor, y2 * factor)
    change = _lab_change(a[y1:y2, x1:x2], b[y1:y2, x1:x2], spot.mask.view(np.uint8))
    return Region(box, round(spot.significance, 4), spot.area * factor * factor, change)


def _fine_region(spot: FineSpot, parts: list[Region], a: Pixels, b: Pixels, factor: int) -> Region:
    """Return a place whose fine structure changed as a region, round the parts of it that were found without."""
    box, size, rank = spot.box, spot.area, significance(spot.contrast, spot.area / (a[..., 0].size * factor * factor))
    for part in parts:
        box, size, rank = enclose(box, part.box), max(size, part.area), max(rank, part.significance)
    x1, y1, x2, y2 = (v // factor for v in box)
    window = (slice(y1, max(y2, y1 + 1)), slice(x1, max(x2, x1 + 1)))
    change = _lab_change(np.ascontiguousarray(a[window]), np.ascontiguousarray(b[window]), None)
    return Region(box, round(rank, 4), size, change)


def _lab_change(a: Pixels, b: Pixels, mask: Pixels | None) -> tuple[float, float, float]:
    """Return the change of the mean colour from ``a`` to ``b`` in CIE Lab."""
    means = np.array([[cv2.mean(a, mask)[:3], cv2.mean(b, mask)[:3]]], np.float32) / np.float32(255.0)
    before, after = cv2.cvtColor(means, cv2.COLOR_RGB2LAB)[0]
    lightness, green_red, blue_yellow = (round(float(v), 2) for v in after - before)
    return lightness, green_red, blue_yellow


def _geometry(
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


CONTEXT = 0.35
"""The margin round a region, as a share of its longer side: enough to see what the thing is and where it stands."""
SMALLEST = 96
"""A crop is at least so wide and high, in pixels of the original."""
WHOLE_SIDE = 1024
"""The longer side at which whole pictures are put next to each other."""
READ = 3
"""The most regions whose text is read."""
READING_CONTEXT = 1.0
READING_SMALLEST = 160
"""The margin round a region whose text is read, and the least it grows to: a word is read whole or not at all."""


@dataclass(frozen=True)
class ComparisonResult:
    """What a comparison found, and the places it shows."""

    comparison: PictureComparison
    boxes: tuple[Box, ...]
    """Where the crops lie in the first picture; none where the whole scene differs."""
    sides: tuple[Pixels, ...]
    """Both sides of every crop as they are, one after the other; the whole pictures, small, where the whole scene differs."""
    texts: tuple[dict[str, Any], ...] | None = None
    """The text of the first places on both sides; None if no text was to be read, or the whole scene differs."""


class LineReader(Protocol):
    """Reads the text of a place; see `ReadText.line_at`."""

    def read_line_at(self, pixels: Pixels, at: Box, box: Box) -> dict[str, Any] | None:
        """Return the text that runs through a box of a region, with its confidence, or None."""


class PictureComparer(Protocol):
    """Compares two pictures and shows so many places at most; has their text read if a reader is passed."""

    def __call__(
        self, first: Picture, second: Picture, most: int, reader: LineReader | None = None
    ) -> ComparisonResult:
        """Compare two pictures."""


def compare_in_process(
    first: Picture, second: Picture, most: int, reader: LineReader | None = None
) -> ComparisonResult:
    """Compare two pictures in this process."""
    return compare_and_crop(first.pixels, second.pixels, most, reader)


def compare_and_crop(first: Pixels, second: Pixels, most: int, reader: LineReader | None = None) -> ComparisonResult:
    """Compare two pictures, cut out the most significant differences, and read the text of the first few."""
    found = compare(first, second)
    size = first.shape[1], first.shape[0]
    if found.whole_scene:
        scale = min(1.0, WHOLE_SIDE / max(size))
        small = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
        return ComparisonResult(found, (), (drawing.resize(first, small), drawing.resize(second, small)))
    shown = [Box.model_validate(region.box) for region in found.regions[:most]]
    boxes = tuple(geometry.add_context(box, CONTEXT, SMALLEST, size) for box in shown)
    sides = tuple(side for box in boxes for side in crop_both_sides(first, second, found, box))
    texts = None if reader is None else tuple(_texts(reader, first, second, found, box) for box in shown[:READ])
    return ComparisonResult(found, boxes, sides, texts)


def _texts(reader: LineReader, first: Pixels, second: Pixels, found: PictureComparison, box: Box) -> dict[str, Any]:
    """Read the lines that run through a differing place in both pictures."""
    wide = geometry.add_context(box, READING_CONTEXT, READING_SMALLEST, (first.shape[1], first.shape[0]))
    sides = zip(("first", "second"), crop_both_sides(first, second, found, wide), strict=True)
    return {side: reader.read_line_at(pixels, wide, box) for side, pixels in sides}


def crop_both_sides(first: Pixels, second: Pixels, found: PictureComparison, box: Box) -> tuple[Pixels, Pixels]:
    """Return a place of the first picture and the same place of the second, where that lies otherwise."""
    assert found.alignment is not None  # compare always says how the pictures lie
    return drawing.crop(first, box), found.alignment.crop(second, (box.x1, box.y1, box.x2, box.y2))
