"""Compare claims with measured facts. What the numbers do not settle is not checkable, never contradicted.

The thresholds were calibrated on 180 edits with known boxes: inside boxes that changed, the contrast is at least 8.3 (one
change that no one sees is 0.8), inside boxes that did not it is at most 7.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.agent.rules.instruction_following import measure_likeness, plain_text
from editloupe.agent.rules.instructions import parse_instruction
from editloupe.agent.rules.pixels import BASIC, Rect, is_alike, is_attached, join_regions, to_rect
from editloupe.judge.claims.claim_records import CheckedClaim, Claim, ClaimKind, ClaimState, Place
from editloupe.judge.claims.pixel_facts import CannotMeasure, PairFacts, PictureSide
from editloupe.tools.geometry import overlap_area
from editloupe.types import Box, Edit

VERSION = "2"
"""Raised when the same claim and numbers lead to another result or reason."""
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
"""A result, its sentence, and the measured regions and numbers. See `CheckedClaim.why` for the form of the sentence."""
YES, NO, UNKNOWN = ClaimState.SUPPORTED, ClaimState.CONTRADICTED, ClaimState.NOT_CHECKABLE
NOT_LOCATED: Mapping[Place, str] = {
    "outside": "the stated position is not a box in the picture",
    "unlisted": "the tool listed no difference with this number",
    "unseen": "the judge did not see the whole pictures",
}
NO_TRACE = "the verdict has no trace, so it is not known which pictures the judge saw"
NO_PLACE, NO_TARGET = "the claim names no place in the picture", "the target is not annotated"
NO_OBJECT, NO_NUMBER = "the claim names no object", "the claim has no number"
TARGET_UNKNOWN = "the target is not annotated, so its own change cannot be told from others"
ANYWHERE = "objects that were asked for may be anywhere"
FAINT_OUTSIDE = "the differences outside the target are faint"
BETWEEN = "too much of the picture differs for the same scene, and too little for another one"


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
    try:
        state, why, boxes, numbers = _check(claim, facts, edit)
    except CannotMeasure as error:
        state, why, boxes, numbers = UNKNOWN, str(error), (), {}
    return CheckedClaim(claim=claim, state=state, why=why, boxes=tuple(boxes)[:6], numbers=numbers)


def _check(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    if claim.place in NOT_LOCATED:
        no_trace = claim.place == "unseen" and claim.step is None
        return UNKNOWN, NO_TRACE if no_trace else NOT_LOCATED[claim.place], (), {}
    if claim.kind is ClaimKind.TOOL_DIFFERENCES:
        return _check_tool(claim)
    if facts.comparison.whole_scene and claim.place != "whole" and claim.kind in _NEED_ONE_SCENE:
        return _check_in_other_scene(claim, facts)
    return _CHECKS[claim.kind](claim, facts, edit)


_NEED_ONE_SCENE = frozenset(ClaimKind) - {ClaimKind.TOOL_DIFFERENCES, ClaimKind.TEXT_READS}


def _check_in_other_scene(claim: Claim, facts: PairFacts) -> Checked:
    numbers = {"changed_share": round(facts.comparison.changed_share, 3)}
    if claim.kind is ClaimKind.NOTHING_ELSE_CHANGED:
        if facts.comparison.changed_share < NEARLY_ALL:
            return UNKNOWN, "the scene differs, but in too small a part of the picture to decide", (), numbers
        return NO, "the whole scene differs", (), numbers
    if claim.kind is ClaimKind.REGION_CHANGED and claim.place == "rest":
        return YES, "the whole scene differs", (), numbers
    return UNKNOWN, "the whole scene differs, so places of the two pictures do not correspond", (), numbers


def _check_tool(claim: Claim) -> Checked:
    if not claim.shown:
        return UNKNOWN, "no tool had listed differences before", (), {}
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
        if comparison.changed_share > HARDLY:
            return UNKNOWN, BETWEEN, (), share
        return NO, f"{100 * comparison.changed_share:.1f} % of the picture differs", (), share
    if claim.place == "rest":
        return _check_something_else(facts, edit)
    if claim.place == "target" and (edit.counts or not edit.targets):
        # Where the change had to be is not known: only two pictures that are the same speak against it.
        return _check_any_change(facts, ANYWHERE if edit.counts else NO_TARGET)
    return _check_boxes_changed(_boxes(claim, edit), facts)


def _boxes(claim: Claim, edit: CheckedEdit) -> tuple[Box, ...]:
    return (claim.box,) if claim.box is not None else edit.targets if claim.place == "target" else ()


def _explain_no_boxes(claim: Claim) -> str:
    return NO_TARGET if claim.place == "target" else NO_PLACE


def _check_boxes_changed(boxes: Sequence[Box], facts: PairFacts, no_boxes: str = NO_PLACE) -> Checked:
    if not boxes:
        return _check_any_change(facts, no_boxes)
    touching = [region for region, _ in facts.regions if any(_is_near(region, box) for box in boxes)]
    contrast = max(facts.measure_change(box).contrast for box in boxes)
    numbers = {"contrast": contrast}
    if touching:
        return YES, "the pictures differ there", touching, numbers
    if contrast < QUIET:
        return NO, "the pictures do not differ there beyond noise", boxes, numbers
    if contrast < LOUD:
        return UNKNOWN, "the pixels there differ too little to decide", boxes, numbers
    return YES, "the pixels there differ a little more than elsewhere", boxes, numbers


def _check_any_change(facts: PairFacts, no_boxes: str) -> Checked:
    """Check a claim on a change without a known place; `no_boxes` says why the place is not known."""
    if facts.comparison.whole_scene or facts.regions:
        return UNKNOWN, f"the pictures differ, but {no_boxes}", [box for box, _ in facts.regions], {}
    whole = Box(x1=0, y1=0, x2=facts.size[0], y2=facts.size[1])
    return NO, "the two pictures do not differ beyond noise", (whole,), {"regions": 0.0}


def _check_something_else(facts: PairFacts, edit: CheckedEdit) -> Checked:
    outside = _find_outside(facts, edit)
    numbers = {"regions": float(len(outside)), "significance": max((weight for _, weight in outside), default=0.0)}
    boxes = [box for box, _ in outside]
    if not facts.regions:
        return NO, "the two pictures do not differ beyond noise", (), numbers
    if not edit.targets:
        return UNKNOWN, TARGET_UNKNOWN, boxes, numbers
    if outside and numbers["significance"] < PLAIN:
        return UNKNOWN, FAINT_OUTSIDE, boxes, numbers
    if outside:
        return YES, "the pictures differ outside the target", boxes, numbers
    beyond = [
        box for box, _ in facts.regions if sum(overlap_area(box, target) for target in edit.targets) < INSIDE * box.area
    ]
    if beyond:
        return UNKNOWN, "a difference reaches from the target into its surroundings", beyond, numbers
    return NO, "the pictures do not differ outside the target beyond noise", edit.targets, numbers


def _find_outside(facts: PairFacts, edit: CheckedEdit) -> list[tuple[Box, float]]:
    """Return the differing regions that are not the target's own change; pieces of one change are joined."""
    places: list[tuple[Rect, float]] = []
    targets = [to_rect(box) for box in edit.targets]
    for box, weight in facts.regions:
        own = any(is_attached(to_rect(box), target, NEAR) for target in targets)
        instance = edit.counts and any(is_alike(to_rect(box), target) for target in targets)
        if not own and not instance:
            places.append((to_rect(box), weight))
    reach = JOIN * (facts.size[0] ** 2 + facts.size[1] ** 2) ** 0.5
    return [(Box.model_validate(rect), weight) for rect, weight in join_regions(places, reach)]


def _check_nothing_else(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    outside = sorted(_find_outside(facts, edit), key=lambda place: -place[1])
    plain = [box for box, weight in outside if weight >= PLAIN]
    numbers = {"regions": float(len(outside)), "significance": outside[0][1] if outside else 0.0}
    if not outside:
        where = " outside the target" if edit.targets else ""
        return YES, f"the pictures do not differ{where} beyond noise", edit.targets, numbers
    if edit.counts:
        return UNKNOWN, ANYWHERE, [box for box, _ in outside], numbers
    if edit.targets:
        if plain:
            return NO, "the pictures differ outside the target", plain, numbers
        return UNKNOWN, FAINT_OUTSIDE, [box for box, _ in outside], numbers
    if len(plain) > 1:
        return NO, f"the pictures differ plainly in {len(plain)} separate places", plain, numbers
    return UNKNOWN, TARGET_UNKNOWN, plain, numbers


def _check_unchanged(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    comparison = facts.comparison
    if claim.place == "whole":
        share = {"changed_share": round(comparison.changed_share, 4), "regions": float(len(facts.regions))}
        plain = [box for box, weight in facts.regions if weight >= PLAIN]
        if claim.subject:  # the scene, not each of its parts
            if comparison.whole_scene:
                return NO, "the whole scene differs", (), share
            if comparison.changed_share > HARDLY:
                return UNKNOWN, BETWEEN, (), share
            return YES, "most of the picture is as it was", (), share
        if comparison.whole_scene or plain:
            return NO, "the pictures differ", plain, share
        if facts.regions:
            return UNKNOWN, "the differences are faint", [box for box, _ in facts.regions], share
        return YES, "no difference was found", (), share
    boxes = _boxes(claim, edit)
    if not boxes:
        return UNKNOWN, _explain_no_boxes(claim), (), {}
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
    side = _side(claim)
    if not plain_text(claim.value):
        return UNKNOWN, "the quoted text has no letters or digits", (), {}
    boxes = _boxes(claim, edit) or edit.targets
    lines: list[Mapping[str, Any]] = []
    likeness = 0.0
    for box in dict.fromkeys((*boxes, None)):
        texts = facts.read_text(side, box)
        lines += texts
        likeness = measure_likeness(claim.value, [line["text"] for line in lines])
        if likeness >= SAME_TEXT:
            return YES, f"read: {_list_lines(texts)}", [_to_box(line) for line in texts], {"likeness": 1.0}
    numbers = {"likeness": round(likeness, 3)}
    sure = [line for box in boxes for line in facts.read_text(side, box) if line["confidence"] >= READ_WELL]
    if likeness < OTHER_TEXT and sum(len(plain_text(line["text"])) for line in sure) >= 3:
        return NO, f"read there: {_list_lines(sure)}", [_to_box(line) for line in sure], numbers
    if not lines:
        return UNKNOWN, "the text reader finds no text", (), numbers
    why = f"the text reader reads neither this text nor, for sure, another in its place: {_list_lines(lines)}"
    return UNKNOWN, why, (), numbers


def _list_lines(lines: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"“{line['text']}”" for line in lines[:4])


def _to_box(line: Mapping[str, Any]) -> Box:
    return Box.model_validate(line["box"])


def _side(claim: Claim) -> PictureSide:
    return "source" if claim.side == "source" else "edited"


def _find_objects(claim: Claim, facts: PairFacts, side: PictureSide) -> list[tuple[Box, float]]:
    """Return the objects that a claim names, with their confidence.

    Raises:
        CannotMeasure: The claim names no object, or the detector cannot look for it.
    """
    if not claim.subject:
        raise CannotMeasure(NO_OBJECT)
    return facts.find_objects(side, claim.subject)


def _check_absent(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    anywhere = claim.place == "target" and edit.counts
    boxes = () if anywhere else _boxes(claim, edit)
    state, why, places, numbers = _check_boxes_changed(boxes, facts, ANYWHERE if anywhere else _explain_no_boxes(claim))
    if state is not YES:
        return state, why, places, numbers
    try:
        before, after = (_find_objects(claim, facts, side) for side in ("source", "edited"))
    except CannotMeasure as error:
        return UNKNOWN, str(error), places, numbers
    if not _is_found(before, boxes):
        return UNKNOWN, "the detector does not find it in the source picture", places, numbers
    if _is_found(after, boxes):
        return UNKNOWN, "the pictures differ there, and the detector finds such an object in both", places, numbers
    return YES, "the detector finds it in the source picture and not in the edited one", places, numbers


def _check_present(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    boxes = _boxes(claim, edit)
    places: Sequence[Box] = boxes
    numbers: Mapping[str, float] = {}
    if claim.value == "added":
        own_place = claim.place == "target"
        state, why, places, numbers = _check_boxes_changed(
            () if own_place else boxes, facts, ANYWHERE if own_place else NO_PLACE
        )
        if state is not YES:
            return state, why, places, numbers
    try:
        objects = _find_objects(claim, facts, _side(claim))
    except CannotMeasure as error:
        return UNKNOWN, str(error), places, numbers
    if _is_found(objects, boxes):
        return YES, "the detector finds it there", [box for box, _ in objects], numbers
    return UNKNOWN, "the detector does not find it", places, numbers


def _is_found(objects: Sequence[tuple[Box, float]], boxes: Sequence[Box]) -> bool:
    """Return whether an object was found, in one of these boxes if there are any."""
    return any(
        not boxes or any(overlap_area(place, box) >= 0.3 * min(place.area, box.area) for box in boxes)
        for place, _ in objects
    )


def _check_count(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    if claim.count is None:
        return UNKNOWN, NO_NUMBER, (), {}
    objects = _find_objects(claim, facts, _side(claim))
    boxes, sure = [box for box, _ in objects], [box for box, score in objects if score >= SURE_OBJECT]
    numbers = {"claimed": float(claim.count), "found": float(len(objects)), "surely": float(len(sure))}
    if len(sure) > claim.count:
        return NO, f"the detector is sure of {len(sure)}", sure, numbers
    if len(objects) == claim.count:
        return YES, "the detector finds as many", boxes, numbers
    why = f"the detector finds another number, but is not sure of more: it finds {len(objects)} and is sure of {len(sure)}"
    return UNKNOWN, why, boxes, numbers


def _check_colour(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    boxes = _boxes(claim, edit)
    if not boxes:
        return UNKNOWN, _explain_no_boxes(claim), (), {}
    if claim.value not in BASIC:
        return UNKNOWN, "the colour has no basic name", (), {}
    measured = [(box, *facts.measure_colour(_side(claim), box, claim.value)) for box in boxes]
    box, share, gap, main = max(measured, key=lambda item: item[1])
    numbers = {"share": share, "distance": gap}
    if share >= HAS_COLOUR:
        return YES, f"{100 * share:.0f} % of the pixels there are {claim.value}", (box,), numbers
    if share <= LACKS_COLOUR and gap >= FAR:
        return NO, f"no pixel there is near {claim.value}; most are {main}", (box,), numbers
    why = (
        f"too few pixels there have the colour, or one near it: {100 * share:.0f} % are {claim.value}, most are {main}"
    )
    return UNKNOWN, why, (box,), numbers


def _check_moved(claim: Claim, facts: PairFacts, edit: CheckedEdit) -> Checked:
    if claim.place == "whole":
        change = facts.comparison.global_change
        distance = (change.shift[0] ** 2 + change.shift[1] ** 2) ** 0.5
        why = f"a shift of the whole picture is measured, not judged: it is {distance:.1f} pixels"
        return UNKNOWN, why, (), {"shift": round(distance, 2)}
    boxes = _boxes(claim, edit)
    if not boxes:
        return _check_any_change(facts, _explain_no_boxes(claim))
    dx, dy, fit, fit_before = facts.measure_motion(boxes[0])
    numbers = {"dx": float(dx), "dy": float(dy), "fit": fit, "fit_where_it_was": fit_before}
    if not any(_is_near(region, box) for region, _ in facts.regions for box in boxes) and fit_before >= STILL_FIT:
        return NO, "it is where it was", boxes, numbers
    if (dx, dy) != (0, 0) and fit >= MOVED_FIT and fit > fit_before + 0.1:
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


def _is_near(region: Box, box: Box) -> bool:
    """Return whether a region touches a box, or nearly."""
    return is_attached(to_rect(region), to_rect(box), 0.1)
