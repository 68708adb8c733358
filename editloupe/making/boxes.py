"""Boxes: where the targets are, as they came with the data, as a detector proposes them, as people draw them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from editloupe.agent.asker import NoAnswer
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.folder import QUESTION_SET, MakingFolder, Sample, boxes_key
from editloupe.making.records import MOST_TARGETS, Boxes, LeftOutSample
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.tools.models.tiling import Detection
from editloupe.types import Box, UserError

DETECTOR = "detector"
SEVERAL = ("count",)
"""Questions about all things of a kind; other targets are one thing unless a person says otherwise."""


class Detector(Protocol):
    """Finds things in pictures by a phrase."""

    def unavailable(self) -> str | None:
        """Say what is missing on this machine, or None."""

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return where the phrase's thing is, best first."""


def find_given_boxes(sample: Sample) -> Boxes | None:
    """Return the boxes that came with the data, which people annotated.

    Where they are of several things, as in V*-Bench's questions about where one thing is beside another, those of the thing that
    the target's phrase names first are taken, and a person looks at them.
    """
    question = sample.question
    if sample.metadata is None or not question.boxes:
        return None
    boxes, sure = question.boxes, True
    if len(set(question.box_names)) > 1:
        sure, named = False, find_first_named(sample.metadata.modified_object, question.box_names)
        boxes = tuple(box for box, name in zip(boxes, question.box_names, strict=True) if named in (None, name))
    key = boxes_key(question, sample.metadata)
    return Boxes(id=sample.id, key=key, boxes=boxes, confirmed=sure, by=QUESTION_SET, at=timestamp())


def find_first_named(phrase: str, names: Sequence[str]) -> str | None:
    """Return the name that stands first in a phrase, the longer one where two begin there; None where none does.

    >>> find_first_named("motorcycle on the left side of the dog", ["dog", "motorcycle"])
    'motorcycle'
    """
    found = {name: re.search(rf"\b{re.escape(name)}", phrase, re.IGNORECASE) for name in names if name.strip()}
    places = [(match.start(), -len(name), name) for name, match in found.items() if match]
    return min(places)[2] if places else None


def is_outdated(sample: Sample) -> bool:
    """True where a sample has the boxes of its question set, and the question set has others by now."""
    if sample.boxes is None or sample.boxes.by != QUESTION_SET:
        return False
    given = find_given_boxes(sample)
    return given is not None and given.boxes != sample.boxes.boxes


def propose_boxes(
    sample: Sample, folder: Path, detector: Detector, trusted: bool, name: str = DETECTOR
) -> Boxes | None:
    """Return what the detector proposes, None where it finds nothing; Unanswered if nobody else will look."""
    assert sample.metadata is not None, "boxes come after the metadata"
    picture = open_picture(folder / sample.question.picture)
    if picture.sha != sample.question.sha:
        raise ImageError(f"{sample.question.picture} is not the picture it was any more")
    phrase, key = sample.metadata.modified_object, boxes_key(sample.question, sample.metadata)
    found = detector.detect(picture.pixels, phrase)
    found = found[: MOST_TARGETS if sample.metadata.q_type in SEVERAL else 1]
    if found:
        boxes, scores = tuple(one.box for one in found), tuple(round(one.score, 4) for one in found)
        return Boxes(id=sample.id, key=key, boxes=boxes, confirmed=trusted, scores=scores, by=name, at=timestamp())
    if trusted:
        raise NoAnswer(f'the detector finds no "{phrase}" in the picture')
    return None


def draw_boxes(folder: MakingFolder, sample_id: str, boxes: Sequence[Box], who: str) -> None:
    """Write down the boxes a person drew or confirmed; none means that the target is not in the picture."""
    sample = folder.sample(sample_id)
    if sample.metadata is None:
        raise UserError(f"{sample_id} has no metadata yet, so nobody knows what to draw a box around")
    key, width_height = boxes_key(sample.question, sample.metadata), sample.question.size
    if not boxes:
        left = LeftOutSample(id=sample_id, key=key, left_out="the target is not in the picture", by=who, at=timestamp())
        folder.boxes.add(left)
        return
    if len(boxes) > MOST_TARGETS:
        raise UserError(f"a sample has at most {MOST_TARGETS} targets")
    inside = [box.clamped(*width_height) for box in boxes]
    if any(box is None for box in inside):
        raise UserError(f"a box lies outside the picture, which is {width_height[0]} × {width_height[1]} pixels")
    kept = tuple(box for box in inside if box)
    folder.boxes.add(Boxes(id=sample_id, key=key, boxes=kept, confirmed=True, by=who, at=timestamp()))
