"""What a protocol is: a paper's rubrics, the modes they are asked in, and how an edit becomes cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml
from pydantic import ValidationError

from editloupe.images import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import LabelAnswer, Rubric
from editloupe.types import Edit, Mode, UserError


class MissingInput(UserError):
    """The edit lacks something the mode needs; the sentence says what."""


@dataclass(frozen=True)
class Protocol:
    """One paper's protocol."""

    name: str
    title: str
    source: str
    rubrics: tuple[Rubric, ...]
    default_mode: Mode
    make_cases: Callable[[Edit, Rubric, Mode, Album], list[Case]]
    """Turns an edit into the cases of one rubric; raises MissingInput or ImageError with one sentence."""
    types: tuple[str, ...] = ()
    """Instruction types of the benchmark, in the paper's order."""

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes every rubric of the protocol has a text for."""
        return tuple(mode for mode in ("tools", "oracle", "plain") if all(mode in r.modes for r in self.rubrics))

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria, in order."""
        return tuple(rubric.criterion for rubric in self.rubrics)

    def rubric(self, criterion: str) -> Rubric:
        """Return the rubric of a criterion; an unknown one is the user's mistake."""
        for rubric in self.rubrics:
            if rubric.criterion == criterion:
                return rubric
        raise UserError(f'{self.title} has no criterion "{criterion}"; it has: {", ".join(self.criteria)}')

    def select(self, criteria: Sequence[str] | None) -> tuple[Rubric, ...]:
        """Return the rubrics of these criteria, all of them where none is named."""
        return tuple(self.rubric(name) for name in dict.fromkeys(criteria)) if criteria else self.rubrics


def worst_label(rubric: Rubric, labels: Sequence[str]) -> str:
    """Return the worst of several targets' labels: each target is judged on its own (DLEBench, Section 7.3)."""
    if not isinstance(rubric.answer, LabelAnswer):
        raise TypeError(f"{rubric.criterion} has no labels to take the worst of")
    return rubric.answer.worst(list(labels))


def load_rubric(file: Traversable | Path) -> Rubric:
    """Read a rubric from YAML; every mistake in it is told in one sentence."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{file.name} is not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return Rubric.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UserError(f"{file.name}: {where}: {first['msg']}") from None
