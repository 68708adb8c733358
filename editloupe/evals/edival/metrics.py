"""What a run says in the paper's terms: every figure of every model, mode and turn, with how much stands behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from editloupe.evals.edival.results import MODES
from editloupe.evals.runs.store import Run
from editloupe.graphs.edival import CONSISTENCY, FOLLOWING, QUALITY
from editloupe.rubrics.edival.scoring import (
    Missing,
    Rate,
    TurnScore,
    chain_success,
    consistency,
    counted,
    marginal_success,
    mean,
    mean_consistency,
    overall,
    quality_change,
    task_success,
    type_success,
)
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.rubrics.edival.turn import KEY, read_turn
from editloupe.types import Edit, Outcome, Record, UserError, Verdict


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


class ModelFigures(Record):
    """All figures of one model in one mode."""

    model: str
    mode: str
    pictures: int
    """Base pictures with any result."""
    counted: int
    """Of these, the ones the tables count."""
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
    judge: str
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
        """Return the models of one mode, best EdiVal-O at the last turn first."""
        in_mode = [one for one in self.models if one.mode == mode]
        return tuple(sorted(in_mode, key=lambda one: (-(one.last.overall or -1.0), one.model)))

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes that occur, in order."""
        have = {one.mode for one in self.models}
        return tuple(mode for mode in MODES if mode in have)


def turn_scores(run: Run) -> list[TurnScore]:
    """Read a run's outcomes as the scores the arithmetic works on; the first repeat of each."""
    outcomes: dict[str, dict[str, Outcome]] = {}
    for unit in run.units():
        if unit.repeat == 0:
            outcomes.setdefault(unit.name, {})[unit.criterion] = unit.outcome
    edits = {name: edit for edit, _, name in run.edits() if KEY in edit.extra}
    scores: list[TurnScore] = []
    for name, found in outcomes.items():
        if name in edits:
            with run.damage.reading("turns", name):
                scores.append(_score(edits[name], found))
    return scores


def _score(edit: Edit, found: Mapping[str, Outcome]) -> TurnScore:
    turn = read_turn(edit)
    following, alike, looks = (_values(found.get(name)) for name in (FOLLOWING, CONSISTENCY, QUALITY))
    follows = following["follows"] if following else [None] * len(turn.tasks)
    return TurnScore(
        model=edit.model or "",
        mode=turn.mode,
        image=turn.image,
        turn=edit.turn or 1,
        types=tuple(task.type for task in turn.tasks),
        follows=tuple(follows),
        object_similarity=alike.get("object"),
        background_similarity=alike.get("background"),
        object_l1=alike.get("object_l1"),
        background_l1=alike.get("background_l1"),
        quality=looks.get("hps"),
        quality_base=looks.get("hps_base"),
        p99=looks.get("p99"),
        p999=looks.get("p999"),
        square=alike.get("square"),
    )


def _values(outcome: Outcome | None) -> dict[str, Any]:
    return dict(outcome.values) if isinstance(outcome, Verdict) else {}


def figures_of(folder: Path, missing: Missing = "complete") -> EdivalFigures:
    """Work out all figures of a run that `edival evaluate` made."""
    with Run.open(folder) as run:
        scores = turn_scores(run)
        unjudged: dict[str, int] = {}
        for unit in run.units():
            if not isinstance(unit.outcome, Verdict):
                unjudged[unit.outcome.reason.value] = unjudged.get(unit.outcome.reason.value, 0) + 1
        about, damage = run.about()["configurations"], run.damage.sentences()
    if not scores:
        raise UserError(f"{folder} holds no chains judged by `editloupe edival evaluate`")
    turns = max(score.turn for score in scores)
    notes = (*damage, *dict.fromkeys(str(note) for one in about for note in one.get("notes") or ()))
    shapes = {score.square for score in scores}
    both = {True, False} <= shapes
    return EdivalFigures(
        run=folder.name,
        judge=", ".join(dict.fromkeys(str(one.get("spec")) for one in about)),
        missing=missing,
        turns=turns,
        models=models_of(scores, turns, missing),
        square=models_of([s for s in scores if s.square], turns, missing) if both else (),
        oblong=models_of([s for s in scores if s.square is False], turns, missing) if both else (),
        unjudged=unjudged,
        notes=notes,
    )


def models_of(scores: Iterable[TurnScore], turns: int, missing: Missing) -> tuple[ModelFigures, ...]:
    """Return the figures of every model and mode."""
    groups: dict[tuple[str, str], list[TurnScore]] = {}
    for score in scores:
        groups.setdefault((score.model, score.mode), []).append(score)
    return tuple(_model(model, mode, group, turns, missing) for (model, mode), group in sorted(groups.items()))


def _model(model: str, mode: str, scores: Sequence[TurnScore], turns: int, missing: Missing) -> ModelFigures:
    kept = counted(scores, turns, missing)
    by_turn = tuple(turn_figures(kept, turn) for turn in range(1, turns + 1))
    return ModelFigures(
        model=model,
        mode=mode,
        pictures=len({score.image for score in scores}),
        counted=len({score.image for score in kept}),
        turns=by_turn,
        overall=overall(mean(t.chain.value for t in by_turn), mean(t.consistency for t in by_turn)),
    )


def turn_figures(scores: Sequence[TurnScore], turn: int) -> TurnFigures:
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
    )
