"""Measure the combinations of a run and compare each with the first.

The comparison covers agreement with people, scores, cost, time and tool calls.
"""

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
from editloupe.evals.labels.human import LabelFiles, list_files, load_human_labels
from editloupe.evals.labels.label_files import LabelFile
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement.judge_vs_human import Agreement, measure_agreement
from editloupe.evals.stats.comparison.run_comparison import RunComparison, compare_runs
from editloupe.evals.stats.intervals import LEVEL, Estimate, Number, finite_or_none, missing_estimate
from editloupe.evals.stats.scores.run_table import BASELINE_NOTE, RunTable, read_configuration_table
from editloupe.evals.stats.scores.run_units import RunUnit
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix
from editloupe.judge import Judge
from editloupe.judge.settings import find_setup
from editloupe.rubrics.registry import find_protocol
from editloupe.types import Edit, Record, Usage, UserError

MEASURES = ("spearman", "pearson", "accuracy", "mae")
"""The agreement measures that an ablation reports."""


class AblationCell(Record):
    """One combination on one criterion."""

    judged: int
    unjudged: int
    expected: int
    mean: Number | None
    """Mean score, 0 to 100, as in a report."""
    agreement: Mapping[str, Estimate] = Field(default_factory=dict)
    """Measure to value, over the edits that people labelled and this combination judged. Empty without labels."""
    cost: Number | None
    """Dollars for these verdicts. Shared replies count as if paid. None if a price is unknown."""
    seconds: Number | None
    """Seconds per verdict for replies and tools. Shared replies count with their original time, cached tool results with
    none."""
    tool_calls: Number | None
    """Tool calls per verdict."""
    remembered: Number | None
    """Share of tool calls whose result was cached by another criterion or combination. None if there were no calls."""
    difference: Estimate | None = None
    """The mean minus that of the first row, over the edits that both judged. None in the first row."""
    p: Number | None = None
    """The p-value of that difference in a two-sided sign-flip test."""
    agreement_difference: Mapping[str, Estimate] = Field(default_factory=dict)
    """Measure to its value minus that of the first row, over the edits that both judged and people labelled."""


class AblationRow(Record):
    """The results of one combination."""

    name: str
    values: Mapping[str, str]
    configuration: str | None
    """The name of the configuration in the run. None if nothing was judged yet."""
    same_as: str | None = None
    """The earlier row with exactly the same questions, whose verdicts are shared."""
    criteria: Mapping[str, AblationCell]

    @property
    def complete(self) -> bool:
        """Whether every unit has a verdict."""
        return all(cell.judged >= cell.expected for cell in self.criteria.values())


class Ablation(Record):
    """The results of all combinations. The others are compared with the first."""

    run: str
    protocol: str
    edits: int
    varied: Mapping[str, tuple[str, ...]]
    origin: str | None
    """The origin of the human labels. None if there are none."""
    annotators: int
    rows: tuple[AblationRow, ...]
    titles: Mapping[str, str]
    """Criteria to their titles."""
    paid: Usage
    """What the run really requested; shared replies count once."""
    paid_cost: Number | None
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every unit of every combination has a verdict."""
        return all(row.complete for row in self.rows)

    def records(self) -> list[dict[str, Any]]:
        """Return one flat record per combination and criterion."""
        return [
            {"combination": row.name, **row.values, "criterion": criterion, **_flatten(cell)}
            for row in self.rows
            for criterion, cell in row.criteria.items()
        ]

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame. Raise UserError if pandas is not installed."""
        return data_frame(self.records())

    frame = to_pandas
    """Return the records as a pandas data frame. Needs pandas."""


def _flatten(cell: AblationCell) -> dict[str, Any]:
    names = ("judged", "unjudged", "expected", "mean", "cost", "seconds", "tool_calls", "remembered", "p")
    record: dict[str, Any] = {name: getattr(cell, name) for name in names}
    estimates = {
        **cell.agreement,
        **{f"{name}_difference": estimate for name, estimate in cell.agreement_difference.items()},
    }
    for name, estimate in (*estimates.items(), *([("difference", cell.difference)] if cell.difference else ())):
        record |= {
            name: estimate.value,
            f"{name}_low": estimate.low,
            f"{name}_high": estimate.high,
            f"{name}_n": estimate.n,
        }
    return record


NO_LABELS = "No agreement is reported: neither the manifest nor a label file has human labels."


@dataclass(frozen=True)
class Effort:
    """Total effort of the verdicts of a combination on a criterion."""

    looks: int = 0
    remembered: int = 0
    seconds: float = 0.0


def measure_run(
    out: str | Path, judged: Sequence[JudgedCombination], human: LabelFiles = None, level: float = LEVEL
) -> Ablation:
    """Compare the combinations of a run with the first one, and all of them with human labels if there are any.

    Args:
        out: The folder of the run.
        judged: The combinations.
        human: Files of human labels, in addition to those of the manifest.
        level: Level of the intervals.
    """
    files = list_files(human)
    rows: list[AblationRow] = []
    notes: dict[str, None] = {}
    first: RunTable | None = None
    people: Agreement | None = None
    titles: dict[str, str] = {}
    with Run.open(out) as run:
        for number, combination in enumerate(judged):
            table = _read_table(run, combination)
            agreed = against = None
            if table is not None:
                titles |= table.titles
                agreed = _measure_agreement(table, files, level)
                notes |= dict.fromkeys(
                    (*([BASELINE_NOTE] if table.by_rules else ()), *(agreed.notes if agreed else ()))
                )
                if number:
                    against = _compare_with_first(table, first, files if agreed else [], level)
            first, people = (table, agreed) if number == 0 else (first, people or agreed)
            effort = {} if table is None else _sum_efforts(run, combination)
            rows.append(_build_row(combination, table, agreed, against, effort))
        usage, cost = run.read_spending()
        damage = run.damage.sentences()
    protocol = judged[0].plan.protocol
    own_protocol = find_protocol(protocol)
    for criterion in judged[0].plan.questions:
        titles.setdefault(criterion, own_protocol.rubric(criterion).title if own_protocol else criterion)
    if people is None:
        notes[NO_LABELS] = None
    return Ablation(
        run=Path(out).resolve().name,
        protocol=protocol,
        edits=len(judged[0].plan.edits),
        varied=_list_varied(judged),
        origin=people.origin if people else None,
        annotators=len(people.annotators) if people else 0,
        rows=tuple(rows),
        titles=titles,
        paid=usage,
        paid_cost=cost,
        notes=(*notes, *_list_shared(rows), *damage),
    )


def _list_varied(judged: Sequence[JudgedCombination]) -> dict[str, tuple[str, ...]]:
    keys = dict.fromkeys(key for result in judged for key in result.combination.values)
    return {key: tuple(dict.fromkeys(result.combination.values[key] for result in judged)) for key in keys}


def _list_shared(rows: Iterable[AblationRow]) -> list[str]:
    return [f"{row.name} asks exactly what {row.same_as} asks, and has its verdicts." for row in rows if row.same_as]


def _read_table(run: Run, combination: JudgedCombination) -> RunTable | None:
    """Return the verdicts of a combination on the compared edits. The run may hold further ones."""
    table = None if combination.configuration is None else read_configuration_table(run, combination.configuration)
    if table is None:
        return None
    edits = combination.plan.edits
    compared = table.with_rows(row for row in table.rows if (row.edit.id, row.edit.model) in edits)
    return compared if compared.rows else None


def _measure_agreement(table: RunTable, files: list[LabelFile], level: float) -> Agreement | None:
    """Return the agreement with human labels, or None if these edits have none.

    Raises:
        UserError: If a label file fits none of the edits.
    """
    people = load_human_labels(table, files)
    if not (people.given or people.adjudicated):
        return None
    agreement = measure_agreement(table, people, level)
    return agreement.model_copy(update={"notes": people.notes})


def _compare_with_first(
    table: RunTable, first: RunTable | None, files: list[LabelFile], level: float
) -> RunComparison | str:
    """Compare a combination with the first one, or return why that is not possible."""
    if first is None:
        return "nothing was judged in the first row"
    try:
        return compare_runs(table, first, files, level, question="judges")
    except UserError:
        return "no edit was judged both here and in the first row"


def _sum_efforts(run: Run, combination: JudgedCombination) -> dict[str, Effort]:
    """Return the effort of a combination's verdicts per criterion."""
    efforts: dict[str, Effort] = {}
    if combination.configuration is None:
        return efforts
    with run.reader() as reader:
        for step in reader.step_efforts(combination.configuration):
            if (step.edit_id, step.model or None) in combination.plan.edits:
                sums = efforts.get(step.criterion, Effort())
                efforts[step.criterion] = Effort(
                    sums.looks + step.observations,
                    sums.remembered + step.cached,
                    sums.seconds + (step.seconds or 0.0) + step.observed_seconds,
                )
    return efforts


def _build_row(
    judged: JudgedCombination,
    table: RunTable | None,
    agreed: Agreement | None,
    against: RunComparison | str | None,
    effort: Mapping[str, Effort],
) -> AblationRow:
    means = {} if table is None else _compute_means(table)
    cells = {}
    for criterion, expected in judged.plan.expected.items():
        units = [] if table is None else [unit for unit in table.units if unit.criterion == criterion]
        cell = _build_cell(units, expected, means.get(criterion), effort.get(criterion, Effort()))
        if agreed is not None and criterion in agreed.criteria:
            measured = agreed.criteria[criterion]
            cell = cell.model_copy(update={"agreement": {name: getattr(measured, name) for name in MEASURES}})
        cells[criterion] = (
            cell if against is None else cell.model_copy(update=_build_differences(against, criterion, agreed))
        )
    varied = judged.combination
    return AblationRow(
        name=varied.name,
        values=dict(varied.values),
        configuration=judged.configuration,
        same_as=judged.same_as,
        criteria=cells,
    )


def _compute_means(table: RunTable) -> dict[str, float | None]:
    sheet = ScoreMatrix(table, table.rows)
    by_criterion = sheet.point(None).by_criterion
    return {name: finite_or_none(by_criterion[index]) for index, name in enumerate(sheet.criteria)}


def _build_cell(units: Sequence[RunUnit], expected: int, mean: float | None, effort: Effort) -> AblationCell:
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


def _build_differences(
    against: RunComparison | str, criterion: str, agreed: Agreement | None
) -> dict[str, Estimate | float | dict[str, Estimate] | None]:
    if isinstance(against, str):
        return {"difference": missing_estimate(against)}
    difference = against.criteria.get(criterion)
    if difference is None:
        return {"difference": missing_estimate("the first row was not asked this")}
    measures = against.human.get(criterion, {}) if agreed else {}
    return {
        "difference": difference.difference,
        "p": difference.p,
        "agreement_difference": {name: measures[name].difference for name in MEASURES if name in measures},
    }


def ablate(
    edits: str | Path | Iterable[Edit],
    combinations: Sequence[Mapping[str, Any]],
    out: str | Path,
    *,
    spec: str | None = None,
    human: LabelFiles = None,
    level: float = LEVEL,
    limits: Limits | None = None,
    repeats: int = 1,
    names: Sequence[str] = (),
    **options: Any,
) -> Ablation:
    """Judge edits with every combination of `Judge` options, and compare each combination with the first.

    What the run in `out` already holds is not judged again.

    Args:
        edits: Edits, or a manifest.
        combinations: Options of `Judge` per combination (`spec` for the judge itself), for instance from
            `combinations_of`.
        out: The folder of the run.
        spec: The judge, unless a combination has its own.
        human: Files of human labels, in addition to those of the manifest.
        level: Level of the intervals.
        limits: Limits of requests and cost.
        repeats: How often each question is asked.
        names: A name per combination. Default: its options.
        options: Options of `Judge` for all combinations.

    Raises:
        UserError: If there are no combinations, or a judge cannot be opened.
    """
    if not combinations:
        raise UserError("an ablation needs at least one combination")
    listed = edits if isinstance(edits, (str, Path)) else list(edits)
    folder = Path(out)
    prepared = []
    for number, values in enumerate(combinations):
        batch = Batch(
            edits=lambda: load_manifest(listed) if isinstance(listed, (str, Path)) else listed,
            out=folder,
            open_judge=_build_opener({"spec": spec, **options, **values}, folder / LOOKS),
            limits=limits or Limits(),
            repeats=repeats,
        )
        shown_values = {"name": names[number]} if names else {key: str(value) for key, value in values.items()}
        prepared.append(Combination(shown_values, batch))
    judged = [combination for combination, _ in judge_combinations(prepared, human, quiet=True)]
    return measure_run(folder, judged, human, level)


def _build_opener(options: Mapping[str, Any], looks: Path) -> Any:
    """Return a function that opens a judge with these options and the shared tool cache."""
    judge_options = dict(options)
    spec = judge_options.pop("spec", None)
    tools = judge_options.get("tools")
    if tools is None:
        judge_options["setup"] = find_setup(judge_options.get("setup")).with_cache_folder(looks)
    elif tools.cache_folder is None:
        judge_options["tools"] = replace(tools, cache_folder=looks)

    def open_judge(**hooks: Any) -> Judge:
        return Judge(spec, **judge_options, **hooks)

    return open_judge
