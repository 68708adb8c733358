"""Frozen pydantic records of edits, verdicts, traces and judgements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationInfo, field_validator, model_validator

from editloupe._util.errors import UserError as UserError
from editloupe._util.json_safe import validate_field
from editloupe._util.tables import data_frame, format_cell, html_table
from editloupe._util.text import one_line
from editloupe.pictures.memory import MemoryPicture, PictureField, PictureSource, read_picture
from editloupe.pictures.table_cells import picture_stem

T = TypeVar("T")
Sha = str
"""A picture's content hash. Graph states and traces hold these hashes, never pixels."""

Mode = Literal["tools", "oracle", "plain"]
UNJUDGED: Literal["unjudged"] = "unjudged"
"""The status of an outcome without a verdict; tables and lists of labels show this word too."""
NOT_APPLICABLE = "not applicable"
"""The label of a verdict without a score: the criterion has nothing to judge in this edit, which is a complete outcome."""
MAX_COORDINATE = 2**40
"""The largest absolute coordinate of a box; products of such numbers are still exact."""


class Record(BaseModel):
    """Base of all records: frozen, without unknown fields. NaN and infinity are serialized as strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class StopAtFirst(FailFast):
    """Refuse a sequence at its first wrong item. Hashable, because `Annotated[...] | None` requires it.

    By default pydantic keeps one error per item, so that a small request could use up all memory.
    """

    def __hash__(self) -> int:
        return hash(self.fail_fast)


FailFastTuple = Annotated[tuple[T, ...], StopAtFirst()]
"""A tuple of values from outside the program; validation stops at the first wrong one."""


class Box(Record):
    """A rectangle in pixels. It is also validated from a list `[x1, y1, x2, y2]`.

    Args:
        x1: The left edge.
        y1: The top edge.
        x2: The right edge, exclusive.
        y2: The bottom edge, exclusive.

    Example:
        >>> Box.model_validate([10, 20, 30, 60]).size
        (20, 40)
    """

    x1: int
    y1: int
    x2: int
    y2: int

    @model_validator(mode="before")
    @classmethod
    def _from_sequence(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            if len(value) != 4:
                raise ValueError(f"a box has four numbers x1, y1, x2, y2, not {len(value)}")
            if any(isinstance(v, float) and not math.isfinite(v) for v in value):
                raise ValueError("a box has four finite numbers x1, y1, x2, y2")
            return {
                k: round(v) if isinstance(v, float) else v for k, v in zip(("x1", "y1", "x2", "y2"), value, strict=True)
            }
        return value

    @model_validator(mode="after")
    def _has_area(self) -> Box:
        if max(map(abs, self)) > MAX_COORDINATE:
            raise ValueError("a box has coordinates in pixels, and these are larger than any picture")
        if self.x2 <= self.x1 or self.y2 <= self.y1:
            raise ValueError(f"box {list(self)} has no area: x2 must be greater than x1 and y2 greater than y1")
        return self

    def __iter__(self) -> Iterator[int]:  # type: ignore[override]
        return iter((self.x1, self.y1, self.x2, self.y2))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.x2 - self.x1, self.y2 - self.y1

    @property
    def area(self) -> int:
        """Width times height."""
        return self.size[0] * self.size[1]

    def clamped(self, width: int, height: int) -> Box | None:
        """Return the part inside a picture of this size, or None if there is none.

        >>> Box.model_validate([-5, 0, 10, 10]).clamped(8, 8)
        Box(x1=0, y1=0, x2=8, y2=8)
        """
        x1, y1, x2, y2 = max(0, self.x1), max(0, self.y1), min(width, self.x2), min(height, self.y2)
        return Box(x1=x1, y1=y1, x2=x2, y2=y2) if x2 > x1 and y2 > y1 else None

    def scaled(self, x_factor: float, y_factor: float) -> Box:
        """Return the box in a picture resized by these factors, at least one pixel wide and high.

        >>> Box.model_validate([10, 10, 20, 30]).scaled(0.5, 2)
        Box(x1=5, y1=20, x2=10, y2=60)
        """
        x1, y1 = round(self.x1 * x_factor), round(self.y1 * y_factor)
        return Box(x1=x1, y1=y1, x2=max(x1 + 1, round(self.x2 * x_factor)), y2=max(y1 + 1, round(self.y2 * y_factor)))


STORED = "kept"
"""The validation context of records read from a run: their texts were checked when they were written."""
Boxes = FailFastTuple[Box]


class Edit(Record):
    """The edit to judge: an instruction, the picture before and the picture after.

    A picture is a path, bytes, a data URL, a PIL image or a numpy array.

    Args:
        id: The edit's name, unique in a run. By default the stem of the edited picture's file name, or the beginning of the
            hash of a picture in memory.
        source: The picture before the edit.
        edited: The picture after the edit.
        instruction: The text that the editing model was given.
        instruction_type: One of the protocol's types, such as `Change Color`.
        target_boxes: Annotated targets, in pixels of the source picture.
        reference: A picture of the correct edit.
        hint: A text that explains the instruction, for protocols that use one.
        model: The editing model that made the picture.
        turn: The number of this edit in a chain of edits.
        human: Labels by people, by criterion: one label, or one label per annotator.
        more_images: Further pictures by role, such as `annotated`, `references` or `pose`.
        extra: Other fields of the manifest, for grouping and for protocols that read them.

    Raises:
        pydantic.ValidationError: If a field is missing or wrong, such as an empty instruction.

    Example:
        >>> Edit(source="before.png", edited="out/cup.png", instruction="Make the cup red").id
        'cup'
    """

    id: str = ""
    """Unique in a run. By default the stem of the edited picture's file name, or the beginning of its hash."""
    source: PictureField
    edited: PictureField
    instruction: str
    instruction_type: str | None = None
    """One of the protocol's types, such as `Change Color`."""
    target_boxes: Boxes = ()
    """Annotated targets, in pixels of the source picture."""
    reference: PictureField | None = None
    """A picture of the correct edit."""
    hint: str | None = None
    model: str | None = None
    """The editing model that made the picture."""
    turn: int | None = None
    human: Mapping[str, str | tuple[str, ...]] = Field(default_factory=dict)
    """Labels by people, by criterion: one label, or one label per annotator."""
    more_images: Mapping[str, tuple[PictureField, ...]] = Field(default_factory=dict)
    """Further pictures by role, such as `annotated`, `references` or `pose`."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
    """Other fields of the manifest, for grouping and for protocols that read them."""

    @property
    def files(self) -> dict[str, tuple[PictureSource, ...]]:
        """The pictures by role. A role that has a field of its own is taken from that field."""
        reference = {"reference": (self.reference,)} if self.reference else {}
        named = {"source": (self.source,), "edited": (self.edited,), **reference}
        return named | {role: paths for role, paths in self.more_images.items() if role not in named}

    @property
    def paths(self) -> tuple[PictureSource, ...]:
        """All pictures of the edit."""
        return tuple(path for paths in self.files.values() for path in paths)

    @model_validator(mode="before")
    @classmethod
    def _id_from_file_name(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or value.get("id") or value.get("edited") is None:
            return value
        try:
            edited = read_picture(value["edited"])
        except ValueError:  # the field's own validation reports it under its name
            return value
        own = edited.sha[:16] if isinstance(edited, MemoryPicture) else picture_stem(Path(edited))
        return {**value, "edited": edited, "id": own}

    @field_validator("id", "instruction", "instruction_type", "hint", "model", "human", "extra")
    @classmethod
    def _can_be_written(cls, value: Any, info: ValidationInfo) -> Any:
        return value if info.context == STORED else validate_field(value)

    @model_validator(mode="after")
    def _says_something(self) -> Edit:
        if not self.instruction.strip():
            raise ValueError("the instruction is empty")
        return self


class Usage(Record):
    """Numbers of requests and tokens. Cached tokens are part of the input, reasoning tokens part of the output."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Served(Record):
    """What a provider reports about the model that answered; empty fields were not reported."""

    judge: str = ""
    """The spec of the judge that was asked."""
    model: str = ""
    """The model's version, such as `gpt-5.1-2025-11-13`."""
    fingerprint: str = ""
    """The fingerprint of the serving system, if the provider reports one."""
    tier: str = ""
    """The service tier that was used."""
    route: str = ""
    """Which of several providers or deployments a proxy sent the request to."""
    fallback: str = Field(default="", exclude_if=lambda value: not value)
    """The model that a proxy asked instead, because the one that was asked did not answer."""

    @property
    def summary(self) -> str:
        """All fields in one line.

        >>> Served(model="m-2025", fingerprint="fp_1", route="east").summary
        'm-2025, fingerprint fp_1, route east'
        """
        names = ("fingerprint", "tier", "route", "fallback")
        return ", ".join(filter(None, (self.model, *(f"{n} {value}" for n in names if (value := getattr(self, n))))))


class RequestPicture(Record):
    """A picture in a message to the model, referred to by its hash."""

    picture: str
    """The name under which the model sees it."""
    sha: Sha


class RequestMessage(Record):
    """A message of a request, verbatim."""

    role: Literal["system", "user", "tool", "assistant"]
    content: tuple[str | RequestPicture, ...] = ()
    """Texts and pictures in the order sent. Empty for a reply of the model, whose text is in an earlier step."""
    prompt: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """The index of the message's text in the trace's `prompt`; its pictures are in `content`."""
    call_id: str = Field(default="", exclude_if=lambda value: not value)
    name: str = Field(default="", exclude_if=lambda value: not value)
    """The name of the tool that answers."""


class SentPicture(Record):
    """A picture as it was sent to the model."""

    name: str
    sha: Sha
    """The hash of the original picture, whose pixels the tools work on."""
    original_size: tuple[int, int]
    size: tuple[int, int]
    format: str
    bytes: int
    scale: float
    """Sent size over original size; 1.0 if the picture was not shrunk."""


class ToolCall(Record):
    """A tool call of the judge."""

    id: str
    name: str
    parameters: Mapping[str, Any]


class Observation(Record):
    """The result of one tool call."""

    call_id: str
    tool: str
    text: str
    pictures: tuple[Sha, ...] = ()
    captions: tuple[str, ...] = ()
    """One line per picture that says what it shows."""
    data: Mapping[str, Any] = Field(default_factory=dict)
    """The measurements that `text` states, in pixels of the original picture."""
    failed: bool = False
    seconds: float = 0.0
    cached: bool = False


class Step(Record):
    """One turn of the judge: its reasoning, its tool calls and their observations."""

    index: int
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    answer: str | None = None
    problem: str | None = None
    """Why the reply could not be used, as sent to the model."""
    raw: str = ""
    """The text of the reply, unchanged."""
    sent: tuple[SentPicture, ...] = ()
    """Pictures that were first sent with this turn's request."""
    usage: Usage = Usage()
    seconds: float = 0.0
    """Time of the requests; the time of the tools is in the observations."""
    waited: float = Field(default=0.0, exclude_if=lambda value: not value)
    """Seconds spent waiting for the concurrency limit, for rate limits and before retries."""
    attempts: int = 1
    """Requests sent until this reply arrived."""
    asked: tuple[RequestMessage, ...] = Field(default=(), exclude_if=lambda value: not value)
    """The messages that this request added to the conversation; empty in runs of earlier versions."""
    reply_key: str = Field(default="", exclude_if=lambda value: not value)
    """The hash of the exact request, under which the run stores the reply."""
    served: Served | None = Field(default=None, exclude_if=lambda value: value is None)
    """What the provider reports about the model that answered, if anything."""


class Reason(StrEnum):
    """Why a criterion was left unjudged. The set is closed: no other reason exists.

    Example:
        >>> Reason("bad_image") is Reason.BAD_IMAGE
        True
    """

    UNREADABLE = "unreadable_answer"
    """The reply holds no answer in the required form, even after the allowed repairs."""
    NO_ANSWER = "no_answer"
    """The judge used up its turns, or replied with nothing."""
    TRUNCATED = "truncated"
    """The reply was cut off at the limit of output tokens."""
    MODEL_ERROR = "model_error"
    """The server or a model failed, even after retries."""
    TIMEOUT = "timeout"
    """The server did not reply in time, even after retries."""
    REFUSED = "request_refused"
    """The provider refused this content: a safety filter, too many tokens, or an unsupported picture."""
    SERVER_REFUSED = "server_refused"
    """The server refused the request for a reason that has nothing to do with the edit."""
    BAD_IMAGE = "bad_image"
    """A picture is missing, damaged or too large."""
    MISSING_INPUT = "missing_input"
    """The edit lacks something that the rubric needs, such as a target box, or this machine the weights of a measure."""
    NOT_UNDERSTOOD = "not_understood"
    """The embedded judge cannot interpret the instruction."""
    LOW_CONFIDENCE = "low_confidence"
    """The judge's confidence is below `min_confidence`."""
    NEEDS_A_PERSON = "needs_a_person"
    """No judge of a cascade was confident enough to be trusted."""
    BUDGET = "budget"
    """A cap on cost, tokens or requests was reached."""
    INTERNAL = "internal_error"
    """Judging failed because of an error in the program or in a plug-in."""


SERVER_REASONS = frozenset({Reason.MODEL_ERROR, Reason.TIMEOUT, Reason.SERVER_REFUSED})
"""Failures of the server. Such outcomes say nothing about the edit or the judge."""


class Opinion(Record):
    """The answer of one judge of a panel or a cascade."""

    judge: str
    part: str
    """Its position, such as `stage 1` or `member 2`."""
    label: str | None = None
    score: float | None = None
    score_100: float | None = None
    confidence: float | None = None
    reason: Reason | None = None
    """Why it gave no verdict; None if it gave one."""
    detail: str = ""
    """Why it gave no verdict, or why its verdict does not count."""
    kept: bool = False
    """Whether the outcome is this opinion."""
    asked: bool = True
    """False if the judge was skipped because its calibration keeps nothing of this criterion."""
    usage: Usage = Usage()
    opinions: tuple[Opinion, ...] = Field(default=(), exclude_if=lambda value: not value)
    """The opinions of its members, if this is the opinion of a panel."""


class Verdict(Record):
    """The outcome of a criterion that was judged.

    Args:
        status: Always `judged`; distinguishes a verdict from an `Unjudged` in JSON.
        criterion: The name of the criterion.
        label: The label that the judge chose, if the rubric has labels; `not applicable` if there is nothing to judge.
        score: The score on the rubric's own scale.
        score_100: The score from 0 to 100; None if the answer has no number.
        values: The answers of a rubric with checks or with a text to read, by key.
        rationale: The judge's reasoning.
        confidence: The judge's confidence from 0 to 1, if it has one.
        targets: The label of each target, if several targets were judged one by one.
        usage: Requests and tokens.
        steps: The number of steps in the trace.
        opinions: The answers of the single judges of a panel or a cascade.
        served: What the providers report about the models that answered.

    Example:
        >>> Verdict(criterion="instruction_following", label="Wrong Action", score=1, score_100=33.3).status
        'judged'
    """

    status: Literal["judged"] = "judged"
    criterion: str
    label: str | None = None
    score: float | None
    score_100: float | None
    values: Mapping[str, Any] = Field(default_factory=dict)
    """The answers of a rubric with checks or with a text to read, by key."""
    rationale: str = ""
    confidence: float | None = None
    targets: tuple[str, ...] = ()
    """The label of each target, if several were judged one by one. A target that is `unjudged` could not change the outcome."""
    usage: Usage = Usage()
    steps: int = 0
    opinions: tuple[Opinion, ...] = Field(default=(), exclude_if=lambda value: not value)
    """The answers of the single judges of a panel or a cascade."""
    served: tuple[Served, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What the providers report about the models that answered, without repetitions."""


class Unjudged(Record):
    """The outcome of a criterion that could not be judged. It has a reason and never a score.

    Args:
        status: Always `unjudged`; distinguishes it from a `Verdict` in JSON.
        criterion: The name of the criterion.
        reason: Why there is no verdict.
        detail: The reason in one sentence.
        raw: The text that could not be read, complete.
        usage: Requests and tokens.
        steps: The number of steps in the trace.
        opinions: The answers of the single judges of a panel or a cascade.
        served: What the providers report about the models that answered.

    Example:
        >>> Unjudged(criterion="instruction_following", reason="bad_image", detail="a.png is an empty file").reason.value
        'bad_image'
    """

    status: Literal["unjudged"] = UNJUDGED
    criterion: str
    reason: Reason
    detail: str
    """The reason in one sentence."""
    raw: str = ""
    """The text that could not be read, complete."""
    usage: Usage = Usage()
    steps: int = 0
    opinions: tuple[Opinion, ...] = Field(default=(), exclude_if=lambda value: not value)
    """The answers of the single judges of a panel or a cascade."""
    served: tuple[Served, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What the providers report about the models that answered, without repetitions."""


Outcome = Annotated[Verdict | Unjudged, Field(discriminator="status")]
"""The result for one criterion: a verdict, or the reason why there is none."""


class Trace(Record):
    """The steps that led to one outcome, for one target or for the whole edit.

    Args:
        edit_id: The edit's id.
        criterion: The name of the criterion.
        protocol: The name of the protocol.
        mode: `tools`, `oracle` or `plain`.
        judge: The spec of the judge.
        target: The index of the target box, if targets are judged one by one.
        part: The judge's position in a panel or a cascade, such as `stage 1`.
        prompt: The system text and the task text, as first sent.
        tools: The names of the tools that were offered.
        notes: Tools that were not offered and settings that were not used, with the reasons.
        steps: The turns of the judge.
        seconds: The time that judging took.
    """

    edit_id: str
    criterion: str
    protocol: str
    mode: Mode
    judge: str
    target: int | None = None
    """The index of the target box, if targets are judged one by one."""
    part: str = Field(default="", exclude_if=lambda value: not value)
    """The judge's position in a panel or a cascade, such as `stage 1`."""
    prompt: tuple[str, ...] = ()
    """The system text and the task text, as first sent."""
    tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Tools that were not offered and settings that were not used, with the reasons."""
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0


class Judgement(Record):
    """All outcomes of one edit, with their traces. Notebooks show it as a table.

    Args:
        edit: The edit that was judged.
        protocol: The name of the protocol.
        mode: `tools`, `oracle` or `plain`.
        judge: The spec of the judge.
        verdicts: One `Verdict` or `Unjudged` per criterion.
        traces: The steps that led to the outcomes.
        notes: Notes for readers, such as tools that were not offered.

    Example:
        >>> verdict = Verdict(criterion="instruction_following", label="Wrong Action", score=1, score_100=33.3)
        >>> edit = Edit(source="a.png", edited="cup.png", instruction="Make the cup red")
        >>> Judgement(edit=edit, protocol="own", mode="plain", judge="rules", verdicts=[verdict])
        Judgement of 'cup' by rules (own, plain)
          instruction_following: Wrong Action (33.3 of 100)
    """

    edit: Edit
    protocol: str
    mode: Mode
    judge: str
    verdicts: tuple[Outcome, ...]
    traces: tuple[Trace, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """True if every criterion has a verdict."""
        return all(v.status == "judged" for v in self.verdicts)

    def rows(self) -> list[dict[str, Any]]:
        """Return one plain row per criterion; a criterion without a verdict has a reason and a detail."""
        about = {"edit_id": self.edit.id, "protocol": self.protocol, "mode": self.mode, "judge": self.judge}
        fields = ("criterion", "status", "label", "score", "score_100", "confidence", "reason", "detail", "rationale")
        return [{**about, **{name: getattr(outcome, name, None) for name in fields}} for outcome in self.verdicts]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame.

        Raises:
            UserError: If pandas is not installed.
        """
        return data_frame(self.rows())

    def __repr__(self) -> str:
        lines = (f"  {outcome.criterion}: {describe_outcome(outcome)}" for outcome in self.verdicts)
        return "\n".join((f"Judgement of {self.edit.id!r} by {self.judge} ({self.protocol}, {self.mode})", *lines))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        columns = ("criterion", "label", "score (0–100)", "rationale or reason")
        rows = [
            (outcome.criterion, UNJUDGED, None, f"{outcome.reason.value}: {outcome.detail}")
            if isinstance(outcome, Unjudged)
            else (outcome.criterion, outcome.label, outcome.score_100, outcome.rationale)
            for outcome in self.verdicts
        ]
        return html_table(f"{self.edit.id}: {self.protocol}, {self.mode}, judged by {self.judge}", columns, rows)


def describe_outcome(outcome: Verdict | Unjudged) -> str:
    """Return an outcome in a few words.

    >>> describe_outcome(Verdict(criterion="following", label="Wrong Action", score=1, score_100=33.333))
    'Wrong Action (33.33 of 100)'
    """
    if isinstance(outcome, Unjudged):
        return f"{UNJUDGED} ({outcome.reason.value}): {one_line(outcome.detail)}"
    values = ", ".join(f"{name}: {format_cell(value)}" for name, value in outcome.values.items())
    score = "" if outcome.score_100 is None else f" ({format_cell(outcome.score_100)} of 100)"
    return f"{format_cell(outcome.label or values or 'judged')}{score}"
