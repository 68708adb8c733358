"""Build MCP results below a size limit by shrinking pictures and shortening texts, with a note in the result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mcp_types import CallToolResult, ImageContent, TextContent
from pydantic import BaseModel, Field

from editloupe._util.json_safe import sanitize
from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.secrets import Secrets
from editloupe.pictures.decode import Picture
from editloupe.pictures.encode import LONG_SIDE, EncodedPicture, EncodingLimits


class PictureNote(BaseModel):
    """Describes a picture whose data is in the content."""

    caption: str
    size: list[int] = Field(description="Width and height of the original, in pixels.")
    shown_size: list[int] = Field(description="Width and height as shown here.")


class ToolOutput(BaseModel):
    """Fields of every result."""

    pictures: list[PictureNote] = Field(default=[], description="The pictures of this result, in their order.")
    notes: list[str] = Field(default=[], description="What was left out or shrunk, and what else should be known.")


class LookResult(ToolOutput):
    """The result of a visual tool."""

    tool: str
    text: str
    data: dict[str, Any] = Field(
        default={}, description="Measured facts; positions are in pixels of the original pictures."
    )


class VerdictNote(BaseModel):
    """The verdict on one criterion, or the reason it is unjudged."""

    criterion: str
    status: Literal["judged", "unjudged"]
    label: str | None = None
    score_100: float | None = Field(default=None, description="0 to 100; null if it was not judged.")
    values: dict[str, Any] = {}
    rationale: str = ""
    confidence: float | None = None
    reason: str | None = Field(default=None, description="Why it was not judged, one of a closed set.")
    detail: str | None = Field(default=None, description="The same in a sentence.")
    steps: int = 0


class JudgeResult(ToolOutput):
    """The verdicts on an edit."""

    edit_id: str = Field(description="What read_trace takes.")
    status: Literal["judged", "unjudged"] = Field(description="unjudged if any criterion is unjudged.")
    score_100: float | None = Field(
        default=None, description="The edit's own score by the protocol's formula; null if it has none."
    )
    judge: str
    protocol: str
    mode: str
    verdicts: list[VerdictNote]
    usage: dict[str, int] = {}


class SeenNote(BaseModel):
    """What a tool returned."""

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
    """The steps that led to one outcome."""

    target: int | None = Field(default=None, description="Index of the target box, if targets are judged separately.")
    notes: list[str] = []
    steps: list[StepNote] = []


class UnitNote(VerdictNote):
    """One outcome of a run with its steps."""

    repeat: int = 0
    judge: str = ""
    protocol: str = ""
    mode: str = ""
    traces: list[TraceNote] = []


class TraceResult(ToolOutput):
    """All outcomes of one edit with their steps."""

    edit_id: str
    instruction: str
    units: list[UnitNote]


MOST_PICTURES = 8
TEXT_SHARE = 0.4
"""Share of a result for texts (content and structured data together); the rest is for pictures."""
LENGTHS = (20_000, 4_000, 1_000, 250, 60)
"""Maximum characters of a single text, tried in order."""
MOST_ENTRIES = 40
"""Maximum entries of a list, applied if shorter texts are not enough."""
ENVELOPE = 2_000
"""Bytes reserved for the protocol's envelope."""
_CLEAN = Secrets()


@dataclass(frozen=True)
class ShownPicture:
    """A picture with its caption."""

    picture: Picture
    caption: str


def error_result(sentence: str) -> CallToolResult:
    """Return an error result."""
    return CallToolResult(content=[TextContent(type="text", text=clean(sentence, 600))], is_error=True)


def build_result(text: str, output: ToolOutput, pictures: Sequence[ShownPicture], limit: int) -> CallToolResult:
    """Return a result of text, data and pictures within `limit` bytes, with notes on what was omitted or shrunk."""
    notes = list(output.notes)
    if len(pictures) > MOST_PICTURES:
        notes.append(f"the first {MOST_PICTURES} of {len(pictures)} pictures are shown")
        pictures = pictures[:MOST_PICTURES]
    room = int(limit * TEXT_SHARE)
    text, data, cut = _shorten_to_fit(_CLEAN(text), _CLEAN.in_value(sanitize(output)), room // 2)
    notes += [cut] if cut else []
    wires = _encode_pictures(pictures, limit - room - ENVELOPE)
    described = []
    for number, (item, wire) in enumerate(zip(pictures, wires, strict=True), 1):
        described.append(
            PictureNote(caption=_CLEAN(item.caption), size=list(item.picture.size), shown_size=list(wire.size))
        )
        if wire.size != item.picture.size:
            notes.append(
                f"picture {number} was shrunk from {_format_size(item.picture.size)} to {_format_size(wire.size)} pixels, "
                f"so that the result stays below {limit / 10**6:g} MB"
            )
    notes = [_CLEAN(note) for note in notes]
    data |= {"notes": notes, "pictures": sanitize(described)}
    full_text = "\n".join([text, *(f"Note: {note.rstrip('.')}." for note in notes)])
    content: list[Any] = [TextContent(type="text", text=full_text)]
    for number, (note, wire) in enumerate(zip(described, wires, strict=True), 1):
        content.append(TextContent(type="text", text=f"Picture {number}: {note.caption} ({_format_size(wire.size)})"))
        content.append(ImageContent(type="image", data=wire.base64.decode(), mime_type=wire.media_type))
    return CallToolResult(content=content, structured_content=data)


def _encode_pictures(pictures: Sequence[ShownPicture], room: int) -> list[EncodedPicture]:
    """Encode all pictures within `room` bytes of base64; the largest is shrunk first."""
    heaviest = room * 3 // 4
    while True:
        wires = [item.picture.wire(EncodingLimits(LONG_SIDE, heaviest)) for item in pictures]
        if sum(len(wire.base64) for wire in wires) <= room or heaviest < 4096:
            return wires
        heaviest = int(max(wire.bytes for wire in wires) * 0.75)


def _shorten_to_fit(text: str, data: dict[str, Any], room: int) -> tuple[str, dict[str, Any], str | None]:
    """Return text and data, each within `room` bytes, and a note if something was shortened."""
    cut = None
    while (size := _count_bytes(text)) > room:
        text = text[: int(len(text) * 0.95 * room / size)] + "…"
        cut = "long texts were shortened"
    for longest in LENGTHS:
        if _count_bytes(data) <= room:
            return text, data, cut
        data, cut = _shorten(data, longest), "long texts were shortened"
    if _count_bytes(data) > room:
        data, cut = _shorten(data, LENGTHS[-1], MOST_ENTRIES), f"long lists were cut to {MOST_ENTRIES} entries"
    return text, data, cut


def _shorten(value: Any, longest: int, entries: int | None = None) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[: longest - 1]}…"
    if isinstance(value, dict):
        return {name: _shorten(inner, longest, entries) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shorten(inner, longest, entries) for inner in value[:entries]]
    return value


def _count_bytes(data: Any) -> int:
    return len(json.dumps(data, ensure_ascii=False).encode())


def _format_size(size: Sequence[int]) -> str:
    return f"{size[0]} × {size[1]}"
