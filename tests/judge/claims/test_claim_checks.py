"""Claims against measured pixels: true ones are never contradicted, false ones are where the numbers settle it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from editloupe.judge.claims.claim_checks import CheckedEdit, check_claim
from editloupe.judge.claims.claim_records import CheckedClaim, Claim, ClaimKind
from editloupe.judge.claims.pixel_facts import Instruments, PairFacts
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.models.detectors import Detection
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box
from tests.drawn_pictures import textured

TARGET, EMPTY = Box(x1=60, y1=40, x2=100, y2=70), Box(x1=10, y1=10, x2=40, y2=30)
KNOWN, UNKNOWN = CheckedEdit((TARGET,), False), CheckedEdit((), False)


def square_turned_red(instruments: Instruments) -> PairFacts:
    """A square turned red, and nothing else."""
    before = textured()
    after = before.copy()
    after[40:70, 60:100] = (220, 30, 30)
    return PairFacts(before, after, instruments)


@pytest.fixture(scope="module")
def facts() -> PairFacts:
    return square_turned_red(Instruments(ToolSettings(read_text="off")))


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
        ("region_changed", {"place": "outside"}, "not_checkable"),
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


class Detector:
    """Finds one dog in every picture, and does not know dragons."""

    def __init__(self, failure: str | None = None) -> None:
        self.failure = failure

    def unavailable(self) -> str | None:
        return self.failure

    def detect(self, pixels: Pixels, phrase: str) -> list[Detection]:
        if self.failure or phrase == "dragon":
            raise ToolError("Look with another tool.")
        return [Detection(TARGET, 0.6, phrase)]


def instruments(detector: Detector | None) -> Instruments:
    tools = Instruments(ToolSettings(read_text="off"))
    tools.__dict__["detector"] = detector
    return tools


@pytest.mark.parametrize(
    ("kind", "claimed", "why"),
    [
        ("region_changed", {"place": "outside"}, "the stated position is not a box in the picture"),
        ("region_changed", {"place": "unlisted"}, "the tool listed no difference with this number"),
        ("region_changed", {"place": "unseen", "step": 0}, "the judge did not see the whole pictures"),
        ("region_changed", {"place": "unseen"}, "the verdict has no trace"),
        ("region_changed", {}, "the pictures differ, but the claim names no place in the picture"),
        ("region_unchanged", {}, "the claim names no place in the picture"),
        ("region_unchanged", {"place": "target", "edit": UNKNOWN}, "the target is not annotated"),
        ("nothing_else_changed", {"place": "rest", "edit": UNKNOWN}, "the target is not annotated, so its own change"),
        ("colour", {"side": "edited", "value": "red"}, "the claim names no place in the picture"),
        ("colour", {"box": TARGET, "side": "edited", "value": ""}, "the colour has no basic name"),
        ("text_reads", {"side": "edited", "value": "…"}, "the quoted text has no letters or digits"),
        ("text_reads", {"side": "edited", "value": "OPEN"}, "the text reader is switched off"),
        ("object_present", {"side": "edited"}, "the claim names no object"),
        ("object_present", {"side": "edited", "subject": "dragon"}, "the object detector does not know this object"),
        ("object_present", {"side": "edited", "subject": "dog", "box": EMPTY}, "the detector does not find it"),
        ("object_absent", {"subject": "dragon", "box": TARGET}, "the object detector does not know this object"),
        ("object_absent", {"subject": "dog", "box": TARGET}, "the pictures differ there, and the detector finds such"),
        ("object_count", {"subject": "dog"}, "the claim has no number"),
        ("object_count", {"count": 1}, "the claim names no object"),
        ("object_count", {"subject": "dog", "count": 2}, "the detector finds another number, but is not sure of more:"),
        ("moved", {"place": "whole"}, "a shift of the whole picture is measured, not judged:"),
        ("tool_differences", {"count": 3}, "no tool had listed differences before"),
    ],
)
def test_a_claim_that_is_not_checkable_says_why(kind: str, claimed: dict[str, Any], why: str) -> None:
    checked = check(square_turned_red(instruments(Detector())), kind, **claimed)
    assert checked.state == "not_checkable"
    assert checked.why.startswith(why)


def test_a_detector_that_is_missing_or_fails_is_the_reason() -> None:
    claim = {"side": "edited", "subject": "dog"}
    missing = check(square_turned_red(instruments(None)), "object_present", **claim)
    assert missing.why == "no object detector is installed"
    failing = check(square_turned_red(instruments(Detector("its weights are damaged"))), "object_present", **claim)
    assert failing.why == "the object detector cannot be used: its weights are damaged"


def test_a_text_reader_that_fails_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> list[dict[str, Any]]:
        raise ToolError("onnxruntime could not start its CUDA provider.")

    tools = Instruments(ToolSettings(read_text="on"))
    monkeypatch.setattr(tools.reader, "unavailable", lambda: None)
    monkeypatch.setattr(tools.reader, "read_lines", fail)
    checked = check(square_turned_red(tools), "text_reads", side="edited", value="OPEN")
    assert checked.state == "not_checkable"
    assert checked.why == "the text reader cannot be used: onnxruntime could not start its CUDA provider."


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
