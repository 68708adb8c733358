"""Results below a megabyte: pictures are shrunk and texts shortened until they fit, and the result says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcp_types import CallToolResult, ImageContent, TextContent

from editloupe._util.json_safe import storable
from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.secrets import Secrets
from editloupe.pictures.decode import Picture
from editloupe.pictures.encode import LONG_SIDE, Wire, WireLimits
from editloupe.servers.mcp.records import PictureNote, Told

MOST_PICTURES = 8
TEXT_SHARE = 0.4
"""How much of a result its texts may take, in words and as data together; the rest is for pictures."""
LENGTHS = (20_000, 4_000, 1_000, 250, 60)
"""Letters of a single text, tried one after the other."""
MOST_ENTRIES = 40
"""Entries of a single list, where shorter texts are not enough."""
ENVELOPE = 2_000
"""Bytes for what the protocol puts around a result."""
_CLEAN = Secrets()


@dataclass(frozen=True)
class Shown:
    """A picture to be shown."""

    picture: Picture
    caption: str


def failure(sentence: str) -> CallToolResult:
    """Return the error result with this one sentence."""
    return CallToolResult(content=[TextContent(type="text", text=clean(sentence, 600))], is_error=True)


def success(text: str, told: Told, pictures: Sequence[Shown], limit: int) -> CallToolResult:
    """Return a result of text, data and pictures within so many bytes; what had to be left out or shrunk is said in it."""
    notes = list(told.notes)
    if len(pictures) > MOST_PICTURES:
        notes.append(f"the first {MOST_PICTURES} of {len(pictures)} pictures are shown")
        pictures = pictures[:MOST_PICTURES]
    room = int(limit * TEXT_SHARE)
    text, data, cut = _fitted(_CLEAN(text), _CLEAN.in_value(storable(told)), room // 2)
    notes += [cut] if cut else []
    wires = _encoded(pictures, limit - room - ENVELOPE)
    described = []
    for number, (shown, wire) in enumerate(zip(pictures, wires, strict=True), 1):
        described.append(
            PictureNote(caption=_CLEAN(shown.caption), size=list(shown.picture.size), shown_size=list(wire.size))
        )
        if wire.size != shown.picture.size:
            notes.append(
                f"picture {number} was shrunk from {_times(shown.picture.size)} to {_times(wire.size)} pixels, "
                f"so that the result stays below {limit / 10**6:g} MB"
            )
    notes = [_CLEAN(note) for note in notes]
    data |= {"notes": notes, "pictures": storable(described)}
    whole = "\n".join([text, *(f"Note: {note.rstrip('.')}." for note in notes)])
    content: list[Any] = [TextContent(type="text", text=whole)]
    for number, (note, wire) in enumerate(zip(described, wires, strict=True), 1):
        content.append(TextContent(type="text", text=f"Picture {number}: {note.caption} ({_times(wire.size)})"))
        content.append(ImageContent(type="image", data=wire.base64.decode(), mime_type=wire.media_type))
    return CallToolResult(content=content, structured_content=data)


def _encoded(pictures: Sequence[Shown], room: int) -> list[Wire]:
    """Encode all pictures within so many bytes of base64, the heaviest shrunk first."""
    heaviest = room * 3 // 4
    while True:
        wires = [shown.picture.wire(WireLimits(LONG_SIDE, heaviest)) for shown in pictures]
        if sum(len(wire.base64) for wire in wires) <= room or heaviest < 4096:
            return wires
        heaviest = int(max(wire.bytes for wire in wires) * 0.75)


def _fitted(text: str, data: dict[str, Any], room: int) -> tuple[str, dict[str, Any], str | None]:
    """Return text and data, each within so many bytes, and what was done to them."""
    cut = None
    while (size := _size(text)) > room:
        text = text[: int(len(text) * 0.95 * room / size)] + "…"
        cut = "long texts were shortened"
    for longest in LENGTHS:
        if _size(data) <= room:
            return text, data, cut
        data, cut = _shorter(data, longest), "long texts were shortened"
    if _size(data) > room:
        data, cut = _shorter(data, LENGTHS[-1], MOST_ENTRIES), f"long lists were cut to {MOST_ENTRIES} entries"
    return text, data, cut


def _shorter(value: Any, longest: int, entries: int | None = None) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[: longest - 1]}…"
    if isinstance(value, dict):
        return {name: _shorter(inner, longest, entries) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shorter(inner, longest, entries) for inner in value[:entries]]
    return value


def _size(data: Any) -> int:
    return len(json.dumps(data, ensure_ascii=False).encode())


def _times(size: Sequence[int]) -> str:
    return f"{size[0]} × {size[1]}"
