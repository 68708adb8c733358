"""Compare the text read in the edited picture with the requested text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from editloupe.agent.rules.instructions import ChangeRequest
from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, Case
from editloupe.tools.contract import NoResultCache, ResultCache, ToolError, View
from editloupe.tools.read_text import ReadText
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box


@cache
def _reader() -> ReadText:
    """Return the reader of this process; its models load on first use."""
    return ReadText(ToolSettings.from_environment())


@dataclass(frozen=True)
class TextReading:
    """The result of reading a text edit; `done` is False if nothing could read it."""

    done: bool = False
    new: float = 0.0
    """How much of the requested text was read, 0 to 1."""
    old: float = 0.0
    more: float = 0.0
    """Letters read in addition to the requested text, as a share of it."""
    lines: tuple[str, ...] = ()

    def numbers(self) -> dict[str, float]:
        """Return the reading as numbers."""
        return {"read": float(self.done), "read_new": self.new, "read_old": self.old, "read_more": min(2.0, self.more)}

    def say(self, request: ChangeRequest) -> str:
        """Describe the reading."""
        if not self.done:
            return "The text could not be read on this machine (no text reader), so this rests on pixels alone."
        if not self.lines:
            return "No text was read in the edited picture."
        lines = ", ".join(f"“{line}”" for line in self.lines[:6])
        return f"Read: {lines}; likeness to “{request.new}” {self.new:.2f}, to “{request.old}” {self.old:.2f}."


def compare_text(request: ChangeRequest, lines: list[str]) -> TextReading:
    """Compare the lines that were read with the requested and the old text, ignoring case, spaces and punctuation.

    >>> compare_text(ChangeRequest("text", "sign", "OPEN NOW", "CLOSED"), ["open", "now"]).new
    1.0
    """
    new, old = _plain(request.new), _plain(request.old)
    best_new, best_old = _likeness(new, lines), _likeness(old, lines)
    letters = sum(len(_plain(line)) for line in lines)
    more = max(0.0, (letters - len(new)) / max(1, len(new))) if best_new > 0.6 else 0.0
    return TextReading(True, best_new, best_old, more, tuple(lines))


def read_tool_result(
    request: ChangeRequest,
    data: Mapping[str, Any],
    targets: Sequence[Box] = (),
    places: Sequence[Mapping[str, Any]] = (),
) -> TextReading:
    """Use the result of the `read_text` tool; if the targets are known, only lines on them.

    Args:
        request: The requested change.
        data: The tool's result.
        targets: Boxes of the target.
        places: Texts that `localize_differences` read, enlarged, where the pictures differ: small letters of a large
            picture that were missed in the reading of the whole.
    """
    lines_on_targets = [
        line for line in data.get("lines", ()) if not targets or any(_on(line["box"], target) for target in targets)
    ]
    lines = [str(line["text"]) for line in lines_on_targets]
    for difference in places:
        text = str(difference["second"]["text"]) if difference.get("second") else ""
        if _plain(text) and _plain(text) not in "".join(_plain(line) for line in lines):
            lines.append(text)
    return compare_text(request, lines)


def _on(line: Sequence[float], target: Box) -> bool:
    """Return True if a line's centre is on the target or within half its size: an enlarged sign carries more lines."""
    x, y = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    dx, dy = target.size[0] / 2, target.size[1] / 2
    return target.x1 - dx <= x <= target.x2 + dx and target.y1 - dy <= y <= target.y2 + dy


def read_edited(
    case: Case,
    album: Album,
    request: ChangeRequest,
    places: Sequence[Mapping[str, Any]] = (),
    memory: ResultCache | None = None,
) -> TextReading:
    """Read the edited picture without a tool call, as a model that sees it would; not `done` without a reader.

    Args:
        case: The case.
        album: Its pictures.
        request: The requested change.
        places: See `read_tool_result`.
        memory: A cache of what was read.
    """
    reader = _reader()
    if reader.unavailable():
        return TextReading()
    try:
        view = View(album, case.pictures, case.edit.instruction, memory=memory or NoResultCache())
        result = reader.run({"target_image": EDITED}, view)
    except ToolError:
        return TextReading()
    return read_tool_result(request, result.data, case.target_boxes.get(EDITED, ()), places)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def _likeness(wanted: str, lines: list[str]) -> float:
    """Return the similarity of the requested text to one line or to all lines together."""
    if not wanted:
        return 0.0
    pieces = [_plain(line) for line in lines]
    pieces.append("".join(pieces))
    scores = [SequenceMatcher(None, wanted, piece, autojunk=False).ratio() for piece in pieces if piece]
    contained = [1.0 for piece in pieces if wanted in piece]
    return max(scores + contained, default=0.0)
