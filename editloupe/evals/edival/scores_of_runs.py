"""Runs of chains read back: the scores of every model's pictures, from one run or several, one judge's of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe._util.text import number_of, verb
from editloupe.evals.edival.metrics import EdivalFigures, models_of
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.stats.scores.run_table import choose_configuration
from editloupe.graphs.edival import CONSISTENCY, FOLLOWING, QUALITY
from editloupe.rubrics.edival.scoring import Missing, TurnScore
from editloupe.rubrics.edival.turn import KEY, read_turn
from editloupe.types import Edit, UserError, Verdict

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


def figures_of(
    runs: Path | Sequence[Path], missing: Missing = "complete", configuration: str | None = None
) -> EdivalFigures:
    """Work out all figures of runs that `edival evaluate` made, every model of every run beside the others."""
    folders = [runs] if isinstance(runs, Path) else list(dict.fromkeys(runs))
    read = [read_run(folder, configuration) for folder in folders]
    scores = _told_apart(read)
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
        models=models_of(scores, turns, missing),
        square=models_of([s for s in scores if s.square], turns, missing) if both else (),
        oblong=models_of([s for s in scores if s.square is False], turns, missing) if both else (),
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


def _told_apart(read: Sequence[RunOfChains]) -> list[TurnScore]:
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
