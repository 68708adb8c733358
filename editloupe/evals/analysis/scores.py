"""Scores of a run by its protocol's arithmetic: per criterion, per type, overall, per model or any other field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from editloupe.evals.analysis.arithmetic import arithmetic_of
from editloupe.evals.analysis.bootstrap import Bools, Floats, Resampling, estimate
from editloupe.evals.analysis.estimate import Estimate, Number, frame, missing
from editloupe.evals.analysis.run_rows import RunRow, Table, table_of
from editloupe.evals.analysis.sheet import ALL, NO_TYPE, Sheet, Worked
from editloupe.evals.runs.store import Run
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Record, Unjudged

UnjudgedRule = Literal["left_out", "worst"]


class Score(Estimate):
    """An estimate with its counts and the criteria behind it."""

    judged: int
    """Units (edit, criterion, repeat) with a verdict."""
    unjudged: int
    """Units without one; left out of the value unless the rule says otherwise."""
    criteria: Mapping[str, Score] = Field(default_factory=dict)


class Coverage(Record):
    """How much of what was asked has a verdict."""

    edits: int
    units: int
    judged: int
    unjudged: int
    share: Number
    """Judged units over all units."""
    by_criterion: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    """Unjudged units by reason."""


class Bounds(Record):
    """The overall score if every unjudged unit had been the worst, and if it had been the best."""

    worst: Number | None
    best: Number | None


class Repeats(Record):
    """The overall score of each repeat on its own."""

    count: int
    values: tuple[Number | None, ...]
    mean: Number | None
    sd: Number | None
    """Standard deviation over repeats (n − 1)."""


class Scores(Record):
    """Everything the verdicts of one run add up to."""

    protocol: str
    overall: Score
    by_criterion: Mapping[str, Score]
    by_type: Mapping[str, Score]
    missing_types: tuple[str, ...]
    own: tuple[str, ...] = ()
    """Criteria asked beside the protocol's: told among `by_criterion`, and no part of any score."""
    by_level: Mapping[str, Estimate] = Field(default_factory=dict)
    """Means of types that the protocol averages first, named by their types; only where a level has several."""
    by: Mapping[str, Mapping[str, Score]] = Field(default_factory=dict)
    """Field to value to overall score."""
    coverage: Coverage
    bounds: Bounds | None = None
    """Given where something is unjudged."""
    repeats: Repeats | None = None
    """Given where units were judged more than once."""
    unjudged_rule: UnjudgedRule
    arithmetic: str
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the tables as plain records, one a number."""
        groups: list[tuple[str, str, Score]] = [("overall", ALL, self.overall)]
        groups += [("type", name, score) for name, score in self.by_type.items()]
        groups += [(field, name, score) for field, values in self.by.items() for name, score in values.items()]
        lines = []
        for kind, name, score in groups:
            for criterion, one in (("final", score), *score.criteria.items()):
                numbers = one.model_dump(exclude={"criteria", "intervals"})
                lines.append({"group": kind, "name": name, "criterion": criterion, **numbers})
        return lines

    def frame(self) -> Any:
        """Return the rows as a pandas data frame, where pandas is installed."""
        return frame(self.rows())


def scores(
    run: Run | Table | str | Path,
    by: Sequence[str] = ("model",),
    unjudged: UnjudgedRule = "left_out",
    how: Resampling | None = None,
    protocol: str | None = None,
) -> Scores:
    """Score a run.

    Unjudged units are left out and counted; with `worst` they count as the worst answer, and the notes say so.
    """
    table, how = table_of(run, protocol), how or Resampling()
    sheet = Sheet(table, table.rows)
    fill = 0.0 if unjudged == "worst" else None
    worked = sheet.work(fill, how)
    overall, by_type = _assemble(sheet, worked, how)
    coverage = _coverage(table)
    return Scores(
        protocol=table.protocol,
        overall=overall,
        by_criterion=overall.criteria,
        by_type=by_type if sheet.typed else {},
        missing_types=_missing_types(sheet),
        own=table.own,
        by_level=_levels(sheet, worked, how),
        by={field: _by_field(table, field, fill, how) for field in by if _has(table, field)},
        coverage=coverage,
        bounds=Bounds(worst=sheet.overall(0.0), best=sheet.overall(100.0)) if coverage.unjudged else None,
        repeats=_repeats(sheet, fill) if len(table.repeats) > 1 else None,
        unjudged_rule=unjudged,
        arithmetic=arithmetic_of(table.protocol).sentence,
        notes=tuple(_notes(sheet, by_type, coverage.unjudged if unjudged == "worst" else 0)),
    )


def _has(table: Table, field: str) -> bool:
    return any(row.field(field) is not None for row in table.rows)


def _by_field(table: Table, field: str, fill: float | None, how: Resampling) -> dict[str, Score]:
    parts: dict[str, list[RunRow]] = {}
    for row in table.rows:
        value = row.field(field)
        parts.setdefault(f"(no {field})" if value is None else str(value), []).append(row)
    sheets = {name: Sheet(table, tuple(rows)) for name, rows in parts.items()}
    return {name: _assemble(sheet, sheet.work(fill, how), how)[0] for name, sheet in sheets.items()}


def _levels(sheet: Sheet, worked: Worked, how: Resampling) -> dict[str, Estimate]:
    found = {}
    for level in sheet.how.levels:
        places = [sheet.groups.index(name) for name in level if name in sheet.groups]
        places = [place for place in places if np.isfinite(worked.point.finals[place])]
        if len(level) > 1 and places:
            only = np.isin(np.arange(len(sheet.groups)), places).astype(float)
            drawn = {
                way: (sheet.free_clusters(way, only), samples.finals[:, places].mean(1))
                for way, samples in worked.samples.items()
            }
            name = " + ".join(sheet.groups[place] for place in places)
            value = float(worked.point.finals[places].mean())
            found[name] = estimate(value, int(worked.edits[places].sum()), drawn, how.level)
    return found


def _repeats(sheet: Sheet, fill: float | None) -> Repeats:
    values = [sheet.overall(fill, place) for place in range(len(sheet.table.repeats))]
    usable = [value for value in values if value is not None]
    return Repeats(
        count=len(values),
        values=tuple(values),
        mean=float(np.mean(usable)) if usable else None,
        sd=float(np.std(usable, ddof=1)) if len(usable) > 1 else None,
    )


def _missing_types(sheet: Sheet) -> tuple[str, ...]:
    return tuple(name for name in sheet.known_types if name not in sheet.groups) if sheet.typed else ()


def _notes(sheet: Sheet, by_type: Mapping[str, Score], taken_as_worst: int) -> list[str]:
    """What a reader of the overall score must know about how it came about."""
    told = []
    if taken_as_worst:
        told.append(f"Pessimistic bound: each of the {taken_as_worst} unjudged verdicts counts as the worst answer.")
    if not sheet.typed:
        told.append("No edit has an instruction type, so the overall score is over all edits, not over types.")
    if NO_TYPE in by_type:
        lost = int((sheet.of_row == sheet.groups.index(NO_TYPE)).sum())
        told.append(f"{lost} edits have no instruction type and are not part of the overall score.")
    if lacking := _missing_types(sheet):
        present = len([name for name, score in by_type.items() if name != NO_TYPE and score.value is not None])
        told.append(f"The overall score is over {present} types; not in this run: {', '.join(lacking)}.")
    foreign = [name for name in sheet.groups if name not in (*sheet.known_types, NO_TYPE, ALL)]
    if foreign and sheet.known_types:
        told.append(f"Not among the protocol's types, but counted as types of their own: {', '.join(foreign)}.")
    undefined = [name for name, score in by_type.items() if score.value is None]
    if undefined:
        told.append(f"Without a score, so not part of the overall: {', '.join(undefined)}.")
    single = [name for name, score in by_type.items() if score.value is not None and score.low is None]
    if single and len(by_type) > 1:
        told.append(
            f"Too few edits to vary, so the overall interval is too narrow by their share: {', '.join(single)}."
        )
    if sheet.table.own:
        mine = ", ".join(sheet.table.title_of(name) for name in sheet.table.own)
        told.append(f"Asked beside the protocol's own criteria, and no part of any score: {mine}.")
    protocol = known_protocol(sheet.table.protocol)
    unasked = [name for name in (protocol.criteria if protocol else ()) if name not in sheet.criteria]
    if unasked and not sheet.how.edit_score:
        told.append(f"Not asked in this run, so not part of any score: {', '.join(unasked)}.")
    return told


def _coverage(table: Table) -> Coverage:
    states = [(unit.criterion, unit.outcome.status) for unit in table.units]
    counts = Counter(states)
    judged = sum(count for (_, status), count in counts.items() if status == "judged")
    reasons = Counter(unit.outcome.reason.value for unit in table.units if isinstance(unit.outcome, Unjudged))
    return Coverage(
        edits=len(table.rows),
        units=len(states),
        judged=judged,
        unjudged=len(states) - judged,
        share=judged / len(states) if states else 0.0,
        by_criterion={
            name: {status: counts[name, status] for status in ("judged", "unjudged")} for name in table.criteria
        },
        reasons=dict(reasons.most_common()),
    )


def _assemble(sheet: Sheet, worked: Worked, how: Resampling) -> tuple[Score, dict[str, Score]]:
    """Return the overall score and the groups' scores, each with its counts, criteria and intervals."""
    point, weights = worked.point, worked.weights
    groups: dict[str, Score] = {}
    for g, name in enumerate(sheet.groups):
        members = sheet.of_row == g
        clusters = {way: sheet.clusters(way, members) for way in worked.samples}
        criteria = {
            criterion: _score(
                sheet,
                members,
                k,
                point.means[g, k],
                worked.counts[g, k],
                {way: (clusters[way], drawn.means[:, g, k]) for way, drawn in worked.samples.items()},
                how,
            )
            for k, criterion in enumerate(sheet.criteria)
            if sheet.asked[g, k]
        }
        samples = {way: (clusters[way], drawn.finals[:, g]) for way, drawn in worked.samples.items()}
        groups[name] = _score(sheet, members, None, point.finals[g], worked.edits[g], samples, how, criteria)
    used = weights[sheet.of_row] > 0
    free = {way: sheet.free_clusters(way, weights) for way in worked.samples}
    criteria = {
        criterion: _score(
            sheet,
            used,
            k,
            point.by_criterion[k],
            worked.counts[weights > 0, k].sum(),
            {way: (free[way], drawn.by_criterion[:, k]) for way, drawn in worked.samples.items()},
            how,
        )
        for k, criterion in enumerate(sheet.criteria)
    }
    samples = {way: (free[way], drawn.overall) for way, drawn in worked.samples.items()}
    overall = _score(sheet, used, None, point.overall, worked.edits[weights > 0].sum(), samples, how, criteria)
    return overall, groups


def _score(
    sheet: Sheet,
    members: Bools,
    column: int | None,
    value: Any,
    n: Any,
    samples: Mapping[str, tuple[int, Floats]],
    how: Resampling,
    criteria: Mapping[str, Score] | None = None,
) -> Score:
    columns = np.flatnonzero(sheet.counted) if column is None else np.array([column])
    judged, unjudged = (int(state[members][..., columns].sum()) for state in (sheet.judged, sheet.unjudged))
    if np.isfinite(value):
        base = estimate(float(value), int(n), samples, how.level)
    else:
        lacking = [n for n, part in (criteria or {}).items() if part.value is None and n not in sheet.table.own]
        why = f"no verdict on {' and '.join(lacking)}" if lacking else "no verdict with a number"
        if criteria and not lacking:
            why = "the protocol's score of an edit needs every criterion it asks, and no edit here has them all"
            why = why if sheet.how.edit_score else "none of these groups is part of the overall"
        base = missing(why, int(n))
    return Score(**dict(base), judged=judged, unjudged=unjudged, criteria=criteria or {})
