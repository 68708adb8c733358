"""The rubrics of a run, and the answers that people can give to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from editloupe.rubrics.model import Answer, LabelAnswer, NumberAnswer, Rubric, YesNoAnswer
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit


@dataclass(frozen=True)
class Choice:
    """One answer a person can give, with the key that gives it."""

    key: str
    value: str
    meaning: str
    place: float
    """0 to 100."""
    when: tuple[str, ...] = ()


def rubric_of(protocol: str, criterion: str) -> Rubric | None:
    """Return a criterion's rubric in its first wording, None where this version does not know it."""
    known = known_protocol(protocol)
    rubrics = known.rubrics if known else ()
    return next((rubric for rubric in rubrics if rubric.criterion == criterion), None)


def parse_rubric(wording: Mapping[str, Any]) -> Rubric | None:
    """Return a rubric as a run kept its words, without what a mode adds; None where that is no rubric."""
    known = {name: value for name, value in wording.items() if name in Rubric.model_fields}
    try:
        return Rubric.model_validate({**known, "modes": {}})
    except ValidationError:
        return None


def rubric_for(protocol: str, criterion: str, edit: Edit) -> Rubric | None:
    """Return the wording of a criterion that an edit is asked, None where this version does not know the rubric."""
    known = known_protocol(protocol)
    if known is None or criterion not in known.criteria:
        return None
    try:
        return known.choose(edit, known.variants(criterion)) or known.rubric(criterion)
    except MissingInput:
        return known.rubric(criterion)


def choices(answer: Answer) -> tuple[Choice, ...]:
    """Return what a person can answer, worst first; nothing for rubrics that take no single label."""
    if isinstance(answer, LabelAnswer):
        ordered = sorted(answer.labels, key=lambda label: label.score)
        return tuple(
            Choice(str(number), label.name, label.meaning.strip(), answer.score_100(label.name), label.when)
            for number, label in enumerate(ordered, start=1)
        )
    if isinstance(answer, NumberAnswer) and answer.high - answer.low <= 9:
        values = range(answer.low, answer.high + 1)
        return tuple(
            Choice(str(value % 10), str(value), band_text(answer, value), answer.score_100(value)) for value in values
        )
    if isinstance(answer, YesNoAnswer):
        return (Choice("1", "no", "", 0.0), Choice("2", "yes", "", 100.0))
    return ()


def band_text(answer: NumberAnswer, value: int) -> str:
    """Return what it takes to be at a place of a scale, as its rubric says it; empty where it says nothing."""
    band = next((band for band in answer.bands if band.low <= value <= band.high), None)
    return ": ".join(filter(None, (band.name, band.meaning.strip()))) if band else ""
