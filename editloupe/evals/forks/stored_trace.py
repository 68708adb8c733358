"""A kept trace with everything a fork of it needs: the edit, its pictures, the model's own replies, who judged and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.evals.forks.fork_store import load_fork, pictures_of
from editloupe.evals.forks.records import ForkParent
from editloupe.evals.runs.export.tables import skip_repeated_verdicts
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit, find_step_reply
from editloupe.graphs.forking import StoredStep
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Edit, Sha, Step, UserError

SINGLE = ("source", "edited", "reference")
"""Roles that are fields of an edit."""


@dataclass(frozen=True)
class StoredTrace:
    """One trace of a run, ready to be gone on with."""

    edit: Edit
    """Its pictures are the run's own files, so that the manifest's need not be there."""
    pictures: Mapping[str, tuple[Sha, ...]]
    parent: ForkParent
    described: Mapping[str, Any]
    """The judge's description from run.json; empty where the run does not know it."""
    asked: Mapping[str, Any] | None
    """What decided the answer, where the run knows it."""
    judge: str
    protocol: str
    mode: str
    album: Album
    kept: Sequence[StoredStep]
    original: Edit
    """As the run has it, with the paths of its manifest."""


def find_trace(
    run: Run,
    said: str,
    criterion: str,
    *,
    model: str | None = None,
    repeat: int | None = None,
    target: int | None = None,
    configuration: str | None = None,
    fork: int | None = None,
) -> StoredTrace:
    """Return the trace that is meant; what is missing, or meant by several, is told in one sentence. Targets count from 1."""
    if fork is not None:
        return _of_fork(run, fork)
    name = run.resolve_name(said, model)
    edit, pictures, name = run.edit(name)
    every = list(skip_repeated_verdicts(run.units(name)))
    units = [unit for unit in every if configuration in (None, unit.configuration)]
    if every and not units:
        names = ", ".join(dict.fromkeys(str(unit.configuration) for unit in every))
        raise UserError(f'edit "{said}" has no configuration "{configuration}" in {run.folder.name}; it has {names}')
    own = [unit for unit in units if unit.criterion == criterion and repeat in (None, unit.repeat)]
    if not own:
        have = ", ".join(sorted({f"{unit.criterion} (repeat {unit.repeat})" for unit in units}))
        raise UserError(f'edit "{said}" has no such verdict in {run.folder.name}; it has {have or "none"}')
    if len({unit.asked for unit in own}) > 1:
        names = ", ".join(str(unit.configuration) for unit in own)
        raise UserError(f'{criterion} of "{said}" was judged in several ways ({names}); name one with --configuration')
    unit = min(own, key=lambda one: one.repeat)
    traces = run.load_trace(name, criterion, unit.repeat, unit.asked)
    if target is not None and traces:
        targets = sorted(trace.target + 1 for trace in traces if trace.target is not None)
        if target not in targets:
            have = f"its targets are {', '.join(map(str, targets))}" if targets else "it was judged as a whole"
            raise UserError(f'{criterion} of "{said}" has no target {target}: {have}')
        traces = tuple(trace for trace in traces if trace.target == target - 1)
    if not traces or not traces[0].steps:
        raise UserError(f'{criterion} of "{said}" has no steps in {run.folder.name}: there is nothing to go on from')
    if len(traces) > 1:
        raise UserError(
            f'{criterion} of "{said}" was judged for {len(traces)} targets one by one; name one with --target'
        )
    trace = traces[0]
    parent = ForkParent(
        run=str(run.folder),
        edit=name,
        criterion=criterion,
        repeat=unit.repeat,
        asked=unit.asked,
        target=trace.target,
        outcome=unit.outcome,
        trace=trace,
    )
    return _kept(run, edit, {role: tuple(shas) for role, shas in pictures.items()}, parent, unit)


def _of_fork(run: Run, number: int) -> StoredTrace:
    fork = load_fork(run, number)
    known = fork.parent.model_dump(include={"edit", "criterion", "repeat", "target"})
    parent = ForkParent(
        **known, run=str(run.folder), asked=fork.asked, fork=number, outcome=fork.outcome, trace=fork.trace
    )
    return _kept(
        run, fork.edit, fork.pictures, parent, None, fork.judge_described, (fork.judge, fork.protocol, fork.mode)
    )


def _kept(
    run: Run,
    edit: Edit,
    pictures: Mapping[str, tuple[Sha, ...]],
    parent: ForkParent,
    unit: Unit | None,
    described: Mapping[str, Any] | None = None,
    judged: tuple[str, str, str] | None = None,
) -> StoredTrace:
    album = Album()
    for sha in pictures_of(parent.trace):
        keep_picture(run, sha, album)
    if unit is not None:
        known = run.about()["configurations"]
        described = next((one for one in known if one["name"] == unit.configuration), {})
        judged = (unit.judge, unit.protocol, unit.mode)
    assert judged is not None
    return StoredTrace(
        edit=_with_kept_files(run, edit, pictures),
        pictures=pictures,
        parent=parent,
        described=described or {},
        asked=_asked(run, parent.asked),
        judge=judged[0],
        protocol=judged[1],
        mode=judged[2],
        album=album,
        kept=_steps(run, edit.id, parent.trace.steps),
        original=edit,
    )


def keep_picture(run: Run, sha: Sha, album: Album) -> None:
    """Put a picture of a run into an album under its hash; one that is gone is left out."""
    path = run.pictures.find(sha)
    if path is None or sha in album:
        return
    try:
        album.keep(sha, path.read_bytes(), str(path))
    except (OSError, ImageError):
        run.damage.add("pictures", sha)


def _steps(run: Run, edit_id: str, steps: Sequence[Step]) -> list[StoredStep]:
    """Return the steps with the messages they were read from, as far as the run kept them."""
    replies = [find_step_reply(run, edit_id, step) for step in steps]
    return [StoredStep(step, reply.message if reply else None) for step, reply in zip(steps, replies, strict=True)]


def _with_kept_files(run: Run, edit: Edit, pictures: Mapping[str, Sequence[Sha]]) -> Edit:
    """Return the edit with the run's copies of its pictures, where all of a role were kept."""
    files: dict[str, tuple[PictureSource, ...]] = {}
    for role, paths in edit.files.items():
        copies = [run.pictures.find(sha) for sha in pictures.get(role, ())]
        whole = len(copies) == len(paths) and all(copies)
        files[role] = tuple(path for path in copies if path) if whole else paths
    single: dict[str, Any] = {role: files.pop(role)[0] for role in SINGLE if role in files}
    return edit.model_copy(update={**single, "more_images": files})


def _asked(run: Run, key: str) -> Mapping[str, Any] | None:
    with run.reader() as reader:
        facts = reader.question_facts(key)
    return facts if len(facts) > 4 else None
