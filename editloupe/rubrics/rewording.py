"""Other words for a bundled rubric: its question, steps, notes and meanings may change, its answer may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from editloupe.rubrics.model import Answer, ChecksAnswer, Example, LabelAnswer, NumberAnswer, Rubric
from editloupe.types import Mode, Record, UserError


class Rewording(Record):
    """What a file that rewords a bundled rubric may say; what it leaves out stays as it is."""

    extends: str = Field(pattern=r"^[a-z0-9_-]+/[a-z0-9_]+(/[a-z0-9_]+)?$")
    """Protocol and criterion with a slash between them, then a variant where the criterion has several."""
    title: str | None = None
    question: str | None = None
    steps: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    type_notes: Mapping[str, str] | None = None
    examples: tuple[Example, ...] | None = None
    settings: Mapping[Mode, str] = Field(default_factory=dict)
    """What the judge is told about its pictures, by mode."""
    meanings: Mapping[str, str] = Field(default_factory=dict)
    """Texts by label, by a band's name or by a check's key."""

    @property
    def protocol(self) -> str:
        """The protocol whose rubric is reworded."""
        return self.extends.split("/")[0]

    def place(self, rubrics: Sequence[Rubric], file: str) -> int:
        """Return which of the protocol's rubrics is meant; where that is unclear the user is told the choices."""
        wanted = self.extends.split("/", 1)[1]
        found = [i for i, rubric in enumerate(rubrics) if wanted in (rubric.name, rubric.criterion)]
        if len(found) == 1:
            return found[0]
        among = [rubrics[i].name for i in found] or [rubric.name for rubric in rubrics]
        choices = ", ".join(f"{self.protocol}/{name}" for name in among)
        raise UserError(f'{file}: "{self.extends}" is not one rubric; there are: {choices}')


def reworded(rubric: Rubric, rewording: Rewording) -> Rubric:
    """Return the rubric in other words; raises ValueError where they do not fit it."""
    plain: dict[str, Any] = rewording.model_dump(
        exclude={"extends", "settings", "meanings", "examples"}, exclude_none=True
    )
    if rewording.examples is not None:
        plain["examples"] = rewording.examples
    for mode in rewording.settings:
        if mode not in rubric.modes:
            raise ValueError(f"settings: {rubric.name} has no {mode} mode")
    modes = {
        mode: text.model_copy(update={"setting": rewording.settings[mode]}) if mode in rewording.settings else text
        for mode, text in rubric.modes.items()
    }
    return rubric.model_copy(update={**plain, "modes": modes, "answer": _answer(rubric.answer, rewording.meanings)})


def _answer(answer: Answer, meanings: Mapping[str, str]) -> Answer:
    if not meanings:
        return answer
    if isinstance(answer, LabelAnswer):
        _known(meanings, [label.name for label in answer.labels])
        labels = tuple(x.model_copy(update={"meaning": meanings.get(x.name, x.meaning)}) for x in answer.labels)
        return answer.model_copy(update={"labels": labels})
    if isinstance(answer, NumberAnswer):
        _known(meanings, [band.name for band in answer.bands])
        bands = tuple(x.model_copy(update={"meaning": meanings.get(x.name, x.meaning)}) for x in answer.bands)
        return answer.model_copy(update={"bands": bands})
    if isinstance(answer, ChecksAnswer):
        _known(meanings, [check.key for check in answer.checks])
        checks = tuple(x.model_copy(update={"question": meanings.get(x.key, x.question)}) for x in answer.checks)
        return answer.model_copy(update={"checks": checks})
    raise ValueError("meanings: this rubric's answer has nothing to explain")


def _known(meanings: Mapping[str, str], names: Sequence[str]) -> None:
    for name in meanings:
        if name not in names:
            raise ValueError(f'meanings: there is no "{name}"; there are: {", ".join(names)}')
