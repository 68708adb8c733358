"""Records of generated puzzles with their pictures, answers and checks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels

SAME_SHAPE = 0.02
"""The largest relative difference of two aspect ratios that count as the same layout."""


@dataclass(frozen=True)
class Puzzle:
    """One problem with its exact answer."""

    task: str
    instruction_en: str
    instruction_cn: str
    picture: Pixels
    answer: Pixels
    """The same picture with the answer drawn in."""
    facts: Mapping[str, Any]
    """The problem and its answer as JSON, for the check."""


@dataclass(frozen=True)
class AnswerCheck:
    """The result of checking an answer picture."""

    correct: bool | None
    """None if the picture cannot be read exactly; `why` says why."""
    why: str
    read: Any = None
    """The answer that was read from the picture."""


@dataclass(frozen=True)
class PuzzleKind:
    """One kind of puzzle."""

    name: str
    about: str
    make: Callable[[random.Random], Puzzle]
    check: Callable[[Mapping[str, Any], Pixels, Pixels], AnswerCheck]
    """Checks an answer. Arguments: the facts, the problem's picture, and an answer picture of the same size."""

    def decide(self, facts: Mapping[str, Any], picture: Pixels, answer: Pixels) -> AnswerCheck:
        """Check an answer picture of any size. A picture with another aspect ratio is left undecided."""
        height, width = picture.shape[:2]
        ratio = (answer.shape[1] / answer.shape[0]) / (width / height)
        if abs(ratio - 1) > SAME_SHAPE:
            return AnswerCheck(
                None, f"the answer is {answer.shape[1]} × {answer.shape[0]} pixels, not in the problem's proportions"
            )
        if answer.shape != picture.shape:
            resized = Image.fromarray(answer).resize((width, height), Image.Resampling.BILINEAR)
            answer = np.asarray(resized, dtype=np.uint8)
        return self.check(facts, picture, answer)


class Undecided(Exception):
    """A part of an answer picture is ambiguous; the message names it."""
