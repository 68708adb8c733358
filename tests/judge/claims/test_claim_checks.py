"""Claims against measured pixels: true ones are never contradicted, false ones are where the numbers settle it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.judge.claims.claim_checks import CheckedEdit, check_claim
from editloupe.judge.claims.claim_records import CheckedClaim, Claim, ClaimKind
from editloupe.judge.claims.pixel_facts import Instruments, PairFacts
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
from tests.drawn_pictures import textured

TARGET, EMPTY = Box(x1=60, y1=40, x2=100, y2=70), Box(x1=10, y1=10, x2=40, y2=30)
KNOWN, UNKNOWN = CheckedEdit((TARGET,), False), CheckedEdit((), False)


@pytest.fixture(scope="module")
def facts() -> PairFacts:
    """A square turned red, and nothing else."""
    before = textured()
    after = before.copy()
    after[40:70, 60:100] = (220, 30, 30)
    return PairFacts(before, after, Instruments(ToolSettings(read_text="off")))


def check(facts: PairFacts, kind: str, edit: CheckedEdit = KNOWN, **claimed: Any) -> CheckedClaim:
    place = "box" if "box" in claimed else claimed.pop("place", "")
    return check_claim(Claim(kind=ClaimKind(kind), text="words", place=place, **claimed), facts, edit)


@pytest.mark.parametrize(
    ("kind", "claimed", "state"),
    [
        ("region_changed", {"box": TARGET}, "supported"),
        ("region_changed", {"box": EMPTY}, "contradicted"),
        ("region_changed", {"place": "target"}, "supported"),
        ("region_changed", {"place": "rest"}, "contradicted"),
        ("region_changed", {"place": "whole"}, "contradicted"),
        ("region_changed", {"place": "lost"}, "not_checkable"),
        ("region_unchanged", {"box": EMPTY}, "supported"),
        ("region_unchanged", {"box": TARGET}, "contradicted"),
        ("region_unchanged", {"place": "whole"}, "contradicted"),
        ("region_unchanged", {"place": "whole", "subject": "scene"}, "supported"),
        ("nothing_else_changed", {"place": "rest"}, "supported"),
        ("colour", {"box": TARGET, "side": "edited", "value": "red"}, "supported"),
        ("colour", {"box": TARGET, "side": "edited", "value": "cyan"}, "contradicted"),
        ("colour", {"side": "edited", "value": "cyan", "subject": "thing"}, "not_checkable"),
        ("object_absent", {"box": EMPTY, "side": "edited"}, "contradicted"),
        ("object_present", {"box": EMPTY, "side": "edited", "value": "added"}, "contradicted"),
        ("moved", {"box": EMPTY}, "contradicted"),
        ("text_reads", {"box": TARGET, "side": "edited", "value": "OPEN"}, "not_checkable"),
        ("tool_differences", {"count": 3, "shown": (1,)}, "contradicted"),
        ("tool_differences", {"count": 3}, "not_checkable"),
    ],
)
def test_a_claim_is_settled_by_the_pixels_or_not_at_all(
    facts: PairFacts, kind: str, claimed: dict[str, Any], state: str
) -> None:
    checked = check(facts, kind, **claimed)
    assert checked.state == state, (checked.why, checked.numbers)
    assert checked.why


def test_without_annotated_targets_one_difference_does_not_contradict_that_nothing_else_changed(
    facts: PairFacts,
) -> None:
    assert check(facts, "nothing_else_changed", UNKNOWN, place="rest").state == "not_checkable"
    assert check(facts, "region_changed", UNKNOWN, place="rest").state == "not_checkable"


@pytest.mark.parametrize("level", [0, 128, 255])
def test_an_empty_picture_keeps_nothing_of_the_source(level: int) -> None:
    before = textured()
    facts = PairFacts(before, np.full_like(before, level), Instruments(ToolSettings(read_text="off")))
    assert check(facts, "nothing_else_changed", place="rest").state == "contradicted"
    assert check(facts, "region_unchanged", place="whole").state == "contradicted"
    assert check(facts, "region_changed", place="whole").state == "supported"


def test_of_two_equal_pictures_no_change_can_be_claimed() -> None:
    facts = PairFacts(textured(), textured(), Instruments(ToolSettings(read_text="off")))
    assert check(facts, "object_absent", UNKNOWN, subject="cat").state == "contradicted"
    assert check(facts, "region_changed", UNKNOWN, place="target").state == "contradicted"
    assert check(facts, "region_unchanged", UNKNOWN, place="whole").state == "supported"
