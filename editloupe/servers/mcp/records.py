"""What the tools' results hold beside text and pictures: the output schemas clients are told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class PictureNote(BaseModel):
    """A picture of the result, which itself stands in the content."""

    caption: str
    size: list[int] = Field(description="Width and height of the original, in pixels.")
    shown_size: list[int] = Field(description="Width and height as shown here.")


class Told(BaseModel):
    """What every result has."""

    pictures: list[PictureNote] = Field(default=[], description="The pictures of this result, in their order.")
    notes: list[str] = Field(default=[], description="What was left out or shrunk, and what else should be known.")


class LookResult(Told):
    """What a visual tool saw."""

    tool: str
    text: str
    data: dict[str, Any] = Field(default={}, description="The measured facts, positions in pixels of the originals.")


class VerdictNote(BaseModel):
    """One criterion: a verdict, or why there is none."""

    criterion: str
    status: Literal["judged", "unjudged"]
    label: str | None = None
    score_100: float | None = Field(default=None, description="0 to 100; null where it was not judged.")
    values: dict[str, Any] = {}
    rationale: str = ""
    confidence: float | None = None
    reason: str | None = Field(default=None, description="Why it was not judged, one of a closed set.")
    detail: str | None = Field(default=None, description="The same in a sentence.")
    steps: int = 0


class JudgeResult(Told):
    """What a judge says of an edit."""

    edit_id: str = Field(description="What read_trace takes.")
    status: Literal["judged", "unjudged"] = Field(description="unjudged where any criterion was left open.")
    score_100: float | None = Field(
        default=None, description="The edit's own score by the protocol's formula; null where it has none."
    )
    judge: str
    protocol: str
    mode: str
    verdicts: list[VerdictNote]
    usage: dict[str, int] = {}


class SeenNote(BaseModel):
    """What came back from a tool."""

    tool: str
    text: str
    failed: bool = False
    captions: list[str] = []


class StepNote(BaseModel):
    """One turn of the judge."""

    index: int
    thought: str = ""
    calls: list[dict[str, Any]] = []
    observations: list[SeenNote] = []
    answer: str | None = None
    problem: str | None = None


class TraceNote(BaseModel):
    """The steps behind one outcome."""

    target: int | None = Field(default=None, description="Which target box, where targets are judged one by one.")
    notes: list[str] = []
    steps: list[StepNote] = []


class UnitNote(VerdictNote):
    """One outcome of a run, with its steps."""

    repeat: int = 0
    judge: str = ""
    protocol: str = ""
    mode: str = ""
    traces: list[TraceNote] = []


class TraceResult(Told):
    """The story behind the verdicts on one edit."""

    edit_id: str
    instruction: str
    units: list[UnitNote]
