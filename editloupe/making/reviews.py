"""Find the target boxes of samples, store reviews and corrections of samples, and measure how well reviewers agree.

Boxes come with the data, from a detector, or are drawn by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from pathlib import Path
from typing import Protocol

import numpy as np

from editloupe.agent.asker import NoAnswer
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.evals.stats.agreement import coefficients as statistics
from editloupe.making.folder import QUESTION_SET, MakingFolder, Sample, boxes_key, question_key
from editloupe.making.records import (
    CHECKS,
    METADATA_KEYS,
    MOST_TARGETS,
    Boxes,
    LeftOutSample,
    Metadata,
    Review,
    ReviewDecision,
)
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.rubrics.registry import PAPERS
from editloupe.tools.models.detectors import Detection
from editloupe.types import Box, Record, Usage, UserError

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
        sure, target = False, find_first_named(sample.metadata.modified_object, question.box_names)
        boxes = tuple(box for box, name in zip(boxes, question.box_names, strict=True) if target in (None, name))
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
        NoAnswer: If it finds nothing and `trusted` is set, so that no person will look.
    """
    assert sample.metadata is not None, "boxes come after the metadata"
    picture = open_picture(folder / sample.question.picture)
    if picture.sha != sample.question.sha:
        raise ImageError(f"{sample.question.picture} has changed since it was read")
    phrase, key = sample.metadata.modified_object, boxes_key(sample.question, sample.metadata)
    detections = detector.detect(picture.pixels, phrase)
    detections = detections[: MOST_TARGETS if sample.metadata.q_type in SEVERAL else 1]
    if detections:
        boxes = tuple(detection.box for detection in detections)
        scores = tuple(round(detection.score, 4) for detection in detections)
        return Boxes(id=sample.id, key=key, boxes=boxes, confirmed=trusted, scores=scores, by=name, at=timestamp())
    if trusted:
        raise NoAnswer(f'the detector finds no "{phrase}" in the picture')
    return None


def draw_boxes(folder: MakingFolder, sample_id: str, boxes: Sequence[Box], who: str) -> None:
    """Store the boxes that a person drew or confirmed. An empty list means that the target is not in the picture."""
    sample = folder.sample(sample_id)
    if sample.metadata is None:
        raise UserError(f"{sample_id} has no metadata yet, so its target is unknown")
    key, (width, height) = boxes_key(sample.question, sample.metadata), sample.question.size
    if not boxes:
        why = "the target is not in the picture"
        folder.boxes.add(LeftOutSample(id=sample_id, key=key, left_out=why, by=who, at=timestamp()))
        return
    if len(boxes) > MOST_TARGETS:
        raise UserError(f"a sample has at most {MOST_TARGETS} targets")
    inside = [box.clamped(width, height) for box in boxes]
    if any(box is None for box in inside):
        raise UserError(f"a box is outside the picture, which has {width} × {height} pixels")
    clamped = tuple(box for box in inside if box)
    folder.boxes.add(Boxes(id=sample_id, key=key, boxes=clamped, confirmed=True, by=who, at=timestamp()))


SCORES = {"accept": 2.0, "correct": 1.0, "regenerate": 1.0, "discard": 0.0}
"""Decisions on one scale for α: accepted, needs work, discarded."""


class ReviewAgreement(Record):
    """Agreement of reviewers on samples that at least two of them reviewed in the same state."""

    samples: int
    pairs: int
    decision: float | None
    """Share of pairs of reviews with the same decision."""
    checks: Mapping[str, float | None]
    """The same per check."""
    alpha: float | None
    """Krippendorff's ordinal α of accept, needs work, discard."""
    why: str | None = None
    """Why there is no α."""


def review(
    folder: MakingFolder,
    sample_id: str,
    who: str,
    decision: ReviewDecision,
    checks: Mapping[str, bool],
    note: str = "",
    corrected: Mapping[str, str] | None = None,
    boxes: Sequence[Box] | None = None,
    key: str | None = None,
) -> None:
    """Store a decision about a sample, with corrected metadata and boxes if there are any.

    Args:
        folder: The benchmark.
        sample_id: The sample.
        who: The reviewer's name.
        decision: `accept`, `correct`, `regenerate` or `discard`.
        checks: What the reviewer confirmed: `box`, `metadata`, `reference`.
        note: A note.
        corrected: Corrected metadata, by field.
        boxes: Corrected boxes.
        key: The state that the reviewer saw.

    Raises:
        UserError: If the sample has changed since then, is not ready, or the decision is not valid. Nothing is stored
            then.
    """
    folder.refresh()
    sample = folder.sample(sample_id)
    name = " ".join(who.split())
    if not name:
        raise UserError("a reviewer needs a name")
    if sample.reference is None or sample.metadata is None or sample.boxes is None:
        raise UserError(f"{sample_id} is not ready for review: it waits for {sample.step}")
    if key is not None and key != sample.key:
        raise UserError(f"{sample_id} has changed since it was shown; look at it again")
    confirmed = {check: bool(checks[check]) for check in CHECKS if check in checks}
    if decision == "accept" and (len(confirmed) < len(CHECKS) or not all(confirmed.values())):
        raise UserError("to accept a sample, confirm box, metadata and reference")
    changed = {field_name: " ".join(str(text).split()) for field_name, text in (corrected or {}).items()}
    if decision == "correct" and not changed and boxes is None:
        raise UserError("a correction needs corrected metadata or boxes")
    metadata = sample.metadata
    if decision == "correct":
        metadata = _correct_metadata(metadata, changed, name, question_key(sample.question))
    folder.reviews.add(
        Review(
            id=sample_id,
            key=sample.key,
            reviewer=name,
            at=timestamp(),
            decision=decision,
            checks=confirmed,
            note=note.strip(),
        )
    )
    if decision != "correct":
        return
    if metadata.facts != sample.metadata.facts:
        folder.metadata.add(metadata)
    draw_boxes(folder, sample_id, sample.boxes.boxes if boxes is None else boxes, name)


def _correct_metadata(metadata: Metadata, changed: Mapping[str, str], who: str, key: str) -> Metadata:
    """Return metadata with a person's corrections. The edit type follows the question type unless it is corrected too."""
    field_names = (*METADATA_KEYS, "instruction_type")
    if unknown := [name for name in changed if name not in field_names]:
        raise UserError(f"{unknown[0]} cannot be corrected; the fields are: {', '.join(field_names)}")
    if empty := [name for name, text in changed.items() if not text]:
        raise UserError(f"{empty[0]} cannot be empty")
    values = dict(changed)
    if "instruction_type" in values:
        if values["instruction_type"] not in list_edit_types():
            raise UserError(f"an instruction type is one of: {', '.join(list_edit_types())}")
    elif "q_type" in values:
        values["instruction_type"] = find_edit_type(values["q_type"])
    return metadata.model_copy(update={**values, "by": who, "at": timestamp(), "usage": Usage(), "key": key})


def review_agreement(folder: MakingFolder) -> ReviewAgreement:
    """Measure how reviewers agree on samples in the same state, by the last review of each.

    Only the first reviewers of a sample count: later ones saw disputed samples only.

    Args:
        folder: The benchmark.
    """
    latest: dict[tuple[str, str], dict[str, Review]] = {}
    for entry in folder.reviews.all():
        latest.setdefault((entry.id, entry.key), {})[entry.reviewer] = entry
    first = max(2, folder.reviewers)
    shared = [dict(islice(reviews.items(), first)) for reviews in latest.values() if len(reviews) > 1]
    pairs = [pair for reviews in shared for pair in combinations(reviews.values(), 2)]
    checks: dict[str, float | None] = {}
    for check in CHECKS:
        both = [(a.checks[check], b.checks[check]) for a, b in pairs if check in a.checks and check in b.checks]
        checks[check] = sum(a == b for a, b in both) / len(both) if both else None
    names = sorted({name for reviews in shared for name in reviews})
    ratings = np.array(
        [[SCORES[reviews[name].decision] if name in reviews else np.nan for name in names] for reviews in shared]
    )
    alpha, why = statistics.alpha(ratings) if shared else (None, "no sample was reviewed by two people")
    return ReviewAgreement(
        samples=len(shared),
        pairs=len(pairs),
        decision=sum(a.decision == b.decision for a, b in pairs) / len(pairs) if pairs else None,
        checks=checks,
        alpha=alpha,
        why=why,
    )


def _load_edit_types() -> dict[str, str]:
    return next(dict(paper.question_types) for paper in PAPERS if paper.question_types)


def list_edit_types() -> tuple[str, ...]:
    """Return the instruction types that a sample may have."""
    return tuple(_load_edit_types().values())


def find_edit_type(question_type: str) -> str:
    """Return the instruction type of a question type."""
    try:
        return _load_edit_types()[question_type]
    except KeyError:
        raise UserError(f"a question's type is one of: {', '.join(_load_edit_types())}") from None
