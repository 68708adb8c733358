"""Labels on their way from the page to the file, and how far each annotator has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from editloupe.evals.labels.files import parse_label
from editloupe.evals.labels.merge import format_score_label
from editloupe.evals.stats.agreement import coefficients as statistics
from editloupe.rubrics.model import ChecksAnswer
from editloupe.servers.studio.label_form import RubricForm, can_be_labelled
from editloupe.servers.studio.labels import Said
from editloupe.servers.studio.library import OpenRun
from editloupe.servers.studio.worklists import Worklist, differing, settled_places
from editloupe.types import Boxes, Record, UserError


class LabelRequest(Record):
    """One keystroke: a label, an answer to a check, a doubt, boxes, a remark, a skip, or an undo."""

    annotator: str = Field(min_length=1, max_length=80)
    work: str = Field(default="", max_length=300)
    edit: str = Field(default="", max_length=1000)
    criterion: str = Field(default="", max_length=200)
    label: str | None = Field(default=None, max_length=200)
    check: str = Field(default="", max_length=200)
    """The item of a check list that `label` answers."""
    unsure: bool | None = None
    """None leaves it as it was."""
    skip: bool | None = None
    comment: str | None = Field(default=None, max_length=4000)
    boxes: Boxes | None = Field(default=None, max_length=50)
    undo: bool = False


def label_edit(
    one: OpenRun,
    name: str,
    given: LabelRequest,
    forms: Iterable[RubricForm],
    adjudicated: bool,
    about: Mapping[str, Any],
) -> None:
    """Write what a keystroke says on a criterion; what `agree` could not read is refused in a sentence."""
    listed = list(forms)
    form = next((form for form in listed if form.rubric.criterion == given.criterion), None)
    if form is None:
        raise UserError("this edit is not judged by that criterion")
    said = one.labels.about(name, given.edit, "adjudicated" if adjudicated else "label")
    before = said.get(given.criterion)
    seen = {} if adjudicated or not all_done(listed, said) else {"judge_seen": True}
    after = _after(form, given, before)
    one.labels.say(name, given.edit, given.criterion, after, adjudicated, **about, **seen)


def _after(form: RubricForm, given: LabelRequest, before: Said | None) -> Said | None:
    """Return what an annotator says after a keystroke."""
    answer = form.rubric.answer
    unsure = (before.unsure if before else False) if given.unsure is None else given.unsure
    if given.check:
        return _checked(form, given, before, unsure)
    if given.label is None and given.unsure is not None:
        if before is None:
            raise UserError("give a label first, then say that you are not sure of it")
        return Said(before.label, unsure, before.checks)
    if given.label is None:
        return None
    if isinstance(answer, ChecksAnswer) or parse_label(answer, given.label) is None or not form.usable:
        raise UserError(f"not a valid label for {form.rubric.title}")
    return Said(given.label, unsure)


def _checked(form: RubricForm, given: LabelRequest, before: Said | None, unsure: bool) -> Said:
    answer = form.rubric.answer
    if not isinstance(answer, ChecksAnswer):
        raise UserError(f"{form.rubric.title} is no check list")
    check = next((check for check in answer.checks if check.key == given.check), None)
    if check is None or given.label is None or given.label not in check.values:
        raise UserError(f"not a valid label for {form.rubric.title}")
    checks = {**(before.checks if before else {}), given.check: given.label}
    total = answer.total(checks) if all(item.key in checks for item in answer.checks) else None
    return Said(None if total is None else f"{total:.12g}", unsure, checks)


def is_done(form: RubricForm, said: Said | None) -> bool:
    """Say whether a criterion was answered; a check list of which nothing applies is, though it has no score."""
    if said is None:
        return False
    return said.label is not None or (bool(form.checks) and all(check.key in said.checks for check in form.checks))


def all_done(forms: Iterable[RubricForm], said: Mapping[str, Said]) -> bool:
    """Say whether everything asked of an edit was answered."""
    asked = [form for form in forms if form.usable]
    return bool(asked) and all(is_done(form, said.get(form.rubric.criterion)) for form in asked)


def given_by(one: OpenRun, edit_name: str) -> dict[str, dict[str, str]]:
    """Return everybody's labels of an edit, by criterion and annotator, by the rule of `agree`."""
    found: dict[str, dict[str, str]] = {}
    for protocol, given in one.index.people().given.items():
        for (name, criterion), scores in given.items():
            if name == edit_name and criterion not in found:
                rubric = one.rubric(protocol, criterion)
                answer = rubric.answer if rubric else None
                found[criterion] = {who: format_score_label(answer, score) for who, score in scores.items()}
    return found


def place_to_begin(one: OpenRun, name: str, work: Worklist) -> str | None:
    """Return the first edit of a worklist that waits for an annotator; None where all was labelled or skipped."""
    skipped = one.labels.skipped(name)
    if work.adjudicates:
        settled, apart = settled_places(one), differing(one)
        return next(
            (
                edit
                for edit in work.names
                if edit not in skipped and any((edit, criterion) not in settled for criterion in apart[edit])
            ),
            None,
        )
    wanted, given = _wanted(one), _labelled(one, name)
    return next(
        (edit for edit in work.names if edit not in skipped and wanted.get(edit, set()) - given.get(edit, set())), None
    )


def progress(one: OpenRun, works: Mapping[str, Worklist]) -> dict[str, dict[str, int]]:
    """Return by annotator how many edits of the own worklist were labelled, how many skipped, and how many there are."""
    wanted = _wanted(one)
    found = {}
    for name, work in works.items():
        given, names = _labelled(one, name), set(work.names)
        labelled = {edit for edit in names if wanted.get(edit) and wanted[edit] <= given.get(edit, set())}
        skipped = one.labels.skipped(name) & names - labelled
        if labelled or skipped or name in {who for who, _, _ in one.labels.said()}:
            found[name] = {"labelled": len(labelled), "skipped": len(skipped), "total": len(names)}
    return found


def _wanted(one: OpenRun) -> dict[str, set[str]]:
    """Return the criteria that can be labelled, by edit."""
    found: dict[str, set[str]] = {}
    usable = {
        (criterion, protocol)
        for criterion, protocol in one.index.criteria()
        if (rubric := one.rubric(protocol, criterion)) and can_be_labelled(rubric.answer)
    }
    for name, criterion, protocol in one.index.criteria_of_edits():
        if (criterion, protocol) in usable:
            found.setdefault(name, set()).add(criterion)
    return found


def _labelled(one: OpenRun, name: str) -> dict[str, set[str]]:
    """Return what an annotator labelled, by edit."""
    found: dict[str, set[str]] = {}
    items: dict[str, int] = {}
    for criterion, protocol in one.index.criteria():
        rubric = one.rubric(protocol, criterion)
        if rubric and isinstance(rubric.answer, ChecksAnswer):
            items[criterion] = len(rubric.answer.checks)
    for who, place, said in one.labels.said():
        criterion = str(place.criterion)
        if who == name and (said.label is not None or len(said.checks) >= items.get(criterion, 1)):
            found.setdefault(place.edit_id, set()).add(criterion)
    return found


def alpha(given: Iterable[Mapping[str, float]]) -> tuple[float | None, str | None, int]:
    """Return Krippendorff's ordinal α of the scores of some edits by annotator, or why there is none; and of how many edits."""
    shared = [scores for scores in given if len(scores) > 1]
    if not shared:
        return None, "no edit was labelled by two annotators", 0
    place = {name: column for column, name in enumerate(dict.fromkeys(name for scores in shared for name in scores))}
    ratings = np.full((len(shared), len(place)), np.nan)
    for row, scores in enumerate(shared):
        for name, score in scores.items():
            ratings[row, place[name]] = score
    value, why = statistics.alpha(ratings)
    return value, why, len(shared)
