"""Rank editing models by pairwise comparisons on the same sources, from scores or from direct comparisons."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence

from editloupe._util.text import number_of, verb
from editloupe.evals.manifests.cases import case_key
from editloupe.evals.manifests.pairs import PAIRS, Pair
from editloupe.evals.stats.comparison.bradley_terry import PairwiseJudgement, Ranking, fit_bradley_terry
from editloupe.evals.stats.comparison.preference_results import PairKey, PairMember, decide_pairs, score_pair_members
from editloupe.evals.stats.intervals import LEVEL
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.score_matrix import SEPARATOR, find_shared_slice_fields, group_rows
from editloupe.pictures.memory import require_path
from editloupe.rubrics.case_pictures import list_pictures
from editloupe.rubrics.registry import find_pair_rules, find_protocol
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import Edit, UserError, Verdict

OVERALL = "overall"
_OUTCOMES: Mapping[str, float] = {"winner": 1.0, "loser": 0.0, "tie": 0.5, "inconsistent": 0.5}
"""Contradicting answers in the two orders count as a tie."""


def build_model_pairs(edits: Iterable[Edit], dimensions: Sequence[str], file: str = "") -> list[Pair]:
    """Return a pair for every two models' outputs of the same source and instruction, per dimension.

    No preference is known: the first model takes the winner's place, and the pair's label is `open`.
    """
    cases: dict[Hashable, list[Edit]] = {}
    for edit in edits:
        if edit.model is None:
            raise UserError(f'edit {edit.id} names no "model", so its output cannot be set against another one\'s')
        cases.setdefault(case_key(edit, edit.files), []).append(edit)
    pairs = []
    for number, outputs in enumerate(cases.values(), start=1):
        models = [edit.model for edit in outputs]
        twice = next((edit for edit in outputs if models.count(edit.model) > 1), None)
        if twice is not None:
            raise UserError(
                f"the model {twice.model} has two outputs for the source and instruction of edit {twice.id}"
            )
        for first, second in itertools.combinations(outputs, 2):
            pairs += [_build_pair(first, second, dimension, number, file) for dimension in dimensions]
    if not pairs:
        raise UserError("no two models have an output for the same source and instruction")
    return pairs


def _build_pair(first: Edit, second: Edit, dimension: str, number: int, file: str) -> Pair:
    return Pair(
        id=f"case_{number:05d}:{first.model}|{second.model}:{dimension}",
        source=require_path(first.source),
        instruction=first.instruction,
        winner=require_path(first.edited),
        loser=require_path(second.edited),
        dimension=dimension,
        label="open",
        task=first.instruction_type,
        references=tuple(map(require_path, list_pictures(first, "references"))),
        hint=first.hint or second.hint,
        file=file,
        models=(str(first.model), str(second.model)),
    )


def rank_models(tables: Sequence[RunTable], dimensions: Sequence[str] = (), level: float = LEVEL) -> list[Ranking]:
    """Rank the editing models of one or several runs, by direct comparisons if there are any, else by scores.

    Args:
        tables: The runs, judged by the same judge and protocol.
        dimensions: Criteria or pair dimensions of the protocol. Default: the overall score.
        level: Level of the intervals.
    """
    if len({(table.protocol, table.judges) for table in tables}) > 1:
        raise UserError("the runs were judged by different judges or protocols; models compare within one of them only")
    protocol = tables[0].protocol
    comparisons = _find_direct_comparisons(tables)
    if comparisons:
        judged = [name for name, group in comparisons.items() if group]
        dimensions = dimensions or (*judged, OVERALL)
        unknown = [name for name in dimensions if name != OVERALL and name not in comparisons]
        if unknown:
            raise UserError(f'no pair was asked about "{unknown[0]}"; there are: {", ".join(comparisons)}')
        unjudged = [name for name in dimensions if name != OVERALL and name not in judged]
        if not judged or unjudged:
            about = f" about {unjudged[0]}" if unjudged else ""
            raise UserError(f"no question on two outputs{about} has been judged, so there is nothing to rank by")
        pooled = [comparison for group in comparisons.values() for comparison in group]
        return [_rank(pooled if name == OVERALL else comparisons[name], name, level) for name in dimensions]
    return [
        _add_part_name(_rank_by_scores(some, protocol, name, level), part)
        for part, some in _split_parts(tables)
        for name in dimensions or (OVERALL,)
    ]


def _split_parts(tables: Sequence[RunTable]) -> list[tuple[str, Sequence[RunTable]]]:
    """Split the tables by what the paper reports separately, such as languages. Parts with a single model are left out."""
    fields = find_shared_slice_fields(tables)
    parts: dict[str, list[RunTable]] = {}
    for table in tables:
        for group, rows in group_rows(table.rows, fields).items():
            parts.setdefault(SEPARATOR.join(group), []).append(table.with_rows(rows))
    several: list[tuple[str, Sequence[RunTable]]] = [
        (name, some) for name, some in parts.items() if len({row.model for table in some for row in table.rows}) > 1
    ]
    return several or [("", tables)]


def _add_part_name(ranking: Ranking, part: str) -> Ranking:
    return ranking.model_copy(update={"dimension": f"{ranking.dimension}{SEPARATOR}{part}"}) if part else ranking


def _rank(comparisons: Sequence[PairwiseJudgement], dimension: str, level: float, *notes: str) -> Ranking:
    ranking = fit_bradley_terry(comparisons, level)
    return ranking.model_copy(update={"dimension": dimension, "notes": (*ranking.notes, *notes)})


def _find_direct_comparisons(tables: Sequence[RunTable]) -> dict[str, list[PairwiseJudgement]]:
    """Return the direct comparisons of two models' outputs, by dimension."""
    comparisons: dict[str, list[PairwiseJudgement]] = {}
    for table in tables:
        members: list[PairMember] = []
        about: dict[PairKey, tuple[str, str, str]] = {}
        for row in table.rows:
            for entry in row.edit.extra.get(PAIRS) or ():
                if isinstance(entry, Mapping) and isinstance(models := entry.get("models"), (list, tuple)):
                    key = PairKey(entry["file"], entry["id"], entry["dimension"], "pairwise")
                    about[key] = (str(models[0]), str(models[1]), row.source)
                    comparisons.setdefault(key.dimension, [])
            members += score_pair_members(table.protocol, row, table.criteria)
        for key, result in decide_pairs(members, find_pair_rules(table.protocol)).items():
            if key in about and result.decision is not None:
                first, second, source = about[key]
                comparisons[key.dimension].append(PairwiseJudgement(first, second, _OUTCOMES[result.decision], source))
    return comparisons


def _rank_by_scores(tables: Sequence[RunTable], protocol: str, dimension: str, level: float) -> Ranking:
    rules = find_pair_rules(protocol)
    own_protocol = find_protocol(protocol)
    criteria = tuple(dict.fromkeys(name for table in tables for name in table.criteria))
    by_formula = own_protocol is not None and own_protocol.pairs is not None and dimension in rules.dimensions
    if dimension != OVERALL and not by_formula and dimension not in criteria:
        raise UserError(f'"{dimension}" was not judged in this run; there are: {", ".join((OVERALL, *criteria))}')
    cases: dict[Hashable, dict[str, list[float]]] = {}
    sources: dict[Hashable, str] = {}
    models: set[str] = set()
    unscored = 0
    for table in tables:
        for row in table.rows:
            model = table.name if row.model == NO_MODEL and len(tables) > 1 else row.model
            models.add(model)
            score = _find_score(row, protocol, criteria, dimension, by_formula)
            sources[row.case] = row.source
            if score is None:
                unscored += 1
            else:
                cases.setdefault(row.case, {}).setdefault(model, []).append(score)
    if len(models) < 2:
        raise UserError(f"there is only one model here, {next(iter(models))}; a ranking needs at least two")
    comparisons = []
    for case, scores in cases.items():
        means = {model: sum(values) / len(values) for model, values in scores.items()}
        for first, second in itertools.combinations(means, 2):
            outcome = _OUTCOMES[rules.by_scores(means[first], means[second])]
            comparisons.append(PairwiseJudgement(first, second, outcome, sources[case]))
    if not comparisons:
        raise UserError("no two models have a judged output for the same source and instruction")
    notes = []
    if unscored:
        outputs, has, are = number_of(unscored, "output"), verb(unscored, "has", "have"), verb(unscored, "is", "are")
        notes.append(f"{outputs} {has} no score and {are} left out.")
    lacking = sorted(models - {name for comparison in comparisons for name in (comparison.first, comparison.second)})
    if lacking:
        notes.append(f"Compared with no other model, so left out: {', '.join(lacking)}.")
    return _rank(comparisons, dimension, level, *notes)


def _find_score(row: RunRow, protocol: str, criteria: Sequence[str], dimension: str, by_formula: bool) -> float | None:
    if dimension in criteria:
        outcomes = [unit.outcome for unit in row.units.get(dimension, ())]
        scores = [outcome.score_100 for outcome in outcomes if isinstance(outcome, Verdict)]
    else:
        if by_formula:
            edit = row.edit.model_copy(update={"extra": {**row.edit.extra, "dimension": dimension}})
            row = RunRow(edit, row.pictures, row.units, row.name)
        scores = [member.score for member in score_pair_members(protocol, row, criteria)]
    judged = [score for score in scores if score is not None]
    return sum(judged) / len(judged) if judged else None
