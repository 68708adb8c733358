"""Score localizers on a calibration set, with two simple localizers for comparison."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from skimage.metrics import structural_similarity

from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import Pixels
from editloupe.tools.geometry import iou, overlap_area
from editloupe.types import Box

Localizer = Callable[[Pixels, Pixels], list[list[int]]]


@dataclass(frozen=True)
class Sample:
    """One pair of the set: what really changed, and how the rest of the picture was disturbed."""

    source: Pixels
    edited: Pixels
    changed: tuple[Box, ...]
    disturbance: str
    collapse: bool
    """Whether the whole scene was changed; such pairs are left out of the local figures."""


@dataclass(frozen=True)
class Answer:
    """What a localizer returned for a sample, best first, and the CPU seconds it took."""

    sample: Sample
    boxes: tuple[Box, ...]
    seconds: float


def read_set(folder: Path) -> Iterator[Sample]:
    """Read a calibration set: manifest.jsonl with its pictures."""
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        row: dict[str, Any] = json.loads(line)
        source, edited = (open_picture(folder / row[key]).pixels for key in ("source", "edited"))
        changed = tuple(Box.model_validate(box) for box in row["changed_boxes"])
        collapse = row["truth"]["visual_consistency"] == "Scene Collapse"
        yield Sample(source, edited, changed, row["noise"]["kind"], collapse)


def ask(localizer: Localizer, sample: Sample) -> Answer:
    """Run a localizer on one pair; boxes are cut at the picture's border."""
    started = time.process_time()
    answer = localizer(sample.source, sample.edited)
    seconds = time.process_time() - started
    height, width = sample.source.shape[:2]
    boxes = [Box.model_validate([int(v) for v in box]).clamped(width, height) for box in answer]
    return Answer(sample, tuple(box for box in boxes if box is not None), seconds)


def summary(answers: Sequence[Answer]) -> dict[str, float]:
    """Return the figures in percent, and the time in milliseconds a megapixel.

    tight@3: changes that one of the first three boxes meets with IoU ≥ 0.3. recall@5: changes that one of the first five
    covers by half or meets so. prec@3: of the first three boxes, those with a fifth of their area in changes. false alarms:
    unchanged pairs with any box.
    """
    local = [a for a in answers if not a.sample.collapse]
    changes = [(change, a.boxes) for a in local for change in a.sample.changed]
    shown = [(box, a.sample.changed) for a in local if a.sample.changed for box in a.boxes[:3]]
    quiet = [a for a in local if not a.sample.changed]
    megapixels = sum(a.sample.source[..., 0].size for a in local) / 1e6
    return {
        "tight@3": _percent(met(change, boxes[:3], cover=False) for change, boxes in changes),
        "prec@3": _percent(_share_in(box, changed) >= 0.2 for box, changed in shown),
        "recall@5": _percent(met(change, boxes[:5], cover=True) for change, boxes in changes),
        "false alarms": _percent(bool(a.boxes) for a in quiet),
        "ms/MP": 1000 * sum(a.seconds for a in local) / megapixels if megapixels else float("nan"),
    }


def naive(source: Pixels, edited: Pixels) -> list[list[int]]:
    """Return where the grey values differ by more than thirty."""
    a, b = _greys(source, edited)
    return _components(cv2.absdiff(a, b) > 30, 16)


def ssim(source: Pixels, edited: Pixels) -> list[list[int]]:
    """Return where the structural similarity is below one half."""
    a, b = _greys(source, edited)
    _, similarity = structural_similarity(a, b, full=True)
    return _components(similarity < 0.5, 64)


def met(change: Box, boxes: Sequence[Box], cover: bool) -> bool:
    """Whether a box meets a change with IoU ≥ 0.3, or covers half of it where that counts."""
    return any((cover and overlap_area(change, box) >= 0.5 * change.area) or iou(change, box) >= 0.3 for box in boxes)


def _share_in(box: Box, changed: Sequence[Box]) -> float:
    mask = np.zeros((box.size[1], box.size[0]), bool)
    for change in changed:
        x1, y1, x2, y2 = (max(0, a - b) for a, b in zip(change, (box.x1, box.y1, box.x1, box.y1), strict=True))
        mask[y1:y2, x1:x2] = True
    return float(mask.mean())


def _percent(values: Iterator[bool]) -> float:
    counted = list(values)
    return 100 * sum(counted) / len(counted) if counted else float("nan")


def _greys(source: Pixels, edited: Pixels) -> tuple[Any, Any]:
    if edited.shape != source.shape:
        grows = edited.shape[1] < source.shape[1]
        interpolation = cv2.INTER_CUBIC if grows else cv2.INTER_AREA
        edited = np.asarray(cv2.resize(edited, source.shape[1::-1], interpolation=interpolation), np.uint8)
    return cv2.cvtColor(source, cv2.COLOR_RGB2GRAY), cv2.cvtColor(edited, cv2.COLOR_RGB2GRAY)


def _components(mask: Any, least: int) -> list[list[int]]:
    joined = cv2.dilate(mask.astype(np.uint8), np.ones((7, 7), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(joined, connectivity=8)
    components = sorted((s for s in stats[1:] if s[4] >= least), key=lambda s: -s[4])
    return [[int(x), int(y), int(x + w), int(y + h)] for x, y, w, h, _ in components]
