"""What an annotator is shown of an edit: every picture the judge was given, and each rubric as a form with its notes."""

from __future__ import annotations

from dataclasses import dataclass

from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.rubrics.model import Answer, Band, ChecksAnswer, NumberAnswer, Rubric
from editloupe.rubrics.registry import protocols
from editloupe.servers.studio.answer_choices import Choice, choices, rubric_for
from editloupe.servers.studio.library import OpenRun
from editloupe.types import Edit, UserError

SHOWN_LARGE = ("source", "edited")


@dataclass(frozen=True)
class CheckForm:
    """One item of a check list as a question of its own."""

    key: str
    question: str
    choices: tuple[Choice, ...]
    gate: str
    """When its answer counts, in words; empty where it always does."""


@dataclass(frozen=True)
class RubricForm:
    """One criterion as an annotator answers it."""

    rubric: Rubric
    protocol: str
    choices: tuple[Choice, ...]
    checks: tuple[CheckForm, ...]
    scale: NumberAnswer | None
    """A scale too long for keys: the number is typed."""

    @property
    def usable(self) -> bool:
        """False for rubrics that take a text."""
        return bool(self.choices or self.checks or self.scale)

    @property
    def bands(self) -> tuple[Band, ...]:
        """What it takes to be where on a scale, the best first."""
        return self.rubric.answer.bands if isinstance(self.rubric.answer, NumberAnswer) else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the rubric adds to its steps."""
        return self.rubric.notes


def rubric_form(rubric: Rubric, protocol: str) -> RubricForm:
    """Return a rubric's form."""
    answer = rubric.answer
    given = choices(answer)
    long_scale = answer if isinstance(answer, NumberAnswer) and not given else None
    return RubricForm(rubric, protocol, given, _checks(answer), long_scale)


def can_be_labelled(answer: Answer) -> bool:
    """Say whether people can answer a rubric on the page: all but those that take a text."""
    return bool(choices(answer)) or isinstance(answer, (ChecksAnswer, NumberAnswer))


def _checks(answer: Answer) -> tuple[CheckForm, ...]:
    if not isinstance(answer, ChecksAnswer):
        return ()
    questions = {check.key: check.question for check in answer.checks}
    found = []
    for check in answer.checks:
        values = [value for value in check.values.values() if value is not None]
        low, high = min(values, default=0.0), max(values, default=1.0)
        span = high - low or 1.0
        keys = dict(zip(check.values, "1234567890", strict=False))
        yes_no = set(check.values) == {"0", "1"}
        found.append(
            CheckForm(
                check.key,
                check.question,
                tuple(
                    Choice(
                        keys.get(name, ""),
                        name,
                        "" if not yes_no else ("no", "yes")[name == "1"],
                        50.0 if value is None else (value - low) / span * 100,
                    )
                    for name, value in check.values.items()
                ),
                "; ".join(f"“{questions[other]}” is {wanted}" for other, wanted in check.only_if.items()),
            )
        )
    return tuple(found)


def rubric_forms(one: OpenRun, edit: Edit, name: str) -> list[RubricForm]:
    """Return what is asked of an edit, in the protocols' order."""
    found: dict[str, RubricForm] = {}
    for unit in one.units(name):
        rubric = rubric_for(unit.protocol, unit.criterion, edit) or one.rubric(unit.protocol, unit.criterion)
        if rubric is not None and unit.criterion not in found:
            found[unit.criterion] = rubric_form(rubric, unit.protocol)
    order = [rubric.criterion for known in protocols() for rubric in known.rubrics]
    place = {criterion: number for number, criterion in reversed([*enumerate(order)])}
    return sorted(found.values(), key=lambda form: place.get(form.rubric.criterion, len(order)))


def further_pictures(one: OpenRun, kept: StoredEdit) -> list[tuple[str, str]]:
    """Return caption and hash of every further picture the judge was given: references, marks, and what was made of them.

    Only what was sent before the judge's first word is among them: what its tools returned would tell what it thought.
    """
    large = {hashes[0] for role, hashes in kept.pictures.items() if role in SHOWN_LARGE and hashes}
    found: dict[str, str] = {}
    for role, hashes in kept.pictures.items():
        for number, sha in enumerate(hashes):
            if role not in SHOWN_LARGE or number:
                title = role.replace("_", " ").capitalize()
                found.setdefault(sha, f"{title} {number + 1}" if len(hashes) > 1 else title)
    for unit in one.units(kept.name):
        try:
            traces = one.traces(unit)
        except UserError:  # the trace's own page says what is wrong with it
            continue
        for trace in traces:
            for sent in trace.steps[0].sent if trace.steps else ():
                if sent.sha not in large:
                    found.setdefault(sent.sha, sent.name)
    return [(caption, sha) for sha, caption in found.items() if sha in one.run.pictures]
