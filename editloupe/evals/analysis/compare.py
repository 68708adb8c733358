"""Two runs on the same edits: the paired difference, where they disagree, and which of them agrees more with people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from editloupe.evals.analysis.agreement import Ceiling, Confusion, ceiling_of, pairing, scale_of
from editloupe.evals.analysis.bootstrap import Clusters, Floats, Resampling, bootstrap, clusterings, estimate, kinds_of
from editloupe.evals.analysis.estimate import Estimate, Number, frame, missing
from editloupe.evals.analysis.human import Files, Human, human_labels
from editloupe.evals.analysis.pairing import HIGHER_IS_BETTER, MEASURES, Pairing
from editloupe.evals.analysis.run_rows import BASELINE, RunRow, Table, lower_median, row_means, table_of
from editloupe.evals.analysis.sheet import Sheet
from editloupe.evals.analysis.signflip import sign_flip
from editloupe.evals.analysis.statistics import MOST_VALUES, confusion
from editloupe.evals.runs.store import Run
from editloupe.types import Record, UserError, Verdict

Side = Literal["a", "b"]


class Difference(Record):
    """Two means over the same edits and their difference, a minus b, on the scale of 0 to 100."""

    a: Number | None
    b: Number | None
    difference: Estimate
    p: Number | None
    """Two-sided sign-flip test, by edit and, where several share one, by source image; the larger of the two."""


class CriterionDifference(Difference):
    """The difference on one criterion, and how the two runs' labels relate."""

    same_label: Estimate
    """Share of edits to which both gave the same label."""
    labels: Confusion | None
    """One row a label of b, one column a label of a."""


class HumanDifference(Record):
    """One measure of agreement with people, for both runs on the same edits."""

    a: Estimate
    b: Estimate
    difference: Estimate
    closer: Side | None
    """The run that agrees more, where the interval of the difference leaves out 0."""


class Disagreement(Record):
    """An edit that the two runs scored differently on a criterion."""

    edit_id: str
    criterion: str
    instruction: str
    a: str
    b: str
    difference: Number
    human: tuple[str, ...] = ()
    closer: Side | None = None


class RunComparison(Record):
    """Everything two runs say about the same edits."""

    a: str
    b: str
    a_title: str
    b_title: str
    edits: int
    """Edits in both runs with the same pictures and instruction."""
    left_out: Mapping[str, int]
    """Edits that are not compared, by reason."""
    overall: Difference
    criteria: Mapping[str, CriterionDifference]
    human: Mapping[str, Mapping[str, HumanDifference]] = Field(default_factory=dict)
    """Criterion to measure to both runs' agreement with people."""
    ceiling: Mapping[str, Ceiling] = Field(default_factory=dict)
    """How well annotators agree among themselves, by criterion."""
    disagreements: tuple[Disagreement, ...]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the edits on which the runs disagree as plain records."""
        return [one.model_dump() for one in self.disagreements]

    def frame(self) -> Any:
        """Return the rows as a pandas data frame, where pandas is installed."""
        return frame(self.rows())


def compare(
    a: Run | Table | str | Path,
    b: Run | Table | str | Path,
    human: Files = None,
    how: Resampling | None = None,
    protocol: str | None = None,
) -> RunComparison:
    """Compare two runs on the edits both judged: same id, same pictures, same instruction."""
    first, second, how = table_of(a, protocol), table_of(b, protocol), how or Resampling()
    if first.protocol != second.protocol:
        raise UserError(f"{first.name} was judged by {first.protocol} and {second.name} by {second.protocol}")
    pairs, left_out = _matched(first, second)
    if not pairs:
        raise UserError(f"{first.name} and {second.name} share no edit that both judged")
    one, two = (table.with_rows(rows) for table, rows in zip((first, second), zip(*pairs, strict=True), strict=True))
    people = human_labels(one, human)
    sources = [row.source for row in one.rows]
    criteria = {name: _criterion(one, two, name, sources, how) for name in one.criteria}
    names = (first.name, second.name) if first.name != second.name else (str(first.folder), str(second.folder))
    notes = [BASELINE] if first.by_rules or second.by_rules else []
    return RunComparison(
        a=names[0],
        b=names[1],
        a_title=first.title,
        b_title=second.title,
        edits=len(pairs),
        left_out={why: count for why, count in left_out.items() if count},
        overall=_overall(one, two, how),
        criteria=criteria,
        human=_with_people(one, two, people, sources, how),
        ceiling={
            name: ceiling
            for name in one.criteria
            if (ceiling := ceiling_of(people.matrix(one, name), sources, how)) is not None
        },
        disagreements=_disagreements(one, two, people),
        notes=(*notes, *people.notes),
    )


def _matched(a: Table, b: Table) -> tuple[list[tuple[RunRow, RunRow]], dict[str, int]]:
    """Return pairs of rows that hold only the criteria both judged, and the reasons for leaving others out."""
    others = {row.edit.id: row for row in b.rows}
    left_out = {"only in the first run": 0, "only in the second run": 0, "other pictures or instruction": 0}
    left_out["unjudged in a run"] = 0
    pairs = []
    for row in a.rows:
        other = others.pop(row.edit.id, None)
        if other is None:
            left_out["only in the first run"] += 1
        elif not _same(row, other):
            left_out["other pictures or instruction"] += 1
        else:
            both = [name for name in row.units if _judged(row, name) and _judged(other, name)]
            if not both:
                left_out["unjudged in a run"] += 1
                continue
            pictures = row.pictures or other.pictures
            pairs.append(
                (
                    replace(row, pictures=pictures, units={name: row.units[name] for name in both}),
                    replace(other, pictures=pictures, units={name: other.units[name] for name in both}),
                )
            )
    left_out["only in the second run"] = len(others)
    return pairs, left_out


def _same(one: RunRow, two: RunRow) -> bool:
    roles = [role for role in ("source", "edited") if role in one.pictures and role in two.pictures]
    pictures = all(one.pictures[role] == two.pictures[role] for role in roles)
    return pictures and one.edit.instruction == two.edit.instruction


def _judged(row: RunRow, criterion: str) -> bool:
    return any(isinstance(unit.outcome, Verdict) for unit in row.units.get(criterion, ()))


def _overall(a: Table, b: Table, how: Resampling) -> Difference:
    """Subtract the macro overall scores; both are resampled with the same draws, so the difference is paired."""
    one, two = Sheet(a, a.rows), Sheet(b, b.rows)
    first, second = one.work(None, how), two.work(None, how)
    values = [float(worked.point.overall) for worked in (first, second)]
    if not np.isfinite(values).all():
        return Difference(a=None, b=None, difference=missing("no type was judged on every criterion by both"), p=None)
    drawn = {
        way: (one.free_clusters(way, first.weights), first.samples[way].overall - second.samples[way].overall)
        for way in first.samples
    }
    difference = estimate(values[0] - values[1], int(first.edits[first.weights > 0].sum()), drawn, how.level)
    p = _p(one.contributions(first) - two.contributions(second), one.ways, how)
    return Difference(a=values[0], b=values[1], difference=difference, p=p)


def _p(differences: Floats, ways: tuple[Clusters, ...], how: Resampling) -> float:
    """Return the larger p-value where signs can be flipped by edit and by source image."""
    return max(sign_flip(way.sums(differences), how.seed) for way in ways)


def _criterion(a: Table, b: Table, criterion: str, sources: list[str], how: Resampling) -> CriterionDifference:
    x, y = row_means(a.scores(criterion)), row_means(b.scores(criterion))
    both = np.isfinite(x) & np.isfinite(y)
    ways = clusterings([source for source, here in zip(sources, both, strict=True) if here])
    change = (x - y)[both]
    if not len(change):
        nothing = missing("no edit was judged on it by both")
        return CriterionDifference(a=None, b=None, difference=nothing, p=None, same_label=nothing, labels=None)
    scale = scale_of(a, criterion)
    pairs, _ = pairing(a.scores(criterion, "score"), b.scores(criterion, "score"), scale)
    names = a.labels(criterion) or tuple(f"{value:g}" for value in pairs.values)
    counted = len(pairs.values) <= MOST_VALUES
    counts = confusion(pairs.x_label, pairs.y_label, pairs.values) if counted else []

    def mean(counts: Floats) -> Floats:
        return np.asarray(counts @ change / counts.sum(1))

    return CriterionDifference(
        a=float(x[both].mean()),
        b=float(y[both].mean()),
        difference=estimate(float(change.mean()), len(change), bootstrap(ways, how, {"mean": mean})["mean"], how.level),
        p=_p(change, ways, how),
        same_label=pairs.estimates(ways, how)["accuracy"],
        labels=Confusion(labels=names, counts=tuple(map(tuple, counts))) if counted else None,
    )


def _with_people(
    a: Table, b: Table, people: Human, sources: list[str], how: Resampling
) -> dict[str, dict[str, HumanDifference]]:
    found: dict[str, dict[str, HumanDifference]] = {}
    for criterion in a.criteria:
        ratings, scale = people.matrix(a, criterion), scale_of(a, criterion)
        judges = [table.scores(criterion, "score") for table in (a, b)]
        both = np.isfinite(row_means(judges[0])) & np.isfinite(row_means(judges[1])) & np.isfinite(ratings).any(1)
        if both.any():
            one, two = (pairing(judge[both], ratings[both], scale)[0] for judge in judges)
            here = [source for source, inside in zip(sources, both, strict=True) if inside]
            found[criterion] = _human_differences(one, two, here, how)
    return found


def _human_differences(a: Pairing, b: Pairing, sources: list[str], how: Resampling) -> dict[str, HumanDifference]:
    """Every measure of both runs, from the same draws, so that the differences are paired."""
    kinds = kinds_of(np.column_stack([a.numbers, b.numbers]))
    statistics = {}
    for side, pair in (("a", a), ("b", b)):
        few = pair.at(kinds.first)
        for measure in MEASURES:
            if pair.value(measure)[0] is not None:
                statistics[f"{side}:{measure}"] = partial(few.samples, measure)
    samples = bootstrap(clusterings(sources), how, statistics, kinds)
    return {measure: _human_difference(measure, a, b, samples, how) for measure in MEASURES}


def _human_difference(
    measure: str, a: Pairing, b: Pairing, samples: Mapping[str, Mapping[str, tuple[int, Floats]]], how: Resampling
) -> HumanDifference:
    (first, why), (second, other_why) = a.value(measure), b.value(measure)
    drawn = [samples.get(f"{side}:{measure}", {}) for side in ("a", "b")]
    one = estimate(first, len(a), drawn[0], how.level, why)
    two = estimate(second, len(b), drawn[1], how.level, other_why)
    if first is None or second is None:
        absent = missing(why or other_why or "one of the two has no value", len(a))
        return HumanDifference(a=one, b=two, difference=absent, closer=None)
    change = {way: (count, found - drawn[1][way][1]) for way, (count, found) in drawn[0].items()}
    difference = estimate(first - second, len(a), change, how.level)
    closer: Side | None = None
    if difference.low is not None and difference.high is not None and not difference.low <= 0 <= difference.high:
        closer = "a" if (difference.low > 0) == HIGHER_IS_BETTER[measure] else "b"
    return HumanDifference(a=one, b=two, difference=difference, closer=closer)


def _disagreements(a: Table, b: Table, people: Human) -> tuple[Disagreement, ...]:
    """Edits with different scores, the widest apart first."""
    found = []
    for criterion in a.criteria:
        x, y = row_means(a.scores(criterion)), row_means(b.scores(criterion))
        raw = [lower_median(table.scores(criterion, "score")) for table in (a, b)]
        ratings = people.matrix(a, criterion)
        target = row_means(ratings)
        means = [row_means(table.scores(criterion, "score")) for table in (a, b)]
        for place in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (x != y)):
            edit = a.rows[place].edit
            off = [abs(mean[place] - target[place]) for mean in means]
            given = [name_of(a, criterion, score) for score in ratings[place] if np.isfinite(score)]
            closer: Side | None = None
            if given and off[0] != off[1]:
                closer = "a" if off[0] < off[1] else "b"
            found.append(
                Disagreement(
                    edit_id=edit.id,
                    criterion=criterion,
                    instruction=edit.instruction,
                    a=name_of(a, criterion, raw[0][place]),
                    b=name_of(b, criterion, raw[1][place]),
                    difference=float(x[place] - y[place]),
                    human=tuple(given),
                    closer=closer,
                )
            )
    return tuple(sorted(found, key=lambda one: -abs(one.difference)))


def name_of(table: Table, criterion: str, score: float) -> str:
    """Return the label of a score, or the score itself where the rubric has no labels."""
    names, scale = table.labels(criterion), scale_of(table, criterion)
    return names[scale.index(score)] if names and score in scale else f"{score:g}"
