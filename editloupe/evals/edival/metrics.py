"""The paper's measures of every model, mode and turn, computed from runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from pydantic import Field

from editloupe._util.text import number_of, verb
from editloupe.evals.edival.files import MODES
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.stats.scores.run_table import choose_configuration
from editloupe.graphs.edival import CONSISTENCY, FOLLOWING, QUALITY
from editloupe.rubrics.edival import (
    Alpha,
    Missing,
    Rate,
    TurnScore,
    chain_success,
    chain_success_by_type,
    consistency,
    count_turns,
    marginal_success,
    mean_consistency,
    overall,
    quality_change,
    task_success,
    type_success,
)
from editloupe.rubrics.edival.pools import KEY, read_turn
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.rubrics.tables import mean
from editloupe.types import NOT_APPLICABLE, Edit, Record, UserError, Verdict


class TurnFigures(Record):
    """All measures of one turn. Shares are 0 to 1."""

    turn: int
    pictures: int
    chain: Rate
    """Chains in which every edit up to this turn succeeded."""
    following: float | None = None
    """EdiVal-IF: the share of these chains, or its mean over instruction types."""
    marginal: Rate
    """Success of this turn's instruction alone."""
    tasks: Rate
    """Success of all instructions judged on this turn's pictures."""
    types: Mapping[str, Rate]
    object_similarity: float | None
    background_similarity: float | None
    object_l1: float | None
    background_l1: float | None
    consistency: float | None
    """EdiVal-CC by features."""
    consistency_l1: float | None
    overall: float | None
    """EdiVal-O."""
    quality: float | None
    quality_change: float | None
    p99: float | None
    p999: float | None
    p999_quartiles: tuple[float, float] | None = None
    """First and third quartile over the pictures (Figure 26)."""
    p999_base: float | None = None
    """Mean over the base pictures of the same chains."""


class ModelFigures(Record):
    """All measures of one model in one mode."""

    model: str
    mode: str
    pictures: int
    """Number of base pictures with any result."""
    counted: int
    """Number of base pictures that the tables count."""
    expected: int
    """Number of base pictures of the run with a result of any model."""
    turns: tuple[TurnFigures, ...]
    overall: float | None
    """√(mean IF · mean CC) over the turns (Section O.4)."""

    @property
    def last(self) -> TurnFigures:
        """The measures of the last turn."""
        return self.turns[-1]


class EdivalFigures(Record):
    """All measures of one or several runs, as computed by `compute_figures`.

    Args:
        run: Names of the runs.
        judge: Names of the judges.
        configurations: Configuration that was read of each run, if one was chosen.
        missing: Rule for incomplete chains.
        alpha: Rule for EdiVal-IF of a turn.
        turns: Number of turns.
        types: Number of instructions of each type at every turn (Table 2).
        models: Measures per model and mode.
        square: The same for square base pictures alone, if there are both kinds.
        oblong: The same for other base pictures.
        unjudged: Number of units without a verdict, by reason.
        not_applicable: Number of verdicts without anything to judge, by criterion.
        notes: Sentences for the report.
    """

    run: str
    judge: str
    configurations: tuple[str, ...] = ()
    missing: Missing
    alpha: Alpha = "share"
    turns: int
    types: Mapping[str, tuple[int, ...]] = Field(default_factory=dict)
    models: tuple[ModelFigures, ...]
    square: tuple[ModelFigures, ...] = ()
    oblong: tuple[ModelFigures, ...] = ()
    unjudged: Mapping[str, int]
    not_applicable: Mapping[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, mode: str) -> tuple[ModelFigures, ...]:
        """Return the models of one mode, sorted by EdiVal-O at the last turn, then by EdiVal-O over all turns."""
        models = [model for model in self.models if model.mode == mode]
        return tuple(
            sorted(models, key=lambda model: (_sort_key(model.last.overall), _sort_key(model.overall), model.model))
        )

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that occur, in the order of MODES."""
        present = {model.mode for model in self.models}
        return tuple(mode for mode in MODES if mode in present)


def _sort_key(value: float | None) -> float:
    """Return a key that sorts high values first and None last."""
    return 1.0 if value is None else -value


def group_by_model(
    scores: Iterable[TurnScore], turns: int, missing: Missing, alpha: Alpha = "share"
) -> tuple[ModelFigures, ...]:
    """Compute the measures of every model and mode."""
    groups: dict[tuple[str, str], list[TurnScore]] = {}
    for score in scores:
        groups.setdefault((score.model, score.mode), []).append(score)
    expected = len({score.image for group in groups.values() for score in group})
    return tuple(
        _model(model, mode, group, turns, missing, expected, alpha) for (model, mode), group in sorted(groups.items())
    )


def _model(
    model: str, mode: str, scores: Sequence[TurnScore], turns: int, missing: Missing, expected: int, alpha: Alpha
) -> ModelFigures:
    counted = count_turns(scores, turns, missing)
    by_turn = tuple(compute_turn(counted, turn, alpha) for turn in range(1, turns + 1))
    return ModelFigures(
        model=model,
        mode=mode,
        pictures=len({score.image for score in scores}),
        counted=len({score.image for score in counted}),
        expected=expected,
        turns=by_turn,
        overall=overall(mean(t.following for t in by_turn), mean(t.consistency for t in by_turn)),
    )


def compute_turn(scores: Sequence[TurnScore], turn: int, alpha: Alpha = "share") -> TurnFigures:
    """Compute the measures of one turn of one model and mode."""
    of_turn = [score for score in scores if score.turn == turn]
    chain = chain_success(scores, turn)
    following = chain_success_by_type(scores, turn) if alpha == "types" else chain.value
    parts = {name: mean(getattr(s, name) for s in of_turn) for name in ("object_similarity", "background_similarity")}
    pixels = {name: mean(getattr(s, name) for s in of_turn) for name in ("object_l1", "background_l1")}
    alike = mean_consistency(scores, turn)
    return TurnFigures(
        turn=turn,
        pictures=len(of_turn),
        chain=chain,
        following=following,
        marginal=marginal_success(scores, turn),
        tasks=task_success(scores, turn),
        types={kind: type_success(scores, turn, kind) for kind in TYPES},
        **parts,
        **pixels,
        consistency=alike,
        consistency_l1=consistency(pixels["object_l1"], pixels["background_l1"]),
        overall=overall(following, alike),
        quality=mean(s.quality for s in of_turn),
        quality_change=quality_change(scores, turn),
        p99=mean(s.p99 for s in of_turn),
        p999=mean(s.p999 for s in of_turn),
        p999_quartiles=_quartiles([s.p999 for s in of_turn if s.p999 is not None]),
        p999_base=mean(s.p999_base for s in of_turn),
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high


PROTOCOL = "edival"
FIGURES: Mapping[str, tuple[str, ...]] = {
    FOLLOWING: ("follows",),
    CONSISTENCY: ("object", "background", "object_l1", "background_l1", "square"),
    QUALITY: ("hps", "hps_base", "p99", "p999", "p999_base"),
}
"""Values that are read from the verdicts of each criterion."""


@dataclass
class RunOfChains:
    """The scores of one run of chains."""

    name: str
    judges: tuple[str, ...]
    configuration: str | None
    """Configuration that was read; None if the run has a single question per criterion."""
    scores: list[TurnScore] = field(default_factory=list)
    unjudged: dict[str, int] = field(default_factory=dict)
    """Number of units without a verdict, by reason."""
    not_applicable: dict[str, int] = field(default_factory=dict)
    """Number of verdicts without anything to judge, by criterion."""
    notes: list[str] = field(default_factory=list)


def compute_figures(
    runs: Path | Sequence[Path],
    missing: Missing = "complete",
    configuration: str | None = None,
    alpha: Alpha = "share",
) -> EdivalFigures:
    """Compute all measures of runs of `editloupe edival evaluate`.

    Args:
        runs: Folder of a run, or several. The models of all runs are put into the same tables.
        missing: Rule for incomplete chains: `complete` counts chains with all turns, as in the paper; `per_turn` counts at
            each turn the chains with all turns up to it.
        configuration: Name of the configuration to read. Required if a run judged a criterion in several ways.
        alpha: Rule for EdiVal-IF of a turn: the `share` of all pictures, as in Tables 3 and 16, or the mean over instruction
            `types`, as Section O.4 words it.

    Returns:
        The measures per model, mode and turn.

    Raises:
        UserError: If a folder is not a run of chains, or a configuration has to be named.
    """
    folders = [runs] if isinstance(runs, Path) else list(dict.fromkeys(runs))
    read = [read_run(folder, configuration) for folder in folders]
    scores = _name_configurations(read)
    turns = max(score.turn for score in scores)
    both = {True, False} <= {score.square for score in scores}
    many = len(read) > 1
    notes = [*_note_judges(read), *(f"{run.name}: {note}" if many else note for run in read for note in run.notes)]
    unjudged, not_applicable = Counter[str](), Counter[str]()
    for run in read:
        unjudged.update(run.unjudged)
        not_applicable.update(run.not_applicable)
    return EdivalFigures(
        run=", ".join(run.name for run in read),
        judge=", ".join(dict.fromkeys(judge for run in read for judge in run.judges)),
        configurations=tuple(run.configuration for run in read if run.configuration),
        missing=missing,
        alpha=alpha,
        turns=turns,
        types=_count_types(scores, turns),
        models=group_by_model(scores, turns, missing, alpha),
        square=group_by_model([s for s in scores if s.square], turns, missing, alpha) if both else (),
        oblong=group_by_model([s for s in scores if s.square is False], turns, missing, alpha) if both else (),
        unjudged=dict(unjudged),
        not_applicable=dict(not_applicable),
        notes=tuple(dict.fromkeys(notes)),
    )


def _count_types(scores: Iterable[TurnScore], turns: int) -> dict[str, tuple[int, ...]]:
    """Return the number of instructions of each type at every turn, each chain counted once for all models and modes."""
    asked = Counter((kind, turn) for _, turn, kind in {(score.image, score.turn, score.types[-1]) for score in scores})
    return {kind: tuple(asked[kind, turn] for turn in range(1, turns + 1)) for kind in TYPES}


def read_run(folder: Path, configuration: str | None = None) -> RunOfChains:
    """Read the scores of a run of chains.

    Raises:
        UserError: If the run has no chains.
    """
    with Run.open(folder) as run:
        if not run.configurations(PROTOCOL):
            raise UserError(f"{folder} has no chains judged by `editloupe edival evaluate`")
        edits = {name: edit for edit, _, name in run.edits() if KEY in edit.extra}
        chosen, notes = None, tuple[str, ...]()
        if configuration:
            own, notes = choose_configuration(run, PROTOCOL, configuration)
            chosen = own.name
        read = _Verdicts(run.units(configuration=chosen), edits)
        if read.ambiguous:
            own, notes = choose_configuration(run, PROTOCOL)
            chosen = own.name
            read = _Verdicts(run.units(configuration=chosen), edits)
        about = [entry for entry in run.about()["configurations"] if chosen in (None, entry.get("name"))]
        chains = RunOfChains(
            run.folder.resolve().name,
            tuple(read.judges),
            chosen,
            unjudged=read.unjudged,
            not_applicable=read.not_applicable,
        )
        _add_scores(chains, run, edits, read)
        chains.notes += [
            *notes,
            *run.damage.sentences(),
            *(str(note) for entry in about for note in entry.get("notes") or ()),
        ]
    if not chains.scores:
        raise UserError(f"{folder} has no chains judged by `editloupe edival evaluate`")
    return chains


class _Verdicts:
    """The values of a run's verdicts, read in one pass. Only the first repeat of each unit is used."""

    def __init__(self, units: Iterable[Unit], edits: Mapping[str, Edit]) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        """Values of all verdicts by edit; empty for an edit without a verdict."""
        self.ended: dict[str, str] = {}
        self.judges: dict[str, None] = {}
        self.unjudged, self.not_applicable = Counter[str](), Counter[str]()
        ways: dict[str, set[str]] = {}
        for unit in units:
            if unit.repeat or unit.protocol != PROTOCOL or unit.name not in edits:
                continue
            ways.setdefault(unit.criterion, set()).add(unit.asked)
            self.judges[unit.judge] = None
            self.ended[unit.name] = max(unit.finished_at, self.ended.get(unit.name, ""))
            own = self.values.setdefault(unit.name, {})
            if isinstance(unit.outcome, Verdict):
                own |= {name: unit.outcome.values.get(name) for name in FIGURES.get(unit.criterion, ())}
                if unit.outcome.label == NOT_APPLICABLE:
                    self.not_applicable[unit.criterion] += 1
            else:
                self.unjudged[unit.outcome.reason.value] += 1
        self.ambiguous = any(len(asked) > 1 for asked in ways.values())


def _add_scores(chains: RunOfChains, run: Run, edits: Mapping[str, Edit], read: _Verdicts) -> None:
    """Add one score per picture. If a picture was judged in several versions, the one judged last counts."""
    last: dict[tuple[str, str, str, int], str] = {}
    scores: dict[str, TurnScore] = {}
    older = 0
    for name, values in read.values.items():
        with run.damage.reading("turns", name):
            score = _score(edits[name], values)
            key = (score.model, score.mode, score.image, score.turn)
            before = last.get(key)
            older += before is not None
            if before is not None and read.ended[before] > read.ended[name]:
                continue
            scores.pop(before or "", None)
            last[key], scores[name] = name, score
    if older:
        chains.notes.append(
            f"{number_of(older, 'picture')} {verb(older, 'was', 'were')} judged in an earlier form too; the form "
            "judged last counts."
        )
    chains.scores += scores.values()


def _score(edit: Edit, values: Mapping[str, Any]) -> TurnScore:
    turn = read_turn(edit)
    return TurnScore(
        model=edit.model or "",
        mode=turn.mode,
        image=turn.image,
        turn=edit.turn or 1,
        types=tuple(task.type for task in turn.tasks),
        follows=tuple(values.get("follows") or [None] * len(turn.tasks)),
        object_similarity=values.get("object"),
        background_similarity=values.get("background"),
        object_l1=values.get("object_l1"),
        background_l1=values.get("background_l1"),
        quality=values.get("hps"),
        quality_base=values.get("hps_base"),
        p99=values.get("p99"),
        p999=values.get("p999"),
        p999_base=values.get("p999_base"),
        square=values.get("square"),
    )


def _name_configurations(read: Sequence[RunOfChains]) -> list[TurnScore]:
    """Join the scores of several runs. If several runs have a model in a mode, the run's name is added to the model's."""
    have: dict[tuple[str, str], set[int]] = {}
    for number, run in enumerate(read):
        for score in run.scores:
            have.setdefault((score.model, score.mode), set()).add(number)
    names = [run.name for run in read]
    joined = []
    for number, run in enumerate(read):
        label = run.name if names.count(run.name) == 1 else f"{run.name} {number + 1}"
        for score in run.scores:
            shared = len(have[score.model, score.mode]) > 1
            joined.append(score.model_copy(update={"model": f"{score.model} ({label})"}) if shared else score)
    return joined


def _note_judges(read: Sequence[RunOfChains]) -> list[str]:
    """Return a note if the runs have different judges."""
    judges = {run.judges for run in read}
    if len(judges) < 2:
        return []
    listed = "; ".join(f"{run.name} by {', '.join(run.judges)}" for run in read)
    return [f"The runs have different judges, so their ranking does not depend on the editing models alone: {listed}."]
