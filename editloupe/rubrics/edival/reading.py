"""Parsers that turn an edit's manifest entry or instruction into a task.

Only unambiguous forms of instructions are parsed. All others raise MissingInput with a sentence on what to add.
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

_UNCHANGED = re.compile(r", remain the (?P<unchanged>.+) unchanged\.?$")
_VALUE = re.compile(r"\\{(\w+)\\}")
_VARIANTS = {"subject_add": ("subject_add", "subject_add_anywhere"), "text_change": ("text_change", "text_add")}
"""Types with two templates, the longer first."""


class NotPublishedForm(ValueError):
    """An instruction does not match any of the paper's templates."""


def read_published(kind: str, instruction: str, bracketed: str | None = None, known: Sequence[str] = ()) -> Task:
    """Parse an instruction in the paper's published form.

    Args:
        kind: Instruction type.
        instruction: The sentence.
        bracketed: The same sentence with its values in square brackets, if available.
        known: Names of objects, needed to split a list of names that contain commas.

    Raises:
        NotPublishedForm: If the type is unknown or the sentence does not match its templates.

    >>> read_published("color_alter", "Change the color of red cup to blue", "Change the color of [red cup] to [blue]").color
    'blue'
    """
    if kind not in TYPES:
        raise NotPublishedForm(f'"{kind}" is not an instruction type; there are: {", ".join(TYPES)}')
    # Some of the sentences were written by a model, with quotation marks or a full stop around them.
    sentence = (instruction if bracketed is None else bracketed).strip().strip('"').strip().rstrip(".")
    clause = _UNCHANGED.search(instruction.strip().strip('"')) if kind == "background_change" else None
    if clause and bracketed is None:
        sentence = sentence[: sentence.index(", remain the ")]
    for form in _forms(kind, bracketed is not None):
        if match := form.fullmatch(sentence):
            values: dict[str, Any] = {name: value.strip() for name, value in match.groupdict().items()}
            if clause:
                values["unchanged"] = _split_names(clause["unchanged"], known)
            try:
                return Task(type=kind, **values)
            except ValidationError as error:
                raise NotPublishedForm(describe_error(error)) from None
    raise NotPublishedForm(f'"{sentence}" is not an instruction of type {kind} in the published form')


@cache
def _forms(kind: str, bracketed: bool) -> tuple[re.Pattern[str], ...]:
    templates = texts("paper")["instructions"]
    value = r"\\[(?P<\1>.+?)\\]" if bracketed else r"(?P<\1>.+?)"
    names = _VARIANTS.get(kind, (kind,))
    return tuple(re.compile(_VALUE.sub(value, re.escape(templates[name]))) for name in names)


def _split_names(clause: str, known: Sequence[str]) -> tuple[str, ...]:
    """Split a list of names at commas, except within known names that contain a comma."""
    names: list[str] = []
    rest = clause
    longest_first = sorted(known, key=len, reverse=True)
    while rest:
        name = next((name for name in longest_first if rest == name or rest.startswith(f"{name}, ")), None)
        name = rest.partition(", ")[0] if name is None else name
        names.append(name)
        rest = rest[len(name) :].removeprefix(", ")
    return tuple(dict.fromkeys(names))


KNOWN_TYPES: Mapping[str, TaskType] = {
    "change color": "color_alter",
    "change material": "material_alter",
    "change ocr": "text_change",
    "removal object": "subject_remove",
    "replace object": "subject_replace",
    "change count": "count_change",
    **{kind: kind for kind in TYPES},
}
"""Type of EdiVal-Agent by name, including types of DLEBench that correspond to one."""
LONGEST = 500
"""Largest number of characters of an instruction that is parsed, because matching time grows faster than the length."""
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
"""Forms of instructions in other benchmarks, tried in this order after our own templates."""


def find_turn(edit: Edit) -> Turn:
    """Return the turn of an edit from its manifest entry, or else from its instruction.

    Raises:
        MissingInput: If neither states a task that can be parsed.
    """
    entry: Any = edit.extra.get(KEY)
    if isinstance(entry, Mapping) and "tasks" in entry:
        return read_turn(edit)
    if entry is not None:
        return Turn(tasks=(_read_task(edit, entry),))
    return Turn(tasks=(read_instruction(edit),))


def read_instruction(edit: Edit) -> Task:
    """Parse an instruction by the forms of its type, or by all forms if it has no type."""
    own_type = KNOWN_TYPES.get((edit.instruction_type or "").strip().lower())
    if edit.instruction_type and own_type is None:
        raise MissingInput(
            f'edit {edit.id} is of type "{edit.instruction_type}", for which EdiVal-Agent has no check; '
            f"it has: {', '.join(TYPES)}"
        )
    sentence = " ".join(edit.instruction.split()).strip(" .!")
    for kind, form in list_forms() if len(sentence) <= LONGEST else ():
        match = form.fullmatch(sentence) if own_type in (None, kind) else None
        if match and (task := _build_task(kind, match.groupdict())):
            return task
    raise MissingInput(
        f'the instruction of edit {edit.id} cannot be read as {own_type or "one of the nine types"}; add "{KEY}": '
        '{"type": …, "object": …} to its manifest line'
    )


@cache
def list_forms() -> tuple[tuple[TaskType, re.Pattern[str]], ...]:
    """Return all forms as compiled patterns, those of our own templates first."""
    forms = [*_build_own_forms(), *_FORMS]
    return tuple((kind, re.compile(form, re.IGNORECASE)) for kind, form in forms)


def _build_own_forms() -> Iterator[tuple[TaskType, str]]:
    """Yield patterns for the templates of texts.yaml, longer ones first."""
    types = {"text_on_object": "text_change", "text_add": "text_change", "subject_add_anywhere": "subject_add"}
    types["background_change_but"] = "background_change"
    sides = "|".join(map(re.escape, texts()["positions"].values()))
    templates: dict[str, str] = texts()["instructions"]
    for name, template in sorted(templates.items(), key=lambda item: (-len(item[1]), item[0])):
        form = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(template.rstrip(".")))
        kind: Any = types.get(name, name)
        yield kind, form.replace("(?P<position>.+?)", f"(?P<position>{sides})")


def _build_task(kind: TaskType, groups: Mapping[str, str | None]) -> Task | None:
    values: dict[str, Any] = {}
    for name, value in groups.items():
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


def _read_task(edit: Edit, entry: Any) -> Task:
    try:
        return Task.model_validate(entry)
    except ValidationError as error:
        raise MissingInput(f'"{KEY}" of edit {edit.id}: {describe_error(error)}') from None
