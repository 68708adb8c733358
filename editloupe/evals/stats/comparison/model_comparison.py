"""Compare all pairs of editing models on the sources and instructions that both models have.

The module holds the records of a comparison, the comparison itself, and the alignment of the cases of several runs and models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import is_
from typing import Any, Literal

import numpy as np

from editloupe._util.tables import data_frame
from editloupe._util.text import number_of, verb
from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.stats.comparison.paired_differences import (
    OVERALL,
    CaseGrid,
    PairedDifference,
    compute_differences,
)
from editloupe.evals.stats.comparison.run_comparison import (
    edited_picture_key,
    find_better_side,
    is_same_judge,
    require_same_protocol,
)
from editloupe.evals.stats.intervals import (
    LEVEL,
    Bools,
    Estimate,
    Floats,
    Ints,
    Number,
    finite_or_none,
)
from editloupe.evals.stats.scores import unedited_baseline as ref
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, find_warnings
from editloupe.evals.stats.scores.score_matrix import RunSlice, ScoreMatrix, find_shared_slice_fields, group_rows
from editloupe.evals.stats.scores.unedited_baseline import UneditedOutputs, UneditedReference, split_off_reference
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import Record, UserError


class ModelDifference(Record):
    """Two models' scores on the cases both have, and their difference, a minus b, on the scale of 0 to 100."""

    a: Number | None
    b: Number | None
    difference: Estimate
    """With an interval that is corrected for the number of pairs: all of them hold together at the level."""
    p: Number | None
    """Two-sided, by source picture, corrected for the number of pairs; below 1 − level exactly if the interval excludes 0."""
    better: str | None
    """The better model, if p is below 1 − level."""


class ModelPair(Record):
    """Two editing models on the sources and instructions of both."""

    a: str
    b: str
    cases: int
    """Cases that are compared: both have an output, and a criterion of both was judged."""
    same_picture: int
    """Cases among them for which both gave the identical picture."""
    a_lacks: int
    """Cases of b that a has no output for."""
    b_lacks: int
    unjudged: int
    """Cases of both that are unjudged for one of the two."""
    overall: ModelDifference
    criteria: Mapping[str, ModelDifference]


class ModelEntry(Record):
    """One editing model among the others."""

    model: str
    cases: int
    """Cases with an output."""
    lacks: int
    """Cases that some other model has an output for and this one has not."""
    unjudged: int
    """Cases with an output but without a verdict."""
    overall: Number | None
    """By the protocol's arithmetic, over its own cases."""
    ranks: tuple[int, int]
    """The best and the worst rank that the corrected tests leave open."""
    unedited: UneditedOutputs


class ModelComparison(Record):
    """All pairs of editing models, and the conclusion about their order.

    Args:
        question: Always `models`.
        part: The value of the field the paper reports separately, such as a language; empty if there is only one.
        runs: Names of the runs.
        judge: The judges of the runs.
        answer: The conclusion in a sentence or two.
        cases: Number of cases of at least one model.
        common: Number of cases of all models.
        models: The models, the highest overall score first.
        reference: The unedited source as a reference.
        pairs: Every two models.
        against_reference: Every model against the unedited source, if its scores are known per case.
        level: Level of the intervals.
        notes: Notes for readers.
    """

    question: Literal["models"] = "models"
    part: tuple[str, ...] = ()
    runs: tuple[str, ...]
    judge: str
    answer: str
    cases: int
    common: int
    models: tuple[ModelEntry, ...]
    reference: UneditedReference
    pairs: tuple[ModelPair, ...]
    against_reference: tuple[ModelPair, ...]
    level: Number
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return plain records, one per pair and score."""
        lines = []
        for pair in (*self.pairs, *self.against_reference):
            for name, difference in ((OVERALL, pair.overall), *pair.criteria.items()):
                numbers = {f"difference_{end}": getattr(difference.difference, end) for end in ("value", "low", "high")}
                fields = difference.model_dump(exclude={"difference"})
                lines.append(
                    {"model_a": pair.a, "model_b": pair.b, "cases": pair.cases, "score": name, **fields, **numbers}
                )
        return lines

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raise UserError if pandas is not installed."""
        return data_frame(self.rows())

    frame = to_pandas
    """The former name of `to_pandas`."""


def compare_models_by_slice(
    tables: Sequence[RunTable],
    level: float = LEVEL,
    criteria: bool = True,
    least: int = 2,
    slices: Sequence[RunSlice] = (),
) -> tuple[ModelComparison, ...]:
    """Compare all editing models, once per value of the fields that the paper reports separately, such as the language.

    Args:
        tables: The runs.
        level: Level of the intervals and of the tests.
        criteria: Whether to compare every criterion; if False, only the overall score.
        least: Minimum number of models.
        slices: Slices of the runs that exist already; their score matrices are used again.
    """
    fields = find_shared_slice_fields(tables)
    if not fields:
        return (compare_models(tables, level, criteria, least, {part.group[0]: part.matrix for part in slices}),)
    split = [group_rows(table.rows, fields) for table in tables]
    comparisons = []
    for part in dict.fromkeys(group for rows in split for group in rows):
        own = [table.with_rows(rows[part]) for table, rows in zip(tables, split, strict=True) if part in rows]
        if sum(len(split_off_reference(table)[0].models) for table in own) >= least:
            matrices = {slice_.group[0]: slice_.matrix for slice_ in slices if slice_.group[1:] == part}
            comparisons.append(compare_models(own, level, criteria, 1, matrices).model_copy(update={"part": part}))
    if not comparisons:
        raise UserError(f"{' and '.join(table.name for table in tables)} holds no two editing models to compare")
    return tuple(comparisons)


def compare_models(
    tables: Sequence[RunTable],
    level: float = LEVEL,
    criteria: bool = True,
    least: int = 2,
    matrices: Mapping[str, ScoreMatrix] | None = None,
) -> ModelComparison:
    """Compare all editing models of one run or of several, paired by source, instruction and target.

    Args:
        tables: The runs, judged by the same protocol.
        level: Level of the intervals and of the tests, of all pairs together.
        criteria: Whether to compare every criterion; if False, only the overall score.
        least: Minimum number of models.
        matrices: Score matrices by model, if they exist already.

    Raises:
        UserError: There are fewer than `least` models, or the protocols differ.
    """
    require_same_protocol(*tables)
    models = split_by_model(tables)
    judged_reference = models.pop(NOTHING_EDITED, None) if len(models) > 1 else None
    if len(models) < least:
        raise UserError(
            f"{' and '.join(t.name for t in tables)} holds outputs of only one editing model ({', '.join(models)}), so there is "
            "no pair"
        )
    pool = align_cases(
        tables[0], models if judged_reference is None else {**models, NOTHING_EDITED: judged_reference}, matrices
    )
    scored = {name: finite_or_none(pool.grid.point(pool.sides[name]).result.overall) for name in models}
    names = sorted(models, key=lambda name: -1.0 if (score := scored[name]) is None else score, reverse=True)
    by_pair = compute_differences(pool.grid, pool.sides, list(combinations(names, 2)), level, criteria)
    pairs = _build_model_pairs(pool, by_pair, level)
    by_words = ref.score_by_protocol(pool.grid, tables[0], pool.case_rows)
    if judged_reference is None:
        pool = pool.with_constant(NOTHING_EDITED, by_words)
    base = ref.build_reference(pool.grid, tables[0], pool.sides[NOTHING_EDITED], judged_reference is not None)
    against: tuple[ModelPair, ...] = ()
    if base.overall.value is not None:
        tried = compute_differences(pool.grid, pool.sides, [(name, NOTHING_EDITED) for name in names], level, criteria)
        against = _build_model_pairs(pool, tried, level)
    entries = _build_entries(pool, {name: scored[name] for name in names}, pairs, by_words)
    has = np.stack([pool.present(name) for name in names])
    return ModelComparison(
        runs=tuple(dict.fromkeys(table.name for table in tables)),
        judge=" and ".join(dict.fromkeys(table.title for table in tables)),
        answer=summarize(entries, base, against, pairs),
        cases=int(has.any(0).sum()),
        common=int(has.all(0).sum()),
        models=entries,
        reference=base,
        pairs=pairs,
        against_reference=against,
        level=level,
        notes=tuple(_build_notes(tables, entries, pool)),
    )


def _build_model_pairs(
    pool: AlignedCases, by_pair: Mapping[tuple[str, str], Mapping[str, PairedDifference]], level: float
) -> tuple[ModelPair, ...]:
    """Put the differences into records; every score is a family of tests of its own, corrected for its pairs."""
    names = list(dict.fromkeys(name for changes in by_pair.values() for name in changes))
    tests = {name: sum(changes[name].p is not None for changes in by_pair.values()) for name in names}
    return tuple(
        _build_model_pair(
            pool,
            pair,
            {name: _build_model_difference(pair, changes[name].adjusted(level, tests[name]), level) for name in names},
        )
        for pair, changes in by_pair.items()
    )


def _build_model_difference(pair: tuple[str, str], change: PairedDifference, level: float) -> ModelDifference:
    side = find_better_side(change, level)
    return ModelDifference(
        a=change.a,
        b=change.b,
        difference=change.difference,
        p=change.p,
        better=None if side is None else pair[0] if side == "a" else pair[1],
    )


def _build_model_pair(pool: AlignedCases, pair: tuple[str, str], records: dict[str, ModelDifference]) -> ModelPair:
    a, b = (pool.present(name) for name in pair)
    judged = pool.judged(pair[0]) & pool.judged(pair[1])
    return ModelPair(
        a=pair[0],
        b=pair[1],
        cases=int(judged.sum()),
        same_picture=int((judged & (pool.pictures[pair[0]] == pool.pictures[pair[1]])).sum()),
        a_lacks=int((b & ~a).sum()),
        b_lacks=int((a & ~b).sum()),
        unjudged=int((a & b & ~judged).sum()),
        overall=records.pop(OVERALL),
        criteria={name: difference for name, difference in records.items() if difference.difference.value is not None},
    )


def _build_entries(
    pool: AlignedCases, scored: Mapping[str, float | None], pairs: Sequence[ModelPair], untouched: Floats
) -> tuple[ModelEntry, ...]:
    names = list(scored)
    better = Counter(pair.overall.better for pair in pairs)
    worse = Counter(pair.b if pair.overall.better == pair.a else pair.a for pair in pairs if pair.overall.better)
    anywhere = np.any([pool.present(name) for name in names], axis=0)
    entries = []
    for name in names:
        own, judged = pool.present(name), pool.judged(name)
        copied = np.zeros(len(own), bool)
        copied[pool.places[name]] = ref.find_copies(pool.rows[name])
        entries.append(
            ModelEntry(
                model=name,
                cases=int(own.sum()),
                lacks=int((anywhere & ~own).sum()),
                unjudged=int((own & ~judged).sum()),
                overall=scored[name],
                ranks=(1 + worse[name], len(names) - better[name]),
                unedited=ref.count_unedited(pool.grid, pool.sides[name], copied & judged, untouched),
            )
        )
    return tuple(entries)


def summarize(
    entries: Sequence[ModelEntry], base: UneditedReference, against: Sequence[ModelPair], pairs: Sequence[ModelPair]
) -> str:
    """Return which model is best according to the tests, and whether it beats the unedited source."""
    ranked = [entry for entry in entries if entry.overall is not None]
    if not ranked:
        return "None of the editing models has an overall score."
    first = ranked[0]
    score = f"{first.overall:.1f}"
    rivals = [entry.model for entry in ranked[1:]]
    open_ = [entry.model for entry in ranked[1:] if first.model not in _find_better_models(pairs, entry.model)]
    if not rivals:
        sentence = f"{first.model} is the only editing model here, with {score}."
    elif not open_:
        sentence = f"Best of {len(ranked)} editing models: {first.model} with {score}, "
        sentence += "better than each of the others on the cases both have."
    else:
        apart = (
            ""
            if len(open_) == len(rivals)
            else f"; {first.model} is ahead of {_join_names([n for n in rivals if n not in open_])}"
        )
        unpaired = not any(pair.cases for pair in pairs)
        why = " (they share no source and instruction)" if unpaired else ""
        level = [entry.model for entry in ranked if entry.overall == first.overall]
        others = [name for name in open_ if name not in level]
        sentence = f"No best of {len(ranked)} editing models: {_join_names(level)} "
        sentence += f"{'scores highest' if len(level) == 1 else 'score the same'}, {score}"
        sentence += f", but cannot be told apart from {_join_names(others)}" if others else ""
        sentence += f"{why}{apart}."
    if base.overall.value is None:
        return sentence
    beats = [pair.a for pair in against if pair.overall.better == pair.a]
    nothing = f"an unedited source, which scores {base.overall.value:.1f}"
    if not beats:
        return f"{sentence} {'None of them' if rivals else 'It'} is {'' if rivals else 'not '}clearly better than {nothing}."
    if first.model not in beats:
        return f"{sentence} {first.model} is not clearly better than {nothing}."
    short = [name for name in rivals if name not in beats]
    return f"{sentence} Not clearly better than {nothing}: {_join_names(short)}." if short else sentence


def _find_better_models(pairs: Sequence[ModelPair], model: str) -> set[str]:
    """Return the models that are better than this one after correction."""
    return {
        pair.overall.better for pair in pairs if model in (pair.a, pair.b) and pair.overall.better not in (None, model)
    }


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _build_notes(tables: Sequence[RunTable], entries: Sequence[ModelEntry], pool: AlignedCases) -> list[str]:
    notes = list(find_warnings(*tables))
    for group, count in pool.count_uncounted().items():
        cases = f"{number_of(count, 'case')} of {group} {verb(count, 'has', 'have')}"
        notes.append(f"{cases} no part in the overall score, and {verb(count, 'is', 'are')} not compared.")
    if any(not is_same_judge(tables[0], other) for other in tables[1:]):
        notes.append(
            "The runs were not judged alike, so a difference may come from the judge as well as from the model."
        )
    if any(entry.lacks for entry in entries):
        counts = ", ".join(f"{entry.model} {entry.cases}" for entry in entries)
        notes.append(
            f"The models do not have the same cases ({counts}); every pair is compared on those that both have."
        )
    notes += [ref.format_unedited(entry.model, entry.unedited) for entry in entries if entry.unedited.carried]
    return notes


@dataclass(frozen=True)
class AlignedCases:
    """The rows of every model over one list of cases."""

    grid: CaseGrid
    case_rows: tuple[RunRow, ...]
    """One row per case, by which the case is grouped."""
    rows: Mapping[str, list[RunRow]]
    places: Mapping[str, Ints]
    """The case of every row, by model."""
    sides: Mapping[str, Floats]
    """Cases × columns by model, NaN without a verdict."""
    pictures: Mapping[str, Ints]
    """The number of the edited picture of each case, by model; -1 if there is none."""

    def present(self, model: str) -> Bools:
        """Return which of the cases that count a model has an output for."""
        present = np.zeros(len(self.case_rows), bool)
        present[self.places[model]] = True
        return present & self.grid.counting

    def judged(self, model: str) -> Bools:
        """Return which of the cases that count have a verdict for a model."""
        return np.asarray(np.isfinite(self.sides[model]).any(1)) & self.grid.counting

    def count_uncounted(self) -> Counter[str]:
        """Return the number of cases that do not count in the overall score, by group."""
        positions = self.grid.of_row[~self.grid.counting]
        return Counter(self.grid.groups[position] for position in positions.tolist())

    def with_constant(self, model: str, columns: Floats) -> AlignedCases:
        """Add a model that returns the source for every case and has the scores in `columns`."""
        return replace(
            self,
            rows={**self.rows, model: list(self.case_rows)},
            places={**self.places, model: np.arange(len(self.case_rows))},
            sides={**self.sides, model: columns},
            pictures={**self.pictures, model: np.full(len(self.case_rows), -1)},
        )


def split_by_model(tables: Sequence[RunTable]) -> dict[str, list[RunRow]]:
    """Return the rows of every model. A model name with different pictures in several runs is split by run."""
    titles = [table.name for table in tables]
    if len(set(titles)) < len(titles):
        titles = [str(table.folder) for table in tables]
    by_name: dict[str, dict[str, list[RunRow]]] = {}
    for title, table in zip(titles, tables, strict=True):
        for row in table.rows:
            name = title if row.model == NO_MODEL and len(tables) > 1 else row.model
            by_name.setdefault(name, {}).setdefault(title, []).append(row)
    by_model: dict[str, list[RunRow]] = {}
    for name, parts in by_name.items():
        pictures: dict[Hashable, set[str]] = {}
        for rows in parts.values():
            for row in rows if len(parts) > 1 else ():
                pictures.setdefault((row.case, row.case_id), set()).add(edited_picture_key(row))
        if any(len(shas) > 1 for shas in pictures.values()):
            by_model |= {f"{name} ({title})": rows for title, rows in parts.items()}
            continue
        cases: set[Hashable] = set()
        for rows in parts.values():
            fresh = [row for row in rows if len(parts) == 1 or (row.case, row.case_id) not in cases]
            cases |= {(row.case, row.case_id) for row in fresh} if len(parts) > 1 else set()
            by_model.setdefault(name, []).extend(fresh)
    return by_model


def align_cases(
    table: RunTable, by_model: Mapping[str, list[RunRow]], matrices: Mapping[str, ScoreMatrix] | None = None
) -> AlignedCases:
    """Align the models' rows by case.

    If a model has a case several times, its rows are aligned by id, or in order if no two models share the ids.

    Args:
        table: The table that defines protocol and criteria.
        by_model: The rows of every model.
        matrices: Score matrices by model, if they exist already.
    """
    positions = _number_cases(by_model)
    telling: list[RunRow] = []
    criteria_counts: list[int] = []
    for name, rows in by_model.items():
        for position, row in zip(positions[name].tolist(), rows, strict=True):
            if position == len(telling):
                telling.append(row)
                criteria_counts.append(len(row.units))
            elif len(row.units) > criteria_counts[position]:
                telling[position], criteria_counts[position] = row, len(row.units)
    grid = CaseGrid.of(table, telling)
    sides = {
        name: grid.side(_get_matrix(table, rows, (matrices or {}).get(name)), positions[name])
        for name, rows in by_model.items()
    }
    numbers: dict[str, int] = {}
    pictures = {name: np.full(len(telling), -1, np.int64) for name in by_model}
    for name, rows in by_model.items():
        pictures[name][positions[name]] = [numbers.setdefault(edited_picture_key(row), len(numbers)) for row in rows]
    return AlignedCases(grid, tuple(telling), by_model, positions, sides, pictures)


def _number_cases(by_model: Mapping[str, list[RunRow]]) -> dict[str, Ints]:
    """Return the case of every row by number, in the order in which cases first occur."""
    number_of: dict[Hashable, int] = {}
    cases = {name: [number_of.setdefault(row.case, len(number_of)) for row in rows] for name, rows in by_model.items()}
    several = {case for numbers in cases.values() for case, count in Counter(numbers).items() if count > 1}
    if not several:
        return {name: np.array(numbers, np.int64) for name, numbers in cases.items()}
    several = _find_shared_ids(cases, by_model, several)
    number: dict[Hashable, int] = {}
    positions = {}
    for name, rows in by_model.items():
        met: Counter[Hashable] = Counter()
        own = []
        for case, row in zip(cases[name], rows, strict=True):
            key: Hashable = (case, row.case_id) if case in several else case
            met[key] += 1
            own.append(number.setdefault((key, met[key]), len(number)))
        positions[name] = np.array(own, np.int64)
    return positions


def _find_shared_ids(
    cases: Mapping[str, list[int]], by_model: Mapping[str, list[RunRow]], several: set[int]
) -> set[int]:
    """Return the repeated cases whose ids are shared by two models."""
    models_of: Counter[tuple[int, str]] = Counter()
    for name, rows in by_model.items():
        models_of.update({(case, row.case_id) for case, row in zip(cases[name], rows, strict=True) if case in several})
    return {case for (case, _), models in models_of.items() if models > 1}


def _get_matrix(table: RunTable, rows: list[RunRow], matrix: ScoreMatrix | None) -> ScoreMatrix:
    """Return the given score matrix if it has exactly these rows, else a new one."""
    if matrix is not None and len(matrix.table.rows) == len(rows) and all(map(is_, matrix.table.rows, rows)):
        return matrix
    return ScoreMatrix(table, tuple(rows))
