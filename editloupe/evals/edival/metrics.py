"""The paper's figures from scores: those of every model, mode and turn, with how much stands behind each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

from editloupe._util.text import number_of, verb
from editloupe.evals.edival.results import MODES
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.stats.scores.run_table import choose_configuration
from editloupe.graphs.edival import CONSISTENCY, FOLLOWING, QUALITY
from editloupe.rubrics.edival.pools import KEY, read_turn
from editloupe.rubrics.edival.scoring import (
    Missing,
    Rate,
    TurnScore,
    chain_success,
    consistency,
    count_turns,
    marginal_success,
    mean,
    mean_consistency,
    overall,
    quality_change,
    task_success,
    type_success,
)
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.types import Edit, Record, UserError, Verdict


class TurnFigures(Record):
    """All figures of one turn; shares are 0 to 1."""

    turn: int
    pictures: int
    chain: Rate
    """EdiVal-IF: every edit up to this turn succeeded."""
    marginal: Rate
    """This turn's own instruction."""
    tasks: Rate
    """All instructions judged on this turn's pictures."""
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
    """Between which the middle half of the pictures lies (Figure 26)."""
    p999_base: float | None = None
    """Of the same chains' base pictures."""


class ModelFigures(Record):
    """All figures of one model in one mode."""

    model: str
    mode: str
    pictures: int
    """Base pictures with any result."""
    counted: int
    """Of these, the ones the tables count."""
    expected: int
    """Base pictures of the run, whichever model they have results of."""
    turns: tuple[TurnFigures, ...]
    overall: float | None
    """Over the turns: √(mean IF · mean CC), Section O.4."""

    @property
    def last(self) -> TurnFigures:
        """The figures of the last turn."""
        return self.turns[-1]


class EdivalFigures(Record):
    """Everything a report is made of."""

    run: str
    """The names of the runs."""
    judge: str
    configurations: tuple[str, ...] = ()
    """Which part of each run was read, where it says so."""
    missing: Missing
    turns: int
    models: tuple[ModelFigures, ...]
    square: tuple[ModelFigures, ...] = ()
    """The same for square base pictures alone, where there are both kinds."""
    oblong: tuple[ModelFigures, ...] = ()
    unjudged: Mapping[str, int]
    """Units without an outcome, by reason."""
    notes: tuple[str, ...] = ()

    def of(self, mode: str) -> tuple[ModelFigures, ...]:
        """Return the models of one mode, best EdiVal-O at the last turn first; equal ones by that over all turns."""
        in_mode = [one for one in self.models if one.mode == mode]
        return tuple(sorted(in_mode, key=lambda one: (_last(one.last.overall), _last(one.overall), one.model)))

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that occur, in order."""
        have = {one.mode for one in self.models}
        return tuple(mode for mode in MODES if mode in have)


def _last(value: float | None) -> float:
    """Return what sorts high values first and nothing last."""
    return 1.0 if value is None else -value


def group_by_model(scores: Iterable[TurnScore], turns: int, missing: Missing) -> tuple[ModelFigures, ...]:
    """Return the figures of every model and mode."""
    groups: dict[tuple[str, str], list[TurnScore]] = {}
    for score in scores:
        groups.setdefault((score.model, score.mode), []).append(score)
    expected = len({score.image for group in groups.values() for score in group})
    return tuple(
        _model(model, mode, group, turns, missing, expected) for (model, mode), group in sorted(groups.items())
    )


def _model(
    model: str, mode: str, scores: Sequence[TurnScore], turns: int, missing: Missing, expected: int
) -> ModelFigures:
    kept = count_turns(scores, turns, missing)
    by_turn = tuple(compute_turn(kept, turn) for turn in range(1, turns + 1))
    return ModelFigures(
        model=model,
        mode=mode,
        pictures=len({score.image for score in scores}),
        counted=len({score.image for score in kept}),
        expected=expected,
        turns=by_turn,
        overall=overall(mean(t.chain.value for t in by_turn), mean(t.consistency for t in by_turn)),
    )


def compute_turn(scores: Sequence[TurnScore], turn: int) -> TurnFigures:
    """Work out the figures of one turn of one model and mode."""
    of_turn = [score for score in scores if score.turn == turn]
    chain = chain_success(scores, turn)
    parts = {name: mean(getattr(s, name) for s in of_turn) for name in ("object_similarity", "background_similarity")}
    pixels = {name: mean(getattr(s, name) for s in of_turn) for name in ("object_l1", "background_l1")}
    alike = mean_consistency(scores, turn)
    return TurnFigures(
        turn=turn,
        pictures=len(of_turn),
        chain=chain,
        marginal=marginal_success(scores, turn),
        tasks=task_success(scores, turn),
        types={kind: type_success(scores, turn, kind) for kind in TYPES},
        **parts,
        **pixels,
        consistency=alike,
        consistency_l1=consistency(pixels["object_l1"], pixels["background_l1"]),
        overall=overall(chain.value, alike),
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
"""What is read of the values of each criterion's verdicts."""


@dataclass
class RunOfChains:
    """What one run says of its chains."""

    name: str
    judges: tuple[str, ...]
    configuration: str | None
    """Which configuration was read; None where each criterion was asked in one way only, whoever asked it."""
    scores: list[TurnScore] = field(default_factory=list)
    unjudged: dict[str, int] = field(default_factory=dict)
    """Units without an outcome, by reason."""
    notes: list[str] = field(default_factory=list)


def compute_figures(
    runs: Path | Sequence[Path], missing: Missing = "complete", configuration: str | None = None
) -> EdivalFigures:
    """Work out all figures of runs that `edival evaluate` made, every model of every run beside the others."""
    folders = [runs] if isinstance(runs, Path) else list(dict.fromkeys(runs))
    read = [read_run(folder, configuration) for folder in folders]
    scores = _name_configurations(read)
    turns = max(score.turn for score in scores)
    both = {True, False} <= {score.square for score in scores}
    many = len(read) > 1
    notes = [*_differences(read), *(f"{one.name}: {note}" if many else note for one in read for note in one.notes)]
    unjudged: dict[str, int] = {}
    for one in read:
        for reason, count in one.unjudged.items():
            unjudged[reason] = unjudged.get(reason, 0) + count
    return EdivalFigures(
        run=", ".join(one.name for one in read),
        judge=", ".join(dict.fromkeys(judge for one in read for judge in one.judges)),
        configurations=tuple(one.configuration for one in read if one.configuration),
        missing=missing,
        turns=turns,
        models=group_by_model(scores, turns, missing),
        square=group_by_model([s for s in scores if s.square], turns, missing) if both else (),
        oblong=group_by_model([s for s in scores if s.square is False], turns, missing) if both else (),
        unjudged=unjudged,
        notes=tuple(dict.fromkeys(notes)),
    )


def read_run(folder: Path, configuration: str | None = None) -> RunOfChains:
    """Read the chains of a run; where one criterion was asked in several ways, a configuration has to be named."""
    with Run.open(folder) as run:
        if not run.configurations(PROTOCOL):
            raise UserError(f"{folder} holds no chains judged by `editloupe edival evaluate`")
        edits = {name: edit for edit, _, name in run.edits() if KEY in edit.extra}
        chosen = choose_configuration(run, PROTOCOL, configuration).name if configuration else None
        read = _Verdicts(run.units(configuration=chosen), edits)
        if read.ambiguous:
            chosen = choose_configuration(run, PROTOCOL).name
            read = _Verdicts(run.units(configuration=chosen), edits)
        about = [one for one in run.about()["configurations"] if chosen in (None, one.get("name"))]
        found = RunOfChains(run.folder.resolve().name, tuple(read.judges), chosen, unjudged=read.unjudged)
        _add_scores(found, run, edits, read)
        found.notes += [*run.damage.sentences(), *(str(note) for one in about for note in one.get("notes") or ())]
    if not found.scores:
        raise UserError(f"{folder} holds no chains judged by `editloupe edival evaluate`")
    return found


class _Verdicts:
    """What the tables need of a run's units, read once from first to last; the first repeat of each."""

    def __init__(self, units: Iterable[Unit], edits: Mapping[str, Edit]) -> None:
        self.values: dict[str, dict[str, Any]] = {}
        """By edit: all figures of its verdicts; an edit without any verdict has none."""
        self.ended: dict[str, str] = {}
        self.judges: dict[str, None] = {}
        self.unjudged: dict[str, int] = {}
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
            else:
                reason = unit.outcome.reason.value
                self.unjudged[reason] = self.unjudged.get(reason, 0) + 1
        self.ambiguous = any(len(asked) > 1 for asked in ways.values())


def _add_scores(found: RunOfChains, run: Run, edits: Mapping[str, Edit], read: _Verdicts) -> None:
    """Add one score a picture; of a picture that was made again and judged beside its first form, the last judged."""
    last: dict[tuple[str, str, str, int], str] = {}
    scores: dict[str, TurnScore] = {}
    older = 0
    for name, values in read.values.items():
        with run.damage.reading("turns", name):
            score = _score(edits[name], values)
            place = (score.model, score.mode, score.image, score.turn)
            before = last.get(place)
            older += before is not None
            if before is not None and read.ended[before] > read.ended[name]:
                continue
            scores.pop(before or "", None)
            last[place], scores[name] = name, score
    if older:
        found.notes.append(
            f"{number_of(older, 'picture')} {verb(older, 'was', 'were')} judged in an earlier form too; the form "
            "judged last counts."
        )
    found.scores += scores.values()


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
    """Join the scores of several runs; a model and mode that several have goes by its run's name too."""
    have: dict[tuple[str, str], set[int]] = {}
    for number, one in enumerate(read):
        for score in one.scores:
            have.setdefault((score.model, score.mode), set()).add(number)
    names = [one.name for one in read]
    joined = []
    for number, one in enumerate(read):
        label = one.name if names.count(one.name) == 1 else f"{one.name} {number + 1}"
        for score in one.scores:
            shared = len(have[score.model, score.mode]) > 1
            joined.append(score.model_copy(update={"model": f"{score.model} ({label})"}) if shared else score)
    return joined


def _differences(read: Sequence[RunOfChains]) -> list[str]:
    """Say where the runs were not judged alike."""
    judges = {one.judges for one in read}
    if len(judges) < 2:
        return []
    told = "; ".join(f"{one.name} by {', '.join(one.judges)}" for one in read)
    return [f"The runs were judged by different judges, so their order is not only about editing models: {told}."]
