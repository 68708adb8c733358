"""Count the samples, types and targets of a manifest, and measure the area of its targets."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from pydantic import Field

from editloupe._util.text import number_of, verb
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.columns import Naming
from editloupe.evals.manifests.datasets import Manifest, build_edit
from editloupe.evals.manifests.readers import Row
from editloupe.pictures.decode import declared_size
from editloupe.pictures.memory import require_path
from editloupe.pictures.pixels import ImageError
from editloupe.types import Box, Edit, Record, UserError

NO_TYPE = "(no type)"
NO_FAMILY = "other"
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Limits of the intervals of target areas, in percent of the picture."""
QUANTILES = {"minimum": 0.0, "quarter": 0.25, "median": 0.5, "three quarters": 0.75, "maximum": 1.0}
CURVE_POINTS = 400
"""Most points of a cumulative curve; more would not be visible in print."""


class Interval(Record):
    """How many samples have a target of this size."""

    above: float
    """Percent of the picture, this value not included."""
    up_to: float
    samples: int


class ManifestStats(Record):
    """Statistics of a manifest. A sample is a source, an instruction and its targets, whatever number of models edited it."""

    name: str
    file: str
    """As the user named it."""
    rows: int
    samples: int
    models: Mapping[str, int]
    """Rows by editing model, if the manifest names them."""
    types: Mapping[str, int]
    """Samples by instruction type, the most frequent first."""
    families: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)
    """The same by families of types, if the paper has some; other types are in the family `other`."""
    targets: Mapping[int, int]
    """Samples by their number of annotated targets."""
    sides: Mapping[str, Mapping[str, float]]
    """Quantiles of the targets' width, height and shorter side, in pixels."""
    area: Mapping[str, float]
    """Quantiles of the share of its picture that the targets of a sample take together, in percent."""
    below: Mapping[str, float]
    """Share of the samples whose targets take at most 0.1, 1 and 10 percent of the picture."""
    intervals: tuple[Interval, ...]
    curve: tuple[tuple[float, float], ...]
    """The cumulative distribution: area in percent, share of the samples up to it."""
    measured: int
    """Samples with targets and a picture whose size is known; the areas are theirs."""
    notes: tuple[str, ...] = ()


def manifest_stats(
    path: Path,
    naming: Naming | None = None,
    allow_outside: bool = False,
    name: str | None = None,
    typing: Callable[[Edit], Edit] | None = None,
    families: Mapping[str, Sequence[str]] | None = None,
) -> ManifestStats:
    """Count a manifest in one pass. Only the headers of pictures are read, and edited pictures are not needed.

    Args:
        path: The manifest.
        naming: Renames the fields of a row to those of `Edit`.
        allow_outside: Allow paths outside the manifest's folder.
        name: Name of the manifest; by default that of its file.
        typing: Sets the type that an edit is counted by.
        families: Types by family.

    Raises:
        UserError: The manifest has a mistake or no edit.
    """
    counts = _Counts()
    for edit in _samples(path, naming, allow_outside):
        counts.add(typing(edit) if typing else edit)
    if not counts.rows:
        raise UserError(f"{path.name} has no edit")
    stats = counts.stats(name or path.stem, str(path))
    return stats.model_copy(update={"families": _by_family(stats.types, families or {})})


def _by_family(types: Mapping[str, int], families: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """Split counts of types by family; empty if no type belongs to one.

    >>> _by_family({"Color": 3, "Removal": 2, "Style": 1}, {"attributes": ["Color", "Shape"], "objects": ["Removal"]})
    {'attributes': {'Color': 3}, 'objects': {'Removal': 2}, 'other': {'Style': 1}}
    """
    split = {name: {kind: types[kind] for kind in types if kind in kinds} for name, kinds in families.items()}
    if not any(split.values()):
        return {}
    in_families = {kind for kinds in families.values() for kind in kinds}
    split[NO_FAMILY] = {kind: count for kind, count in types.items() if kind not in in_families}
    return {name: counts for name, counts in split.items() if counts}


def _samples(path: Path, naming: Naming | None, allow_outside: bool) -> Iterator[Edit]:
    """Yield the edits of the rows; edited picture and instruction may be missing."""
    manifest = Manifest(path, naming=naming)
    for row in manifest.rows():
        values = {"edited": row.values.get("source"), "instruction": "-", **row.values}
        yield build_edit(Row(row.where, values), manifest.folder, allow_outside)


class _Counts:
    """Counts so far; grows by a few bytes per sample."""

    def __init__(self) -> None:
        self.rows = 0
        self._seen = IdSet()
        self._models: Counter[str] = Counter()
        self._types: Counter[str] = Counter()
        self._targets: Counter[int] = Counter()
        self._widths, self._heights, self._areas = array("d"), array("d"), array("d")
        self._unopened, self._outside, self._first = 0, 0, ""

    def add(self, edit: Edit) -> None:
        """Count a row; a sample that several models edited is counted once."""
        self.rows += 1
        if edit.model is not None:
            self._models[edit.model] += 1
        facts = repr((str(edit.source), edit.instruction, edit.instruction_type, [list(b) for b in edit.target_boxes]))
        if self._seen.add(hashlib.sha256(facts.encode("utf-8", "replace")).hexdigest()):
            return
        self._types[edit.instruction_type or NO_TYPE] += 1
        self._targets[len(edit.target_boxes)] += 1
        for box in edit.target_boxes:
            width, height = box.size
            self._widths.append(width)
            self._heights.append(height)
        if edit.target_boxes:
            self._measure(require_path(edit.source), edit.target_boxes)

    def _measure(self, source: Path, boxes: Sequence[Box]) -> None:
        try:
            width, height = _size_of(source)
        except ImageError as error:
            self._unopened += 1
            self._first = self._first or str(error)
            return
        inside = [
            max(0, min(box.x2, width) - max(box.x1, 0)) * max(0, min(box.y2, height) - max(box.y1, 0)) for box in boxes
        ]
        self._outside += sum(part < box.area for part, box in zip(inside, boxes, strict=True))
        self._areas.append(min(100.0, sum(inside) / (width * height) * 100))  # targets may overlap

    def stats(self, name: str, file: str) -> ManifestStats:
        """Return the statistics."""
        widths, heights = np.array(self._widths), np.array(self._heights)
        areas = np.sort(np.array(self._areas))
        sides = {"width": widths, "height": heights, "shorter side": np.minimum(widths, heights)}
        return ManifestStats(
            name=name,
            file=file,
            rows=self.rows,
            samples=sum(self._types.values()),
            models=dict(self._models.most_common()),
            types=dict(self._types.most_common()),
            targets=dict(sorted(self._targets.items())),
            sides={side: _quantiles(values) for side, values in sides.items()} if len(widths) else {},
            area=_quantiles(areas) if len(areas) else {},
            below={f"{at:g}": bisect_right(areas, at) / len(areas) for at in (0.1, 1.0, 10.0)} if len(areas) else {},
            intervals=tuple(_intervals(areas)) if len(areas) else (),
            curve=_curve(areas),
            measured=len(areas),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        if untargeted := self._targets[0]:
            yield (
                f"{untargeted} of {number_of(sum(self._targets.values()), 'sample')} "
                f"{verb(untargeted, 'has', 'have')} no annotated target."
            )
        if self._unopened:
            yield (
                f"{number_of(self._unopened, 'sample')} with targets {verb(self._unopened, 'has', 'have')} no area, "
                f"because the pictures cannot be opened: {self._first}."
            )
        if self._outside:
            yield (
                f"{number_of(self._outside, 'target')} {verb(self._outside, 'reaches', 'reach')} beyond the "
                "picture; only the part inside is counted."
            )


@lru_cache(maxsize=4096)
def _size_of(path: Path) -> tuple[int, int]:
    """Return a picture's size; cached because samples of one picture mostly follow each other."""
    return declared_size(path)


def _quantiles(values: np.ndarray) -> dict[str, float]:
    quantiles = np.quantile(values, list(QUANTILES.values()))
    return {name: float(value) for name, value in zip(QUANTILES, quantiles, strict=True)}


def _intervals(areas: np.ndarray) -> Iterator[Interval]:
    """Yield the intervals from the first with a sample to the last."""
    ends = np.searchsorted(areas, EDGES, side="right")
    counts = [int(after - before) for before, after in pairwise([0, *ends[1:]])]
    used = [index for index, count in enumerate(counts) if count]
    for index in range(used[0], used[-1] + 1):
        yield Interval(above=EDGES[index], up_to=EDGES[index + 1], samples=counts[index])


def _curve(areas: np.ndarray) -> tuple[tuple[float, float], ...]:
    """Return the cumulative distribution, thinned evenly if there are many samples."""
    if not len(areas):
        return ()
    indices = np.unique(np.linspace(0, len(areas) - 1, min(len(areas), CURVE_POINTS)).round().astype(int))
    return tuple((float(areas[index]), float((index + 1) / len(areas))) for index in indices)
