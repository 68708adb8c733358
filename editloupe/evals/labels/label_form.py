"""Build the form of an annotator from the rubrics that the judge was asked, and identify the wording it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from editloupe._util.hashing import content_key
from editloupe.evals.runs.configurations import list_recorded_rubrics
from editloupe.evals.runs.unit_rows import Unit
from editloupe.rubrics.model import Answer, Band, ChecksAnswer, LabelAnswer, NumberAnswer, Rubric, YesNoAnswer
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import find_protocol, protocols
from editloupe.rubrics.rewording import list_words
from editloupe.types import Edit

FindRecorded = Callable[[str, str | None], Rubric | None]
"""Returns a criterion's rubric as a run recorded it: that of a variant, or the first one."""


@dataclass(frozen=True)
class CheckForm:
    """One item of a check list as a question."""

    key: str
    question: str
    choices: tuple[AnswerChoice, ...]
    gate: str
    """The condition under which the answer counts; empty if it always does."""


@dataclass(frozen=True)
class RubricForm:
    """One criterion as an annotator answers it."""

    rubric: Rubric
    protocol: str
    choices: tuple[AnswerChoice, ...]
    checks: tuple[CheckForm, ...]
    scale: NumberAnswer | None
    """A scale that is too long for keys; the number is typed."""

    @property
    def usable(self) -> bool:
        """False for rubrics that ask for a text."""
        return bool(self.choices or self.checks or self.scale)

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands of a scale, the best first."""
        return self.rubric.answer.bands if isinstance(self.rubric.answer, NumberAnswer) else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The rubric's notes."""
        return self.rubric.notes


def build_form(rubric: Rubric, protocol: str) -> RubricForm:
    """Return a rubric's form."""
    answer = rubric.answer
    choices = list_choices(answer)
    long_scale = answer if isinstance(answer, NumberAnswer) and not choices else None
    return RubricForm(rubric, protocol, choices, _checks(answer), long_scale)


def can_be_labelled(answer: Answer) -> bool:
    """True if people can answer a rubric on the page: all but those that ask for a text."""
    return bool(list_choices(answer)) or isinstance(answer, (ChecksAnswer, NumberAnswer))


def _checks(answer: Answer) -> tuple[CheckForm, ...]:
    if not isinstance(answer, ChecksAnswer):
        return ()
    questions = {check.key: check.question for check in answer.checks}
    forms = []
    for check in answer.checks:
        values = [value for value in check.values.values() if value is not None]
        low, high = min(values, default=0.0), max(values, default=1.0)
        span = high - low or 1.0
        keys = dict(zip(check.values, "1234567890", strict=False))
        yes_no = set(check.values) == {"0", "1"}
        forms.append(
            CheckForm(
                check.key,
                check.question,
                tuple(
                    AnswerChoice(
                        keys.get(name, ""),
                        name,
                        "" if not yes_no else ("no", "yes")[name == "1"],
                        50.0 if value is None else (value - low) / span * 100,
                    )
                    for name, value in check.values.items()
                ),
                "; ".join(f"“{questions[other]}” is {choice}" for other, choice in check.only_if.items()),
            )
        )
    return tuple(forms)


def list_recorded_wordings(about: Mapping[str, Any]) -> dict[str, list[Rubric]]:
    """Return the rubrics that a run recorded, by criterion."""
    wordings: dict[str, list[Rubric]] = {}
    for record in list_recorded_rubrics(about):
        if (rubric := parse_rubric(record)) is not None:
            wordings.setdefault(rubric.criterion, []).append(rubric)
    return wordings


def build_forms(units: Iterable[Unit], edit: Edit, recorded: FindRecorded) -> list[RubricForm]:
    """Return the forms of an edit, in the order of the protocols.

    Args:
        units: What the judge was asked about the edit.
        edit: The edit.
        recorded: Finds a rubric in the wording that the run recorded.
    """
    forms: dict[str, RubricForm] = {}
    for unit in units:
        current = find_rubric_for(unit.protocol, unit.criterion, edit)
        rubric = choose_wording(current, recorded(unit.criterion, current.variant if current else None))
        if rubric is not None and unit.criterion not in forms:
            forms[unit.criterion] = build_form(rubric, unit.protocol)
    order = [rubric.criterion for each in protocols() for rubric in each.rubrics]
    position = {criterion: number for number, criterion in reversed([*enumerate(order)])}
    return sorted(forms.values(), key=lambda form: position.get(form.rubric.criterion, len(order)))


def choose_wording(current: Rubric | None, recorded: Rubric | None) -> Rubric | None:
    """Return the wording that people are shown: the one the judge had, as the run recorded it.

    Args:
        current: The rubric of this version in the wording for an edit.
        recorded: The rubric that the run recorded. It is not used if it is that of another protocol or another variant.
    """
    if recorded is None or current is None:
        return current or recorded
    same = (recorded.protocol, recorded.criterion, recorded.variant) == (
        current.protocol,
        current.criterion,
        current.variant,
    )
    return recorded if same else current


@dataclass(frozen=True)
class AnswerChoice:
    """An answer a person can choose, with its key on the keyboard."""

    key: str
    value: str
    meaning: str
    place: float
    """0 to 100."""
    when: tuple[str, ...] = ()


def find_rubric(protocol: str, criterion: str) -> Rubric | None:
    """Return a criterion's rubric in its first wording, None if this version does not have it."""
    found_protocol = find_protocol(protocol)
    rubrics = found_protocol.rubrics if found_protocol else ()
    return next((rubric for rubric in rubrics if rubric.criterion == criterion), None)


def find_rubric_for(protocol: str, criterion: str, edit: Edit) -> Rubric | None:
    """Return a criterion's rubric in the wording for an edit, None if this version does not have it."""
    found_protocol = find_protocol(protocol)
    if found_protocol is None or criterion not in found_protocol.criteria:
        return None
    try:
        return found_protocol.choose(edit, found_protocol.variants(criterion)) or found_protocol.rubric(criterion)
    except MissingInput:
        return found_protocol.rubric(criterion)


def list_choices(answer: Answer) -> tuple[AnswerChoice, ...]:
    """Return the answers a person can choose, worst first; none for rubrics without a single label."""
    if isinstance(answer, LabelAnswer):
        ordered = sorted(answer.labels, key=lambda label: label.score)
        return tuple(
            AnswerChoice(str(number), label.name, label.meaning.strip(), answer.score_100(label.name), label.when)
            for number, label in enumerate(ordered, start=1)
        )
    if isinstance(answer, NumberAnswer) and answer.high - answer.low <= 9:
        values = range(answer.low, answer.high + 1)
        return tuple(
            AnswerChoice(str(value % 10), str(value), format_band(answer, value), answer.score_100(value))
            for value in values
        )
    if isinstance(answer, YesNoAnswer):
        return (AnswerChoice("1", "no", "", 0.0), AnswerChoice("2", "yes", "", 100.0))
    return ()


def format_band(answer: NumberAnswer, value: int) -> str:
    """Return the meaning of a value on a scale, from its band; empty if it has none."""
    band = next((band for band in answer.bands if band.low <= value <= band.high), None)
    return ": ".join(filter(None, (band.name, band.meaning.strip()))) if band else ""


WORDING = "rubric"
"""Column of a label file with the key of the wording that the annotator was shown."""
_SHOWN = ("question", "steps", "notes", "type_notes", "meanings", "findings")


def build_wording_key(rubric: Rubric) -> str:
    """Return a short hash of the texts that annotators are shown."""
    words = list_words(rubric)
    return content_key({name: words.get(name) for name in _SHOWN})[:12]


def parse_rubric(record: Mapping[str, Any]) -> Rubric | None:
    """Parse a rubric as a run recorded it, without the additions of modes; None if it is not valid."""
    fields = {name: value for name, value in record.items() if name in Rubric.model_fields}
    try:
        return Rubric.model_validate({**fields, "modes": {}})
    except ValidationError:
        return None


def find_wording_keys(about: Mapping[str, Any], protocol: str, configuration: str = "") -> dict[str, set[str]]:
    """Return the keys of the wordings that a configuration asked, by criterion.

    Args:
        about: The contents of run.json.
        protocol: The protocol.
        configuration: Name of the configuration; empty for all of the protocol.

    Returns:
        The keys of the recorded rubrics. For criteria that the run did not record, those of this version.
    """
    keys: dict[str, set[str]] = {}
    for record in list_recorded_rubrics(about, protocol, configuration or None):
        if (rubric := parse_rubric(record)) is not None:
            keys.setdefault(rubric.criterion, set()).add(build_wording_key(rubric))
    current = find_protocol(protocol)
    for criterion in current.criteria if current else ():
        if criterion not in keys:
            own = [rubric for rubric in current.rubrics if rubric.criterion == criterion] if current else []
            keys[criterion] = {build_wording_key(rubric) for rubric in own}
    return keys
