"""Instructions in the paper's form read back into tasks, as a released file of chains writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.tasks import TYPES, Task, texts

_KEPT = re.compile(r", remain the (?P<unchanged>.+) unchanged\.?$")
_VALUE = re.compile(r"\\{(\w+)\\}")
_VARIANTS = {"subject_add": ("subject_add", "subject_add_anywhere"), "text_change": ("text_change", "text_add")}
"""Types that have two templates, the longer first."""


class NotPublishedForm(ValueError):
    """An instruction that none of the paper's templates fits; the sentence says which."""


def read_published(kind: str, instruction: str, bracketed: str | None = None, known: Sequence[str] = ()) -> Task:
    """Return what an instruction asks for; `bracketed` is the same sentence with its values in square brackets.

    `known` are names of objects, by which the clause of a change of background is told apart. Raises NotPublishedForm.

    >>> read_published("color_alter", "Change the color of red cup to blue", "Change the color of [red cup] to [blue]").color
    'blue'
    """
    if kind not in TYPES:
        raise NotPublishedForm(f'"{kind}" is no instruction type; there are: {", ".join(TYPES)}')
    # A model wrote some of the sentences, and put quotation marks or a full stop around them.
    sentence = (instruction if bracketed is None else bracketed).strip().strip('"').strip().rstrip(".")
    kept = _KEPT.search(instruction.strip().strip('"')) if kind == "background_change" else None
    if kept and bracketed is None:
        sentence = sentence[: sentence.index(", remain the ")]
    for form in _forms(kind, bracketed is not None):
        if found := form.fullmatch(sentence):
            values: dict[str, Any] = {name: value.strip() for name, value in found.groupdict().items()}
            if kept:
                values["unchanged"] = _names(kept["unchanged"], known)
            try:
                return Task(type=kind, **values)
            except ValidationError as error:
                raise NotPublishedForm(describe_error(error)) from None
    raise NotPublishedForm(f'"{sentence}" is no instruction of type {kind} in the published form')


@cache
def _forms(kind: str, bracketed: bool) -> tuple[re.Pattern[str], ...]:
    templates = texts("paper")["instructions"]
    value = r"\\[(?P<\1>.+?)\\]" if bracketed else r"(?P<\1>.+?)"
    names = _VARIANTS.get(kind, (kind,))
    return tuple(re.compile(_VALUE.sub(value, re.escape(templates[name]))) for name in names)


def _names(clause: str, known: Sequence[str]) -> tuple[str, ...]:
    """Split a list of names; one that holds a comma itself is found where it is known."""
    found: list[str] = []
    rest = clause
    for_certain = sorted(known, key=len, reverse=True)
    while rest:
        name = next((one for one in for_certain if rest == one or rest.startswith(f"{one}, ")), None)
        name = rest.partition(", ")[0] if name is None else name
        found.append(name)
        rest = rest[len(name) :].removeprefix(", ")
    return tuple(dict.fromkeys(found))
