"""Judges combinations one after the other into one run, which shares every reply and every verdict that is the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from editloupe.evals.ablation.combinations import Asking, Combination, asking_of
from editloupe.evals.ablation.measuring import JudgedCombination, measure_run
from editloupe.evals.ablation.records import Ablation
from editloupe.evals.batch.batch import Batch, Ending, Say, dry_run, judge_batch
from editloupe.evals.batch.progress import Forecast
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.labels.human import Files, check_labels
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.stats.bootstrap import Resampling
from editloupe.judge import Judge
from editloupe.judge.settings import find_setup
from editloupe.types import Edit, UserError

LOOKS = "looks"
"""The folder in the run in which combinations share what their tools found; it may be deleted."""


def exactly(batch: Batch) -> Batch:
    """Return a batch that uses no verdict given to a question asked otherwise: combinations are compared, not merged."""
    return replace(batch, again=replace(batch.again, exact=True))


def judge_combinations(
    combinations: Sequence[Combination],
    human: Files = None,
    *,
    quiet: bool = False,
    signals: bool = False,
    say: Say = lambda sentence: None,
) -> list[tuple[JudgedCombination, Ending | None]]:
    """Judge every combination; where one is stopped, by a cap or by the user, the later ones are not begun.

    Files of labels are read first: a mistake in them is told before anything is paid for.
    """
    asking = asking_of(combinations)
    check_labels(human, (edit_id for edit_id, _ in asking[0].edits), asking[0].answers)
    found: list[tuple[JudgedCombination, Ending | None]] = []
    stopped = False
    for number, (one, what) in enumerate(zip(combinations, asking, strict=True), start=1):
        ending = None
        if not stopped:
            say(f"{number} of {len(combinations)}: {one.name}")
            ending = judge_batch(exactly(one.batch), quiet=quiet, signals=signals, say=say)
            stopped = not ending.complete and bool(ending.why or ending.stops_requested)
        same = _same(asking, number - 1)
        earlier = combinations[same].name if same is not None else None
        found.append((JudgedCombination(one, what, ending.configuration if ending else None, earlier), ending))
    return found


def _same(asking: Sequence[Asking], place: int) -> int | None:
    """Return the first combination that asks exactly what this one does; None where that is itself."""
    first = next(number for number, one in enumerate(asking) if one.questions == asking[place].questions)
    return first if first < place else None


def estimate_combinations(combinations: Sequence[Combination], say: Say = lambda sentence: None) -> list[Forecast]:
    """Estimate what each combination would take; questions that an earlier one asks too are counted there."""
    asking, found = asking_of(combinations), []
    seen: set[str] = set()
    for one, what in zip(combinations, asking, strict=True):
        new = [criterion for criterion, keys in what.questions.items() if not keys <= seen]
        seen.update(*what.questions.values())
        found.append(dry_run(exactly(_only(one.batch, new)), say))
    return found


def _only(batch: Batch, criteria: Sequence[str]) -> Batch:
    """Return the batch with only these criteria asked."""

    def open_judge(**hooks: Any) -> Any:
        return _Narrowed(batch.open_judge(**hooks), tuple(criteria))

    return replace(batch, open_judge=open_judge)


class _Narrowed:
    """A judge of which only some criteria are asked, for an estimate."""

    def __init__(self, judge: Any, criteria: tuple[str, ...]) -> None:
        self._judge, self._criteria = judge, criteria

    def __getattr__(self, name: str) -> Any:
        return getattr(self._judge, name)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return those of the criteria that this edit is asked."""
        return tuple(name for name in self._judge.criteria_for(edit) if name in self._criteria)


def ablate(
    edits: str | Path | Iterable[Edit],
    combinations: Sequence[Mapping[str, Any]],
    out: str | Path,
    *,
    spec: str | None = None,
    human: Files = None,
    how: Resampling | None = None,
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
    return measure_run(folder, judged, human, how)


def _opener(options: Mapping[str, Any], looks: Path) -> Any:
    """Return what opens a judge with these options; its tools share their results with the other combinations."""
    given = dict(options)
    spec = given.pop("spec", None)
    tools = given.get("tools")
    if tools is None:
        given["setup"] = find_setup(given.get("setup")).sharing(looks)
    elif tools.cache_folder is None:
        given["tools"] = replace(tools, cache_folder=looks)

    def open_judge(**hooks: Any) -> Judge:
        return Judge(spec, **given, **hooks)

    return open_judge
