"""Which words make a claim, and which must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.judge.claims.claim_patterns import read_claims, read_label
from editloupe.judge.claims.claim_records import Statement
from editloupe.tools.contract import Frame
from editloupe.types import Box, Edit

EDIT = Edit(source=Path("a.png"), edited=Path("b.png"), instruction="Change the color of the cup from white to red")
LISTED = (Box(x1=1, y1=2, x2=3, y2=4), Box(x1=5, y1=6, x2=7, y2=8))


SHRUNK = Frame((200, 100), (100, 50))


def read(text: str, frame: Frame | None = SHRUNK) -> list[str]:
    """Return the claims in a text, each in one line."""
    lines = []
    for claim in read_claims([Statement(text, 0, frame, LISTED, 2)], EDIT).claims:
        box = "" if claim.box is None else " ".join(map(str, claim.box))
        facts = (claim.kind.value, claim.side, claim.place, box, claim.subject, claim.value, claim.count)
        lines.append(", ".join(str(fact) for fact in facts if fact not in ("", None)))
    return lines


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("The region [10, 20, 30, 40] has changed.", ["region_changed, box, 20 40 60 80"]),
        ("The bird at [10, 20, 30, 40] is unchanged.", ["region_unchanged, box, 20 40 60 80"]),
        ("Difference 2 is a distorted lamp.", ["region_changed, box, 5 6 7 8"]),
        (
            "The cup is now red, and nothing else changed.",
            ["colour, edited, target, cup, red", "nothing_else_changed, rest"],
        ),
        ("The rest of the image is untouched.", ["nothing_else_changed, rest"]),
        (
            "The color of the cup changed from white to red.",
            ["colour, source, target, color of the cup, white", "colour, edited, target, color of the cup, red"],
        ),
        ('In the edited image the sign reads "OPEN".', ["text_reads, edited, OPEN"]),
        ("The wall around the cup is blue in the edited image.", ["colour, edited, wall around the cup, blue"]),
        ("There are now three cups.", ["object_count, edited, cups, 3"]),
        ("The bird at [10, 20, 30, 40] has been removed.", ["object_absent, edited, box, 20 40 60 80, bird"]),
        ("A new bird was added at [10, 20, 30, 40].", ["object_present, edited, box, 20 40 60 80, new bird, added"]),
        ("The dog at [10, 20, 30, 40] was moved.", ["moved, box, 20 40 60 80, dog, moved"]),
        ("The tool shows two differences.", ["tool_differences, 2"]),
        ("The two pictures are identical.", ["region_unchanged, whole"]),
        ("The whole scene has changed.", ["region_changed, whole"]),
        ("The region [500, 20, 900, 40] has changed.", ["region_changed, outside"]),
        ("Difference 9 is a distorted lamp.", ["region_changed, unlisted"]),
    ],
)
def test_a_statement_is_read(text: str, claims: list[str]) -> None:
    assert read(text) == claims


@pytest.mark.parametrize(
    "text",
    [
        "Did the region [10, 20, 30, 40] change?",
        "I will zoom in on [10, 20, 30, 40], which may have changed.",
        "Asked: color of cup to red.",
        "The cup should be red.",
        "Nothing else about the cup changed.",
        "The target keeps the same shape.",
        "The texture of the target is preserved.",
        "Nothing changed.",
        "The whole image differs slightly in brightness.",
        "The region [10, 20, 30, 40] is slightly brighter and differs a little in tone.",
        "The bird at [10, 20, 30, 40] was not removed.",
        "The cup is missing its handle.",
        "It looks great.",
    ],
)
def test_what_is_no_clear_claim_is_not_read_as_one(text: str) -> None:
    assert read(text) == []


def test_a_position_means_nothing_if_the_judge_did_not_see_the_whole_picture() -> None:
    assert read("The region [10, 20, 30, 40] has changed.", None) == ["region_changed, unseen"]
    assert read("The pictures do not differ beyond noise.", None) == ["region_unchanged, unseen"]
    assert read("Nothing else changed.", None) == ["nothing_else_changed, unseen"]


def test_statements_without_a_claim_are_returned_and_plans_are_not() -> None:
    text = "The light is warm. I will look closer. Is it red?"
    assert read_claims([Statement(text, 0, None, None)], EDIT).unparsed == ("The light is warm.",)


def test_only_labels_that_say_something_of_the_pixels_are_claims() -> None:
    assert read_label("Localization Failure") is None
    claim = read_label("Scene Collapse")
    assert claim is not None
    assert (claim.kind, claim.place) == ("region_changed", "whole")
