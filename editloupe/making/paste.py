"""Paste an edited crop back into its picture without changing anything outside the crop.

Size, position and tone are matched and borders are blended. These are pure functions on arrays. Every result is
checked: outside the crop no value differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from editloupe.pictures.pixels import Pixels
from editloupe.tools import drawing
from editloupe.types import Box, Record

Floats = npt.NDArray[np.float32]

SHAPES = ((1, 1), (3, 2), (2, 3))
"""Aspect ratios that image editors accept and return unchanged."""
FRAME_SIDE = 1024
"""The shorter side of the picture that an editor gets; small crops are enlarged to the size editors work at."""
SHAPE_SLACK = 0.03
"""The largest deviation of the returned aspect ratio before it counts as another picture."""
BAND_SHARE, NARROWEST_BAND = 0.12, 3
"""The blended border, as a share of the crop's shorter side and in pixels at least."""
NEAR_TARGET = 0.15
"""The margin around a target that is left out of the comparison of tones, as a share of the target's sides."""
GAINS = (0.7, 1.4)
"""The range of tone corrections. Beyond it the difference is not drift but another scene."""
FARTHEST_SHIFT = 0.04
"""Editors move a picture by some pixels. A shift above this share of the crop's side is not corrected."""


class WrongShape(ValueError):
    """The returned picture cannot be the crop, because its aspect ratio differs."""


class PasteFacts(Record):
    """What was done to an edited crop, and the measurements afterwards."""

    returned: tuple[int, int]
    """Size of the picture that the editor returned."""
    shift: tuple[float, float]
    """Pixels by which the crop was moved to align its surroundings with the source."""
    gain: tuple[float, float, float]
    offset: tuple[float, float, float]
    """Tone: every channel is multiplied by the gain, then the offset is added."""
    band: int
    """Pixels of the blended border."""
    outside_difference: float
    """Mean difference outside the crop. It is 0, or the picture is not written."""
    seam: float
    """Mean step at the crop's border that the source does not have there, in grey levels."""
    changed: float
    """Mean difference inside the target boxes, in grey levels. Near 0 the editor changed nothing."""


@dataclass(frozen=True)
class EditorFrame:
    """A crop as an editor gets it: enlarged, and padded to an aspect ratio that editors keep."""

    pixels: Pixels
    inner: Box
    """The box of the crop in the frame."""

    def extract_crop(self, edited: Pixels) -> Pixels:
        """Return the crop's part of the edited picture, which may have any size.

        Raises:
            WrongShape: If the aspect ratio differs.
        """
        height, width = edited.shape[:2]
        aspect = self.pixels.shape[1] / self.pixels.shape[0]
        if abs(width / height / aspect - 1) > SHAPE_SLACK:
            raise WrongShape(
                f"the editor gave back {width} × {height} pixels for {self.pixels.shape[1]} × {self.pixels.shape[0]}, "
                "which is another shape"
            )
        x, y = width / self.pixels.shape[1], height / self.pixels.shape[0]
        part = self.inner.scaled(x, y).clamped(width, height)
        assert part is not None, "a crop lies inside its frame"
        return np.ascontiguousarray(edited[part.y1 : part.y2, part.x1 : part.x2])


def frame_crop(crop: Pixels, side: int = FRAME_SIDE) -> EditorFrame:
    """Enlarge a crop and pad it by reflection to the nearest aspect ratio that editors accept.

    Args:
        crop: The pixels of the crop.
        side: The shorter side of the frame.
    """
    height, width = crop.shape[:2]
    across, down = min(SHAPES, key=lambda shape: abs(np.log(width / height * shape[1] / shape[0])))
    unit = side / min(across, down)
    full = round(across * unit), round(down * unit)
    scale = min(full[0] / width, full[1] / height)
    inner = max(1, round(width * scale)), max(1, round(height * scale))
    enlarged = _resize(crop, inner)
    left, top = (full[0] - inner[0]) // 2, (full[1] - inner[1]) // 2
    right, bottom = full[0] - inner[0] - left, full[1] - inner[1] - top
    padded = cv2.copyMakeBorder(enlarged, top, bottom, left, right, cv2.BORDER_REFLECT)
    return EditorFrame(np.asarray(padded, np.uint8), Box(x1=left, y1=top, x2=left + inner[0], y2=top + inner[1]))


def check_shape(edited: Pixels, crop: Box) -> Pixels:
    """Return a crop that was edited by hand. It may have any size.

    Raises:
        WrongShape: If its aspect ratio differs from the crop's.
    """
    width, height = crop.size
    if abs((edited.shape[1] / edited.shape[0]) / (width / height) - 1) > SHAPE_SLACK + 1 / min(width, height):
        raise WrongShape(
            f"the edited crop has {edited.shape[1]} × {edited.shape[0]} pixels, another shape than the crop's {width} × {height}"
        )
    return edited


def paste_crop(source: Pixels, edited: Pixels, crop: Box, targets: Sequence[Box]) -> tuple[Pixels, PasteFacts]:
    """Paste an edited crop into its picture.

    Outside the crop every value is the source's. The borders of the crop are blended, except those at the picture's own
    border.

    Args:
        source: The whole picture.
        edited: The edited crop, of any size.
        crop: The box of the crop.
        targets: The boxes that the edit may change, in pixels of the picture.

    Returns:
        The new picture, and what was done and measured.
    """
    before = drawing.crop(source, crop).astype(np.float32)
    fitted = _resize(edited, crop.size).astype(np.float32)
    inside = [_to_crop(box, crop) for box in targets]
    around = _mask_surroundings(before.shape[:2], inside)
    fitted, shift = _register(fitted, before, around)
    fitted, gain, offset = _match_tone(fitted, before, around)
    band = _choose_band(crop, inside, source.shape[1], source.shape[0])
    weight = _build_weights(crop, band, source.shape[1], source.shape[0])[..., None]
    mixed = np.clip(np.rint(before + weight * (fitted - before)), 0, 255).astype(np.uint8)
    result = source.copy()
    result[crop.y1 : crop.y2, crop.x1 : crop.x2] = mixed
    facts = PasteFacts(
        returned=(edited.shape[1], edited.shape[0]),
        shift=shift,
        gain=gain,
        offset=offset,
        band=band,
        outside_difference=outside_difference(source, result, crop),
        seam=round(measure_seam(source, result, crop), 3),
        changed=round(_measure_change(before, mixed, inside), 3),
    )
    if facts.outside_difference:
        raise AssertionError("a pasted crop changed the picture outside of it")
    return result, facts


def outside_difference(before: Pixels, after: Pixels, crop: Box) -> float:
    """Return the mean difference of two pictures outside a crop."""
    total = 0
    parts = (
        (slice(0, crop.y1), slice(None)),
        (slice(crop.y2, None), slice(None)),
        (slice(crop.y1, crop.y2), slice(0, crop.x1)),
        (slice(crop.y1, crop.y2), slice(crop.x2, None)),
    )
    for part in parts:
        total += int(cv2.absdiff(before[part], after[part]).sum()) if before[part].size else 0
    area = before.shape[0] * before.shape[1] - crop.area
    return total / (3 * area) if area else 0.0


def measure_seam(before: Pixels, after: Pixels, crop: Box) -> float:
    """Return the mean step across the crop's border that the source has not: 0 where nothing can be seen of it.

    Borders that are the picture's own have no step.
    """
    steps: list[npt.NDArray[np.float64]] = []
    change = after.astype(np.float64) - before
    height, width = before.shape[:2]
    rows, columns = slice(crop.y1, crop.y2), slice(crop.x1, crop.x2)
    for inner, outer, axis in (
        (crop.y1, crop.y1 - 1, 0),
        (crop.y2 - 1, crop.y2, 0),
        (crop.x1, crop.x1 - 1, 1),
        (crop.x2 - 1, crop.x2, 1),
    ):
        if 0 <= outer < (height, width)[axis]:
            line = (
                change[inner, columns] - change[outer, columns]
                if axis == 0
                else change[rows, inner] - change[rows, outer]
            )
            steps.append(np.abs(line).mean(axis=-1).ravel())
    return float(np.concatenate(steps).mean()) if steps else 0.0


def _resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    smaller = size[0] * size[1] < pixels.shape[0] * pixels.shape[1]
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC), np.uint8)


def _to_crop(box: Box, crop: Box) -> Box:
    moved = Box(x1=box.x1 - crop.x1, y1=box.y1 - crop.y1, x2=box.x2 - crop.x1, y2=box.y2 - crop.y1)
    inside = moved.clamped(*crop.size)
    if inside is None:
        raise ValueError(f"target box {list(box)} is not inside the crop {list(crop)}")
    return inside


def _mask_surroundings(shape: tuple[int, ...], targets: Sequence[Box]) -> npt.NDArray[np.bool_]:
    """Mark where the edit should have changed nothing: everything except the targets and their margin."""
    around = np.ones(shape, bool)
    for box in targets:
        dx, dy = (max(2, round(NEAR_TARGET * side)) for side in box.size)
        around[max(0, box.y1 - dy) : box.y2 + dy, max(0, box.x1 - dx) : box.x2 + dx] = False
    return around


def _register(edited: Floats, before: Floats, around: npt.NDArray[np.bool_]) -> tuple[Floats, tuple[float, float]]:
    """Move the edited crop onto the source's surroundings if that reduces their distance."""
    height, width = around.shape
    if min(height, width) < 16 or not around.any():
        return edited, (0.0, 0.0)
    grey = [cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) * around for picture in (before, edited)]
    window = cv2.createHanningWindow((width, height), cv2.CV_32F)
    (x, y), _ = cv2.phaseCorrelate(grey[0], grey[1], window)
    if max(abs(x), abs(y)) < 0.2 or abs(x) > FARTHEST_SHIFT * width or abs(y) > FARTHEST_SHIFT * height:
        return edited, (0.0, 0.0)
    matrix = np.array([[1, 0, -x], [0, 1, -y]], np.float32)
    moved = np.asarray(
        cv2.warpAffine(edited, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE),
        np.float32,
    )
    if _measure_distance(moved, before, around) >= 0.95 * _measure_distance(edited, before, around):
        return edited, (0.0, 0.0)
    return moved, (round(-x, 2), round(-y, 2))


def _measure_distance(first: Floats, second: Floats, where: npt.NDArray[np.bool_]) -> float:
    a, b = first[where], second[where]
    return float(np.abs(a - a.mean(0) - b + b.mean(0)).mean())


def _match_tone(
    edited: Floats, before: Floats, around: npt.NDArray[np.bool_]
) -> tuple[Floats, tuple[float, float, float], tuple[float, float, float]]:
    """Give the edited crop the tone of the source, fitted per channel to the surroundings.

    A second fit leaves out what differs most, because the editor changed it.
    """
    gains, offsets = [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]
    if around.sum() >= 64:
        for channel in range(3):
            x, y = edited[..., channel][around], before[..., channel][around]
            gain, offset = _fit_line(x, y)
            left = np.abs(gain * x + offset - y)
            near = left <= np.quantile(left, 0.8)
            gains[channel], offsets[channel] = _fit_line(x[near], y[near])
    matched = np.clip(edited * np.array(gains, np.float32) + np.array(offsets, np.float32), 0, 255)
    rounded = [tuple(round(float(value), 4) for value in values) for values in (gains, offsets)]
    return np.asarray(matched, np.float32), rounded[0], rounded[1]  # type: ignore[return-value]


def _fit_line(x: Floats, y: Floats) -> tuple[float, float]:
    """Return the gain and offset that map x to y. In a flat area the gain is 1."""
    spread = float(x.var())
    gain = float(((x - x.mean()) * (y - y.mean())).mean()) / spread if spread > 4 else 1.0
    gain = gain if GAINS[0] <= gain <= GAINS[1] else 1.0
    return gain, float(y.mean()) - gain * float(x.mean())


def _choose_band(crop: Box, targets: Sequence[Box], width: int, height: int) -> int:
    """Return the width of the blended border, which never reaches into a target."""
    wanted = max(NARROWEST_BAND, round(BAND_SHARE * min(crop.size)))
    room = [
        space
        for box in targets
        for space, own in (
            (box.x1, crop.x1 == 0),
            (box.y1, crop.y1 == 0),
            (crop.size[0] - box.x2, crop.x2 == width),
            (crop.size[1] - box.y2, crop.y2 == height),
        )
        if not own
    ]
    return max(1, min([wanted, *room]))


def _build_weights(crop: Box, band: int, width: int, height: int) -> Floats:
    """Return the weight of the edited crop: 1 inside, falling smoothly to nearly 0 at borders inside the picture."""
    across = _build_ramp(crop.size[0], band, crop.x1 > 0, crop.x2 < width)
    down = _build_ramp(crop.size[1], band, crop.y1 > 0, crop.y2 < height)
    return np.asarray(np.minimum.outer(down, across), np.float32)


def _build_ramp(length: int, band: int, at_start: bool, at_end: bool) -> Floats:
    index = np.arange(length, dtype=np.float32)
    away = np.full(length, np.inf, np.float32)
    if at_start:
        away = np.minimum(away, index + 1)
    if at_end:
        away = np.minimum(away, length - index)
    part = np.clip(away / (band + 1), 0, 1)
    return np.asarray(part * part * (3 - 2 * part), np.float32)


def _measure_change(before: Floats, after: Pixels, targets: Sequence[Box]) -> float:
    values = [
        np.abs(drawing.crop(after, box).astype(np.float32) - before[box.y1 : box.y2, box.x1 : box.x2])
        for box in targets
    ]
    return float(np.concatenate([difference.ravel() for difference in values]).mean()) if values else 0.0


framed, pasted = frame_crop, paste_crop
"""Former names of the two public functions."""
