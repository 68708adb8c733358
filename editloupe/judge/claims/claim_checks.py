"""Compare claims with measured facts. What the numbers do not settle is not checkable, never contradicted.

The thresholds were calibrated on 180 edits with known boxes: inside boxes that changed, the contrast is at least 8.3 (one
change that no one sees is 0.8), inside boxes that did not it is at most 7.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.agent.rules.instructions import parse_instruction
from editloupe.agent.rules.pixels import BASIC, Rect, is_alike, is_attached, join_regions
from editloupe.judge.claims.claim_records import CheckedClaim, Claim, ClaimKind, ClaimState
from editloupe.judge.claims.pixel_facts import PairFacts, PictureSide, measure_likeness, plain_text
from editloupe.tools.geometry import overlap_area
from editloupe.types import Box, Edit

VERSION = "1"
"""Raised when the same claim and numbers lead to another result."""
QUIET, LOUD = 5.0, 14.0
"""Contrast below which nothing changed in a box, and from which something did."""
PLAIN = 0.45
"""Significance from which a region contradicts that nothing else changed; people may not notice a fainter one."""
NEAR = 0.3
"""Regions within this share of a target's size belong to the target's own change."""
INSIDE = 0.5
"""Share of a differing region that must be inside a box to contradict that the box is unchanged."""
HARDLY, NEARLY_ALL = 0.1, 0.35
"""Shares of the picture that differ at most if the scene is the same, and at least if it changed."""
HAS_COLOUR, LACKS_COLOUR, FAR = 0.2, 0.01, 30.0
"""Share of a box with a colour from which it has it, and below which it lacks it if no pixel is nearer than this distance."""
READ_WELL, SAME_TEXT, OTHER_TEXT = 0.9, 0.85, 0.5
"""Confidence of a line that counts against a text, and the likeness from which texts are the same and below which not."""
SURE_OBJECT = 0.7
"""Confidence of a detection that counts against a claim."""
MOVED_FIT, STILL_FIT = 0.85, 0.97
"""Correlation from which an object is found elsewhere, and from which it is where it was."""
JOIN = 0.02
"""Regions closer than this share of the picture's diagonal are pieces of one change."""

Checked = tuple[ClaimState, str, Sequence[Box], Mapping[str, float]]
YES, NO, UNKNOWN = ClaimState.SUPPORTED, ClaimState.CONTRADICTED, ClaimState.NOT_CHECKABLE


@dataclass(frozen=True)
class CheckedEdit:
    """What is known of an edit without its pictures.

    Args:
        targets: Annotated boxes of the target, in pixels of the source picture.
        counts: Whether the edit is about the number of objects, so that further places belong to it.
    """

    targets: tuple[Box, ...]
    counts: bool

    @classmethod
    def of(cls, edit: Edit, target: int | None = None) -> CheckedEdit:
        """Return the facts of an edit, for one of its targets or for all."""
        request = parse_instruction(edit.instruction)
        boxes = edit.target_boxes
        if target is not None and target < len(boxes):
            boxes = (boxes[target],)
        return cls(tuple(boxes), request is not None and request.kind == "count")


def check_claim(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> CheckedClaim:
    """Compare a claim with the pixels.

    Args:
        claim: The claim.
        facts: Measurements of the two pictures.
        edit: What is known of the edit.
    """
    if claim.place == "lost":
        checked: Checked = (UNKNOWN, "it is not about a place of the whole pictures that can be found", (), {})
    elif claim.kind is ClaimKind.TOOL_DIFFERENCES:
        checked = _check_tool(claim)
    elif facts.comparison.whole_scene and claim.place != "whole" and claim.kind in _NEED_ONE_SCENE:
        checked = _check_in_other_scene(claim, facts)
    else:
        checked = _CHECKS[claim.kind](claim, facts, edit)
    state, why, boxes, numbers = checked
    return CheckedClaim(claim=claim, state=state, why=why, boxes=tuple(boxes)[:6], numbers=numbers)


_NEED_ONE_SCENE = frozenset(ClaimKind) - {ClaimKind.TOOL_DIFFERENCES, ClaimKind.TEXT_READS}


def _check_in_other_scene(claim: Claim, facts: PairFacts) -> Checked:
    numbers = {"changed_share": round(facts.comparison.changed_share, 3)}
    if claim.kind is ClaimKind.NOTHING_ELSE_CHANGED:
        sure = facts.comparison.changed_share >= NEARLY_ALL
        return NO if sure else UNKNOWN, "the whole scene differs", (), numbers
    if claim.kind is ClaimKind.REGION_CHANGED and claim.place == "rest":
        return YES, "the whole scene differs", (), numbers
    return UNKNOWN, "the whole scene differs, so places of the two pictures do not correspond", (), numbers


def _check_tool(claim: Claim) -> Checked:
    if not claim.shown:
        return UNKNOWN, "no tool has listed differences before", (), {}
    numbers = {"claimed": float(claim.count or 0), "listed": float(max(claim.shown))}
    if claim.count in claim.shown:
        return YES, "the tool listed as many", (), numbers
    return NO, f"the tool listed {max(claim.shown)}", (), numbers


def _check_changed(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    comparison = facts.comparison
    if claim.place == "whole":
        share = {"changed_share": round(comparison.changed_share, 3)}
        if comparison.whole_scene:
            return YES, "the whole scene differs", (), share
        same = comparison.changed_share <= HARDLY
        return NO if same else UNKNOWN, f"{100 * comparison.changed_share:.1f} % of the picture differs", (), share
    if claim.place == "rest":
        return _check_something_else(facts, edit)
    if claim.place == "target" and (edit.counts or not edit.targets):
        # Where the change had to be is not known: only two pictures that are the same speak against it.
        return _check_any_change(facts)
    return _check_boxes_changed(_boxes(claim, edit), facts)


def _boxes(claim: Claim, edit: CheckedEdit) -> tuple[Box, ...]:
    return (claim.box,) if claim.box is not None else edit.targets if claim.place == "target" else ()


def _check_boxes_changed(boxes: Sequence[Box], facts: PairFacts) -> Checked:
    if not boxes:
        return _check_any_change(facts)
    touching = [region for region, _ in facts.regions if any(_is_near(region, box) for box in boxes)]
    contrast = max(facts.measure_change(box).contrast for box in boxes)
    numbers = {"contrast": contrast}
    if touching:
        return YES, "the pictures differ there", touching, numbers
    if contrast < QUIET:
        return NO, "the pictures do not differ there beyond noise", boxes, numbers
    return (
        (YES if contrast >= LOUD else UNKNOWN),
        "the pixels there differ a little more than elsewhere",
        boxes,
        numbers,
    )


def _check_any_change(facts: PairFacts) -> Checked:
    if facts.comparison.whole_scene or facts.regions:
        return UNKNOWN, "the pictures differ, and the claim names no place", [box for box, _ in facts.regions], {}
    whole = Box(x1=0, y1=0, x2=facts.size[0], y2=facts.size[1])
    return NO, "the two pictures do not differ beyond noise", (whole,), {"regions": 0.0}


def _check_something_else(facts: PairFacts, edit: CheckedEdit) -> Checked:
    outside = _find_outside(facts, edit)
    numbers = {"regions": float(len(outside)), "significance": max((weight for _, weight in outside), default=0.0)}
    boxes = [box for box, _ in outside]
    if not facts.regions:
        return NO, "the two pictures do not differ beyond noise", (), numbers
    if not edit.targets:
        return UNKNOWN, "the target is not annotated, so its own change cannot be told from others", boxes, numbers
    if outside:
        return (
            (YES if numbers["significance"] >= PLAIN else UNKNOWN),
            "the pictures differ outside the target",
            boxes,
            numbers,
        )
    beyond = [
        box for box, _ in facts.regions if sum(overlap_area(box, target) for target in edit.targets) < INSIDE * box.area
    ]
    if beyond:
        return UNKNOWN, "a difference reaches from the target into its surroundings", beyond, numbers
    return NO, "the pictures do not differ outside the target beyond noise", edit.targets, numbers


def _find_outside(facts: PairFacts, edit: CheckedEdit) -> list[tuple[Box, float]]:
    """Return the differing regions that are not the target's own change; pieces of one change are joined."""
    places: list[tuple[Rect, float]] = []
    targets = [_rect(box) for box in edit.targets]
    for box, weight in facts.regions:
        own = any(is_attached(_rect(box), target, NEAR) for target in targets)
        instance = edit.counts and any(is_alike(_rect(box), target) for target in targets)
        if not own and not instance:
            places.append((_rect(box), weight))
    reach = JOIN * (facts.size[0] ** 2 + facts.size[1] ** 2) ** 0.5
    return [(Box.model_validate(rect), weight) for rect, weight in join_regions(places, reach)]


def _check_nothing_else(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    outside = sorted(_find_outside(facts, edit), key=lambda place: -place[1])
    plain = [box for box, weight in outside if weight >= PLAIN]
    numbers = {"regions": float(len(outside)), "significance": outside[0][1] if outside else 0.0}
    if edit.counts:
        # New objects may be anywhere, so other regions do not contradict; without any, nothing else changed.
        return (
            (UNKNOWN if outside else YES),
            "objects that were asked for may be anywhere",
            [box for box, _ in outside],
            numbers,
        )
    if edit.targets:
        if plain:
            return NO, "the pictures differ outside the target", plain, numbers
        if not outside:
            return YES, "the pictures do not differ outside the target beyond noise", edit.targets, numbers
        return UNKNOWN, "the differences outside the target are faint", [box for box, _ in outside], numbers
    if len(plain) > 1:
        return NO, f"the pictures differ plainly in {len(plain)} separate places", plain, numbers
    if not outside:
        return YES, "the pictures do not differ beyond noise", (), numbers
    return UNKNOWN, "the target is not annotated, so its own change cannot be told from others", plain, numbers


def _check_unchanged(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    comparison = facts.comparison
    if claim.place == "whole":
        share = {"changed_share": round(comparison.changed_share, 4), "regions": float(len(facts.regions))}
        plain = [box for box, weight in facts.regions if weight >= PLAIN]
        if claim.subject:  # the scene, not each of its parts
            if comparison.whole_scene:
                return NO, "the whole scene differs", (), share
            return (
                (YES if comparison.changed_share <= HARDLY else UNKNOWN),
                "most of the picture is as it was",
                (),
                share,
            )
        if comparison.whole_scene or plain:
            return NO, "the pictures differ", plain, share
        return (
            (UNKNOWN if facts.regions else YES),
            "no plain difference was found",
            [box for box, _ in facts.regions],
            share,
        )
    boxes = _boxes(claim, edit)
    if not boxes:
        return UNKNOWN, "the claim names no place that can be found", (), {}
    inside = [
        region
        for region, weight in facts.regions
        if any(overlap_area(region, box) >= INSIDE * min(region.area, box.area) for box in boxes)
    ]
    contrast = max(facts.measure_change(box).contrast for box in boxes)
    numbers = {"contrast": contrast}
    if inside and contrast >= LOUD:
        return NO, "the pictures differ there", inside, numbers
    if not inside and contrast < LOUD / 2:
        return YES, "the pictures do not differ there beyond noise", boxes, numbers
    return UNKNOWN, "the difference there is too faint or too small to decide", inside or boxes, numbers


def _check_text(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    side: PictureSide = "source" if claim.side == "source" else "edited"
    wanted = plain_text(claim.value)
    if not wanted:
        return UNKNOWN, "the text has no letters or digits", (), {}
    boxes: list[Box | None] = list(_boxes(claim, edit) or edit.targets)
    lines: list[Mapping[str, Any]] = []
    for box in dict.fromkeys((*boxes, None)):
        texts = facts.read_text(side, box)
        if texts is None:
            return UNKNOWN, "no text reader is installed", (), {}
        lines += texts
        if measure_likeness(claim.value, lines) >= SAME_TEXT:
            return YES, f"read: {_list_lines(texts)}", [_to_box(line) for line in texts], {"likeness": 1.0}
    likeness = round(measure_likeness(claim.value, lines), 3)
    numbers = {"likeness": likeness}
    there = [line for box in boxes for line in facts.read_text(side, box) or () if line["confidence"] >= READ_WELL]
    if boxes and there and likeness < OTHER_TEXT and sum(len(plain_text(line["text"])) for line in there) >= 3:
        return NO, f"read there: {_list_lines(there)}", [_to_box(line) for line in there], numbers
    return UNKNOWN, f"read: {_list_lines(lines)}" if lines else "no text was read", (), numbers


def _list_lines(lines: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"“{line['text']}”" for line in lines[:4]) or "nothing"


def _to_box(line: Mapping[str, Any]) -> Box:
    return Box.model_validate(line["box"])


def _check_absent(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    boxes = () if claim.place == "target" and edit.counts else _boxes(claim, edit)
    state, why, places, numbers = _check_boxes_changed(boxes, facts)
    if state is not YES:
        return state, why, places, numbers
    before, after = (
        (facts.find_objects(side, claim.subject) for side in ("source", "edited")) if claim.subject else (None, None)
    )
    if before is None or after is None or not _seen_in(before, boxes):
        return UNKNOWN, "the pictures differ there; what is there now is not known", places, numbers
    if _seen_in(after, boxes):
        return UNKNOWN, "the pictures differ there, and the detector finds such an object in both", places, numbers
    return YES, "the detector finds it in the source picture and not in the edited one", places, numbers


def _check_present(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    boxes = _boxes(claim, edit)
    why, places, numbers = "the detector does not find it", tuple[Box, ...](boxes), dict[str, float]()
    if claim.value == "added":
        state, why, added, changed = _check_boxes_changed(() if claim.place == "target" else boxes, facts)
        if state is not YES or not claim.subject:
            return (UNKNOWN if state is YES else state), why, added, changed
        places, numbers = tuple(added), dict(changed)
    objects = (
        facts.find_objects("source" if claim.side == "source" else "edited", claim.subject) if claim.subject else None
    )
    if objects is None:
        return UNKNOWN, "no detector that knows this object is installed", places, numbers
    if _seen_in(objects, boxes):
        return YES, "the detector finds it there", [box for box, _ in objects], numbers
    return UNKNOWN, why, places, numbers


def _seen_in(objects: Sequence[tuple[Box, float]], boxes: Sequence[Box]) -> bool:
    """Return whether an object was found, in one of these boxes if there are any."""
    return any(
        not boxes or any(overlap_area(place, box) >= 0.3 * min(place.area, box.area) for box in boxes)
        for place, _ in objects
    )


def _check_count(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    objects = facts.find_objects("source" if claim.side == "source" else "edited", claim.subject)
    if objects is None:
        return UNKNOWN, "no detector that knows this object is installed", (), {}
    sure = [box for box, score in objects if score >= SURE_OBJECT]
    numbers = {"claimed": float(claim.count or 0), "found": float(len(objects)), "surely": float(len(sure))}
    if len(sure) > (claim.count or 0):
        return NO, f"the detector is sure of {len(sure)}", sure, numbers
    if len(objects) == claim.count:
        return YES, "the detector finds as many", [box for box, _ in objects], numbers
    return (
        UNKNOWN,
        f"the detector finds {len(objects)} and is sure of {len(sure)}",
        [box for box, _ in objects],
        numbers,
    )


def _check_colour(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    boxes = _boxes(claim, edit)
    if not boxes or claim.value not in BASIC:
        return UNKNOWN, "the claim names no place that can be found", (), {}
    side: PictureSide = "source" if claim.side == "source" else "edited"
    measured = [(box, *facts.measure_colour(side, box, claim.value)) for box in boxes]
    box, share, gap, main = max(measured, key=lambda item: item[1])
    numbers = {"share": share, "distance": gap}
    if share >= HAS_COLOUR:
        return YES, f"{100 * share:.0f} % of the pixels there are {claim.value}", (box,), numbers
    if share <= LACKS_COLOUR and gap >= FAR:
        return NO, f"no pixel there is near {claim.value}; most are {main}", (box,), numbers
    return UNKNOWN, f"{100 * share:.0f} % of the pixels there are {claim.value}, most are {main}", (box,), numbers


def _check_moved(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    if claim.place == "whole":
        change = facts.comparison.global_change
        distance = (change.shift[0] ** 2 + change.shift[1] ** 2) ** 0.5
        return UNKNOWN, f"the picture is shifted by {distance:.1f} pixels", (), {"shift": round(distance, 2)}
    boxes = _boxes(claim, edit)
    if not boxes:
        return _check_any_change(facts)
    dx, dy, there, here = facts.measure_motion(boxes[0])
    numbers = {"dx": float(dx), "dy": float(dy), "fit": there, "fit_where_it_was": here}
    if not any(_is_near(region, box) for region, _ in facts.regions for box in boxes) and here >= STILL_FIT:
        return NO, "it is where it was", boxes, numbers
    if (dx, dy) != (0, 0) and there >= MOVED_FIT and there > here + 0.1:
        return YES, f"it is found {dx} pixels to the right and {dy} down", boxes, numbers
    return UNKNOWN, "it is neither found elsewhere nor surely where it was", boxes, numbers


_CHECKS: Mapping[ClaimKind, Callable[[Claim, PairFacts, CheckedEdit], Checked]] = {
    ClaimKind.REGION_CHANGED: _check_changed,
    ClaimKind.REGION_UNCHANGED: _check_unchanged,
    ClaimKind.NOTHING_ELSE_CHANGED: _check_nothing_else,
    ClaimKind.TEXT_READS: _check_text,
    ClaimKind.OBJECT_ABSENT: _check_absent,
    ClaimKind.OBJECT_PRESENT: _check_present,
    ClaimKind.OBJECT_COUNT: _check_count,
    ClaimKind.COLOUR: _check_colour,
    ClaimKind.MOVED: _check_moved,
}


def _rect(box: Box) -> Rect:
    return box.x1, box.y1, box.x2, box.y2


def _is_near(region: Box, box: Box) -> bool:
    """Return whether a region touches a box, or nearly."""
    return is_attached(_rect(region), _rect(box), 0.1)
