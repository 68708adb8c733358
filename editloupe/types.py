"""The records everything else speaks in: frozen pydantic models, nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationInfo, field_validator, model_validator

from editloupe._util.errors import UserError as UserError
from editloupe._util.json_safe import writable
from editloupe._util.tables import data_frame, format_cell, html_table
from editloupe._util.text import one_line
from editloupe.pictures.memory import MemoryPicture, PictureField, PictureSource, read_picture

T = TypeVar("T")
Sha = str
"""A picture's content hash; the state of a graph and a trace hold these, never pixels."""

Mode = Literal["tools", "oracle", "plain"]
UNJUDGED: Literal["unjudged"] = "unjudged"
"""The status of an outcome without a verdict, and what tables and lists of labels show in its place."""
MAX_COORDINATE = 2**40
"""No position in a picture is farther away; numbers up to here can be multiplied without losing any of them."""


class Record(BaseModel):
    """Base of all records: frozen, strict about unknown fields; a number that is none stays visible in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class StopAtFirst(FailFast):
    """Refuse a sequence at its first wrong item; hashable, as `Annotated[...] | None` needs it to be.

    Pydantic otherwise keeps an error of every item, with which a small request can take all memory.
    """

    def __hash__(self) -> int:
        return hash(self.fail_fast)


Several = Annotated[tuple[T, ...], StopAtFirst()]
"""Values from outside the program, refused at the first wrong one."""


class Box(Record):
    """A rectangle in pixels, x2 and y2 exclusive; accepts `[x1, y1, x2, y2]`.

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
                raise ValueError("a box has four numbers x1, y1, x2, y2, and none of them is infinite")
            return {
                k: round(v) if isinstance(v, float) else v for k, v in zip(("x1", "y1", "x2", "y2"), value, strict=True)
            }
        return value

    @model_validator(mode="after")
    def _has_area(self) -> Box:
        if max(map(abs, self)) > MAX_COORDINATE:
            raise ValueError("a box has numbers of pixels, and no picture is that large")
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
        """Return the part inside a picture of this size, or None where nothing is left.

        >>> Box.model_validate([-5, 0, 10, 10]).clamped(8, 8)
        Box(x1=0, y1=0, x2=8, y2=8)
        """
        x1, y1, x2, y2 = max(0, self.x1), max(0, self.y1), min(width, self.x2), min(height, self.y2)
        return Box(x1=x1, y1=y1, x2=x2, y2=y2) if x2 > x1 and y2 > y1 else None

    def scaled(self, x_factor: float, y_factor: float) -> Box:
        """Return the box in a picture resized by these factors, never thinner than a pixel.

        >>> Box.model_validate([10, 10, 20, 30]).scaled(0.5, 2)
        Box(x1=5, y1=20, x2=10, y2=60)
        """
        x1, y1 = round(self.x1 * x_factor), round(self.y1 * y_factor)
        return Box(x1=x1, y1=y1, x2=max(x1 + 1, round(self.x2 * x_factor)), y2=max(y1 + 1, round(self.y2 * y_factor)))


STORED = "kept"
"""The context in which a record is read that was written by us: what it holds could be written."""


Boxes = Several[Box]
"""Boxes, refused at the first wrong one."""


class Edit(Record):
    """What is judged: an instruction, the picture before, the picture after."""

    id: str = ""
    """Unique in a run; the stem of the edited picture's file name where none is given, in memory the head of its hash."""
    source: PictureField
    edited: PictureField
    instruction: str
    instruction_type: str | None = None
    """One of the protocol's types, such as `Change Color`."""
    target_boxes: Boxes = ()
    """Annotated targets, in pixels of the source picture."""
    reference: PictureField | None = None
    """A picture of the edit done right."""
    hint: str | None = None
    model: str | None = None
    """The editing model that made the picture."""
    turn: int | None = None
    human: Mapping[str, str | tuple[str, ...]] = Field(default_factory=dict)
    """Labels given by people: criterion to one label, or one label an annotator."""
    more_images: Mapping[str, tuple[PictureField, ...]] = Field(default_factory=dict)
    """Pictures in further roles (annotated, references, pose…), by role."""
    extra: Mapping[str, Any] = Field(default_factory=dict)
    """Other fields of the manifest, kept for grouping and for protocols that read them."""

    @property
    def files(self) -> dict[str, tuple[PictureSource, ...]]:
        """Its pictures, by role; a role with a field of its own is that field's."""
        reference = {"reference": (self.reference,)} if self.reference else {}
        named = {"source": (self.source,), "edited": (self.edited,), **reference}
        return named | {role: paths for role, paths in self.more_images.items() if role not in named}

    @property
    def paths(self) -> tuple[PictureSource, ...]:
        """Its pictures, whatever their roles."""
        return tuple(path for paths in self.files.values() for path in paths)

    @model_validator(mode="before")
    @classmethod
    def _id_from_file_name(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or value.get("id") or value.get("edited") is None:
            return value
        try:
            edited = read_picture(value["edited"])
        except ValueError:  # the field itself tells it, under its name
            return value
        own = edited.sha[:16] if isinstance(edited, MemoryPicture) else Path(edited).stem
        return {**value, "edited": edited, "id": own}

    @field_validator("id", "instruction", "instruction_type", "hint", "model", "human", "extra")
    @classmethod
    def _can_be_written(cls, given: Any, info: ValidationInfo) -> Any:
        return given if info.context == STORED else writable(given)

    @model_validator(mode="after")
    def _says_something(self) -> Edit:
        if not self.instruction.strip():
            raise ValueError("the instruction is empty")
        return self


class Usage(Record):
    """Tokens and requests; cached and reasoning tokens are parts of input and output."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Served(Record):
    """What a provider says it answered with; empty where it does not say."""

    judge: str = ""
    """Who was asked."""
    model: str = ""
    """The model's version, such as `gpt-5.1-2025-11-13`."""
    fingerprint: str = ""
    """Of the system behind it, where the provider has one."""
    tier: str = ""
    """The service tier that was used."""
    route: str = ""
    """Which of several providers or deployments a proxy sent the request to."""

    @property
    def summary(self) -> str:
        """All of it in a few words.

        >>> Served(model="m-2025", fingerprint="fp_1", route="east").summary
        'm-2025, fingerprint fp_1, route east'
        """
        named = (("fingerprint", self.fingerprint), ("tier", self.tier), ("route", self.route))
        return ", ".join(part for part in (self.model, *(f"{name} {value}" for name, value in named if value)) if part)


class RequestPicture(Record):
    """A picture in a message to the model; its pixels are kept by hash."""

    picture: str
    """Its name, as the model is told."""
    sha: Sha


class RequestMessage(Record):
    """A message of a request, word for word."""

    role: Literal["system", "user", "tool", "assistant"]
    content: tuple[str | RequestPicture, ...] = ()
    """Texts and pictures in the order in which they were sent; nothing of a reply, whose words are in an earlier step."""
    prompt: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Which text of the trace's prompt is the message's; its pictures are in `content`."""
    call_id: str = Field(default="", exclude_if=lambda value: not value)
    name: str = Field(default="", exclude_if=lambda value: not value)
    """Of the tool that answers."""


class Sent(Record):
    """One picture as it went to the model."""

    name: str
    sha: Sha
    """Of the original picture, whose pixels the tools work on."""
    original_size: tuple[int, int]
    size: tuple[int, int]
    format: str
    bytes: int
    scale: float
    """Sent size over original size; 1.0 where nothing was shrunk."""


class ToolCall(Record):
    """A tool the judge asked for."""

    id: str
    name: str
    parameters: Mapping[str, Any]


class Observation(Record):
    """What came back from one tool call."""

    call_id: str
    tool: str
    text: str
    pictures: tuple[Sha, ...] = ()
    captions: tuple[str, ...] = ()
    """One line a picture: what it shows."""
    data: Mapping[str, Any] = Field(default_factory=dict)
    """The measured facts behind the sentence, in original pixels."""
    failed: bool = False
    seconds: float = 0.0
    cached: bool = False


class Step(Record):
    """One turn of the judge: what it thought, what it asked for, what it saw."""

    index: int
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    answer: str | None = None
    problem: str | None = None
    """Why the reply could not be used, in the words the model was told."""
    raw: str = ""
    """The reply's text as it came."""
    sent: tuple[Sent, ...] = ()
    """Pictures that first went out with this turn's request."""
    usage: Usage = Usage()
    seconds: float = 0.0
    """Of the requests themselves; the tools' time is in the observations."""
    waited: float = Field(default=0.0, exclude_if=lambda value: not value)
    """Waiting for a place among the requests under way, for limits, and before another try."""
    attempts: int = 1
    """Requests made until this reply came."""
    asked: tuple[RequestMessage, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What the request said that no earlier one of this conversation did; empty in runs of earlier versions."""
    reply_key: str = Field(default="", exclude_if=lambda value: not value)
    """Under which the run keeps the reply: the hash of the exact request."""
    served: Served | None = Field(default=None, exclude_if=lambda value: value is None)
    """What the provider says answered; None where it says nothing."""


class Reason(StrEnum):
    """Why an edit was left unjudged: a closed set."""

    UNREADABLE = "unreadable_answer"
    NO_ANSWER = "no_answer"
    TRUNCATED = "truncated"
    MODEL_ERROR = "model_error"
    TIMEOUT = "timeout"
    REFUSED = "request_refused"
    """Because of this very content: a filter, too long, a picture the provider does not take."""
    SERVER_REFUSED = "server_refused"
    """For a reason that is not in the edit."""
    BAD_IMAGE = "bad_image"
    MISSING_INPUT = "missing_input"
    NOT_UNDERSTOOD = "not_understood"
    LOW_CONFIDENCE = "low_confidence"
    NEEDS_A_PERSON = "needs_a_person"
    """No judge of a cascade was sure enough to be trusted."""
    BUDGET = "budget"
    INTERNAL = "internal_error"


SERVER_REASONS = frozenset({Reason.MODEL_ERROR, Reason.TIMEOUT, Reason.SERVER_REFUSED})
"""Reasons that lie with the server: outcomes that end so tell nothing about the edit or the judge."""


class Opinion(Record):
    """What one of several judges said that answer together."""

    judge: str
    part: str
    """Its place among them, such as `stage 1` or `member 2`."""
    label: str | None = None
    score: float | None = None
    score_100: float | None = None
    confidence: float | None = None
    reason: Reason | None = None
    """Why it gave no verdict; None where it gave one."""
    detail: str = ""
    """Why it gave none, or why its verdict does not stand."""
    kept: bool = False
    """Whether the outcome is this opinion's."""
    asked: bool = True
    """False where it was passed over, because it may keep nothing here."""
    usage: Usage = Usage()
    opinions: tuple[Opinion, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Of whom this one is made up, where it is a panel's."""


class Verdict(Record):
    """A criterion that was judged."""

    status: Literal["judged"] = "judged"
    criterion: str
    label: str | None = None
    score: float | None
    score_100: float | None
    values: Mapping[str, Any] = Field(default_factory=dict)
    """What a rubric with checks or a read-out text answered, by key."""
    rationale: str = ""
    confidence: float | None = None
    targets: tuple[str, ...] = ()
    """Labels of the single targets where several were judged one by one; `unjudged` where one was left open that could not
    change the outcome."""
    usage: Usage = Usage()
    steps: int = 0
    opinions: tuple[Opinion, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What each judge said, where several answer together."""
    served: tuple[Served, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What the providers say answered, each once."""


class Unjudged(Record):
    """A criterion that could not be judged, and why; never a score."""

    status: Literal["unjudged"] = UNJUDGED
    criterion: str
    reason: Reason
    detail: str
    """One sentence for a person."""
    raw: str = ""
    """The text that could not be read, whole."""
    usage: Usage = Usage()
    steps: int = 0
    opinions: tuple[Opinion, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What each judge said, where several answer together."""
    served: tuple[Served, ...] = Field(default=(), exclude_if=lambda value: not value)
    """What the providers say answered, each once."""


Outcome = Annotated[Verdict | Unjudged, Field(discriminator="status")]


class Trace(Record):
    """The steps behind one outcome, for one target or for the whole edit."""

    edit_id: str
    criterion: str
    protocol: str
    mode: Mode
    judge: str
    target: int | None = None
    """Which target box this trace is about, where targets are judged one by one."""
    part: str = Field(default="", exclude_if=lambda value: not value)
    """The judge's place among several that answer together, such as `stage 1`."""
    prompt: tuple[str, ...] = ()
    """System text and task text, as first sent."""
    tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was announced: tools not offered, settings that fell away."""
    steps: tuple[Step, ...] = ()
    seconds: float = 0.0


class Judgement(Record):
    """All outcomes of one edit, with their traces."""

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
