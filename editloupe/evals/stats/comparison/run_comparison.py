"""Compare two runs on the edits that both judged.

Two *judges* are compared on the same pictures: source, edited picture and instruction are the same. Two *editing models*
are compared on the same cases: source, instruction, targets and further inputs are the same, the edited picture is not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from operator import eq
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from editloupe._util.tables import data_frame
from editloupe.evals.labels.human import HumanLabels, LabelFiles, load_human_labels
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement.coefficients import (
    MEASURES,
    PRIMARY,
    MatchedScores,
)
from editloupe.evals.stats.agreement.judge_vs_human import (
    Ceiling,
    Confusion,
    build_confusion,
    find_label_scale,
    match_scores,
    measure_ceiling,
)
from editloupe.evals.stats.comparison.paired_differences import OVERALL, CaseGrid, PairedDifference, compute_differences
from editloupe.evals.stats.intervals import (
    LEVEL,
    Estimate,
    Floats,
    Ints,
    Jackknife,
    Number,
    build_estimate,
    find_distinct_rows,
    missing_estimate,
)
from editloupe.evals.stats.scores import unedited_baseline as ref
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, find_warnings, read_run_table
from editloupe.evals.stats.scores.run_units import row_lower_medians, row_means
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix, find_shared_slice_fields, format_field
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import Record, UserError

ComparisonQuestion = Literal["judges", "models"]
Key = Callable[[RunRow], Hashable]


@dataclass(frozen=True)
class MatchedRows:
    """Matched rows of two runs, and the rows that only one run has."""

    pairs: tuple[tuple[RunRow, RunRow], ...]
    only_a: tuple[RunRow, ...]
    only_b: tuple[RunRow, ...]


def edited_picture_key(row: RunRow) -> str:
    """Identify the edited picture by its content hash, or by its path if the run has no hash."""
    return shas[0] if (shas := row.pictures.get("edited")) else str(row.edit.edited)


def shown_pictures_key(row: RunRow) -> Hashable:
    """Identify what a judge was shown: source, edited picture and instruction."""
    return row.source, edited_picture_key(row), row.edit.instruction


def case_of(row: RunRow) -> Hashable:
    """Identify the case, which two editing models can share."""
    return row.case


def match_rows(a: Iterable[RunRow], b: Iterable[RunRow], key: Key) -> MatchedRows:
    """Pair rows of the same key; among several of one key those of the same model and id first, then in their order."""
    rows, others = list(a), list(b)
    partner: dict[int, int] = {}
    matched: set[int] = set()
    keys, other_keys = [key(row) for row in rows], [key(row) for row in others]
    for precise in (lambda row: (row.model, row.edit.id), lambda row: row.edit.id, lambda row: None):
        waiting: dict[Hashable, list[int]] = {}
        for position in reversed(range(len(others))):
            if position not in matched:
                waiting.setdefault((other_keys[position], precise(others[position])), []).append(position)
        for position, row in enumerate(rows):
            if position not in partner and (candidates := waiting.get((keys[position], precise(row)))):
                partner[position] = candidates.pop()
                matched.add(partner[position])
    return MatchedRows(
        tuple((rows[position], others[partner[position]]) for position in sorted(partner)),
        tuple(row for position, row in enumerate(rows) if position not in partner),
        tuple(row for position, row in enumerate(others) if position not in matched),
    )


def match_pictures(a: RunTable, b: RunTable) -> MatchedRows:
    """Match rows with the same pictures; if a run has no hash of a picture, match by id and model."""
    matched = match_rows(a.rows, b.rows, shown_pictures_key)
    more = match_rows(matched.only_a, matched.only_b, lambda row: (row.edit.id, row.model))
    alike = [pair for pair in more.pairs if _could_be_the_same(*pair)]
    if not alike:
        return matched
    left_a, left_b = {id(first) for first, _ in alike}, {id(other) for _, other in alike}
    return MatchedRows(
        (*matched.pairs, *alike),
        tuple(row for row in matched.only_a if id(row) not in left_a),
        tuple(row for row in matched.only_b if id(row) not in left_b),
    )


def _could_be_the_same(a: RunRow, b: RunRow) -> bool:
    """Return whether nothing that both runs know of an edit differs, and one of them lacks the hash of a picture."""
    roles = ("source", "edited")
    hashed = [role for role in roles if a.pictures.get(role) and b.pictures.get(role)]
    bare = [role for role in roles if not a.pictures.get(role) and not b.pictures.get(role)]
    return (
        len(hashed) + len(bare) < len(roles)
        and a.edit.instruction == b.edit.instruction
        and all(a.pictures[role] == b.pictures[role] for role in hashed)
        and all(getattr(a.edit, role) == getattr(b.edit, role) for role in bare)
    )


def find_question(a: RunTable, b: RunTable) -> ComparisonQuestion:
    """Return the question that two runs answer. Raise UserError if neither question fits, or both might."""
    a, b = split_off_reference(a)[0], split_off_reference(b)[0]
    same = match_pictures(a, b)
    other = match_rows(same.only_a, same.only_b, case_of).pairs
    if not same.pairs and not other:
        raise UserError(
            f"{a.name} and {b.name} have neither an edited picture nor a source and instruction in common, so there is "
            "nothing to compare"
        )
    judged_alike = is_same_judge(a, b)
    models = set(a.models) - {NO_MODEL}, set(b.models) - {NO_MODEL}
    other_models = all(models) and not models[0] & models[1]
    if not other:
        return "models" if other_models and judged_alike else "judges"
    if judged_alike:
        return "models"
    if same.pairs and not other_models:
        return "judges"
    same_pictures = f"{len(same.pairs)} edited pictures are" if len(same.pairs) != 1 else "1 edited picture is"
    raise UserError(
        f"{a.name} and {b.name} differ both in the judge ({a.title}; {b.title}) and in the edited pictures, so a difference "
        f"could come from either: judge both with one judge, or name the question: --judges compares the judges where "
        f"the pictures are the same ({same_pictures}), --models takes the verdicts as they are"
    )


def is_same_judge(a: RunTable, b: RunTable) -> bool:
    """Return whether judge, protocol and mode are the same, and no criterion has entirely different question keys."""
    if (a.protocol, a.judges, a.modes) != (b.protocol, b.judges, b.modes):
        return False
    keys = [question_keys(table) for table in (a, b)]
    return all(keys[0][name] & keys[1][name] for name in keys[0].keys() & keys[1].keys())


def question_keys(table: RunTable) -> dict[str, set[str]]:
    """Return the keys of the questions that a run was asked, by criterion."""
    keys: dict[str, set[str]] = {}
    for kind in table.unit_columns.counts:
        keys.setdefault(kind.criterion, set()).add(kind.asked)
    return keys


RunSide = Literal["a", "b"]


class HumanDifference(Record):
    """One measure of agreement with people, for both runs on the same edits."""

    a: Estimate
    b: Estimate
    difference: Estimate
    closer: RunSide | None
    """The run that agrees more, if the interval of the difference excludes 0. Only the primary measure, ρ, decides."""


def compare_with_people(
    a: RunTable, b: RunTable, labels: HumanLabels, sources: Ints, level: float
) -> dict[str, dict[str, HumanDifference]]:
    """Return by criterion and measure both runs' agreement with people, on edits that people labelled and both runs judged."""
    by_criterion: dict[str, dict[str, HumanDifference]] = {}
    for criterion in (name for name in a.criteria if name in b.criteria):
        ratings, scale = labels.counting_matrix(a.names, criterion), find_label_scale(a, criterion)
        judges = [table.scores(criterion, "score") for table in (a, b)]
        both = np.isfinite(row_means(judges[0])) & np.isfinite(row_means(judges[1])) & np.isfinite(ratings).any(1)
        if both.any():
            first, second = (match_scores(judge[both], ratings[both], scale)[0] for judge in judges)
            by_criterion[criterion] = compare_agreement(first, second, sources[both], level)
    return by_criterion


def compare_agreement(a: MatchedScores, b: MatchedScores, sources: Ints, level: float) -> dict[str, HumanDifference]:
    """Compute every measure of both runs with the same source pictures left out, so that the differences are paired."""
    kinds = find_distinct_rows(np.column_stack([a.numbers, b.numbers]))
    few, jackknife = (a.at(kinds.first), b.at(kinds.first)), Jackknife(kinds, sources)

    def compare(measure: str) -> HumanDifference:
        (first, why), (second, other_why) = a.value(measure), b.value(measure)
        estimates = [
            pair.estimate(measure, None if value is None else own.spread(measure, jackknife), level)
            for pair, own, value in zip((a, b), few, (first, second), strict=True)
        ]
        if first is None or second is None:
            absent = missing_estimate(why or other_why or "one of the two has no value", len(a))
            return HumanDifference(a=estimates[0], b=estimates[1], difference=absent, closer=None)
        # Two judges that are equally close differ in both directions alike, so no measure needs a correction for skewness.
        spread = jackknife.spread(
            lambda counts: few[0].samples(measure, counts) - few[1].samples(measure, counts), "correlation"
        )
        difference = build_estimate(first - second, len(a), spread, level)
        closer: RunSide | None = None
        if measure == PRIMARY and difference.low is not None and difference.high is not None:
            closer = "a" if difference.low > 0 else "b" if difference.high < 0 else None
        return HumanDifference(a=estimates[0], b=estimates[1], difference=difference, closer=closer)

    return {measure: compare(measure) for measure in MEASURES}


class ScoreDifference(Record):
    """Two scores over the same edits and their difference, a minus b, on the scale of 0 to 100."""

    a: Number | None
    b: Number | None
    difference: Estimate
    p: Number | None
    """Two-sided, by source picture; below 1 − level exactly if the interval excludes 0."""
    better: RunSide | None = None
    """The higher one, if p is below 1 − level."""


class CriterionDifference(ScoreDifference):
    """The difference on one criterion, and how the two runs' labels agree."""

    same_label: Estimate
    """Share of edits to which both gave the same label."""
    labels: Confusion | None
    """Rows are labels of b, columns labels of a."""


class Disagreement(Record):
    """An edit that the two runs scored differently on a criterion."""

    edit_id: str
    name: str
    """The edit's name in run a: several editing models may share the id."""
    criterion: str
    instruction: str
    a: str
    b: str
    difference: Number
    human: tuple[str, ...] = ()
    closer: RunSide | None = None
    confidence_a: Number | None = None
    """Confidence of run a, the mean of its repeats; None if the judge gave none."""
    confidence_b: Number | None = None


class RunComparison(Record):
    """The comparison of two runs on the same edits.

    Args:
        question: `judges`: two judges, modes or prompts on the same pictures. `models`: two editing models on the same cases.
        a: Name of the first run.
        b: Name of the second run.
        a_title: Judge, protocol, mode and models of the first run.
        b_title: The same of the second run.
        edits: Number of edits that are compared: the same pictures and instruction, or for models the same case.
        left_out: Numbers of edits that are not compared, by reason.
        same_picture: For models: cases with identical pictures of both.
        overall: The difference of the overall scores.
        criteria: The difference on each criterion.
        human: Both runs' agreement with people, by criterion and measure.
        ceiling: Agreement among annotators, by criterion.
        disagreements: Edits with different scores, the largest difference first.
        notes: Notes for readers.
    """

    question: ComparisonQuestion
    a: str
    b: str
    a_title: str
    b_title: str
    edits: int
    left_out: Mapping[str, int]
    same_picture: int = 0
    overall: ScoreDifference
    criteria: Mapping[str, CriterionDifference]
    human: Mapping[str, Mapping[str, HumanDifference]] = Field(default_factory=dict)
    ceiling: Mapping[str, Ceiling] = Field(default_factory=dict)
    disagreements: tuple[Disagreement, ...]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the edits on which the runs disagree as plain records."""
        return [disagreement.model_dump() for disagreement in self.disagreements]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raise UserError if pandas is not installed."""
        return data_frame(self.rows())

    frame = to_pandas
    """The former name of `to_pandas`."""


def compare_runs(
    a: Run | RunTable | str | Path,
    b: Run | RunTable | str | Path,
    human: LabelFiles = None,
    level: float = LEVEL,
    protocol: str | None = None,
    question: ComparisonQuestion | None = None,
) -> RunComparison:
    """Compare two runs on the edits that both judged.

    Judges are compared on the same pictures and instructions, editing models on the same sources, instructions and targets.

    Args:
        a: The first run, its folder, or its table.
        b: The second run.
        human: Files of human labels in addition to those of the manifest and the studio; used to compare judges.
        level: Level of the intervals and of the tests.
        protocol: The protocol, if the runs hold several.
        question: `judges` or `models`; found from the data if None.

    Raises:
        UserError: The runs have nothing in common, were judged by different protocols, or fit both questions.
    """
    first, second = read_run_table(a, protocol), read_run_table(b, protocol)
    require_same_protocol(first, second)
    question = question or find_question(first, second)
    if question == "models":
        first, second = ref.split_off_reference(first)[0], ref.split_off_reference(second)[0]
    matched = match_pictures(first, second) if question == "judges" else match_rows(first.rows, second.rows, case_of)
    table_a, table_b, unjudged = _keep_judged_by_both(first, second, matched)
    if not table_a.rows:
        raise UserError(f"{first.name} and {second.name} share no {_COMPARED_THINGS[question]} that both judged")
    labels = load_human_labels(table_a, human) if question == "judges" else None
    sources = table_a.sources
    grid = CaseGrid.of(table_a, table_a.rows)
    positions = np.arange(len(table_a.rows))
    sides = {
        side: grid.side(ScoreMatrix(table, table.rows), positions) for side, table in (("a", table_a), ("b", table_b))
    }
    changes = compute_differences(grid, sides, [("a", "b")], level)["a", "b"]
    return RunComparison(
        question=question,
        **_name_runs(first, second),
        edits=len(table_a.rows),
        left_out=_count_left_out(matched, unjudged),
        same_picture=sum(map(eq, map(edited_picture_key, table_a.rows), map(edited_picture_key, table_b.rows)))
        if question == "models"
        else 0,
        overall=_build_difference(_refuse_mixed_slices(changes[OVERALL], table_a, table_b), level),
        criteria={
            name: _compare_criterion(table_a, table_b, name, sources, changes[name], level)
            for name in table_a.criteria
            if name in table_b.criteria
        },
        human=compare_with_people(table_a, table_b, labels, sources, level) if labels else {},
        ceiling=_measure_ceilings(table_a, labels, sources, level) if labels else {},
        disagreements=_find_disagreements(table_a, table_b, labels),
        notes=(
            *_build_notes(first, second, question),
            *_unedited_notes(grid, table_a, table_b, sides, question),
            *(labels.notes if labels else ()),
        ),
    )


_COMPARED_THINGS: Mapping[ComparisonQuestion, str] = {"judges": "edited picture", "models": "source and instruction"}


def require_same_protocol(*tables: RunTable) -> None:
    """Refuse runs of different protocols: their scores do not compare."""
    first = tables[0]
    for other in tables[1:]:
        if other.protocol != first.protocol:
            raise UserError(f"{first.name} was judged by {first.protocol} and {other.name} by {other.protocol}")


def _name_runs(first: RunTable, second: RunTable) -> dict[str, str]:
    names = (first.name, second.name) if first.name != second.name else (str(first.folder), str(second.folder))
    if names[0] == names[1] and first.configuration != second.configuration:
        names = (
            f"{names[0]}, {first.short_name or first.configuration}",
            f"{names[1]}, {second.short_name or second.configuration}",
        )
    return {"a": names[0], "b": names[1], "a_title": _format_title(first), "b_title": _format_title(second)}


def _format_title(table: RunTable) -> str:
    return (
        f"{table.title} · edited by {' + '.join(table.models)}"
        if any(row.edit.model for row in table.rows)
        else table.title
    )


def _build_notes(first: RunTable, second: RunTable, question: ComparisonQuestion) -> list[str]:
    notes = list(find_warnings(first, second))
    if question == "models" and not is_same_judge(first, second):
        notes.append(
            "The two were not judged alike, so a difference may come from the judge as well as from the model."
        )
    if question == "judges" and set(first.models) != set(second.models):
        notes.append(
            f"The runs name different editing models: {' + '.join(first.models)}; {' + '.join(second.models)}."
        )
    return notes


def _unedited_notes(
    grid: CaseGrid, a: RunTable, b: RunTable, sides: Mapping[str, Floats], question: ComparisonQuestion
) -> Iterator[str]:
    """Yield notes on the score of the unedited source, and on models whose mean comes mostly from unedited outputs."""
    if question == "judges":
        return
    untouched = ref.score_by_protocol(grid, a, a.rows)
    base = ref.build_reference(grid, a, untouched, judged=False)
    if base.overall.value is not None:
        yield f"Every source handed in unedited would score {base.overall.value:.1f} (not judged). {base.why}"
    for side, table in (("a", a), ("b", b)):
        outputs = ref.count_unedited(grid, sides[side], ref.find_copies(table.rows), untouched)
        if outputs.carried:
            yield ref.format_unedited(side.upper(), outputs)


def _keep_judged_by_both(first: RunTable, second: RunTable, matched: MatchedRows) -> tuple[RunTable, RunTable, int]:
    """Keep the matched rows with a criterion that both runs judged, and return the number of those without."""
    ours, theirs = [], []
    for row, other in matched.pairs:
        kind = row.edit.instruction_type
        if other.edit.instruction_type != kind:
            # Both sides are grouped alike, whatever the second manifest calls the edit.
            other = replace(other, edit=other.edit.model_copy(update={"instruction_type": kind}))
        ours.append(row if row.pictures else replace(row, pictures=other.pictures))
        theirs.append(other)
    a, b = first.with_rows(ours), second.with_rows(theirs)
    names = [name for name in a.criteria if name in b.criteria]
    judged = [(a.states(name)[0].any(1) & b.states(name)[0].any(1)) for name in names]
    both = np.any(judged, axis=0) if judged else np.zeros(len(ours), bool)
    tables = [a.with_rows(compress(ours, both)), b.with_rows(compress(theirs, both))]
    return tables[0], tables[1], int((~both).sum())


def _count_left_out(matched: MatchedRows, unjudged: int) -> dict[str, int]:
    """Count rows that are not compared, by reason; an id in both runs means another picture or another instruction."""
    changed = len(match_rows(matched.only_a, matched.only_b, lambda row: (row.edit.id, row.model)).pairs)
    counts = {
        "only in the first run": len(matched.only_a) - changed,
        "only in the second run": len(matched.only_b) - changed,
        "other pictures or instruction": changed,
        "unjudged in a run": unjudged,
    }
    return {why: count for why, count in counts.items() if count}


def _build_difference(change: PairedDifference, level: float) -> ScoreDifference:
    return ScoreDifference(
        a=change.a,
        b=change.b,
        difference=change.difference,
        p=change.p,
        better=find_better_side(change, level),
    )


def find_better_side(change: PairedDifference, level: float) -> RunSide | None:
    """Return the higher side, if p is below 1 − level."""
    value = change.difference.value
    if value is None or change.p is None or change.p >= 1 - level:
        return None
    return "a" if value > 0 else "b"


def _compare_criterion(
    a: RunTable, b: RunTable, criterion: str, sources: Ints, change: PairedDifference, level: float
) -> CriterionDifference:
    fields = dict(_build_difference(change, level))
    if change.a is None:
        return CriterionDifference(**fields, same_label=missing_estimate(change.difference.why or ""), labels=None)
    both = np.isfinite(row_means(a.scores(criterion))) & np.isfinite(row_means(b.scores(criterion)))
    pairs, _ = match_scores(a.scores(criterion, "score"), b.scores(criterion, "score"), find_label_scale(a, criterion))
    return CriterionDifference(
        **fields,
        same_label=pairs.estimates(sources[both], level)["accuracy"],
        labels=build_confusion(a, criterion, pairs),
    )


def _refuse_mixed_slices(change: PairedDifference, a: RunTable, b: RunTable) -> PairedDifference:
    """Remove the overall difference if it would mix values that the paper reports separately."""
    fields = find_shared_slice_fields([a, b])
    if not fields:
        return change
    values = dict.fromkeys(format_field(row.edit, field) for row in a.rows for field in fields)
    why = f"the paper keeps {' and '.join(values)} apart; --where {fields[0]}={next(iter(values))} compares one of them"
    return PairedDifference(None, None, missing_estimate(why), None)


def _measure_ceilings(table: RunTable, labels: HumanLabels, sources: Ints, level: float) -> dict[str, Ceiling]:
    ceilings = {name: measure_ceiling(labels.matrix(table.names, name), sources, level) for name in table.criteria}
    return {name: ceiling for name, ceiling in ceilings.items() if ceiling is not None}


def _find_disagreements(a: RunTable, b: RunTable, labels: HumanLabels | None) -> tuple[Disagreement, ...]:
    """Edits with different scores, the widest apart first."""
    disagreements = []
    for criterion in (name for name in a.criteria if name in b.criteria):
        x, y = row_means(a.scores(criterion)), row_means(b.scores(criterion))
        raw = [row_lower_medians(table.scores(criterion, "score")) for table in (a, b)]
        ratings = labels.counting_matrix(a.names, criterion) if labels else np.full((len(a.rows), 1), np.nan)
        target = row_means(ratings)
        means = [row_means(table.scores(criterion, "score")) for table in (a, b)]
        for position in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & (x != y)):
            edit = a.rows[position].edit
            off = [abs(mean[position] - target[position]) for mean in means]
            human = [format_score(a, criterion, score) for score in ratings[position] if np.isfinite(score)]
            closer: RunSide | None = None
            if human and off[0] != off[1]:
                closer = "a" if off[0] < off[1] else "b"
            disagreements.append(
                Disagreement(
                    edit_id=edit.id,
                    name=a.rows[position].name,
                    criterion=criterion,
                    instruction=edit.instruction,
                    a=format_score(a, criterion, raw[0][position]),
                    b=format_score(b, criterion, raw[1][position]),
                    difference=float(x[position] - y[position]),
                    human=tuple(human),
                    closer=closer,
                    confidence_a=_mean_confidence(a.rows[position], criterion),
                    confidence_b=_mean_confidence(b.rows[position], criterion),
                )
            )
    return tuple(sorted(disagreements, key=lambda disagreement: -abs(disagreement.difference)))


def _mean_confidence(row: RunRow, criterion: str) -> float | None:
    values = [unit.confidence for unit in row.units.get(criterion, ()) if unit.confidence is not None]
    return sum(values) / len(values) if values else None


def format_score(table: RunTable, criterion: str, score: float) -> str:
    """Return the label of a score, or the score itself if the rubric has no labels."""
    names, scale = table.labels(criterion), find_label_scale(table, criterion)
    return names[scale.index(score)] if names and score in scale else f"{score:g}"
