"""Records of forks, their table in a run's file, and the traces they continue.

Verdicts, scores and reports of the run never read the table. A stored trace is loaded with everything a fork needs: the edit, its
pictures, the model's replies and the judge's settings.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from editloupe._util.hashing import content_key
from editloupe._util.json_safe import dump_record, sanitize_text
from editloupe.evals.runs.configurations import ALL, Configuration, find_newest, format_list, match_configurations
from editloupe.evals.runs.export.tables import skip_repeated_verdicts
from editloupe.evals.runs.run_folder import encode_file
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit, find_step_reply, timestamp
from editloupe.graphs.forking import StepChange, StoredStep
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Edit, Mode, Outcome, Record, Sha, Step, Trace, Unjudged, Usage, UserError


class ForkParent(Record):
    """The trace that was forked."""

    run: str
    """The run's folder, as it was named."""
    edit: str
    """The edit's name in that run."""
    criterion: str
    repeat: int
    asked: str
    target: int | None = None
    fork: int | None = None
    """The number of this fork, if the parent is itself a fork."""
    outcome: Outcome
    trace: Trace
    """A copy: the edit may be judged again later."""


class Fork(Record):
    """A trace that continues another one from one of its steps. It is not a verdict on the edit."""

    number: int = 0
    """Its number in the run, from 1; 0 before it is stored."""
    edit: Edit
    pictures: Mapping[str, tuple[Sha, ...]] = Field(default_factory=dict)
    """The edit's pictures by role."""
    parent: ForkParent
    step: int
    """Counted from 1."""
    change: StepChange
    changes: tuple[str, ...]
    """Changes of the step and of the judge, in words."""
    asked: str
    """The key of the question."""
    repeat: int
    """From 0, if the same fork was made several times."""
    judge: str
    protocol: str
    mode: Mode
    judge_described: Mapping[str, Any] = Field(default_factory=dict)
    """The judge's description, as in run.json; a fork of this fork uses it."""
    outcome: Outcome
    trace: Trace
    paid: Usage
    """Usage of the steps after the fork; earlier steps are not asked again."""
    cost: float | None = None
    notes: tuple[str, ...] = ()
    kept_at: str = ""

    @property
    def identity(self) -> str:
        """The same for all repeats of a fork."""
        return fork_identity(self.parent, self.step, self.change, self.asked)

    @property
    def label(self) -> str:
        """The outcome in a few words."""
        return format_label(self.outcome)


def fork_identity(parent: ForkParent, step: int, change: StepChange, asked: str) -> str:
    """Return the key of a fork; it does not depend on the outcome."""
    facts = {
        "parent": parent.model_dump(mode="json", exclude={"outcome", "run"}),
        "step": step,
        "change": change.model_dump(mode="json"),
        "asked": asked,
    }
    return content_key(facts)[:32]


def format_label(outcome: Outcome) -> str:
    """Return the label of an outcome, or its score if it has no label, or the reason if it is unjudged."""
    if isinstance(outcome, Unjudged):
        return _format_facts(outcome.status, None, None, outcome.reason.value)
    return _format_facts(outcome.status, outcome.label, outcome.score, None)


def _format_facts(status: Any, label: Any, score: Any, reason: Any) -> str:
    if status != "judged":
        return f"unjudged ({reason})"
    return str(label) if label else "no number" if score is None else f"{score:g}"


def count_labels(forks: Iterable[Fork]) -> dict[str, int]:
    """Count the labels of forks, the most frequent first."""
    return dict(Counter(fork.label for fork in forks).most_common())


def find_parting(parent: Trace, fork: Trace) -> int | None:
    """Return the first step, counted from 1, in which two traces differ; None if they are equal."""
    for number in range(1, max(len(parent.steps), len(fork.steps)) + 1):
        pair = (parent.steps[number - 1 : number], fork.steps[number - 1 : number])
        mine, theirs = (
            [
                (
                    step.thought,
                    [(call.name, dict(call.parameters)) for call in step.calls],
                    [(observation.text, observation.pictures) for observation in step.observations],
                    step.answer,
                    step.problem,
                )
                for step in steps
            ]
            for steps in pair
        )
        if mine != theirs:
            return number
    return None


def keep_fork(run: Run, fork: Fork, album: Album) -> Fork:
    """Store a fork with its pictures and return it with its number."""
    shas = {sha for own in fork.pictures.values() for sha in own}
    for sha in shas | pictures_of(fork.trace) | pictures_of(fork.parent.trace):
        if sha in album and sha not in run.pictures:
            suffix, data = encode_file(album[sha])
            run.pictures.keep_bytes(sha, suffix, data)
    stored = fork.model_copy(update={"kept_at": timestamp()})

    def record(number: int) -> str:
        nonlocal stored
        stored = stored.model_copy(update={"number": number})
        return dump_record(stored)

    run.keep_fork(fork.edit.id, fork.parent.edit, fork.parent.criterion, fork.identity, record)
    return stored


def forks_of(run: Run | str | Path, edit: str | None = None, criterion: str | None = None) -> list[Fork]:
    """Return the forks of a run in the order they were made. Forks that cannot be read are left out.

    Args:
        run: The run, or its folder.
        edit: The name or id of an edit; None for all edits.
        criterion: A criterion; None for all.
    """
    if not isinstance(run, Run):
        with Run.open(run) as opened:
            return forks_of(opened, edit, criterion)
    with run.reader() as reader:
        records = reader.fork_records(edit)
    forks = []
    for number, text in records:
        with run.damage.reading("forks", str(number)):
            forks.append(Fork.model_validate_json(text, context="kept"))
    return [fork for fork in forks if criterion in (None, fork.parent.criterion)]


def load_fork(run: Run, number: int) -> Fork:
    """Return a fork by its number; raise UserError if there is none."""
    text_number = f"{number}" if number.bit_length() < 63 else "0"
    with run.reader() as reader:
        records, count = reader.fork_records(number=text_number), reader.count_forks()
    for _, text in records:
        with run.damage.reading("forks", str(number)):
            return Fork.model_validate_json(text, context="kept")
    have = f"it has {count}, counted from 1" if count else "it has none"
    raise UserError(f"the run {run.folder.name} has no fork {number}; {have}")


def pictures_of(trace: Trace) -> set[Sha]:
    """Return the hashes of all pictures in a trace."""
    sent = {picture.sha for step in trace.steps for picture in step.sent}
    return sent | {sha for step in trace.steps for observation in step.observations for sha in observation.pictures}


class ForkReplies:
    """The replies of one fork, stored under its identity: a fork that was stopped continues without paying twice."""

    def __init__(self, edit_id: str) -> None:
        self._edit_id = edit_id
        self._run: Run | None = None
        self._name = ""

    def keep_in(self, run: Run, name: str) -> None:
        """Set the run that stores the replies and the identity of the fork, before anything is asked."""
        self._run, self._name = run, name

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the stored reply to a request of this fork."""
        return self._run.find_reply(f"{key}#{self._name}") if self._run else None

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Store a reply."""
        if self._run:
            self._run.keep_reply(f"{key}#{self._name}", reply, self._edit_id)


_FACTS = (
    "step",
    "changes",
    "judge",
    "outcome.status",
    "outcome.label",
    "outcome.score",
    "outcome.reason",
    "parent.repeat",
    "parent.asked",
    "parent.fork",
    "edit.instruction",
    "protocol",
    "parent.outcome.status",
    "parent.outcome.label",
    "parent.outcome.score",
    "parent.outcome.reason",
)


@dataclass(frozen=True)
class ForkGroup:
    """A fork of a trace with all its repeats."""

    edit: str
    criterion: str
    step: int
    changes: tuple[str, ...]
    judge: str
    instruction: str
    repeat: int
    """The parent's repeat."""
    asked: str
    """The key of the parent's question."""
    parent: int | None
    """The number of the parent, if it is itself a fork."""
    numbers: list[int] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)
    protocol: str = ""
    parent_label: str = ""
    """The outcome of the parent."""

    @property
    def outcome(self) -> str:
        """The label, or the count of each label, the most frequent first.

        >>> group = ForkGroup("cup", "taste", 1, (), "rules", "", 0, "", None, [1, 2, 3], Counter(["good", "bad", "good"]))
        >>> group.outcome
        '2 × good, 1 × bad'
        """
        if len(self.numbers) == 1:
            return next(iter(self.labels))
        return ", ".join(f"{count} × {label}" for label, count in self.labels.most_common())


def count_forks(run: Run, identity: str | None = None) -> int:
    """Return how many forks a run holds, all or the repeats of one."""
    with run.reader() as reader:
        return reader.count_forks(identity)


def group_forks(run: Run, edit: str | None = None, criterion: str | None = None) -> list[ForkGroup]:
    """Return the forks of a run, repeats together, in the order they were first made.

    Traces are not read. A fork that cannot be read is left out.

    Args:
        run: The run.
        edit: The name of an edit; None for all edits.
        criterion: A criterion; None for all.
    """
    columns = {"name": edit, "criterion": criterion}
    equal = {column: sanitize_text(value) for column, value in columns.items() if value is not None}
    with run.reader() as reader:
        rows = reader.fork_facts(_FACTS, equal)
    groups: dict[str, ForkGroup] = {}
    for number, name, own_criterion, identity, *facts in rows:
        step, changes, judge, status, label, score, reason, repeat, asked, parent, instruction, protocol, *outcome = (
            facts
        )
        with run.damage.reading("forks", str(number)):
            own_label = _format_facts(status, label, score, reason)
            group = groups.setdefault(
                identity,
                ForkGroup(
                    edit=str(name),
                    criterion=str(own_criterion),
                    step=int(step),
                    changes=tuple(map(str, json.loads(changes or "[]"))),
                    judge=str(judge),
                    instruction=str(instruction or ""),
                    repeat=int(repeat or 0),
                    asked=str(asked),
                    parent=None if parent is None else int(parent),
                    protocol=str(protocol),
                    parent_label=_format_facts(*outcome),
                ),
            )
            group.numbers.append(int(number))
            group.labels[own_label] += 1
    return list(groups.values())


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


def select_units(run: Run, name: str, configuration: str | None = None) -> tuple[list[Unit], list[Configuration]]:
    """Return the units of an edit in one configuration per protocol, by default the newest that judged it.

    Args:
        run: The run.
        name: The edit's name.
        configuration: A configuration's short name, judge, mode or whole name, or `all`.

    Returns:
        The units, and the configurations that judged the edit and were left out.

    Raises:
        UserError: No configuration of this name judged the edit.
    """
    configurations = run.configurations()
    if configuration == ALL or (configuration is None and len(configurations) < 2):
        return list(skip_repeated_verdicts(run.units(name))), []
    if configuration is not None and (units := list(run.units(name, configuration))):  # a full name need not be listed
        return units, []
    by_name = {own.name: list(run.units(name, own.name)) for own in configurations}
    of_edit = [own for own in configurations if by_name[own.name]]
    fitting = of_edit if configuration is None else match_configurations(of_edit, configuration)
    if of_edit and not fitting:
        raise UserError(
            f'edit "{name}" has no configuration "{configuration}" in {run.folder.name}; it has: {format_list(of_edit)}'
        )
    protocols = dict.fromkeys(own.protocol for own in fitting)
    chosen = [find_newest([own for own in fitting if own.protocol == protocol]) for protocol in protocols]
    units = list(skip_repeated_verdicts(unit for own in chosen for unit in by_name[own.name]))
    return units, [own for own in of_edit if own not in chosen]


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
    criteria = dict.fromkeys(unit.criterion for unit in units)
    if criteria and criterion not in criteria:
        instead = f', not "{criterion}"' if criterion else ""
        raise UserError(
            f'{run.folder.name}: the criterion of edit "{edit_name}" is one of {", ".join(criteria)}{instead}'
        )
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
    configurations: list[dict[str, Any]] = run.about()["configurations"]
    described = next((own for own in configurations if own["name"] == unit.configuration), {})
    by_role = {role: tuple(shas) for role, shas in pictures.items()}
    return _load(run, edit, by_role, parent, described, (unit.judge, unit.protocol, unit.mode))


def _load_fork_trace(run: Run, number: int) -> StoredTrace:
    fork = load_fork(run, number)
    fields = fork.parent.model_dump(include={"edit", "criterion", "repeat", "target"})
    parent = ForkParent(
        **fields, run=str(run.folder), asked=fork.asked, fork=number, outcome=fork.outcome, trace=fork.trace
    )
    judged = (fork.judge, fork.protocol, fork.mode)
    return _load(run, fork.edit, fork.pictures, parent, fork.judge_described, judged)


def _load(
    run: Run,
    edit: Edit,
    pictures: Mapping[str, tuple[Sha, ...]],
    parent: ForkParent,
    described: Mapping[str, Any],
    judged: tuple[str, str, str],
) -> StoredTrace:
    album = Album()
    for sha in pictures_of(parent.trace):
        keep_picture(run, sha, album)
    return StoredTrace(
        edit=_with_stored_files(run, edit, pictures),
        pictures=pictures,
        parent=parent,
        described=described,
        asked=_question_facts(run, parent.asked),
        judge=judged[0],
        protocol=judged[1],
        mode=judged[2],
        album=album,
        steps=_load_steps(run, edit.id, parent.trace.steps),
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


def _load_steps(run: Run, edit_id: str, steps: Sequence[Step]) -> list[StoredStep]:
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
    """Return the facts of a question; None if they are names only, as of imported scores."""
    with run.reader() as reader:
        facts = reader.question_facts(key)
    return facts if len(facts) > 4 else None
