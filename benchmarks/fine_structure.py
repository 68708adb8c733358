"""Measure how well changed words, numbers, hands and symbols on small signs in large photographs are found and read."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import ImageFont

from benchmarks.difference_scores import Localizer, met, naive
from benchmarks.sign_pairs import (
    OUTPUTS,
    SHARES,
    WORDS,
    SignPair,
    colours,
    encode_again,
    photographs,
    read,
    sign_pairs,
    written,
)
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import find_boxes
from editloupe.tools.read_text import ReadText
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box

SHOWN = 5
"""A change is found when one of the first five boxes covers half of it or meets it with IoU ≥ 0.3."""
LETTERS = (8, 10, 12, 16)
"""Heights of letters, in pixels."""


@dataclass(frozen=True)
class SignAnswer:
    """What a localizer returned for a pair of signs, best first, and the CPU seconds of it and of a plain difference."""

    pair: SignPair
    boxes: tuple[Box, ...]
    seconds: float
    plain_seconds: float

    @property
    def found(self) -> bool:
        """Whether the change is among the first boxes."""
        return self.pair.changed is not None and met(self.pair.changed, self.boxes[:SHOWN], cover=True)


def ask_signs(folder: Path, seed: int = 0, workers: int = 1, rounds: int = 1) -> list[SignAnswer]:
    """Ask about every pair on the photographs of a folder, a photograph at a time in each process: they are large.

    Every round puts other signs on all of them.
    """
    photos = photographs(folder)
    paths = photos * rounds
    seeds = [(seed + turn, index) for turn in range(rounds) for index in range(len(photos))]
    with ProcessPoolExecutor(workers, initializer=cv2.setNumThreads, initargs=(1,)) as pool:
        return [answer for some in pool.map(_ask_photograph, paths, seeds) for answer in some]


def _ask_photograph(path: Path, seed: tuple[int, ...]) -> list[SignAnswer]:
    answers = []
    for pair in sign_pairs(path, seed):
        plain_seconds, _ = _timed(naive, pair)
        seconds, found = _timed(find_boxes, pair)
        kept = tuple(Box.model_validate(box) for box in found)
        answers.append(SignAnswer(_without_pixels(pair), kept, seconds, plain_seconds))
    return answers


def sign_rows(answers: list[SignAnswer]) -> tuple[list[str], list[list[str]]]:
    """Return the table by output and size: recall, false alarms on unchanged pairs, and time relative to a plain difference."""
    groups: dict[str, list[SignAnswer]] = defaultdict(list)
    for answer in answers:
        groups[answer.pair.output].append(answer)
    rows = []
    for output in OUTPUTS:
        group = groups[output]
        row = [output]
        for share in SHARES:
            some = [a.found for a in group if a.pair.changed is not None and a.pair.share == share]
            row.append(f"{sum(some)} of {len(some)}")
        quiet = [bool(a.boxes) for a in group if a.pair.changed is None]
        stray = [
            any(not _touches(box, a.pair.sign) for box in a.boxes[:SHOWN]) for a in group if a.pair.changed is not None
        ]
        ratio = sum(a.seconds for a in group) / max(1e-9, sum(a.plain_seconds for a in group))
        rows.append([*row, f"{sum(quiet)} of {len(quiet)}", f"{sum(stray)} of {len(stray)}", f"{ratio:.1f} ×"])
    shares = [f"{100 * share:g} %" for share in SHARES]
    return ["output", *shares, "false alarms", "boxes elsewhere", "time"], rows


def reading_rows(folder: Path, count: int = 20, seed: int = 5) -> list[list[str]]:
    """Return how many signs are read letter by letter, by the height of their letters."""
    reader = ReadText(ToolSettings(threads=1))
    if reader.unavailable():
        return []
    rows = []
    for height in LETTERS:
        right = [_read_right(reader, crop, word) for word, crop in _signs(folder, height, count, seed)]
        rows.append([f"{height} px", f"{sum(right)} of {len(right)}"])
    return rows


def _signs(folder: Path, height: int, count: int, seed: int) -> Iterator[tuple[str, Pixels]]:
    """Yield words and numbers on signs, with some of a photograph round them, coded as JPEG."""
    rng = np.random.default_rng([seed, height])
    photos = [read(path) for path in photographs(folder)[:3]]
    points = next(p for p in range(8, 400) if _capital(p) >= 4 * height)
    for number in range(count):
        word = str(rng.integers(100, 10_000)) if number % 3 == 0 else str(rng.choice(WORDS))
        size = int(ImageFont.load_default(points).getlength(word) / 4) + 2 * height, int(2.2 * height)
        sign = written(size, *colours(rng), word, points)
        photo = photos[number % len(photos)]
        left = int(rng.integers(40, photo.shape[1] - size[0] - 40))
        top = int(rng.integers(40, photo.shape[0] - size[1] - 40))
        crop = photo[top - 32 : top + size[1] + 32, left - 32 : left + size[0] + 32].copy()
        crop[32:-32, 32:-32] = sign
        yield word, encode_again(crop, 90)


def _capital(points: float) -> float:
    box = ImageFont.load_default(points).getbbox("H")
    return box[3] - box[1]


def _read_right(reader: ReadText, crop: Pixels, word: str) -> bool:
    whole = Box(x1=0, y1=0, x2=crop.shape[1], y2=crop.shape[0])
    sign = Box(x1=32, y1=32, x2=crop.shape[1] - 32, y2=crop.shape[0] - 32)
    line = reader.read_line_at(crop, whole, sign)
    return line is not None and line["text"].replace(" ", "") == word


def _timed(localizer: Localizer, pair: SignPair) -> tuple[float, list[list[int]]]:
    started = time.process_time()
    boxes = localizer(pair.source, pair.edited)
    return time.process_time() - started, boxes


def _without_pixels(pair: SignPair) -> SignPair:
    nothing = np.empty((0, 0, 3), np.uint8)
    return SignPair(nothing, nothing, pair.changed, pair.sign, pair.share, pair.content, pair.output, pair.texts)


def _touches(a: Box, b: Box) -> bool:
    return min(a.x2, b.x2) > max(a.x1, b.x1) and min(a.y2, b.y2) > max(a.y1, b.y1)


def reframe(picture: Pixels, cut: float, rng: np.random.Generator) -> tuple[Pixels, Box]:
    """Cut a share off both sides and bring the picture back to its size; below nought, add that much round it."""
    height, width = picture.shape[:2]
    left, top = rng.random(2) * (cut * width, cut * height)
    matrix = np.array([[1 - cut, 0.0, left], [0.0, 1 - cut, top]])
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    made = cv2.warpAffine(picture, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT_101)
    right, bottom = left + (1 - cut) * width, top + (1 - cut) * height
    frame = (max(0, left), max(0, top), min(width, right), min(height, bottom))
    return np.asarray(made, np.uint8), Box.model_validate([round(float(v)) for v in frame])
