"""The paper's figures from scores: those of every model, mode and turn, with how much stands behind each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import quantiles

from editloupe.evals.edival.results import MODES
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
from editloupe.types import Record


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


def models_of(scores: Iterable[TurnScore], turns: int, missing: Missing) -> tuple[ModelFigures, ...]:
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
    kept = counted(scores, turns, missing)
    by_turn = tuple(turn_figures(kept, turn) for turn in range(1, turns + 1))
    return ModelFigures(
        model=model,
        mode=mode,
        pictures=len({score.image for score in scores}),
        counted=len({score.image for score in kept}),
        expected=expected,
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
        p999_quartiles=_quartiles([s.p999 for s in of_turn if s.p999 is not None]),
        p999_base=mean(s.p999_base for s in of_turn),
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, high
