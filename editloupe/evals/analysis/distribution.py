"""How often each answer was given, and how scores go with the size of the target."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from PIL import Image, UnidentifiedImageError
from pydantic import Field

from editloupe.evals.analysis import statistics as st
from editloupe.evals.analysis.estimate import Number
from editloupe.evals.analysis.run_rows import RunRow, Table, row_means
from editloupe.evals.analysis.run_units import RunUnit
from editloupe.evals.runs.pictures import PictureFolder
from editloupe.evals.runs.store import PICTURES
from editloupe.types import Record

UNJUDGED = "unjudged"
WINDOW = 10
"""Samples in the sliding mean over target area."""
_BINS = ("0–20", "20–40", "40–60", "60–80", "80–100")
_MOST = 10


class Distribution(Record):
    """Counts of answers on one criterion, worst first, by group; what is unjudged stands at the end."""

    answers: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]


class AreaTrend(Record):
    """Scores on one criterion against the area of the target, small targets first."""

    unit: str
    """What the area is measured in: percent of the picture, or pixels where its size is not known."""
    areas: tuple[Number, ...]
    scores: tuple[Number, ...]
    sliding: tuple[Number, ...] = Field(default=())
    """Mean of each window of ten samples; nothing with fewer samples."""
    r: Number | None
    """Pearson's r of score and log area."""
    p: Number | None
    why: str | None = None


def distribution(table: Table, criterion: str, field: str = "model") -> Distribution:
    """Count the answers to a criterion, by a field of the edits: labels, numbers, or bins where there are many numbers."""
    verdicts = [unit for unit in table.units if unit.criterion == criterion and unit.judged]
    given = {_answer(unit): unit.score or 0.0 for unit in verdicts}
    found = sorted((name for name in given if name is not None), key=lambda name: given[name])
    answers = tuple(dict.fromkeys((*table.labels(criterion), *found)))
    binned = len(answers) > _MOST
    columns = {name: place for place, name in enumerate((*(_BINS if binned else answers), UNJUDGED))}
    counts: dict[str, list[int]] = {}
    for row in table.rows:
        value = row.field(field)
        line = counts.setdefault("all edits" if value is None else str(value), [0] * len(columns))
        for unit in row.units.get(criterion, ()):
            if not unit.judged:
                line[columns[UNJUDGED]] += 1
            elif (name := _bin(unit) if binned else _answer(unit)) is not None:
                line[columns[name]] += 1
    return Distribution(answers=tuple(columns), counts={name: tuple(line) for name, line in counts.items()})


def _answer(unit: RunUnit) -> str | None:
    if unit.label is not None:
        return unit.label
    return None if unit.score is None else f"{unit.score:.3g}"


def _bin(unit: RunUnit) -> str | None:
    return None if unit.score_100 is None else _BINS[min(len(_BINS) - 1, int(unit.score_100 // 20))]


def area_trend(table: Table, criterion: str) -> AreaTrend | None:
    """Set scores against the area of the targets (all boxes of an edit together); None where no edit has boxes."""
    scores = row_means(table.scores(criterion))
    usable = [place for place, row in enumerate(table.rows) if row.edit.target_boxes and np.isfinite(scores[place])]
    if not usable:
        return None
    rows = [table.rows[place] for place in usable]
    areas = np.array([sum(box.area for box in row.edit.target_boxes) for row in rows], float)
    folder = PictureFolder(table.folder / PICTURES)
    pixels = [_pixels(row, folder) for row in rows]
    known = None not in pixels
    if known:
        areas = areas / np.array(pixels, float) * 100
    order = np.argsort(areas, kind="stable")
    areas, values = areas[order], scores[usable][order]
    sliding = np.convolve(values, np.ones(WINDOW) / WINDOW, "valid") if len(values) >= WINDOW else np.array([])
    _, why = st.pearson(np.log(areas), values)
    r = p = None
    if why is None:
        from scipy import stats  # type: ignore[import-untyped]

        r, p = map(float, stats.pearsonr(np.log(areas), values))
    else:
        why = why.replace("the judge gave the same score to all", "the area is the same for all").replace(
            "people gave", "the judge gave"
        )
    return AreaTrend(
        unit="percent of the picture" if known else "pixels",
        areas=tuple(areas.tolist()),
        scores=tuple(values.tolist()),
        sliding=tuple(sliding.tolist()),
        r=r,
        p=p,
        why=why,
    )


def _pixels(row: RunRow, folder: PictureFolder) -> int | None:
    """Return how many pixels the source picture has, read from its file's header."""
    path = next((path for sha in row.pictures.get("source", ()) if (path := folder.find(sha))), None)
    if path is None:
        return None
    try:
        with Image.open(path) as picture:
            return picture.width * picture.height
    except (OSError, UnidentifiedImageError):
        return None
