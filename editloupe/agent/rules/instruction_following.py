"""Measure the numbers for Instruction Following, in crops around a known target, in whole pictures, and in text that was read."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from editloupe.agent.rules import counting, regions
from editloupe.agent.rules.instructions import ChangeRequest
from editloupe.agent.rules.pixels import Rect, is_alike, to_rect
from editloupe.agent.rules.thresholds import FollowingChecks, LogisticCheck, Thresholds
from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE, Case
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
    new, old = measure_likeness(request.new, lines), measure_likeness(request.old, lines)
    asked, letters = len(plain_text(request.new)), sum(len(plain_text(line)) for line in lines)
    more = max(0.0, (letters - asked) / max(1, asked)) if new > 0.6 else 0.0
    return TextReading(True, new, old, more, tuple(lines))


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
        if plain_text(text) and plain_text(text) not in "".join(plain_text(line) for line in lines):
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


def plain_text(text: str) -> str:
    """Return the letters and digits of a text in lower case.

    >>> plain_text("Open 24 h!")
    'open24h'
    """
    return re.sub(r"[\W_]+", "", text.casefold())


def measure_likeness(text: str, lines: Iterable[str]) -> float:
    """Return the likeness of a text to a line that was read, or to all lines together, from 0 to 1."""
    letters = plain_text(text)
    if not letters:
        return 0.0
    pieces = [plain_text(line) for line in lines]
    pieces = [piece for piece in (*pieces, "".join(pieces)) if piece]
    if any(letters in piece for piece in pieces):
        return 1.0
    ratios = (SequenceMatcher(None, letters, piece, autojunk=False).ratio() for piece in pieces)
    return max(ratios, default=0.0)


Numbers = dict[str, float]

_MEASURING = threading.BoundedSemaphore(os.cpu_count() or 1)
"""Limits how many cases are measured at once: each takes some ten times its pictures, and more threads are not faster."""


def knows_target(case: Case) -> bool:
    """Return True if the case has crops around an annotated target and a reference."""
    return bool(case.target_boxes.get(SOURCE)) and REFERENCE in case.pictures


def measure_crops(case: Case, album: Album, request: ChangeRequest, reading: TextReading) -> Numbers:
    """Measure the target in its crops."""
    source, edited, reference = (album[case.pictures[name]].pixels for name in (SOURCE, EDITED, REFERENCE))
    boxes = [to_rect(box) for box in case.target_boxes[SOURCE]]
    with _MEASURING:
        if request.kind == "count":
            return compare_counts(counting.measure(source, edited, reference, boxes), request)
        return regions.measure_target(source, edited, reference, boxes[0]) | reading.numbers()


def compare_counts(counts: Mapping[str, float], request: ChangeRequest) -> Numbers:
    """Compare counts with the asked one; without an old count in the instruction, the annotated instances count."""
    target_count = float(request.new_count if request.new_count is not None else counts["before"])
    present = counts["kept"] + counts["recoloured"]
    return dict(counts) | {
        "moved": min(1.0, abs(counts["after"] - counts["before"])),
        "off": min(2.0, abs(counts["after"] - target_count)),
        "recoloured_share": counts["recoloured"] / present if present else 0.0,
    }


@dataclass(frozen=True)
class WholeEvidence:
    """Measurements of whole pictures: all regions, the one chosen as the target's change, and the numbers for the checks."""

    regions: tuple[regions.MeasuredRegion, ...]
    chosen: int | None
    numbers: Numbers

    @property
    def box(self) -> Rect | None:
        """The region chosen as the target's change."""
        return self.regions[self.chosen].box if self.chosen is not None else None


NOTHING: Numbers = dict.fromkeys(
    [
        "significance",
        "fill",
        "size",
        "ground_before",
        "ground_after",
        "structure",
        "detail",
        "chroma",
        "flat",
        "asked_colour",
        "asked_colour_before",
        "said_colour",
        "said_place",
        "removed",
        "added",
        "recoloured",
        "replaced",
        "fits",
    ],
    0.0,
)
MOST = 8
"""Maximum number of measured regions; the most significant come first."""


def score_fit(request: ChangeRequest, numbers: Mapping[str, float]) -> float:
    """Return how well a region's change matches the asked kind, from 0 to 1."""
    match request.kind:
        case "color":
            return numbers["asked_colour"] * (1 - numbers["asked_colour_before"])
        case "material":
            return max(0.6 * numbers["recoloured"], numbers["replaced"])
        case "removal":
            return numbers["removed"]
        case "replacement":
            return max(numbers["replaced"], 0.5 * numbers["added"])
        case "count":
            return max(numbers["added"], numbers["removed"])
        case "shape":
            return numbers["replaced"] * numbers["said_colour"] * 2
        case _:
            return max(numbers["replaced"], numbers["recoloured"]) * numbers["said_colour"] * 2


def measure_regions(
    case: Case, album: Album, request: ChangeRequest, differences: Mapping[str, Any]
) -> tuple[regions.MeasuredRegion, ...]:
    """Measure the changed regions of whole pictures; there are none if the whole scene changed."""
    places: Sequence[Mapping[str, Any]] = () if differences["whole_scene"] else differences["regions"][:MOST]
    if not places:
        return ()
    pictures = [album[case.pictures[name]].pixels for name in (SOURCE, EDITED)]
    with _MEASURING:
        look = regions.build_scene(*pictures)
        measured = [
            regions.measure_region(look, region["box"], float(region["significance"]), request) for region in places
        ]
        del look
    return tuple(
        regions.MeasuredRegion(r.box, dict(r.numbers) | {"fits": score_fit(request, r.numbers)}) for r in measured
    )


def choose_region(
    measured: Sequence[regions.MeasuredRegion],
    request: ChangeRequest,
    collapsed: bool,
    target: LogisticCheck,
    reading: TextReading,
) -> WholeEvidence:
    """Choose the region that looks most like the asked change, and collect the numbers for the checks."""
    scores = tuple(target.probability(region.numbers) for region in measured)
    chosen = max(range(len(scores)), key=lambda i: scores[i]) if scores else None
    numbers = dict(measured[chosen].numbers) if chosen is not None else dict(NOTHING)
    numbers |= {
        "score": scores[chosen] if chosen is not None else 0.0,
        "any": 1.0 if measured else 0.0,
        "places": float(min(len(measured), 6)),
        "collapsed": 1.0 if collapsed else 0.0,
    }
    return WholeEvidence(tuple(measured), chosen, numbers | _together(measured, chosen, request) | reading.numbers())


def find_detected(detection: Mapping[str, Any], request: ChangeRequest) -> list[Rect]:
    """Return the boxes in which a detector found the target; of several, the one on the side the instruction names."""
    boxes = [to_rect(thing["box"]) for thing in detection.get("objects", ())]
    ends = {"left": lambda b: b[0], "right": lambda b: -b[2], "top": lambda b: b[1], "bottom": lambda b: -b[3]}
    return [min(boxes, key=ends[request.place])] if request.place and boxes else boxes


def _together(measured: Sequence[regions.MeasuredRegion], chosen: int | None, request: ChangeRequest) -> Numbers:
    """Count what appeared and disappeared among regions of the chosen one's size, for counts and copies."""
    like = [r for r in measured if chosen is not None and is_alike(r.box, measured[chosen].box)]
    came = sum(r.numbers["added"] > 0.5 for r in like)
    went = sum(r.numbers["removed"] > 0.5 for r in like)
    asked_change = (request.new_count or 0) - (request.old_count or 0)
    return {
        "moved": float(min(1, abs(came - went))),
        "off": float(min(2, abs(came - went - asked_change))),
        "also_recoloured": float(min(1, sum(r.numbers["recoloured"] > 0.5 for r in like))),
    }


def find_checks(request: ChangeRequest, reading: TextReading, table: Thresholds, target_known: bool) -> FollowingChecks:
    """Return the checks fitted for this kind of request; text that could not be read has its own."""
    name = "text_unread" if request.kind == "text" and not reading.done else request.kind
    return (table.oracle if target_known else table.whole)[name]
