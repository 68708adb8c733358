"""What an ordinary edit asks for, as a task: given in its manifest line, or read off its instruction by known forms.

Only forms that leave no doubt are read; everything else is MissingInput with a sentence that says what to add.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.pools import KEY, Turn, read_turn
from editloupe.rubrics.edival.tasks import TYPES, Task, TaskType, texts
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit

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


KNOWN_TYPES: Mapping[str, TaskType] = {
    "change color": "color_alter",
    "change material": "material_alter",
    "change ocr": "text_change",
    "removal object": "subject_remove",
    "replace object": "subject_replace",
    "change count": "count_change",
    **{kind: kind for kind in TYPES},
}
"""Instruction types of DLEBench that are types of EdiVal-Agent too, and the latter's own."""
LONGEST = 500
"""Characters of an instruction that is read by forms, whose work grows faster than the sentence; one task takes far fewer."""
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SIDE = r"(?:(?:to|on|at) the )?(?P<position>left|right|above|below)(?: side)?(?: of)?"
_QUOTED = r"[\"'“‘](?P<{0}>[^\"'“”‘’]+)[\"'”’]"
_FORMS: tuple[tuple[TaskType, str], ...] = (
    ("color_alter", r"change the colou?r of (?P<object>.+?)(?: from [\w ]+?)? to (?P<color>[\w ]+)"),
    ("material_alter", r"change the material of (?P<object>.+?)(?: from [\w ]+?)? to (?P<material>[\w ]+)"),
    (
        "text_change",
        rf"(?:replace|change) the (?:text|word|words|writing) {_QUOTED.format('old_text')} on (?P<object>.+?) "
        rf"(?:with|to|into) {_QUOTED.format('text')}",
    ),
    (
        "text_change",
        rf"(?:replace|change) the (?:text|word|words|writing) on (?P<object>.+?)(?: from {_QUOTED.format('old_text')})? "
        rf"(?:with|to|into) {_QUOTED.format('text')}",
    ),
    ("count_change", r"change the (?:count|number) of (?P<object>.+?)(?: from \w+)? to (?P<count>\w+)"),
    ("position_change", rf"(?:change the position of|move) (?P<object>.+?) (?:to )?{_SIDE} (?P<reference>.+?)"),
    ("background_change", r"change the background to (?P<background>[\w ]+?)(?:, .*)?"),
    ("subject_replace", r"replace (?!the text|the word|the writing)(?P<object>.+?) (?:with|by) (?P<new_object>.+?)"),
    ("subject_remove", r"(?:remove|delete|erase) (?P<object>.+?)(?: from the (?:image|picture|photo|scene))?"),
    (
        "text_change",
        rf"add (?:the )?(?:text|word|words) {_QUOTED.format('text')} (?:on|to) the (?:image|picture|photo)",
    ),
    ("subject_add", rf"add (?P<new_object>.+?) {_SIDE} (?P<reference>.+?)"),
    ("subject_add", r"add (?P<new_object>[\w -]+?)(?: (?:to|in|into) the (?:image|picture|photo|scene))?"),
)
"""How other benchmarks word their instructions; tried in this order, after our own wording."""


def find_turn(edit: Edit) -> Turn:
    """Return what an edit asks for; raises MissingInput where neither its manifest line nor its instruction says it."""
    given: Any = edit.extra.get(KEY)
    if isinstance(given, Mapping) and "tasks" in given:
        return read_turn(edit)
    if given is not None:
        return Turn(tasks=(_read_given_task(edit, given),))
    return Turn(tasks=(read_instruction(edit),))


def read_instruction(edit: Edit) -> Task:
    """Read an instruction by the forms of its type, or by all forms where it has no type."""
    wanted = KNOWN_TYPES.get((edit.instruction_type or "").strip().lower())
    if edit.instruction_type and wanted is None:
        raise MissingInput(
            f'edit {edit.id} is of type "{edit.instruction_type}", for which EdiVal-Agent has no check; '
            f"it has: {', '.join(TYPES)}"
        )
    sentence = " ".join(edit.instruction.split()).strip(" .!")
    for kind, form in list_forms() if len(sentence) <= LONGEST else ():
        match = form.fullmatch(sentence) if wanted in (None, kind) else None
        if match and (task := _task(kind, match.groupdict())):
            return task
    raise MissingInput(
        f'the instruction of edit {edit.id} cannot be read as {wanted or "one of the nine types"}; add "{KEY}": '
        '{"type": …, "object": …} to its manifest line'
    )


@cache
def list_forms() -> tuple[tuple[TaskType, re.Pattern[str]], ...]:
    """Return all forms: our own wording first."""
    found = [*_build_own_forms(), *_FORMS]
    return tuple((kind, re.compile(form, re.IGNORECASE)) for kind, form in found)


def _build_own_forms() -> Iterator[tuple[TaskType, str]]:
    """Turn the templates of texts.yaml round; the longer forms of a type come first."""
    types = {"text_on_object": "text_change", "text_add": "text_change", "subject_add_anywhere": "subject_add"}
    types["background_change_but"] = "background_change"
    sides = "|".join(map(re.escape, texts()["positions"].values()))
    templates: dict[str, str] = texts()["instructions"]
    for name, template in sorted(templates.items(), key=lambda item: (-len(item[1]), item[0])):
        form = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(template.rstrip(".")))
        kind: Any = types.get(name, name)
        yield kind, form.replace("(?P<position>.+?)", f"(?P<position>{sides})")


def _task(kind: TaskType, found: Mapping[str, str | None]) -> Task | None:
    values: dict[str, Any] = {}
    for name, value in found.items():
        if value is None or name == "unchanged":
            continue
        plain = value.strip(" .\"'")
        if name in ("object", "new_object", "reference", "background"):
            plain = re.sub(r"^(?:the|an?) ", "", plain, flags=re.IGNORECASE)
        values[name] = plain
    if "position" in values:
        by_words = {words: side for side, words in texts()["positions"].items()}
        values["position"] = by_words.get(values["position"].lower(), values["position"].lower())
    if "count" in values:
        word = values["count"].lower()
        values["count"] = NUMBERS.index(word) + 1 if word in NUMBERS else word
    try:
        return Task(type=kind, **values)
    except ValidationError:
        return None


def _read_given_task(edit: Edit, given: Any) -> Task:
    try:
        return Task.model_validate(given)
    except ValidationError as error:
        raise MissingInput(f'"{KEY}" of edit {edit.id}: {describe_error(error)}') from None
