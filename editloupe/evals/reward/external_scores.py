"""Evaluate the scores that any scalar reward model gave to preference pairs, read from a file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of
from editloupe.evals.manifests.pairs import Pair, Way
from editloupe.evals.manifests.readers import READERS, Row
from editloupe.evals.manifests.set_files import read_set_rows
from editloupe.evals.stats.comparison.pair_measures import NO_VERDICT, build_pair_report
from editloupe.evals.stats.comparison.preference_results import PairReport, PairResult, decide_by_verdicts
from editloupe.pictures.memory import PictureSource
from editloupe.rubrics.pairs import PairRules, is_right
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, find_pair_rules
from editloupe.types import UserError

PAIR, PICTURE, SCORE = ("pair", "id", "pair_id"), ("picture", "image", "edited"), "score"
SIDES = (("winner", "winner_score"), ("loser", "loser_score"))
ORDERS = ("forward", "reverse")
"""Fields of a row with verdicts: in the order of the file of pairs, and in the other one."""
MODE = "scores"
"""The mode in a report, in place of a judge's mode."""


@dataclass
class ExternalScores:
    """The scores of a file, by pair, and by picture and dimension."""

    by_pair: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    by_picture: dict[tuple[str, str | None], float | None] = field(default_factory=dict)
    """The picture is its absolute path. The dimension is None if the score applies to all dimensions."""
    verdicts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Verdicts by pair: what was answered in the order of the file, and in the other one."""
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
    file, layout = Path(file), next((pair.layout for pair in pairs), None)
    rules = find_pair_rules(layout)
    scores_of_file = read_scores(file, pairs, rules)
    way: Way = "pairwise" if scores_of_file.verdicts else "pointwise"
    build = _build_verdict_result if scores_of_file.verdicts else _build_result
    report = build_pair_report(
        [build(pair, scores_of_file, rules) for pair in pairs],
        rules,
        way,
        judge=name or file.stem,
        protocol=layout or DEFAULT_FOR_PAIRS.name,
        mode=MODE,
        layout=layout,
    )
    if not report.overall.judged:
        wanted = "a verdict" if way == "pairwise" else "both numbers"
        raise UserError(f"{file.name} has {wanted} of none of the {number_of(len(pairs), 'pair')}")
    notes = []
    if scores_of_file.strangers:
        lines = f"{len(scores_of_file.strangers)} lines" if len(scores_of_file.strangers) > 1 else "a line"
        notes.append(
            f"{file.name} has {lines} on what is not in these pairs, for instance {scores_of_file.strangers[0]}"
        )
    return report, notes


def read_scores(file: Path, pairs: Sequence[Pair], rules: PairRules) -> ExternalScores:
    """Read a file of scores: JSONL, CSV or Parquet in one of the documented forms, or the results of the set's script."""
    ids = {pair.id for pair in pairs}
    pictures = {str(path) for pair in pairs for path in (pair.winner, pair.loser)}
    roots = _find_roots(pairs)
    scores_of_file = ExternalScores()
    for row in _read_rows(file, rules):
        if any(name in row.values for name in ORDERS):
            _add_verdicts(row, ids, scores_of_file)
        elif (pair := _find_first(row.values, PAIR)) is not None:
            _add_pair(row, pair, pairs, ids, scores_of_file)
        elif (picture := _find_first(row.values, PICTURE)) is not None:
            _add_picture(row, str(picture), [*roots, file.parent.resolve()], pictures, rules, scores_of_file)
        else:
            raise row.error(f'a line names a pair ("{PAIR[0]}") or a picture ("{PICTURE[0]}"); this one names neither')
    if scores_of_file.verdicts and (scores_of_file.by_pair or scores_of_file.by_picture):
        raise UserError(f"{file.name} has both scores and verdicts; write a file for each")
    return scores_of_file


def _read_rows(file: Path, rules: PairRules) -> Iterator[Row]:
    """Yield the rows of a file of scores; results of the set's script are turned into such rows."""
    if not file.exists():
        raise UserError(f"there is no file of scores at {file}")
    reader = READERS.get(file.suffix.lower()) if file.is_file() else None
    if rules.results is None:
        if reader is None:
            raise UserError(f"{file.name}: scores are a {', '.join(READERS)} file")
        yield from reader(file)
        return
    own = reader(file) if reader else iter(())
    first = next(own, None)
    if first is not None and (_find_first(first.values, PAIR[:1]) or _find_first(first.values, PICTURE)):
        yield first
        yield from own
        return
    for row in read_set_rows(file):
        for where, values in rules.results(row):
            yield Row(where, values)


def _add_verdicts(row: Row, ids: set[str], scores_of_file: ExternalScores) -> None:
    name = str(row.values.get(PAIR[0]))
    verdicts = tuple(row.values.get(order) for order in ORDERS)
    if name not in ids:
        scores_of_file.strangers.append(f"the pair {name}")
    elif scores_of_file.verdicts.setdefault(name, (verdicts[0], verdicts[1])) != verdicts:
        raise row.error(f"the pair {name} is listed twice with different verdicts")


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


def _describe_pair(pair: Pair) -> dict[str, Any]:
    """Return the fields of a pair's result that do not depend on scores."""
    names = ("id", "dimension", "label", "task", "group", "candidates")
    return {name: getattr(pair, name) for name in names}


def _build_verdict_result(pair: Pair, scores_of_file: ExternalScores, rules: PairRules) -> PairResult:
    """Return the result of a pair with verdicts of a file. Anything but A or B is a wrong verdict for a preference."""
    about = _describe_pair(pair)
    if pair.id not in scores_of_file.verdicts:
        return decide_by_verdicts(about, (None, None), rules, "the file does not have the pair")
    forward, reverse = scores_of_file.verdicts[pair.id]
    own, other = ("A", "B") if pair.first == "winner" else ("B", "A")
    in_order = {own: 1.0, other: 0.0}.get(forward, 0.5) if forward else None
    turned = {other: 1.0, own: 0.0}.get(reverse, 0.5) if reverse else None
    shares = (in_order, turned) if pair.first == "winner" else (turned, in_order)
    return decide_by_verdicts(about, shares, rules, NO_VERDICT)


def _build_result(pair: Pair, scores_of_file: ExternalScores, rules: PairRules) -> PairResult:
    scores = scores_of_file.by_pair.get(pair.id) or (
        _find_score(pair.winner, pair.dimension, scores_of_file),
        _find_score(pair.loser, pair.dimension, scores_of_file),
    )
    about = _describe_pair(pair)
    winner, loser = scores
    if winner is None or loser is None:
        lacking = "both" if winner is loser else "the winner" if winner is None else "the loser"
        return PairResult(**about, scores=scores, decision=None, correct=None, why=f"no number for {lacking}")
    decision = rules.by_numbers(winner, loser, pair.label)
    return PairResult(**about, scores=scores, decision=decision, correct=is_right(decision, pair.label))


def _find_score(path: PictureSource, dimension: str, scores_of_file: ExternalScores) -> float | None:
    number = scores_of_file.by_picture.get((str(path), dimension))
    return scores_of_file.by_picture.get((str(path), None)) if number is None else number
