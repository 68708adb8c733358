"""Count instances of an object by template matching, with a known instance as the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import cv2
import numpy as np

from editloupe.agent.rules.pixels import NINE, Lab, Map, Rect, clamp, distance, grow_rect, resize, soft_lab
from editloupe.agent.rules.regions import DIFFERENT, REACH
from editloupe.pictures.pixels import Pixels

LONG_SIDE = 640
PATTERN = 0.82
"""Minimum correlation of lightness with an instance's pattern."""
MOST = 12
"""Maximum number of further instances that are searched."""


@dataclass(frozen=True)
class Instance:
    """One counted object: its pixels and its mask."""

    picture: Lab
    mask: Map

    def mirror(self) -> Instance:
        """Return the mirror image."""
        return Instance(np.ascontiguousarray(self.picture[:, ::-1]), np.ascontiguousarray(self.mask[:, ::-1]))


@dataclass(frozen=True)
class InstancePlace:
    """A possible position of an instance, and the difference of the picture there (CIELAB units)."""

    gap: float
    x: int
    y: int


def measure(
    source: Pixels, edited: Pixels, reference: Pixels | None, boxes: list[Rect], same: float = 15.0
) -> dict[str, float]:
    """Count the instances in source and edited picture.

    The numbers: `before` known instances, `kept` those still there unchanged, `recoloured` those still there in another
    colour, `added` found at further positions, `after` all of them together.

    Args:
        source: The source picture.
        edited: The edited picture.
        reference: The reference edit, if there is one.
        boxes: The known instances.
        same: Maximum difference at which a position counts as the instance.
    """
    height, width = source.shape[:2]
    scale = min(1.0, LONG_SIDE / max(height, width))
    size = max(8, round(width * scale)), max(8, round(height * scale))
    s, e = soft_lab(resize(source, size), 1.0), soft_lab(resize(edited, size), 1.0)
    r = soft_lab(resize(reference, size), 1.0) if reference is not None else None
    rects = [clamp(cast(Rect, tuple(v * scale for v in box)), *size) for box in boxes]
    reach = max(2, round(REACH * scale))
    instance = _instance(s, r, rects)
    level = max(same, 1.3 * float(np.median([_at(s, instance, rect, reach) for rect in rects])))
    missing = [rect for rect in rects if not _at(e, instance, rect, reach) < level]
    recoloured, other = _count_recoloured(e, instance, missing, reach, level) if missing else (0, None)
    looks = [instance] if other is None else [instance, other]
    further = _find_elsewhere(e, s, looks, rects, level)
    added = sum(_pattern(e, looks, candidate) >= PATTERN for candidate in further if candidate.gap < level)
    kept = len(rects) - len(missing)
    return {
        "before": float(len(rects)),
        "kept": float(kept),
        "recoloured": float(recoloured),
        "added": float(added),
        "after": float(kept + recoloured + added),
    }


def _instance(source: Lab, reference: Lab | None, rects: list[Rect]) -> Instance:
    """Take the template from the instance that the reference adds or removes, if its outline is visible; else from a box."""
    if reference is not None:
        differs = (distance(source, reference) > DIFFERENT).astype(np.uint8)
        count, labels, stats, _ = cv2.connectedComponentsWithStats(cv2.morphologyEx(differs, cv2.MORPH_CLOSE, NINE))
        box_area = float(np.median([(r[2] - r[0]) * (r[3] - r[1]) for r in rects]))
        fitting = [i for i in range(1, count) if 0.4 < stats[i][2] * stats[i][3] / box_area < 2.5]
        if fitting:
            best = max(fitting, key=lambda i: int(stats[i][cv2.CC_STAT_AREA]))
            x, y, w, h, _ = (int(v) for v in stats[best])
            cx, cy = x + w / 2, y + h / 2
            was_there = any(r[0] <= cx <= r[2] and r[1] <= cy <= r[3] for r in rects)
            mask = (labels == best)[y : y + h, x : x + w].astype(np.uint8)
            if mask.sum() > 120:
                mask = cv2.erode(mask, NINE, borderType=cv2.BORDER_CONSTANT, borderValue=0)
            owner = source if was_there else reference
            return Instance(np.ascontiguousarray(owner[y : y + h, x : x + w]), mask.astype(np.float32))
    x1, y1, x2, y2 = rects[0]
    mask = np.zeros((y2 - y1, x2 - x1), np.float32)
    cv2.ellipse(
        mask, ((x2 - x1) // 2, (y2 - y1) // 2), (max(1, (x2 - x1) // 3), max(1, (y2 - y1) // 3)), 0, 0, 360, 1.0, -1
    )
    return Instance(np.ascontiguousarray(source[y1:y2, x1:x2]), mask)


def _gaps(picture: Lab, instance: Instance) -> Map:
    """Return the difference to the instance or its mirror image, with the instance's corner at each pixel."""
    both = []
    for look in (instance, instance.mirror()):
        squares = cv2.matchTemplate(picture, look.picture, cv2.TM_SQDIFF, mask=cv2.merge([look.mask] * 3))
        both.append(np.sqrt(np.maximum(squares, 0) / max(1.0, float(look.mask.sum()))))
    return cast(Map, np.minimum(both[0], both[1]))


def _window(rect: Rect, instance: Instance, reach: int, shape: tuple[int, ...]) -> Rect:
    height, width = instance.picture.shape[:2]
    cx, cy = (rect[0] + rect[2]) / 2, (rect[1] + rect[3]) / 2
    x1, y1 = int(cx - width / 2 - reach), int(cy - height / 2 - reach)
    x1, y1 = max(0, min(x1, shape[1] - width)), max(0, min(y1, shape[0] - height))
    return x1, y1, min(shape[1], x1 + width + 2 * reach), min(shape[0], y1 + height + 2 * reach)


def _at(picture: Lab, instance: Instance, rect: Rect, reach: int) -> float:
    """Return the smallest difference to the instance around a known box."""
    x1, y1, x2, y2 = _window(rect, instance, reach, picture.shape)
    return float(_gaps(np.ascontiguousarray(picture[y1:y2, x1:x2]), instance).min())


def _structure(picture: Lab, instance: Instance, rect: Rect, reach: int) -> tuple[float, Rect]:
    """Return how well the instance's lightness pattern matches around a known box, in any colour."""
    x1, y1, x2, y2 = _window(rect, instance, reach, picture.shape)
    area = np.ascontiguousarray(picture[y1:y2, x1:x2, 0])
    best, at = -1.0, (x1, y1)
    for look in (instance, instance.mirror()):
        mask = cv2.dilate(look.mask, NINE, iterations=2)
        scores = cv2.matchTemplate(area, np.ascontiguousarray(look.picture[..., 0]), cv2.TM_CCOEFF_NORMED, mask=mask)
        scores = np.where(np.isfinite(scores), scores, 0)
        row, column = np.unravel_index(int(np.argmax(scores)), scores.shape)
        if float(scores[row, column]) > best:
            best, at = float(scores[row, column]), (x1 + int(column), y1 + int(row))
    height, width = instance.picture.shape[:2]
    return min(1.0, best), (at[0], at[1], at[0] + width, at[1] + height)


def _count_recoloured(
    edited: Lab, instance: Instance, missing: list[Rect], reach: int, level: float
) -> tuple[int, Instance | None]:
    """Count known instances that are there in another colour, and return one of them as a template."""
    score, (x1, y1, x2, y2) = max(
        (_structure(edited, instance, rect, min(reach, 4)) for rect in missing), key=lambda s: s[0]
    )
    patch = np.ascontiguousarray(edited[y1:y2, x1:x2])
    if score < 0.5 or patch.shape[:2] != instance.mask.shape:
        return 0, None
    other = Instance(patch, instance.mask)
    return sum(_at(edited, other, rect, reach) < level for rect in missing), other


def _pattern(edited: Lab, looks: list[Instance], candidate: InstancePlace) -> float:
    """Return how well an instance's lightness pattern, with its outline, matches at a position."""
    height, width = looks[0].picture.shape[:2]
    rect = (candidate.x, candidate.y, candidate.x + width, candidate.y + height)
    return max(_structure(edited, look, rect, 1)[0] for look in looks)


def _find_elsewhere(
    edited: Lab, source: Lab, looks: list[Instance], rects: list[Rect], level: float
) -> list[InstancePlace]:
    """Return positions away from the known boxes, best first; those that matched the instance before do not count."""
    gaps = np.minimum.reduce([_gaps(edited, look) for look in looks])
    before = cv2.erode(np.minimum.reduce([_gaps(source, look) for look in looks]), np.ones((5, 5), np.uint8))
    gaps = np.where(before < level, np.float32(99.0), gaps)
    height, width = looks[0].picture.shape[:2]
    for rect in rects:
        x1, y1, x2, y2 = grow_rect(rect, 0.6, 10**6, 10**6)
        gaps[max(0, y1 - height // 2) : max(0, y2 - height // 2), max(0, x1 - width // 2) : max(0, x2 - width // 2)] = (
            99.0
        )
    places: list[InstancePlace] = []
    while len(places) < MOST:
        row, column = np.unravel_index(int(np.argmin(gaps)), gaps.shape)
        if gaps[row, column] >= 99.0:
            break
        places.append(InstancePlace(float(gaps[row, column]), int(column), int(row)))
        gaps[
            max(0, row - height // 2) : row + height // 2 + 1, max(0, column - width // 2) : column + width // 2 + 1
        ] = 99.0
    return places
