"""Store reviews and corrections of samples, and measure how well reviewers agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from editloupe.evals.runs.unit_rows import timestamp
from editloupe.evals.stats.agreement import coefficients as statistics
from editloupe.making.boxes import draw_boxes
from editloupe.making.folder import MakingFolder, question_key
from editloupe.making.records import CHECKS, METADATA_KEYS, Metadata, Review, ReviewDecision
from editloupe.rubrics.registry import PAPERS
from editloupe.types import Box, Record, Usage, UserError

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
    metadata = (
        _correct_metadata(sample.metadata, changed, name, question_key(sample.question))
        if decision == "correct"
        else None
    )
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
    if metadata is None:
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
