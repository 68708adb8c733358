"""Count how often each answer was given, and relate scores to the size of the edit's target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from editloupe.evals.runs.run_folder import PICTURES, PictureFolder
from editloupe.evals.stats.agreement import coefficients as st
from editloupe.evals.stats.intervals import (
    LEVEL,
    Estimate,
    Floats,
    Ints,
    Number,
    build_estimate,
    find_distinct_rows,
    find_mean_spread,
    number_keys,
)
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.run_units import RunUnit, UnitColumns, row_means
from editloupe.evals.stats.scores.score_matrix import ALL
from editloupe.pictures.decode import declared_size
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.model import NumberAnswer
from editloupe.types import NOT_APPLICABLE, UNJUDGED, Record

WINDOW = 10
"""Samples in the sliding mean over target area."""
MOST_GROUPS = 10
"""Groups of edits by target area, of about the same number; their means show the trend."""
LEAST_IN_GROUP = 5
_BINS = ("0–20", "20–40", "40–60", "60–80", "80–100")
_MAX_ANSWERS = 10


class Distribution(Record):
    """Counts of answers on one criterion by group, worst answer first; unjudged units come last."""

    answers: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]


class SizeGroup(Record):
    """Edits with targets of about the same area."""

    area: Number
    """Geometric mean of the areas."""
    score: Estimate
    """Mean score with its interval."""


class SizeTrend(Record):
    """Scores of one editing model by the size of the target; edits sorted by area, small ones first."""

    n: int
    """Edits with a score and a target."""
    r: Number | None
    """Pearson's r of score and log area, edit by edit."""
    p: Number | None
    why: str | None = None
    window_r: Number | None = None
    """Pearson's r of the means of windows and their log areas; None with fewer than three windows or equal means.

    It has no p-value: neighbouring windows share nine of their ten edits.
    """
    sliding: tuple[Number, ...] = ()
    """Mean of each window of ten edits."""
    middles: tuple[Number, ...] = ()
    """The area of each window: the geometric mean of its ten edits."""
    groups: tuple[SizeGroup, ...] = ()
    """Tenths of the edits by area, fewer groups if a tenth has fewer than five edits; none if there is only one group."""
    sides: tuple[tuple[Number, Number], ...] = Field(default=(), exclude=True)
    """Width and height of every target, in percent of the picture's or in pixels; an edit has as many as targets."""
    side_scores: tuple[Number, ...] = Field(default=(), exclude=True)
    """The score of the edit each of them belongs to."""
    side_edits: tuple[str, ...] = Field(default=(), exclude=True)
    """The name of that edit."""


class AreaTrend(Record):
    """Scores on one criterion against the area of the target, small targets first."""

    unit: str
    """Unit of the area: percent of the picture, or pixels if the picture's size is not known."""
    areas: tuple[Number, ...]
    scores: tuple[Number, ...]
    sliding: tuple[Number, ...] = Field(default=())
    """Mean of each window of ten samples; nothing with fewer samples."""
    groups: tuple[SizeGroup, ...] = ()
    """Means of tenths of the edits by area."""
    edits: tuple[str, ...] = Field(default=(), exclude=True)
    """The name of each edit."""
    r: Number | None
    """Pearson's r of score and log area, edit by edit."""
    p: Number | None
    why: str | None = None
    window_r: Number | None = None
    """Pearson's r of the means of windows and their log areas."""
    models: Mapping[str, SizeTrend] = Field(default_factory=dict)
    """The same for each editing model on its own (DLEBench, Figure 6), with the sides of its targets."""


def count_answers(table: RunTable, criterion: str) -> Distribution:
    """Count the answers to a criterion by editing model: labels, numbers, or bins if there are many numbers."""
    is_asked = table.unit_columns.asks(criterion)
    units, judged = table.unit_columns.at(is_asked), table.unit_columns.judged[is_asked]
    alike = list(_group_equal_units(units.at(judged)))
    scores = _answer_scores(alike)
    scale = {name: float(name) for name in _scale_numbers(table, criterion)}
    if len({**scale, **scores}) > _MAX_ANSWERS:
        scale = {}  # too many together: list only the answers that were given
    all_scores = {**scale, **scores}
    apart = (NOT_APPLICABLE,) if all_scores.pop(NOT_APPLICABLE, None) is not None else ()
    answers = tuple(dict.fromkeys((*table.labels(criterion), *sorted(all_scores, key=lambda name: all_scores[name]))))
    binned = len(answers) > _MAX_ANSWERS
    columns = {name: position for position, name in enumerate((*(_BINS if binned else answers), *apart, UNJUDGED))}
    of_unit = np.full(len(units), columns[UNJUDGED])
    positions_of_judged = np.flatnonzero(judged)
    for answer, positions in alike:
        name = _format_bin(answer) if binned else _format_answer(answer)
        of_unit[positions_of_judged[positions]] = -1 if name is None else columns[name]
    models = [row.edit.model or ALL for row in table.rows]
    counts = np.zeros((len(names := dict.fromkeys(models)), len(columns) + 1), np.int64)
    np.add.at(counts, (number_keys(models)[table.row_of_unit[is_asked]], of_unit), 1)
    lines = (tuple(line) for line in counts[:, :-1].tolist())
    return Distribution(answers=tuple(columns), counts=dict(zip(names, lines, strict=True)))


def _answer_scores(alike: Iterable[tuple[RunUnit, Ints]]) -> dict[str, float]:
    """Return the answers of verdicts, in the order in which they first occur, each with its last score."""
    answers = [(name, unit, positions) for unit, positions in alike if (name := _format_answer(unit)) is not None]
    scores = {name: 0.0 for name, _, _ in sorted(answers, key=lambda entry: entry[2][0])}
    for name, unit, _ in sorted(answers, key=lambda entry: entry[2][-1]):
        scores[name] = unit.score or 0.0
    return scores


def _group_equal_units(units: UnitColumns) -> Iterator[tuple[RunUnit, Ints]]:
    """Yield a unit of every label and score that occurs, with the positions of those that have the same."""
    numbers = np.stack([units.of_kind.astype(float), units.score, units.score_100], 1)
    kinds = find_distinct_rows(numbers)
    order = np.argsort(kinds.of_item, kind="stable")
    for positions in np.split(order, np.cumsum(np.bincount(kinds.of_item))[:-1]) if len(units) else ():
        (unit,) = units.units(positions[0], positions[0] + 1)
        yield unit, positions


def _scale_numbers(table: RunTable, criterion: str) -> tuple[str, ...]:
    """Return all numbers a criterion can be answered with, so that the position and colour of an answer are fixed."""
    answer = table.answer(criterion)
    if not isinstance(answer, NumberAnswer) or answer.high - answer.low >= _MAX_ANSWERS:
        return ()
    return tuple(f"{value:.3g}" for value in range(answer.low, answer.high + 1))


def _format_answer(unit: RunUnit) -> str | None:
    if unit.kind.label is not None:
        return unit.kind.label
    return None if unit.score is None else f"{unit.score:.3g}"


def _format_bin(unit: RunUnit) -> str | None:
    if unit.kind.label == NOT_APPLICABLE:
        return NOT_APPLICABLE
    return None if unit.score_100 is None else _BINS[min(len(_BINS) - 1, int(unit.score_100 // 20))]


def compute_area_trend(table: RunTable, criterion: str, level: float = LEVEL) -> AreaTrend | None:
    """Relate scores to the area of the targets (all boxes of an edit together); None if no edit has boxes.

    Args:
        table: The run.
        criterion: The criterion.
        level: Level of the intervals of group means.
    """
    scores = row_means(table.scores(criterion))
    usable = table.targeted[np.isfinite(scores[table.targeted])].tolist()
    if not usable:
        return None
    rows, values = [table.rows[position] for position in usable], scores[usable]
    sizes = [_find_source_size(table.folder, row) for row in rows]
    has_sizes = None not in sizes
    # In percent of the picture if all pictures' sizes are known, else in pixels: a hundred of them are a hundred percent.
    wholes = np.array([size if has_sizes and size else (100, 100) for size in sizes], float)
    boxes = [(position, b.x2 - b.x1, b.y2 - b.y1) for position, row in enumerate(rows) for b in row.edit.target_boxes]
    owners, sides = np.array([box[0] for box in boxes]), np.array([box[1:] for box in boxes], float)
    areas = np.bincount(owners, weights=sides.prod(1)) / (wholes.prod(1) / 100 if has_sizes else 1.0)
    sides = sides / wholes[owners] * 100
    order = np.argsort(areas, kind="stable")
    models = np.array([row.model for row in rows])
    names = [row.name for row in rows]
    sources = table.sources[usable]
    trends = {}
    for model in dict.fromkeys(models.tolist()):
        own, targets = order[models[order] == model], np.flatnonzero(models[owners] == model)
        trends[model] = SizeTrend(
            n=len(own),
            middles=tuple(np.exp(_sliding_means(np.log(areas[own]))).tolist()),
            sides=tuple((width, height) for width, height in sides[targets].tolist()),
            side_scores=tuple(values[owners[targets]].tolist()),
            side_edits=tuple(names[owner] for owner in owners[targets]),
            **_relate(areas[own], values[own], sources[own], level),
        )
    return AreaTrend(
        unit="percent of the picture" if has_sizes else "pixels",
        areas=tuple(areas[order].tolist()),
        scores=tuple(values[order].tolist()),
        edits=tuple(names[position] for position in order),
        models=trends,
        **_relate(areas[order], values[order], sources[order], level),
    )


def _relate(areas: Floats, values: Floats, sources: Ints, level: float) -> dict[str, Any]:
    """Return the numbers of a trend over edits that are sorted by area."""
    r, p, why = _correlate(areas, values)
    return {
        "r": r,
        "p": p,
        "why": why,
        "window_r": _correlate_windows(areas, values),
        "sliding": _sliding_means(values),
        "groups": _group_by_area(areas, values, sources, level),
    }


def _group_by_area(areas: Floats, values: Floats, sources: Ints, level: float) -> tuple[SizeGroup, ...]:
    """Return the mean scores of groups of edits that are sorted by area."""
    count = min(MOST_GROUPS, len(values) // LEAST_IN_GROUP)
    if count < 2:
        return ()
    groups = []
    for own in np.array_split(np.arange(len(values)), count):
        spread = find_mean_spread(values[own], sources[own])
        score = build_estimate(float(values[own].mean()), len(own), spread, level, limits=(0.0, 100.0))
        groups.append(SizeGroup(area=float(np.exp(np.log(areas[own]).mean())), score=score))
    return tuple(groups)


def _sliding_means(values: Floats) -> tuple[float, ...]:
    if len(values) < WINDOW:
        return ()
    return tuple(np.convolve(values, np.ones(WINDOW) / WINDOW, "valid").tolist())


def _correlate_windows(areas: Floats, values: Floats) -> float | None:
    """Return Pearson's r of window means and log areas, or None if it cannot be computed."""
    means = np.round(_sliding_means(values), 9)  # equal means differ by rounding
    return st.pearson(np.array(_sliding_means(np.log(areas))), means)[0]


def _correlate(areas: Floats, values: Floats) -> tuple[float | None, float | None, str | None]:
    """Return Pearson's r of score and log area with its p, or the reason why there is none."""
    _, why = st.pearson(np.log(areas), values)
    if why is not None:
        why = why.replace("the judge gave the same score to all", "the area is the same for all")
        return None, None, why.replace("people gave", "the judge gave")
    from scipy import stats  # type: ignore[import-untyped]

    r, p = map(float, stats.pearsonr(np.log(areas), values))
    return r, p, None


def _find_source_size(folder: Path, row: RunRow) -> tuple[int, int] | None:
    """Return width and height of the source picture, read from the header of the file the run keeps."""
    for sha in row.pictures.get("source", ()):
        with suppress(ImageError):
            return _read_size(folder, sha)
    return None


@lru_cache(maxsize=100_000)
def _read_size(folder: Path, sha: str) -> tuple[int, int]:
    """Return the size of a stored picture. Sizes are cached, since many edits share a picture; a missing file is not."""
    path = PictureFolder(folder / PICTURES).find(sha)
    if path is None:
        raise ImageError(f"the run does not hold the picture {sha}")
    return declared_size(path)
