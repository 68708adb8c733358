"""Find the target boxes of samples in the data, with a detector, or by hand."""

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
from editloupe.tools.models.detectors import Detection
from editloupe.types import Box, UserError

DETECTOR = "detector"
SEVERAL = ("count",)
"""Question types about all objects of a kind. Other targets are a single object unless a person changes that."""


class Detector(Protocol):
    """Interface of a model that finds objects in pictures by a phrase."""

    def unavailable(self) -> str | None:
        """Return what is missing on this machine, or None."""

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        """Return the objects that a phrase names, best first."""


def find_given_boxes(sample: Sample) -> Boxes | None:
    """Return the boxes that came with the data, which people annotated.

    If they belong to several objects, as in V*-Bench's questions about relative positions, the boxes of the object that
    the target's phrase names first are taken, and a person must confirm them.
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
    """Return the name that occurs first in a phrase, the longer one if two begin there, or None.

    >>> find_first_named("motorcycle on the left side of the dog", ["dog", "motorcycle"])
    'motorcycle'
    """
    matches = {name: re.search(rf"\b{re.escape(name)}", phrase, re.IGNORECASE) for name in names if name.strip()}
    places = [(match.start(), -len(name), name) for name, match in matches.items() if match]
    return min(places)[2] if places else None


def is_outdated(sample: Sample) -> bool:
    """Return whether a sample has boxes of its question set that the question set no longer has."""
    if sample.boxes is None or sample.boxes.by != QUESTION_SET:
        return False
    current = find_given_boxes(sample)
    return current is not None and current.boxes != sample.boxes.boxes


def propose_boxes(
    sample: Sample, folder: Path, detector: Detector, trusted: bool, name: str = DETECTOR
) -> Boxes | None:
    """Return the boxes that the detector proposes, or None if it finds nothing and a person will look.

    Raises:
        Unanswered: If it finds nothing and `trusted` is set, so that no person will look.
    """
    assert sample.metadata is not None, "boxes come after the metadata"
    picture = open_picture(folder / sample.question.picture)
    if picture.sha != sample.question.sha:
        raise ImageError(f"{sample.question.picture} has changed since it was read")
    phrase, key = sample.metadata.modified_object, boxes_key(sample.question, sample.metadata)
    detections = detector.detect(picture.pixels, phrase)
    detections = detections[: MOST_TARGETS if sample.metadata.q_type in SEVERAL else 1]
    if detections:
        boxes, scores = (
            tuple(detection.box for detection in detections),
            tuple(round(detection.score, 4) for detection in detections),
        )
        return Boxes(id=sample.id, key=key, boxes=boxes, confirmed=trusted, scores=scores, by=name, at=timestamp())
    if trusted:
        raise NoAnswer(f'the detector finds no "{phrase}" in the picture')
    return None


def draw_boxes(folder: MakingFolder, sample_id: str, boxes: Sequence[Box], who: str) -> None:
    """Store the boxes that a person drew or confirmed. An empty list means that the target is not in the picture."""
    sample = folder.sample(sample_id)
    if sample.metadata is None:
        raise UserError(f"{sample_id} has no metadata yet, so its target is unknown")
    key, width_height = boxes_key(sample.question, sample.metadata), sample.question.size
    if not boxes:
        left = LeftOutSample(id=sample_id, key=key, left_out="the target is not in the picture", by=who, at=timestamp())
        folder.boxes.add(left)
        return
    if len(boxes) > MOST_TARGETS:
        raise UserError(f"a sample has at most {MOST_TARGETS} targets")
    inside = [box.clamped(*width_height) for box in boxes]
    if any(box is None for box in inside):
        raise UserError(f"a box is outside the picture, which has {width_height[0]} × {width_height[1]} pixels")
    clamped = tuple(box for box in inside if box)
    folder.boxes.add(Boxes(id=sample_id, key=key, boxes=clamped, confirmed=True, by=who, at=timestamp()))
