"""Records of what a judge claims about two pictures, and the statements of a trace that hold the claims."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic import Field

from editloupe.rubrics.case import EDITED, SOURCE
from editloupe.tools.contract import Frame
from editloupe.types import Box, Record, Sha, Trace

Side = Literal["source", "edited", ""]
Place = Literal["", "box", "target", "whole", "rest", "outside", "unlisted", "unseen"]
"""The part of the picture that a claim is about: not stated, its box, the annotated target, the whole picture, or all but the
target. The last three cannot be located: a box that is not in the picture, a difference with a number that no tool listed, and
words of a judge that did not see the whole pictures."""


class ClaimKind(StrEnum):
    """The kinds of claims. Nothing else that a judge says is checked."""

    REGION_CHANGED = "region_changed"
    REGION_UNCHANGED = "region_unchanged"
    NOTHING_ELSE_CHANGED = "nothing_else_changed"
    TEXT_READS = "text_reads"
    OBJECT_PRESENT = "object_present"
    OBJECT_ABSENT = "object_absent"
    OBJECT_COUNT = "object_count"
    COLOUR = "colour"
    MOVED = "moved"
    TOOL_DIFFERENCES = "tool_differences"


class ClaimState(StrEnum):
    """The result of a check."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NOT_CHECKABLE = "not_checkable"


class Claim(Record):
    """One checkable claim.

    Args:
        kind: What is claimed.
        text: The words of the judge, or its label.
        step: The position of the step in the trace; None for a rationale without a trace.
        start: Where the words begin in the step's thought.
        side: The picture that the claim is about, if it is about one.
        place: The part of the picture.
        box: The region, in pixels of the source picture.
        subject: The object, if one is named.
        value: The text, the colour, or how the object changed.
        count: The number of objects or differences.
        shown: The number of differences that the tool had shown by then, for claims about the tool.
    """

    kind: ClaimKind
    text: str
    step: int | None = None
    start: int | None = None
    side: Side = ""
    place: Place = ""
    box: Box | None = None
    subject: str = ""
    value: str = ""
    count: int | None = Field(default=None, ge=0, lt=10**9)
    shown: tuple[int, ...] = ()


class CheckedClaim(Record):
    """A claim with the result of its check.

    Args:
        claim: The claim.
        state: The result.
        why: The result in one sentence. If the claim is not checkable, it is the reason; a colon separates the reason from what
            was measured, so that the words before it are the same for all claims with this reason.
        boxes: The measured regions, in pixels of the source picture.
        numbers: The measured numbers.
    """

    claim: Claim
    state: ClaimState
    why: str
    boxes: tuple[Box, ...] = ()
    numbers: Mapping[str, float] = Field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the claim as `editloupe verify --format json` prints it."""
        evidence = {"why": self.why, "boxes": [list(box) for box in self.boxes], "numbers": dict(self.numbers)}
        return {
            "text": self.claim.text,
            "kind": self.claim.kind.value,
            "state": self.state.value,
            "evidence": evidence,
            "step": self.claim.step,
            "start": self.claim.start,
            "region": None if self.claim.box is None else list(self.claim.box),
        }


class Statement(NamedTuple):
    """A text of the judge, with what its words may refer to."""

    text: str
    step: int | None
    frame: Frame | None
    """How positions in the text are counted; None if the judge did not see the whole source picture."""
    listed: tuple[Box, ...] | None
    """The differences that the tool has listed so far; None if it has not been called."""
    cropped: int = 0
    """How many of these were shown as crops."""


def read_statements(trace: Trace, source: Sha) -> tuple[list[Statement], str]:
    """Return the thoughts of a trace with what they may refer to, and the judge's answer.

    Args:
        trace: The trace.
        source: The hash of the source picture, in whose pixels regions are stated.
    """
    per_mille = any("thousandths" in text for text in trace.prompt)
    statements: list[Statement] = []
    frame: Frame | None = None
    listed: tuple[Box, ...] | None = None
    cropped, answer = 0, ""
    for position, step in enumerate(trace.steps):
        for sent in step.sent:
            if sent.sha == source and sent.name == SOURCE:
                frame = Frame(sent.original_size, sent.size, per_mille)
        if step.problem is None:
            statements.append(Statement(step.thought, position, frame, listed, cropped))
            answer = step.answer or answer
        for observation in step.observations:
            data = observation.data
            if (
                not observation.failed
                and {data.get("first"), data.get("second")} == {SOURCE, EDITED}
                and "regions" in data
            ):
                has_boxes = data.get("first") == SOURCE and not data.get("whole_scene")
                listed = tuple(Box.model_validate(region["box"]) for region in data["regions"]) if has_boxes else None
                cropped = len(data.get("crops", ()))
    return statements, answer
