"""Builds the worklists of annotators, saves their labels and counts their progress.

A worklist is all edits of a run, a queue, or the edits on which annotators differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from editloupe.evals.labels.files import parse_label
from editloupe.evals.labels.label_form import WORDING, RubricForm, build_wording_key, can_be_labelled
from editloupe.evals.labels.merge import format_score_label
from editloupe.evals.runs.run_folder import QUEUE_SUFFIX
from editloupe.evals.stats.agreement import coefficients as statistics
from editloupe.evals.stats.trust.label_queue import QUEUE_FILE, LabelQueue, QueuedEdit, draw_evenly
from editloupe.rubrics.model import ChecksAnswer
from editloupe.servers.studio.annotation.label_file import LabelValue
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.types import Boxes, Record, UserError

ALL, DIFFER = "", "differ"
SUFFIX = QUEUE_SUFFIX
"""Suffix of queue files in the folder of a run's labels."""


@dataclass(frozen=True)
class Worklist:
    """Edits in the order in which one annotator gets them."""

    key: str
    """The key in addresses."""
    title: str
    names: tuple[str, ...]
    shared: frozenset[str] = frozenset()
    """The edits of a calibration round, which all annotators label; the others are split."""
    needing: frozenset[str] = frozenset()
    """Edits that no judge of a cascade was confident about."""
    notes: tuple[str, ...] = ()

    @property
    def adjudicates(self) -> bool:
        """True if labels settle differences between annotators."""
        return self.key == DIFFER


def build_worklist(open_run: OpenRun, key: str, annotator: str, named: Iterable[Path]) -> Worklist:
    """Return an annotator's worklist by its key; raise UserError if there is none."""
    if key == ALL:
        return Worklist(ALL, "All edits", tuple(list_edits(open_run)))
    if key == DIFFER:
        return Worklist(DIFFER, "Where annotators differ", tuple(find_differing(open_run)))
    path = find_queues(open_run, named).get(key)
    if path is None:
        raise UserError(f"there is no queue {key} for this run; start the studio with --queue FILE")
    queue = LabelQueue.read(path)
    edit_names = set(list_edits(open_run))
    mine = queue.of(annotator)
    names = [sample.name for sample in mine if sample.name in edit_names]
    split = queue.annotators
    notes = []
    if lost := len(mine) - len(names):
        notes.append(f"{lost} of the queue’s edits are not in this run, or nothing was asked of them.")
    if split and annotator not in split:
        notes.append(f"The queue is split between {', '.join(split)}: you see what everybody labels.")
    return Worklist(
        key,
        key.removesuffix(SUFFIX).removesuffix(".jsonl"),
        tuple(names),
        frozenset(sample.name for sample in mine if split and sample.annotator is None),
        frozenset(sample.name for sample in mine if sample.why),
        tuple(notes),
    )


def find_queues(open_run: OpenRun, named: Iterable[Path]) -> dict[str, Path]:
    """Return the queues of a run by name: those of the studio's settings, and those in the folders of the run and its labels."""
    queues: dict[str, Path] = {}
    folders = dict.fromkeys((open_run.run.folder, open_run.labels.path.parent))
    for path in (*named, *(path for folder in folders for path in _queues_in(folder))):
        if path.resolve() not in {other.resolve() for other in queues.values()}:
            name, number = path.name, 2
            while name in queues:
                name, number = f"{path.name} ({number})", number + 1
            queues[name] = path
    return queues


def _queues_in(folder: Path) -> list[Path]:
    own = folder / QUEUE_FILE
    return [*([own] if own.is_file() else []), *sorted(folder.glob(f"*{SUFFIX}"))]


def describe_queues(open_run: OpenRun, named: Iterable[Path]) -> dict[str, str]:
    """Describe the size of each queue of a run, or why it cannot be read."""
    descriptions = {}
    for name, path in find_queues(open_run, named).items():
        try:
            queue = LabelQueue.read(path)
        except UserError as error:
            descriptions[name] = str(error)
            continue
        needing = sum(bool(sample.why) for sample in queue.drawn)
        shared = sum(sample.annotator is None for sample in queue.drawn)
        words = [f"{len(queue.drawn)} edits"]
        if any(sample.chosen for sample in queue.drawn):
            words.append("chosen by a filter, not drawn by chance")
        if needing:
            words.append(f"{needing} need a person and come first")
        if queue.annotators:
            words.append(f"{shared} shared by all, the others split between {', '.join(queue.annotators)}")
        descriptions[name] = ", ".join(words)
    return descriptions


def propose_worklist(open_run: OpenRun, named: Iterable[Path]) -> str:
    """Return the first queue with edits of this run, else all edits. Labels outside a queue do not count with it."""
    edit_names = set(list_edits(open_run))
    for name, path in find_queues(open_run, named).items():
        with suppress(UserError):  # `describe_queues` says what is wrong with it
            drawn = LabelQueue.read(path).drawn
            if any(sample.name in edit_names and not sample.chosen for sample in drawn):
                return name
    return ALL


def keep_random_subset(open_run: OpenRun, size: int, seed: int) -> str:
    """Draw a random subset of a run's edits, save it as a queue next to the labels, and return its name.

    The same size and seed give the same subset. An existing file is not changed: labels may depend on it.
    """
    edits = [(edit_id, name, model) for name, edit_id, model in open_run.index.asked_edits()]
    if not edits:
        raise UserError("this run holds no edits yet")
    path = open_run.labels.path.with_name(f"random-{min(size, len(edits))}-of-{len(edits)}-seed-{seed}{SUFFIX}")
    if not path.exists():
        try:
            draw_evenly(edits, size, seed).write(path)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror or error})") from None
    return path.name


def add_to_queue(open_run: OpenRun, title: str, names: Iterable[str], where: str) -> tuple[str, int, int]:
    """Add edits to a queue next to the labels, in this order; it is created if there is none.

    Such a queue says which edits to label, not what the others are like: corrected scores refuse it.

    Args:
        open_run: The run.
        title: The queue's name, which becomes the name of its file.
        names: The edits.
        where: The filter that chose them.

    Returns:
        The name of its file, the number of edits that were added, and of all in it.

    Raises:
        UserError: The title has no letter or digit, nothing can be labelled, or the queue was drawn by chance.
    """
    plain = re.sub(r"[^\w.-]+", "-", title.removesuffix(SUFFIX)).strip("-.")[:80]
    if not plain:
        raise UserError("a queue needs a name")
    path = open_run.labels.path.with_name(f"{plain}{SUFFIX}")
    before = LabelQueue.read(path).drawn if path.exists() else ()
    if any(not edit.chosen for edit in before):
        raise UserError(f"{path.name} was drawn by chance, and edits that are chosen cannot join it; take another name")
    about = {name: (edit_id, model) for name, edit_id, model in open_run.index.asked_edits()}
    queued = {edit.name for edit in before}
    added = [name for name in names if name in about and name not in queued]
    edits = [*before, *(QueuedEdit(about[n][0], n, about[n][1], 1.0, None, chosen=where or "all edits") for n in added)]
    if not edits:
        raise UserError("the list holds no edit that can be labelled")
    try:
        LabelQueue(path.name, tuple(edits)).write(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error})") from None
    return path.name, len(added), len(edits)


def list_edits(open_run: OpenRun) -> list[str]:
    """Return the edits about which something was asked, in the manifest's order."""
    return [name for name, _, _ in open_run.index.asked_edits()]


def find_differing(open_run: OpenRun) -> dict[str, set[str]]:
    """Return the edits on which annotators differ, with the criteria, in the run's order.

    Adjudicated edits are included, so that an adjudicator can go back to them.
    """
    order = list_edits(open_run)
    criteria: dict[str, set[str]] = {}
    for labels in open_run.index.people().given.values():
        for (name, criterion), scores in labels.items():
            if len(set(scores.values())) > 1:
                criteria.setdefault(name, set()).add(criterion)
    return {name: criteria[name] for name in order if name in criteria}


def count_open_differences(open_run: OpenRun) -> int:
    """Count the edits that wait for adjudication."""
    settled = find_adjudicated(open_run)
    return sum(
        any((name, criterion) not in settled for criterion in on) for name, on in find_differing(open_run).items()
    )


def find_adjudicated(open_run: OpenRun) -> set[tuple[str, str]]:
    """Return the pairs of edit and criterion that were adjudicated."""
    return {pair for people in open_run.index.people().by_protocol.values() for pair in people.adjudicated}


class LabelRequest(Record):
    """One action of an annotator: a label, an answer to a check, "not sure", boxes, a comment, a skip or an undo."""

    annotator: str = Field(min_length=1, max_length=80)
    work: str = Field(default="", max_length=300)
    edit: str = Field(default="", max_length=1000)
    criterion: str = Field(default="", max_length=200)
    label: str | None = Field(default=None, max_length=200)
    check: str = Field(default="", max_length=200)
    """The item of a check list that `label` answers."""
    unsure: bool | None = None
    """None for no change."""
    skip: bool | None = None
    comment: str | None = Field(default=None, max_length=4000)
    boxes: Boxes | None = Field(default=None, max_length=50)
    undo: bool = False
    seen: bool = False
    """The annotator has seen the judge's verdict, as on the page of a trace."""


def label_edit(
    open_run: OpenRun,
    name: str,
    request: LabelRequest,
    forms: Iterable[RubricForm],
    adjudicated: bool,
    about: Mapping[str, Any],
) -> None:
    """Save the label or check of a request; raise UserError if `agree` could not read it."""
    forms = list(forms)
    form = next((form for form in forms if form.rubric.criterion == request.criterion), None)
    if form is None:
        raise UserError("this edit is not judged by that criterion")
    values = open_run.labels.about(name, request.edit, "adjudicated" if adjudicated else "label")
    before = values.get(request.criterion)
    is_seen = request.seen or all_done(forms, values) or open_run.labels.has_seen(name, request.edit)
    seen = {"judge_seen": True} if is_seen and not adjudicated else {}
    after = _after(form, request, before)
    wording = {WORDING: build_wording_key(form.rubric)}
    open_run.labels.say(name, request.edit, request.criterion, after, adjudicated, **about, **seen, **wording)


def _after(form: RubricForm, request: LabelRequest, before: LabelValue | None) -> LabelValue | None:
    """Return an annotator's value after a request."""
    answer = form.rubric.answer
    unsure = (before.unsure if before else False) if request.unsure is None else request.unsure
    if request.check:
        return _apply_check(form, request, before, unsure)
    if request.label is None and request.unsure is not None:
        if before is None:
            raise UserError("give a label first, then say that you are not sure of it")
        return LabelValue(before.label, unsure, before.checks)
    if request.label is None:
        return None
    if isinstance(answer, ChecksAnswer) or parse_label(answer, request.label) is None or not form.usable:
        raise UserError(f"not a valid label for {form.rubric.title}")
    return LabelValue(request.label, unsure)


def _apply_check(form: RubricForm, request: LabelRequest, before: LabelValue | None, unsure: bool) -> LabelValue:
    answer = form.rubric.answer
    if not isinstance(answer, ChecksAnswer):
        raise UserError(f"{form.rubric.title} is not a check list")
    check = next((check for check in answer.checks if check.key == request.check), None)
    if check is None or request.label is None or request.label not in check.values:
        raise UserError(f"not a valid label for {form.rubric.title}")
    checks = {**(before.checks if before else {}), request.check: request.label}
    total = answer.total(checks) if all(item.key in checks for item in answer.checks) else None
    return LabelValue(None if total is None else f"{total:.12g}", unsure, checks)


def is_done(form: RubricForm, value: LabelValue | None) -> bool:
    """True if a criterion was answered. A check list of which nothing applies is answered, although it has no score."""
    if value is None:
        return False
    return value.label is not None or (bool(form.checks) and all(check.key in value.checks for check in form.checks))


def all_done(forms: Iterable[RubricForm], values: Mapping[str, LabelValue]) -> bool:
    """True if all criteria of an edit were answered."""
    asked = [form for form in forms if form.usable]
    return bool(asked) and all(is_done(form, values.get(form.rubric.criterion)) for form in asked)


def labels_of_edit(open_run: OpenRun, edit_name: str) -> dict[str, dict[str, str]]:
    """Return the labels of an edit by criterion and annotator, merged as by `agree`."""
    labels: dict[str, dict[str, str]] = {}
    for protocol, own in open_run.index.people().given.items():
        for (name, criterion), scores in own.items():
            if name == edit_name and criterion not in labels:
                rubric = open_run.rubric(protocol, criterion)
                answer = rubric.answer if rubric else None
                labels[criterion] = {who: format_score_label(answer, score) for who, score in scores.items()}
    return labels


def find_first_open(open_run: OpenRun, name: str, work: Worklist) -> str | None:
    """Return the first edit of a worklist that waits for an annotator; None if all are labelled or skipped."""
    skipped = open_run.labels.skipped(name)
    if work.adjudicates:
        settled, apart = find_adjudicated(open_run), find_differing(open_run)
        return next(
            (
                edit
                for edit in work.names
                if edit not in skipped and any((edit, criterion) not in settled for criterion in apart[edit])
            ),
            None,
        )
    criteria, done = _labellable_criteria(open_run), _labelled_criteria(open_run, name)
    return next(
        (edit for edit in work.names if edit not in skipped and criteria.get(edit, set()) - done.get(edit, set())),
        None,
    )


def count_progress(open_run: OpenRun, works: Mapping[str, Worklist]) -> dict[str, dict[str, int]]:
    """Count the edits of each annotator's worklist that are labelled and skipped, and all of them."""
    criteria = _labellable_criteria(open_run)
    counts = {}
    for name, work in works.items():
        done, names = _labelled_criteria(open_run, name), set(work.names)
        labelled = {edit for edit in names if criteria.get(edit) and criteria[edit] <= done.get(edit, set())}
        skipped = open_run.labels.skipped(name) & names - labelled
        if labelled or skipped or name in {who for who, _, _ in open_run.labels.said()}:
            counts[name] = {"labelled": len(labelled), "skipped": len(skipped), "total": len(names)}
    return counts


def _labellable_criteria(open_run: OpenRun) -> dict[str, set[str]]:
    """Return the criteria that can be labelled, by edit."""
    criteria: dict[str, set[str]] = {}
    usable = {
        (criterion, protocol)
        for criterion, protocol in open_run.index.criteria()
        if (rubric := open_run.rubric(protocol, criterion)) and can_be_labelled(rubric.answer)
    }
    for name, criterion, protocol in open_run.index.criteria_of_edits():
        if (criterion, protocol) in usable:
            criteria.setdefault(name, set()).add(criterion)
    return criteria


def _labelled_criteria(open_run: OpenRun, name: str) -> dict[str, set[str]]:
    """Return the criteria an annotator labelled, by edit."""
    criteria: dict[str, set[str]] = {}
    items: dict[str, int] = {}
    for criterion, protocol in open_run.index.criteria():
        rubric = open_run.rubric(protocol, criterion)
        if rubric and isinstance(rubric.answer, ChecksAnswer):
            items[criterion] = len(rubric.answer.checks)
    for who, key, value in open_run.labels.said():
        criterion = str(key.criterion)
        if who == name and (value.label is not None or len(value.checks) >= items.get(criterion, 1)):
            criteria.setdefault(key.edit_id, set()).add(criterion)
    return criteria


def measure_alpha(scores_of_edits: Iterable[Mapping[str, float]]) -> tuple[float | None, str | None, int]:
    """Return Krippendorff's ordinal α of scores by annotator, or the reason why there is none, and the number of edits."""
    shared = [scores for scores in scores_of_edits if len(scores) > 1]
    if not shared:
        return None, "no edit was labelled by two annotators", 0
    columns = {name: column for column, name in enumerate(dict.fromkeys(name for scores in shared for name in scores))}
    ratings = np.full((len(shared), len(columns)), np.nan)
    for row, scores in enumerate(shared):
        for name, score in scores.items():
            ratings[row, columns[name]] = score
    value, why = statistics.alpha(ratings)
    return value, why, len(shared)
