"""Numbers that any scalar reward model gave to preference pairs, read from a file and held against people's choices."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of
from editloupe.evals.manifests.pairs import Pair
from editloupe.evals.manifests.readers import READERS, Row
from editloupe.evals.stats.comparison.preference_results import PairReport, PairResult
from editloupe.rubrics.pairs import PairRules, is_right
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, pair_rules
from editloupe.types import UserError

PAIR, PICTURE, SCORE = ("pair", "id", "pair_id"), ("picture", "image", "edited"), "score"
SIDES = (("winner", "winner_score"), ("loser", "loser_score"))
MODE = "scores"
"""Stands in a report where a judge has its mode."""


@dataclass
class ExternalScores:
    """The numbers of a file: by pair, and by picture and dimension."""

    by_pair: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    by_picture: dict[tuple[str, str | None], float | None] = field(default_factory=dict)
    """A picture as its file's whole path; the dimension None where the number is meant for all of them."""
    strangers: list[str] = field(default_factory=list)
    """Pairs and pictures that the file of pairs does not have."""


def judge_by_scores(pairs: Sequence[Pair], file: str | Path, name: str | None = None) -> tuple[PairReport, list[str]]:
    """Report how often a reward model's numbers put the winner first, and say what in the file was of no use.

    A winner is strictly higher, a tie is equal. A pair without both numbers is not judged.
    """
    file, rules = Path(file), pair_rules()
    given = read_scores(file, pairs, rules)
    results = [_result(pair, given, rules) for pair in pairs]
    report = PairReport.of(
        results, rules, way="pointwise", judge=name or file.stem, protocol=DEFAULT_FOR_PAIRS.name, mode=MODE
    )
    if not report.overall.judged:
        raise UserError(f"{file.name} has both numbers of none of the {number_of(len(results), 'pair')}")
    notes = []
    if given.strangers:
        lines = f"{len(given.strangers)} lines" if len(given.strangers) > 1 else "a line"
        notes.append(f"{file.name} has {lines} on what is not in these pairs, for instance {given.strangers[0]}")
    return report, notes


def read_scores(file: Path, pairs: Sequence[Pair], rules: PairRules) -> ExternalScores:
    """Read a JSONL, CSV or Parquet file of numbers; docs/guides/rewards.md describes its two forms."""
    if not file.is_file():
        raise UserError(f"there is no file of scores at {file}")
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise UserError(f"{file.name}: scores are a {', '.join(READERS)} file")
    ids = {pair.id for pair in pairs}
    pictures = {str(path) for pair in pairs for path in (pair.winner, pair.loser)}
    roots = _roots(pairs)
    given = ExternalScores()
    for row in reader(file):
        if (pair := _first(row.values, PAIR)) is not None:
            _take_pair(row, pair, pairs, ids, given)
        elif (picture := _first(row.values, PICTURE)) is not None:
            _take_picture(row, str(picture), [*roots, file.parent.resolve()], pictures, rules, given)
        else:
            raise row.error(f'a line names a pair ("{PAIR[0]}") or a picture ("{PICTURE[0]}"); this one names neither')
    return given


def _roots(pairs: Sequence[Pair]) -> list[Path]:
    """Return the folders that relative paths of pictures can be meant from: that of the file of pairs."""
    return list(dict.fromkeys(pair.root for pair in pairs if pair.root is not None))


def _take_pair(row: Row, said: Any, pairs: Sequence[Pair], ids: set[str], given: ExternalScores) -> None:
    if not any(name in row.values for names in SIDES for name in names):
        raise row.error('a line on a pair has the numbers "winner" and "loser"; this one has neither')
    numbers = tuple(_number(row, names) for names in SIDES)
    name = str(said)
    if name not in ids:
        if isinstance(said, int) or name.isdigit():
            place = int(said)
            if place == 0:
                raise row.error("pairs are counted from 1 in the order of their file, so there is no pair 0")
            name = pairs[place - 1].id if place <= len(pairs) else ""
        if name not in ids:
            given.strangers.append(f"the pair {said}")
            return
    scores = (numbers[0], numbers[1])
    if given.by_pair.setdefault(name, scores) != scores:
        raise row.error(f"the pair {said} stands here a second time, with other numbers")


def _take_picture(
    row: Row, said: str, roots: Sequence[Path], pictures: set[str], rules: PairRules, given: ExternalScores
) -> None:
    dimension = row.values.get("dimension")
    if dimension is not None and dimension not in rules.dimensions:
        raise row.error(f'"dimension" is {json.dumps(dimension)}, not one of {", ".join(rules.dimensions)}')
    columns: dict[str | None, str] = {name: name for name in rules.dimensions if name in row.values}
    if SCORE in row.values or not columns:
        columns[dimension] = SCORE
    if not any(column in row.values for column in columns.values()):
        raise row.error(f'a line on a picture has a number, "{SCORE}" or one for each of {", ".join(rules.dimensions)}')
    numbers = {meant: _number(row, (column,)) for meant, column in columns.items()}
    try:
        found = [path for root in roots if (path := str((root / said).resolve())) in pictures]
    except (OSError, RuntimeError, ValueError):
        raise row.error(f"{said!r} is no path") from None
    if not found:
        given.strangers.append(f"the picture {said}")
        return
    for meant, number in numbers.items():
        if given.by_picture.setdefault((found[0], meant), number) != number:
            raise row.error(f"the picture {said} stands here a second time, with another number")


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def _number(row: Row, names: Sequence[str]) -> float | None:
    """Return the number under one of these names; None where there is none, and a mistake where it is no number."""
    value, shown = _first(row.values, names), names[0]
    if value is None:
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise row.error(f'"{shown}" is {json.dumps(value, default=str)}, not a number')
    return number


def _result(pair: Pair, given: ExternalScores, rules: PairRules) -> PairResult:
    scores = given.by_pair.get(pair.id) or (
        _of_picture(pair.winner, pair.dimension, given),
        _of_picture(pair.loser, pair.dimension, given),
    )
    about = {"id": pair.id, "dimension": pair.dimension, "label": pair.label}
    winner, loser = scores
    if winner is None or loser is None:
        lacking = "both" if winner is loser else "the winner" if winner is None else "the loser"
        return PairResult(**about, scores=scores, decision=None, correct=None, why=f"no number for {lacking}")
    decision = rules.by_numbers(winner, loser, pair.label)
    return PairResult(**about, scores=scores, decision=decision, correct=is_right(decision, pair.label))


def _of_picture(path: Path, dimension: str, given: ExternalScores) -> float | None:
    number = given.by_picture.get((str(path), dimension))
    return given.by_picture.get((str(path), None)) if number is None else number
