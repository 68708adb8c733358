"""Reads a run that holds several combinations, and compares each with the first: agreement, scores, cost, time, looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from editloupe._util.tables import data_frame
from editloupe.evals.ablation.combinations import LOOKS, Combination, JudgedCombination, judge_combinations
from editloupe.evals.batch.batch import Batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.labels.human import LabelFiles, load_human_labels
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, measure_agreement
from editloupe.evals.stats.bootstrap import Estimate, Number, Resampling, finite_or_none, missing_estimate
from editloupe.evals.stats.comparison.run_comparison import RunComparison, compare_runs
from editloupe.evals.stats.scores.run_table import BASELINE_NOTE, RunTable, read_configuration_table
from editloupe.evals.stats.scores.run_units import RunUnit
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix
from editloupe.judge import Judge
from editloupe.judge.settings import find_setup
from editloupe.rubrics.registry import known_protocol
from editloupe.types import Edit, Record, Usage, UserError

MEASURES = ("spearman", "accuracy", "mae")
"""What is told of the agreement with people, of all measures that there are."""


class AblationCell(Record):
    """One combination on one criterion."""

    judged: int
    unjudged: int
    expected: int
    mean: Number | None
    """Of the scores, 0 to 100, as a report has it."""
    agreement: Mapping[str, Estimate] = Field(default_factory=dict)
    """Measure to value, over the edits that people labelled and this combination judged; empty without labels."""
    cost: Number | None
    """Dollars for these verdicts, each taken for paid, also where its replies were shared; None where a price is unknown."""
    seconds: Number | None
    """A verdict's waiting for replies, shared ones as they once took, and for tools; remembered looks take none."""
    tool_calls: Number | None
    """A verdict's looks."""
    remembered: Number | None
    """Share of these that were taken before, for another criterion or combination; None where there was none."""
    difference: Estimate | None = None
    """The mean less that of the first row, over the edits that both judged; None in the first row."""
    p: Number | None = None
    """Of that difference: two-sided sign-flip test."""
    agreement_difference: Mapping[str, Estimate] = Field(default_factory=dict)
    """Measure to its value less that of the first row, over the edits that both judged and people labelled."""


class AblationRow(Record):
    """One combination."""

    name: str
    values: Mapping[str, str]
    configuration: str | None
    """The run's name of what judged; None where nothing was judged yet."""
    same_as: str | None = None
    """The earlier row that asks exactly the same, so that its verdicts are these."""
    criteria: Mapping[str, AblationCell]

    @property
    def complete(self) -> bool:
        """True where every unit has a verdict."""
        return all(cell.judged >= cell.expected for cell in self.criteria.values())


class Ablation(Record):
    """Every combination, the first one being what the others are compared with."""

    run: str
    protocol: str
    edits: int
    varied: Mapping[str, tuple[str, ...]]
    origin: str | None
    """Where the labels by people come from; None where there are none."""
    annotators: int
    rows: tuple[AblationRow, ...]
    titles: Mapping[str, str]
    """Criteria to their titles."""
    paid: Usage
    """What the run has really asked for, shared replies once."""
    paid_cost: Number | None
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True where every unit of every combination has a verdict."""
        return all(row.complete for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return one plain record a combination and criterion."""
        return [
            {"combination": row.name, **row.values, "criterion": criterion, **_flat(cell)}
            for row in self.rows
            for criterion, cell in row.criteria.items()
        ]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raise UserError if pandas is not installed."""
        return data_frame(self.records())

    frame = to_pandas
    """The former name of `to_pandas`."""


def _flat(cell: AblationCell) -> dict[str, Any]:
    names = ("judged", "unjudged", "expected", "mean", "cost", "seconds", "tool_calls", "remembered", "p")
    found: dict[str, Any] = {name: getattr(cell, name) for name in names}
    estimates = {**cell.agreement, **{f"{name}_difference": one for name, one in cell.agreement_difference.items()}}
    for name, one in (*estimates.items(), *([("difference", cell.difference)] if cell.difference else ())):
        found |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high, f"{name}_n": one.n}
    return found


NO_LABELS = "No labels by people, so there is no agreement to tell: the manifest has none and no file was named."


@dataclass(frozen=True)
class Effort:
    """What the verdicts of one combination on one criterion took, in sums."""

    looks: int = 0
    remembered: int = 0
    seconds: float = 0.0


def measure_run(
    out: str | Path, judged: Sequence[JudgedCombination], human: LabelFiles = None, resampling: Resampling | None = None
) -> Ablation:
    """Compare the combinations of a run with the first of them, and all of them with people where these gave labels."""
    resampling = resampling or Resampling()
    files = [human] if isinstance(human, (str, Path)) else list(human or ())
    rows: list[AblationRow] = []
    notes: dict[str, None] = {}
    first: RunTable | None = None
    people: Agreement | None = None
    titles: dict[str, str] = {}
    with Run.open(out) as run:
        for number, one in enumerate(judged):
            table = _table(run, one)
            agreed = against = None
            if table is not None:
                titles |= table.titles
                agreed = _agreement(table, files, resampling)
                notes |= dict.fromkeys(
                    (*([BASELINE_NOTE] if table.by_rules else ()), *(agreed.notes if agreed else ()))
                )
                if number:
                    against = _against(table, first, files if agreed else [], resampling)
            first, people = (table, agreed) if number == 0 else (first, people or agreed)
            effort = {} if table is None else _effort(run, one)
            rows.append(_row(one, table, agreed, against, effort))
        usage, cost = run.read_spending()
        damage = run.damage.sentences()
    protocol = judged[0].plan.protocol
    known = known_protocol(protocol)
    for criterion in judged[0].plan.questions:
        titles.setdefault(criterion, known.rubric(criterion).title if known else criterion)
    if people is None:
        notes[NO_LABELS] = None
    return Ablation(
        run=Path(out).resolve().name,
        protocol=protocol,
        edits=len(judged[0].plan.edits),
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


def _table(run: Run, one: JudgedCombination) -> RunTable | None:
    """Return the verdicts of a combination on the edits that are compared; the run may hold further ones."""
    table = None if one.configuration is None else read_configuration_table(run, one.configuration)
    if table is None:
        return None
    edits = one.plan.edits
    kept = table.with_rows(row for row in table.rows if (row.edit.id, row.edit.model) in edits)
    return kept if kept.rows else None


def _agreement(table: RunTable, files: list[str | Path], resampling: Resampling) -> Agreement | None:
    """Return the agreement with people; None where nobody labelled these edits. A file that fits none is the user's mistake."""
    people = load_human_labels(table, files)
    if not (people.given or people.adjudicated):
        return None
    found = measure_agreement(table, people, resampling)
    return found.model_copy(update={"notes": people.notes})


def _against(
    table: RunTable, first: RunTable | None, files: list[str | Path], resampling: Resampling
) -> RunComparison | str:
    """Compare a combination with the first one; where that cannot be, the reason."""
    if first is None:
        return "nothing was judged in the first row"
    try:
        return compare_runs(table, first, files, resampling, question="judges")
    except UserError:
        return "no edit was judged both here and in the first row"


def _effort(run: Run, one: JudgedCombination) -> dict[str, Effort]:
    """Return what the judged units of a combination took, by criterion."""
    found: dict[str, Effort] = {}
    if one.configuration is None:
        return found
    with run.reader() as reader:
        for step in reader.step_efforts(one.configuration):
            if (step.edit_id, step.model or None) in one.plan.edits:
                so_far = found.get(step.criterion, Effort())
                found[step.criterion] = Effort(
                    so_far.looks + step.observations,
                    so_far.remembered + step.cached,
                    so_far.seconds + (step.seconds or 0.0) + step.observed_seconds,
                )
    return found


def _row(
    one: JudgedCombination,
    table: RunTable | None,
    agreed: Agreement | None,
    against: RunComparison | str | None,
    effort: Mapping[str, Effort],
) -> AblationRow:
    means = {} if table is None else _means(table)
    cells = {}
    for criterion, expected in one.plan.expected.items():
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


def _means(table: RunTable) -> dict[str, float | None]:
    sheet = ScoreMatrix(table, table.rows)
    by_criterion = sheet.point(None).by_criterion
    return {name: finite_or_none(by_criterion[place]) for place, name in enumerate(sheet.criteria)}


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
        return {"difference": missing_estimate(against)}
    found = against.criteria.get(criterion)
    if found is None:
        return {"difference": missing_estimate("the first row was not asked this")}
    measures = against.human.get(criterion, {}) if agreed else {}
    return {
        "difference": found.difference,
        "p": found.p,
        "agreement_difference": {name: measures[name].difference for name in MEASURES if name in measures},
    }


def ablate(
    edits: str | Path | Iterable[Edit],
    combinations: Sequence[Mapping[str, Any]],
    out: str | Path,
    *,
    spec: str | None = None,
    human: LabelFiles = None,
    resampling: Resampling | None = None,
    limits: Limits | None = None,
    repeats: int = 1,
    names: Sequence[str] = (),
    **options: Any,
) -> Ablation:
    """Judge edits, or those of a manifest, in every combination of options of `Judge`, and compare each with the first.

    A combination is a mapping of options of `Judge` (`spec` for the judge itself), such as `combinations_of` makes;
    `options` are those of all of them. What the run in `out` holds is not judged again.
    """
    if not combinations:
        raise UserError("an ablation needs at least one combination")
    listed = edits if isinstance(edits, (str, Path)) else list(edits)
    folder = Path(out)
    made = []
    for number, values in enumerate(combinations):
        batch = Batch(
            edits=lambda: load_manifest(listed) if isinstance(listed, (str, Path)) else listed,
            out=folder,
            open_judge=_opener({"spec": spec, **options, **values}, folder / LOOKS),
            limits=limits or Limits(),
            repeats=repeats,
        )
        told = {"name": names[number]} if names else {key: str(value) for key, value in values.items()}
        made.append(Combination(told, batch))
    judged = [one for one, _ in judge_combinations(made, human, quiet=True)]
    return measure_run(folder, judged, human, resampling)


def _opener(options: Mapping[str, Any], looks: Path) -> Any:
    """Return what opens a judge with these options; its tools share their results with the other combinations."""
    given = dict(options)
    spec = given.pop("spec", None)
    tools = given.get("tools")
    if tools is None:
        given["setup"] = find_setup(given.get("setup")).with_cache_folder(looks)
    elif tools.cache_folder is None:
        given["tools"] = replace(tools, cache_folder=looks)

    def open_judge(**hooks: Any) -> Judge:
        return Judge(spec, **given, **hooks)

    return open_judge
