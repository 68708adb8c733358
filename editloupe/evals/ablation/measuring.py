"""Reads a run that holds several combinations, and compares each with the first: agreement, scores, cost, time, looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.evals.ablation.combinations import Asking, Combination
from editloupe.evals.ablation.records import MEASURES, Ablation, AblationCell, AblationRow
from editloupe.evals.labels.human import Files
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, measure_agreement
from editloupe.evals.stats.bootstrap import Resampling
from editloupe.evals.stats.comparison.run_comparison import RunComparison, compare_runs
from editloupe.evals.stats.estimate import Estimate, finite, missing
from editloupe.evals.stats.scores.run_table import BASELINE, Table, human_labels, table_of_configuration
from editloupe.evals.stats.scores.run_units import RunUnit
from editloupe.evals.stats.scores.score_matrix import Sheet
from editloupe.rubrics.registry import known_protocol
from editloupe.types import UserError

NO_LABELS = "No labels by people, so there is no agreement to tell: the manifest has none and no file was named."


@dataclass(frozen=True)
class JudgedCombination:
    """A combination, what it asks, and under which name the run holds what was answered."""

    combination: Combination
    asking: Asking
    configuration: str | None
    same_as: str | None = None


@dataclass(frozen=True)
class Effort:
    """What the verdicts of one combination on one criterion took, in sums."""

    looks: int = 0
    remembered: int = 0
    seconds: float = 0.0


def measure_run(
    out: str | Path, judged: Sequence[JudgedCombination], human: Files = None, how: Resampling | None = None
) -> Ablation:
    """Compare the combinations of a run with the first of them, and all of them with people where these gave labels."""
    how = how or Resampling()
    files = [human] if isinstance(human, (str, Path)) else list(human or ())
    rows: list[AblationRow] = []
    notes: dict[str, None] = {}
    first: Table | None = None
    people: Agreement | None = None
    titles: dict[str, str] = {}
    with Run.open(out) as run:
        for number, one in enumerate(judged):
            table = _table(run, one)
            agreed = against = None
            if table is not None:
                titles |= table.titles
                agreed = _agreement(table, files, how)
                notes |= dict.fromkeys((*([BASELINE] if table.by_rules else ()), *(agreed.notes if agreed else ())))
                if number:
                    against = _against(table, first, files if agreed else [], how)
            first, people = (table, agreed) if number == 0 else (first, people or agreed)
            effort = {} if table is None else _effort(run, one)
            rows.append(_row(one, table, agreed, against, effort))
        usage, cost = run.spent()
        damage = run.damage.sentences()
    protocol = judged[0].asking.protocol
    known = known_protocol(protocol)
    for criterion in judged[0].asking.questions:
        titles.setdefault(criterion, known.rubric(criterion).title if known else criterion)
    if people is None:
        notes[NO_LABELS] = None
    return Ablation(
        run=Path(out).resolve().name,
        protocol=protocol,
        edits=len(judged[0].asking.edits),
        varied=_varied(judged),
        origin=people.origin if people else None,
        annotators=len(people.annotators) if people else 0,
        rows=tuple(rows),
        titles=titles,
        paid=usage,
        paid_cost=cost,
        notes=(*notes, *_shared(rows), *damage),
    )


def _varied(judged: Sequence[JudgedCombination]) -> dict[str, tuple[str, ...]]:
    keys = dict.fromkeys(key for one in judged for key in one.combination.values)
    return {key: tuple(dict.fromkeys(one.combination.values[key] for one in judged)) for key in keys}


def _shared(rows: Iterable[AblationRow]) -> list[str]:
    return [f"{row.name} asks exactly what {row.same_as} asks, and has its verdicts." for row in rows if row.same_as]


def _table(run: Run, one: JudgedCombination) -> Table | None:
    """Return the verdicts of a combination on the edits that are compared; the run may hold further ones."""
    table = None if one.configuration is None else table_of_configuration(run, one.configuration)
    if table is None:
        return None
    edits = one.asking.edits
    kept = table.with_rows(row for row in table.rows if (row.edit.id, row.edit.model) in edits)
    return kept if kept.rows else None


def _agreement(table: Table, files: list[str | Path], how: Resampling) -> Agreement | None:
    """Return the agreement with people; None where nobody labelled these edits. A file that fits none is the user's mistake."""
    people = human_labels(table, files)
    if not (people.given or people.adjudicated):
        return None
    found = measure_agreement(table, people, how)
    return found.model_copy(update={"notes": people.notes})


def _against(table: Table, first: Table | None, files: list[str | Path], how: Resampling) -> RunComparison | str:
    """Compare a combination with the first one; where that cannot be, the reason."""
    if first is None:
        return "nothing was judged in the first row"
    try:
        return compare_runs(table, first, files, how, question="judges")
    except UserError:
        return "no edit was judged both here and in the first row"


def _effort(run: Run, one: JudgedCombination) -> dict[str, Effort]:
    """Return what the judged units of a combination took, by criterion."""
    found: dict[str, Effort] = {}
    if one.configuration is None:
        return found
    with run.reader() as reader:
        for step in reader.step_efforts(one.configuration):
            if (step.edit_id, step.model or None) in one.asking.edits:
                so_far = found.get(step.criterion, Effort())
                found[step.criterion] = Effort(
                    so_far.looks + step.observations,
                    so_far.remembered + step.cached,
                    so_far.seconds + (step.seconds or 0.0) + step.observed_seconds,
                )
    return found


def _row(
    one: JudgedCombination,
    table: Table | None,
    agreed: Agreement | None,
    against: RunComparison | str | None,
    effort: Mapping[str, Effort],
) -> AblationRow:
    means = {} if table is None else _means(table)
    cells = {}
    for criterion, expected in one.asking.expected.items():
        units = [] if table is None else [unit for unit in table.units if unit.criterion == criterion]
        cell = _cell(units, expected, means.get(criterion), effort.get(criterion, Effort()))
        if agreed is not None and criterion in agreed.criteria:
            whole = agreed.criteria[criterion]
            cell = cell.model_copy(update={"agreement": {name: getattr(whole, name) for name in MEASURES}})
        cells[criterion] = cell if against is None else cell.model_copy(update=_differences(against, criterion, agreed))
    combination = one.combination
    return AblationRow(
        name=combination.name,
        values=dict(combination.values),
        configuration=one.configuration,
        same_as=one.same_as,
        criteria=cells,
    )


def _means(table: Table) -> dict[str, float | None]:
    sheet = Sheet(table, table.rows)
    by_criterion = sheet.point(None).by_criterion
    return {name: finite(by_criterion[place]) for place, name in enumerate(sheet.criteria)}


def _cell(units: Sequence[RunUnit], expected: int, mean: float | None, effort: Effort) -> AblationCell:
    judged = sum(unit.judged for unit in units)
    paid = [unit.cost for unit in units if unit.requests]
    costs = [cost for cost in paid if cost is not None]
    return AblationCell(
        judged=judged,
        unjudged=len(units) - judged,
        expected=expected,
        mean=mean,
        cost=sum(costs) if len(costs) == len(paid) else None,
        seconds=effort.seconds / judged if judged else None,
        tool_calls=effort.looks / judged if judged else None,
        remembered=effort.remembered / effort.looks if effort.looks else None,
    )


def _differences(
    against: RunComparison | str, criterion: str, agreed: Agreement | None
) -> dict[str, Estimate | float | dict[str, Estimate] | None]:
    if isinstance(against, str):
        return {"difference": missing(against)}
    found = against.criteria.get(criterion)
    if found is None:
        return {"difference": missing("the first row was not asked this")}
    measures = against.human.get(criterion, {}) if agreed else {}
    return {
        "difference": found.difference,
        "p": found.p,
        "agreement_difference": {name: measures[name].difference for name in MEASURES if name in measures},
    }
