"""The detector checks of EdiVal-Agent as pure functions on boxes (Algorithms 1 and 3 to 7), and their thresholds.

Boxes are relative to the width and height of the picture, so that pictures of different sizes can be compared. A YAML table
states the source of each threshold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.tasks import Position, Task, TaskType
from editloupe.rubrics.rubric_files import load_bundled_yaml, read_yaml
from editloupe.types import Record, UserError

Share = Annotated[float, Field(ge=0, le=1)]
PAPER = "paper"
"""Name by which `load_settings` returns the paper's own matching."""
PRECHECKED: tuple[TaskType, ...] = ("subject_add", "subject_replace")
"""Types whose outcome an LMM may be asked to confirm."""


class EdivalSettings(Record):
    """Thresholds and rules of the checks. `thresholds.yaml` states the source of each."""

    decompose_threshold: Share
    decompose_side: Annotated[int, Field(ge=32)]
    decompose_max_side: Share
    decompose_max_area: Share
    threshold: Share
    threshold_subject_remove: Share
    threshold_position_change: Share
    large_box: Share
    margin_subject_add: Share
    margin_position_change: Share
    contained: Literal["counts", "fails"]
    duplicate_iou: Share
    small_box: Share
    enlarged_box: Share
    least_crop: Annotated[int, Field(ge=1)]
    crops: Literal["current", "both"] = Field(default="current", exclude_if=lambda value: value == "current")
    replace_rule: Literal["overlap", "absent"]
    precheck: tuple[TaskType, ...]
    background_features: Literal["patches", "painted"]
    background_patch_share: Annotated[float, Field(gt=0, le=1)]
    text_match: Literal["auto", "equal", "contains"]
    max_turns: Annotated[int, Field(ge=1)]
    max_count: Annotated[int, Field(ge=2)]

    @field_validator("precheck")
    @classmethod
    def _check_types(cls, types: tuple[TaskType, ...]) -> tuple[TaskType, ...]:
        for kind in types:
            if kind not in PRECHECKED:
                raise ValueError(f"{kind} has no pre-check; {' and '.join(PRECHECKED)} have one")
        return tuple(kind for kind in PRECHECKED if kind in types)

    def threshold_of(self, kind: TaskType) -> float:
        """Return the detector threshold of an instruction type."""
        own = {
            "subject_remove": self.threshold_subject_remove,
            "position_change": self.threshold_position_change,
        }
        return own.get(kind, self.threshold)

    @property
    def lowest_threshold(self) -> float:
        """The confidence below which no check uses a box."""
        return min(
            self.decompose_threshold, self.threshold, self.threshold_subject_remove, self.threshold_position_change
        )

    def with_changes(self, changes: Mapping[str, Any]) -> EdivalSettings:
        """Return the settings with some values changed.

        Raises:
            UserError: If a name is unknown or a value is invalid.
        """
        try:
            return EdivalSettings.model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            raise UserError(f"setting {describe_error(error)}") from None


@cache
def load_published() -> EdivalSettings:
    """Return the paper's settings, with our values for those that it does not state."""
    return EdivalSettings(**_values(load_sources()))


@cache
def load_paper_settings() -> EdivalSettings:
    """Return the settings with all that is known of the paper's own matching. `paper.yaml` states the sources."""
    return load_published().with_changes(_values(load_sources(PAPER)))


@cache
def load_sources(table: str = "thresholds") -> dict[str, dict[str, Any]]:
    """Return a table of values with their sources: `thresholds`, or `paper` for the changes of `load_paper_settings`."""
    content: dict[str, dict[str, Any]] = load_bundled_yaml(files(__package__) / f"{table}.yaml")
    return content


def _values(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: entry["value"] for name, entry in table.items()}


def load_settings(file: Path | None) -> EdivalSettings:
    """Return the published settings, with changes if a file is named.

    Args:
        file: A YAML file with values to change, `paper` for the paper's own matching, or None for no changes.

    Raises:
        UserError: If the file cannot be read, or a name or value in it is invalid.
    """
    if file is None:
        return load_published()
    if str(file) == PAPER:
        return load_paper_settings()
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} must map names of settings to values")
    return load_published().with_changes(content)


When = Literal["before", "after"]


class Hit(Record):
    """A box that the detector found, in relative coordinates from the top left."""

    x1: float
    y1: float
    x2: float
    y2: float
    score: float
    phrase: str = ""
    """The detector's label of the box."""

    @model_validator(mode="after")
    def _check_area(self) -> Hit:
        if self.x2 <= self.x1 or self.y2 <= self.y1:
            raise ValueError("a box needs width and height")
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        return self.x2 - self.x1, self.y2 - self.y1

    @property
    def center(self) -> tuple[float, float]:
        """Center as (x, y)."""
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2


class DetectorQuery(NamedTuple):
    """A phrase to detect in the picture before or after the edit."""

    when: When
    phrase: str


@dataclass(frozen=True)
class Finding:
    """The result of a rule and the fact that decided it."""

    success: bool
    why: str


DetectorHits = Mapping[DetectorQuery, Sequence[Hit]]


def iou(a: Hit, b: Hit) -> float:
    """Return the intersection over union of two boxes.

    >>> iou(Hit(x1=0, y1=0, x2=0.5, y2=1, score=1), Hit(x1=0.25, y1=0, x2=0.75, y2=1, score=1))
    0.3333333333333333
    """
    width = min(a.x2, b.x2) - max(a.x1, b.x1)
    height = min(a.y2, b.y2) - max(a.y1, b.y1)
    shared = max(0.0, width) * max(0.0, height)
    (aw, ah), (bw, bh) = a.size, b.size
    return shared / (aw * ah + bw * bh - shared)


def filter_usable(hits: Iterable[Hit], threshold: float, large: float) -> list[Hit]:
    """Return the boxes at or above a threshold, best first, without those that fill the picture (Section C.2)."""
    usable = (hit for hit in hits if hit.score >= threshold and not (hit.size[0] > large and hit.size[1] > large))
    return sorted(usable, key=lambda hit: -hit.score)


def merge_duplicates(hits: Sequence[Hit], limit: float) -> list[Hit]:
    """Return the boxes, best first, without those whose IoU with a better one exceeds a limit. A limit of 1.0 keeps all.

    >>> twice = [Hit(x1=0, y1=0, x2=0.5, y2=1, score=0.9), Hit(x1=0, y1=0, x2=0.5, y2=0.9, score=0.8)]
    >>> len(merge_duplicates(twice, 0.8)), len(merge_duplicates(twice, 1.0))
    (1, 2)
    """
    unique: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: -hit.score):
        if all(iou(hit, better) <= limit for better in unique):
            unique.append(hit)
    return unique


def contains(outer: Hit, inner: Hit) -> bool:
    """Return whether a box is entirely inside another."""
    return outer.x1 <= inner.x1 and outer.y1 <= inner.y1 and outer.x2 >= inner.x2 and outer.y2 >= inner.y2


def is_grounded(hits: Sequence[Hit], max_side: float, max_area: float) -> bool:
    """Return whether an object has boxes and none of them is too large (Algorithm 1)."""
    sizes = [hit.size for hit in hits]
    return bool(sizes) and all(w < max_side and h < max_side and w * h <= max_area for w, h in sizes)


def is_related(a: Hit, b: Hit, position: Position, margin: float) -> bool:
    """Return whether the center of a box is left of, right of, above or below another's by more than a margin."""
    (ax, ay), (bx, by) = a.center, b.center
    return {
        "left": ax < bx - margin,
        "right": ax > bx + margin,
        "above": ay < by - margin,
        "below": ay > by + margin,
    }[position]


def subject_replace(old_before: Sequence[Hit], new_after: Sequence[Hit]) -> Finding:
    """Require the old object before, the new one after, and an overlap of the two (Algorithm 3).

    Boxes of the old object after the edit are ignored, because detectors report both names for one object (Appendix K).
    """
    if not old_before:
        return Finding(False, "the old object was not found before the edit")
    if not new_after:
        return Finding(False, "the new object was not found after the edit")
    best = max(iou(a, b) for a, b in product(old_before, new_after))
    if best > 0:
        return Finding(True, f"the new object is where the old one was (IoU up to {best:.2f})")
    return Finding(False, "the new object is not where the old one was")


def subject_replace_absent(old_before: Sequence[Hit], new_after: Sequence[Hit], old_after: Sequence[Hit]) -> Finding:
    """Require that after the edit the new object is found and the old one is not (Appendix K)."""
    if not old_before:
        return Finding(False, "the old object was not found before the edit")
    if not new_after:
        return Finding(False, "the new object was not found after the edit")
    if old_after:
        return Finding(False, "the old object is still found after the edit")
    return Finding(True, "the old object is gone and the new one is there")


def subject_remove(before: Sequence[Hit], after: Sequence[Hit]) -> Finding:
    """Require the object before the edit and not after it (Algorithm 4)."""
    if not before:
        return Finding(False, "the object was not found before the edit")
    if after:
        return Finding(False, f"the object is still found after the edit ({_format_boxes(len(after))})")
    return Finding(True, "the object was found before the edit and is not found after it")


def subject_add(
    before: Sequence[Hit],
    after: Sequence[Hit],
    reference_after: Sequence[Hit] | None = None,
    position: Position | None = None,
    margin: float = 0.0,
) -> Finding:
    """Require the object after the edit and not before it, at the requested position if there is one (Algorithm 5).

    Positions are compared between the best boxes of both objects.
    """
    if not after:
        return Finding(False, "the new object was not found after the edit")
    if before:
        return Finding(False, "such an object was already there before the edit")
    if position is None or reference_after is None:
        return Finding(True, "the object was not there before the edit and is found after it")
    if not reference_after:
        return Finding(False, "the reference object of the position was not found after the edit")
    return _check_position(after, reference_after, position, margin)


def position_change(
    before: Sequence[Hit],
    after: Sequence[Hit],
    reference_after: Sequence[Hit],
    position: Position,
    margin: float = 0.0,
    contained_fails: bool = False,
) -> Finding:
    """Require both objects after the edit, no more instances than before, and the requested position (Algorithm 6).

    Positions are compared between the best boxes of both objects. With `contained_fails`, a box inside the other fails,
    because it is one object found under two names.
    """
    if not after:
        return Finding(False, "the object was not found after the edit")
    if not reference_after:
        return Finding(False, "the reference object of the position was not found after the edit")
    if len(after) > len(before):
        return Finding(False, f"there are more instances than before ({len(before)} before, {len(after)} after)")
    best, reference = _best(after), _best(reference_after)
    if contained_fails and (contains(best, reference) or contains(reference, best)):
        return Finding(False, "the box of one object contains that of the other")
    return _check_position(after, reference_after, position, margin)


def count_change(after: Sequence[Hit], count: int) -> Finding:
    """Require the requested number of boxes after the edit (Algorithm 7)."""
    return Finding(len(after) == count, f"{_format_boxes(len(after))} after the edit, {count} asked")


def list_detector_queries(task: Task, settings: EdivalSettings) -> tuple[DetectorQuery, ...]:
    """Return the detector queries of a task, in the order its rule needs them."""
    match task.type:
        case "subject_replace":
            queries = (DetectorQuery("before", str(task.object)), DetectorQuery("after", str(task.new_object)))
            absent = settings.replace_rule == "absent"
            return (*queries, DetectorQuery("after", str(task.object))) if absent else queries
        case "subject_remove":
            return DetectorQuery("before", str(task.object)), DetectorQuery("after", str(task.object))
        case "subject_add":
            queries = (DetectorQuery("before", str(task.new_object)), DetectorQuery("after", str(task.new_object)))
            return (*queries, DetectorQuery("after", task.reference)) if task.reference else queries
        case "position_change":
            queries = (DetectorQuery("before", str(task.object)), DetectorQuery("after", str(task.object)))
            return (*queries, DetectorQuery("after", str(task.reference)))
        case "count_change":
            return (DetectorQuery("after", str(task.object)),)
    return ()


def decide(task: Task, boxes: DetectorHits, settings: EdivalSettings) -> Finding:
    """Apply the rule of a task's type to the detector's boxes.

    Args:
        task: The task.
        boxes: Boxes for every query of `list_detector_queries`.
        settings: Thresholds and rules.

    Raises:
        ValueError: If boxes do not decide tasks of this type.
    """
    if not task.by_detector:
        raise ValueError(f"{task.type} is not decided by boxes")
    threshold = settings.threshold_of(task.type)
    hits = [
        filter_usable(boxes[query], threshold, settings.large_box) for query in list_detector_queries(task, settings)
    ]
    if task.type in ("position_change", "count_change"):
        hits = [merge_duplicates(own, settings.duplicate_iou) for own in hits]
    match task.type:
        case "subject_replace":
            return subject_replace_absent(*hits) if settings.replace_rule == "absent" else subject_replace(*hits)
        case "subject_remove":
            return subject_remove(*hits)
        case "subject_add":
            reference = hits[2] if len(hits) > 2 else None
            return subject_add(hits[0], hits[1], reference, task.position, settings.margin_subject_add)
        case "position_change":
            assert task.position is not None
            fails = settings.contained == "fails"
            return position_change(
                hits[0], hits[1], hits[2], task.position, settings.margin_position_change, contained_fails=fails
            )
        case _:
            assert task.count is not None
            return count_change(hits[0], task.count)


def _best(hits: Sequence[Hit]) -> Hit:
    return max(hits, key=lambda hit: hit.score)


def _check_position(after: Sequence[Hit], reference: Sequence[Hit], position: Position, margin: float) -> Finding:
    best, other = _best(after), _best(reference)
    (x, y), (u, v) = best.center, other.center
    where = f"its center is at ({x:.2f}, {y:.2f}), the other's at ({u:.2f}, {v:.2f}); asked: {position}"
    return Finding(is_related(best, other, position, margin), where)


def _format_boxes(number: int) -> str:
    return "1 box" if number == 1 else f"{number} boxes"
