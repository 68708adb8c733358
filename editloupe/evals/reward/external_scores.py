"""Evaluate the scores that any scalar reward model gave to preference pairs, read from a file."""

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
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, find_pair_rules
from editloupe.types import UserError

PAIR, PICTURE, SCORE = ("pair", "id", "pair_id"), ("picture", "image", "edited"), "score"
SIDES = (("winner", "winner_score"), ("loser", "loser_score"))
MODE = "scores"
"""The mode in a report, in place of a judge's mode."""


@dataclass
class ExternalScores:
    """The scores of a file, by pair, and by picture and dimension."""

    by_pair: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    by_picture: dict[tuple[str, str | None], float | None] = field(default_factory=dict)
    """The picture is its absolute path. The dimension is None if the score applies to all dimensions."""
    strangers: list[str] = field(default_factory=list)
    """Pairs and pictures of the file that are not among the pairs."""


def judge_by_scores(pairs: Sequence[Pair], file: str | Path, name: str | None = None) -> tuple[PairReport, list[str]]:
    """Report how often a reward model's scores put the winner first.

    The winner must be strictly higher; in a tie the scores must be equal. A pair without both scores is not judged.

    Args:
        pairs: The preference pairs.
        file: A JSONL, CSV or Parquet file of scores.
        name: The name of the reward model. Default: the file's name.

    Returns:
        The report, and notes about unused lines of the file.

    Raises:
        UserError: If the file cannot be read, or no pair has both scores.
    """
    file, rules = Path(file), find_pair_rules()
    scores_of_file = read_scores(file, pairs, rules)
    results = [_build_result(pair, scores_of_file, rules) for pair in pairs]
    report = PairReport.of(
        results, rules, way="pointwise", judge=name or file.stem, protocol=DEFAULT_FOR_PAIRS.name, mode=MODE
    )
    if not report.overall.judged:
        raise UserError(f"{file.name} has both numbers of none of the {number_of(len(results), 'pair')}")
    notes = []
    if scores_of_file.strangers:
        lines = f"{len(scores_of_file.strangers)} lines" if len(scores_of_file.strangers) > 1 else "a line"
        notes.append(
            f"{file.name} has {lines} on what is not in these pairs, for instance {scores_of_file.strangers[0]}"
        )
    return report, notes


def read_scores(file: Path, pairs: Sequence[Pair], rules: PairRules) -> ExternalScores:
    """Read a JSONL, CSV or Parquet file of scores. docs/reward.md describes its two forms."""
    if not file.is_file():
        raise UserError(f"there is no file of scores at {file}")
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise UserError(f"{file.name}: scores are a {', '.join(READERS)} file")
    ids = {pair.id for pair in pairs}
    pictures = {str(path) for pair in pairs for path in (pair.winner, pair.loser)}
    roots = _find_roots(pairs)
    scores_of_file = ExternalScores()
    for row in reader(file):
        if (pair := _find_first(row.values, PAIR)) is not None:
            _add_pair(row, pair, pairs, ids, scores_of_file)
        elif (picture := _find_first(row.values, PICTURE)) is not None:
            _add_picture(row, str(picture), [*roots, file.parent.resolve()], pictures, rules, scores_of_file)
        else:
            raise row.error(f'a line names a pair ("{PAIR[0]}") or a picture ("{PICTURE[0]}"); this one names neither')
    return scores_of_file


def _find_roots(pairs: Sequence[Pair]) -> list[Path]:
    """Return the folders that relative picture paths can refer to: those of the pair files."""
    return list(dict.fromkeys(pair.root for pair in pairs if pair.root is not None))


def _add_pair(row: Row, pair: Any, pairs: Sequence[Pair], ids: set[str], scores_of_file: ExternalScores) -> None:
    if not any(name in row.values for names in SIDES for name in names):
        raise row.error('a line on a pair has the numbers "winner" and "loser"; this one has neither')
    numbers = tuple(_read_number(row, names) for names in SIDES)
    name = str(pair)
    if name not in ids:
        if isinstance(pair, int) or name.isdigit():
            number = int(pair)
            if number == 0:
                raise row.error("pairs are counted from 1 in the order of their file, so there is no pair 0")
            name = pairs[number - 1].id if number <= len(pairs) else ""
        if name not in ids:
            scores_of_file.strangers.append(f"the pair {pair}")
            return
    scores = (numbers[0], numbers[1])
    if scores_of_file.by_pair.setdefault(name, scores) != scores:
        raise row.error(f"the pair {pair} is listed twice with different numbers")


def _add_picture(
    row: Row, picture: str, roots: Sequence[Path], pictures: set[str], rules: PairRules, scores_of_file: ExternalScores
) -> None:
    dimension = row.values.get("dimension")
    if dimension is not None and dimension not in rules.dimensions:
        raise row.error(f'"dimension" is {json.dumps(dimension)}, not one of {", ".join(rules.dimensions)}')
    columns: dict[str | None, str] = {name: name for name in rules.dimensions if name in row.values}
    if SCORE in row.values or not columns:
        columns[dimension] = SCORE
    if not any(column in row.values for column in columns.values()):
        raise row.error(f'a line on a picture has a number, "{SCORE}" or one for each of {", ".join(rules.dimensions)}')
    numbers = {meant: _read_number(row, (column,)) for meant, column in columns.items()}
    try:
        paths = [path for root in roots if (path := str((root / picture).resolve())) in pictures]
    except (OSError, RuntimeError, ValueError):
        raise row.error(f"{picture!r} is not a path") from None
    if not paths:
        scores_of_file.strangers.append(f"the picture {picture}")
        return
    for meant, number in numbers.items():
        if scores_of_file.by_picture.setdefault((paths[0], meant), number) != number:
            raise row.error(f"the picture {picture} is listed twice with different numbers")


def _find_first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def _read_number(row: Row, names: Sequence[str]) -> float | None:
    """Return the number under one of these names, or None if there is none.

    Raises:
        UserError: If the value is not a finite number.
    """
    value, name = _find_first(row.values, names), names[0]
    if value is None:
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise row.error(f'"{name}" is {json.dumps(value, default=str)}, not a number')
    return number


def _build_result(pair: Pair, scores_of_file: ExternalScores, rules: PairRules) -> PairResult:
    scores = scores_of_file.by_pair.get(pair.id) or (
        _find_score(pair.winner, pair.dimension, scores_of_file),
        _find_score(pair.loser, pair.dimension, scores_of_file),
    )
    about = {"id": pair.id, "dimension": pair.dimension, "label": pair.label}
    winner, loser = scores
    if winner is None or loser is None:
        lacking = "both" if winner is loser else "the winner" if winner is None else "the loser"
        return PairResult(**about, scores=scores, decision=None, correct=None, why=f"no number for {lacking}")
    decision = rules.by_numbers(winner, loser, pair.label)
    return PairResult(**about, scores=scores, decision=decision, correct=is_right(decision, pair.label))


def _find_score(path: Path, dimension: str, scores_of_file: ExternalScores) -> float | None:
    number = scores_of_file.by_picture.get((str(path), dimension))
    return scores_of_file.by_picture.get((str(path), None)) if number is None else number
