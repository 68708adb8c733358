"""Build the protocol of a published preference set: pairs of candidates with people's choice, and questions about them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.pairs import PairRules, is_pair
from editloupe.rubrics.protocol import MissingInput, Protocol
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.types import Edit, UserError


class Aspect(NamedTuple):
    """What people compared: the criterion that asks about two candidates, and those whose scores one candidate gets."""

    pair: str
    single: tuple[str, ...]


INSTRUCTION = Aspect("pair_instruction", ("instruction_following",))
CONSISTENCY = Aspect("pair_consistency", ("consistency",))
QUALITY = Aspect("pair_quality", ("visual_quality",))
OVERALL = Aspect("pair_overall", ("instruction_following", "consistency", "visual_quality"))
SIDES = ("winner", "loser")


@cache
def _load_questions() -> tuple[Rubric, ...]:
    return load_rubrics(files("editloupe.rubrics"), ("preference_questions",))


def build_preference_protocol(
    name: str, title: str, source: str, arithmetic: str, aspects: Mapping[str, Aspect], rules: PairRules
) -> Protocol:
    """Build the protocol of a preference set.

    Args:
        name: Name on the command line.
        title: Name as its authors write it.
        source: Citation.
        arithmetic: Description of the arithmetic for reports.
        aspects: What people compared in each dimension of `rules`.
        rules: Fields, rule of ties and rule of orders of the set.
    """
    criteria = {criterion for aspect in aspects.values() for criterion in (aspect.pair, *aspect.single)}
    return Protocol(
        name=name,
        title=title,
        source=source,
        rubrics=tuple(
            rubric.model_copy(update={"protocol": name}) for rubric in _load_questions() if rubric.criterion in criteria
        ),
        default_mode="plain",
        make_cases=build_cases,
        choose=partial(_choose, aspects),
        edit_score=partial(_score, aspects),
        weighting="edits",
        arithmetic=arithmetic,
        formulas={
            "candidate": "its criterion; overall: sqrt(min(instruction_following, consistency) * visual_quality)",
            "preference": "right if score(winner) > score(loser)",
        },
        pairs=rules,
    )


def _find_aspect(aspects: Mapping[str, Aspect], edit: Edit) -> Aspect:
    dimension = edit.extra.get("dimension")
    if dimension is None:
        return OVERALL if OVERALL in aspects.values() else next(iter(aspects.values()))
    if not isinstance(dimension, str) or dimension not in aspects:
        raise MissingInput(f'edit {edit.id}: the dimension must be one of {", ".join(aspects)}, not "{dimension}"')
    return aspects[dimension]


def _choose(aspects: Mapping[str, Aspect], edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the question if it is asked about an edit of this dimension, with one or two candidates."""
    aspect, criterion = _find_aspect(aspects, edit), variants[0].criterion
    criteria = (aspect.pair,) if is_pair(edit) else aspect.single
    return variants[0] if criterion in criteria else None


def _score(aspects: Mapping[str, Aspect], edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a candidate's score, 0 to 100, or candidate A's share of a pair."""
    aspect = _find_aspect(aspects, edit)
    if is_pair(edit):
        return scores.get(aspect.pair)
    return combine_overall(scores) if aspect.single == OVERALL.single else scores.get(aspect.single[0])


def combine_overall(scores: Mapping[str, float]) -> float | None:
    """Return the overall score of a candidate on the scale of its criteria, or None if one is missing.

    >>> combine_overall({"instruction_following": 4.0, "consistency": 9.0, "visual_quality": 9.0})
    6.0
    """
    if not all(name in scores for name in OVERALL.single):
        return None
    instruction, consistency, quality = (scores[name] for name in OVERALL.single)
    return math.sqrt(min(instruction, consistency) * quality)


def row_error(where: str, sentence: str) -> UserError:
    """Return the error that a row of a preference set has a mistake."""
    return UserError(f"{where}: {sentence}")


def read_text_field(where: str, item: Mapping[str, Any], *names: str) -> str:
    """Return the first of these fields that has a text.

    Raises:
        UserError: None of them has.
    """
    for name in names:
        if isinstance(value := item.get(name), str) and value.strip():
            return value
    fields = ", ".join(name for name in item if not name.startswith("#")) or "nothing"
    raise row_error(where, f"{' or '.join(names)} must be a text; this row has {fields}")


def read_several(where: str, item: Mapping[str, Any], name: str, count: int | None = None) -> list[Any]:
    """Return a list of a row with this number of values, or with at least two.

    Raises:
        UserError: The field is not such a list.
    """
    value = item.get(name)
    if not isinstance(value, (list, tuple)) or (len(value) < 2 if count is None else len(value) != count):
        expected = "two or more" if count is None else str(count)
        size = len(value) if isinstance(value, (list, tuple)) else f"{type(value).__name__}, not a list"
        raise row_error(where, f'"{name}" must be a list of {expected} values; it has {size}')
    return list(value)


def find_sides(
    where: str, item: Mapping[str, Any], name: str, first: str, second: str, tie: str | None
) -> dict[str, Any]:
    """Return which of two candidates won, as fields of a pair: `label`, and `first`, the place of the candidate shown first.

    Args:
        where: Where the row is.
        item: The row.
        name: The field that names the winner.
        first: Its value if the first candidate won.
        second: Its value if the second candidate won.
        tie: Its value for a tie; None if the set has none.

    Raises:
        UserError: The field has another value.
    """
    value = item.get(name)
    if value not in (first, second, tie) or value is None:
        values = " or ".join(word for word in (first, second, tie) if word is not None)
        raise row_error(where, f'"{name}" is {json.dumps(value, default=str)}, not {values}')
    return {"label": "tie" if value == tie else "preference", "first": "loser" if value == second else "winner"}
