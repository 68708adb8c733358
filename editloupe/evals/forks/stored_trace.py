"""Loads a stored trace with everything a fork needs: the edit, its pictures, the model's replies and the judge's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.evals.forks.fork_store import ForkParent, load_fork, pictures_of
from editloupe.evals.runs.configurations import ALL, Configuration, find_newest, format_list, match_configurations
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
    """A trace of a run that can be continued."""

    edit: Edit
    """The edit with the run's copies of its pictures, so that the manifest's files are not needed."""
    pictures: Mapping[str, tuple[Sha, ...]]
    parent: ForkParent
    described: Mapping[str, Any]
    """The judge's description from run.json; empty if the run has none."""
    asked: Mapping[str, Any] | None
    """The facts of the question; None if the run does not have them."""
    judge: str
    protocol: str
    mode: str
    album: Album
    steps: Sequence[StoredStep]
    original: Edit
    """The edit with the paths of its manifest."""


def select_units(run: Run, name: str, wanted: str | None = None) -> tuple[list[Unit], list[Configuration]]:
    """Return the units of an edit in one configuration per protocol, by default the newest that judged it.

    Args:
        run: The run.
        name: The edit's name.
        wanted: A configuration's short name, judge, mode or whole name, or `all`.

    Returns:
        The units, and the configurations that judged the edit and were left out.

    Raises:
        UserError: No configuration of this name judged the edit.
    """
    configurations = run.configurations()
    if wanted == ALL or (wanted is None and len(configurations) < 2):
        return list(skip_repeated_verdicts(run.units(name))), []
    if wanted is not None and (units := list(run.units(name, wanted))):  # a whole name, also of one that is not listed
        return units, []
    by_name = {own.name: list(run.units(name, own.name)) for own in configurations}
    here = [own for own in configurations if by_name[own.name]]
    fitting = here if wanted is None else match_configurations(here, wanted)
    if here and not fitting:
        raise UserError(
            f'edit "{name}" has no configuration "{wanted}" in {run.folder.name}; it has: {format_list(here)}'
        )
    protocols = dict.fromkeys(own.protocol for own in fitting)
    chosen = [find_newest([own for own in fitting if own.protocol == protocol]) for protocol in protocols]
    units = list(skip_repeated_verdicts(unit for own in chosen for unit in by_name[own.name]))
    return units, [own for own in here if own not in chosen]


def find_trace(
    run: Run,
    edit_name: str,
    criterion: str,
    *,
    model: str | None = None,
    repeat: int | None = None,
    target: int | None = None,
    configuration: str | None = None,
    fork: int | None = None,
) -> StoredTrace:
    """Find the trace of a verdict.

    Args:
        run: The run.
        edit_name: The edit's name or id.
        criterion: The criterion.
        model: The editing model, if the id is not unique.
        repeat: The repeat; the first by default.
        target: The target, counted from 1, if targets were judged one by one.
        configuration: The configuration, if there are several. By default the newest.
        fork: The number of a fork; its trace is returned and the other arguments are not used.

    Raises:
        UserError: There is no such trace, or there are several.
    """
    if fork is not None:
        return _load_fork_trace(run, fork)
    name = run.resolve_name(edit_name, model)
    edit, pictures, name = run.edit(name)
    units, _ = select_units(run, name, configuration)
    own = [unit for unit in units if unit.criterion == criterion and repeat in (None, unit.repeat)]
    if not own:
        have = ", ".join(sorted({f"{unit.criterion} (repeat {unit.repeat})" for unit in units}))
        raise UserError(f'edit "{edit_name}" has no such verdict in {run.folder.name}; it has {have or "none"}')
    unit = min(own, key=lambda unit: unit.repeat)
    traces = run.load_trace(name, criterion, unit.repeat, unit.asked)
    if target is not None and traces:
        targets = sorted(trace.target + 1 for trace in traces if trace.target is not None)
        if target not in targets:
            have = f"its targets are {', '.join(map(str, targets))}" if targets else "it was judged as a whole"
            raise UserError(f'{criterion} of "{edit_name}" has no target {target}: {have}')
        traces = tuple(trace for trace in traces if trace.target == target - 1)
    if not traces or not traces[0].steps:
        raise UserError(f'{criterion} of "{edit_name}" has no steps in {run.folder.name}: there is nothing to continue')
    if len(traces) > 1:
        raise UserError(
            f'{criterion} of "{edit_name}" was judged for {len(traces)} targets one by one; name one with --target'
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
    return _load(run, edit, {role: tuple(shas) for role, shas in pictures.items()}, parent, unit)


def _load_fork_trace(run: Run, number: int) -> StoredTrace:
    fork = load_fork(run, number)
    fields = fork.parent.model_dump(include={"edit", "criterion", "repeat", "target"})
    parent = ForkParent(
        **fields, run=str(run.folder), asked=fork.asked, fork=number, outcome=fork.outcome, trace=fork.trace
    )
    return _load(
        run, fork.edit, fork.pictures, parent, None, fork.judge_described, (fork.judge, fork.protocol, fork.mode)
    )


def _load(
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
        configurations = run.about()["configurations"]
        described = next((record for record in configurations if record["name"] == unit.configuration), {})
        judged = (unit.judge, unit.protocol, unit.mode)
    assert judged is not None
    return StoredTrace(
        edit=_with_stored_files(run, edit, pictures),
        pictures=pictures,
        parent=parent,
        described=described or {},
        asked=_question_facts(run, parent.asked),
        judge=judged[0],
        protocol=judged[1],
        mode=judged[2],
        album=album,
        steps=_stored_steps(run, edit.id, parent.trace.steps),
        original=edit,
    )


def keep_picture(run: Run, sha: Sha, album: Album) -> None:
    """Add a picture of a run to an album under its hash; a picture that is gone is left out."""
    path = run.pictures.find(sha)
    if path is None or sha in album:
        return
    try:
        album.keep(sha, path.read_bytes(), str(path))
    except (OSError, ImageError):
        run.damage.add("pictures", sha)


def _stored_steps(run: Run, edit_id: str, steps: Sequence[Step]) -> list[StoredStep]:
    """Return the steps with the messages of the model, if the run stored them."""
    replies = [find_step_reply(run, edit_id, step) for step in steps]
    return [StoredStep(step, reply.message if reply else None) for step, reply in zip(steps, replies, strict=True)]


def _with_stored_files(run: Run, edit: Edit, pictures: Mapping[str, Sequence[Sha]]) -> Edit:
    """Return the edit with the run's copies of its pictures, for roles of which all pictures were stored."""
    files: dict[str, tuple[PictureSource, ...]] = {}
    for role, paths in edit.files.items():
        copies = [run.pictures.find(sha) for sha in pictures.get(role, ())]
        is_complete = len(copies) == len(paths) and all(copies)
        files[role] = tuple(path for path in copies if path) if is_complete else paths
    single: dict[str, Any] = {role: files.pop(role)[0] for role in SINGLE if role in files}
    return edit.model_copy(update={**single, "more_images": files})


def _question_facts(run: Run, key: str) -> Mapping[str, Any] | None:
    with run.reader() as reader:
        facts = reader.question_facts(key)
    return facts if len(facts) > 4 else None
