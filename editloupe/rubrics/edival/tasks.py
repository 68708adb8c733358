"""The record of a task with its nine types, and the texts of its instruction and captions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args

from pydantic import model_validator

from editloupe.rubrics.rubric_files import load_bundled_yaml
from editloupe.types import Record


class Captions(NamedTuple):
    """Two captions whose difference is the requested edit."""

    before: str
    after: str


@cache
def _forms() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = load_bundled_yaml(files(__package__) / "captions.yaml")
    return content


def build_captions(task: Task) -> Captions:
    """Return the captions of a task.

    >>> build_captions(Task(type="color_alter", object="paper cup", color="blue"))
    Captions(before='a photo of paper cup', after='a photo of paper cup in blue')
    """
    name: str = task.type
    if task.type == "subject_add" and task.reference:
        name = "subject_add_placed"
    elif task.type == "text_change" and task.object:
        name = "text_change_from" if task.old_text else "text_change_on"
    values: dict[str, Any] = task.model_dump(exclude_none=True)
    if task.position:
        values["position"] = texts()["positions"][task.position]
    form = _forms()[name]
    return Captions(form["before"].format(**values), form["after"].format(**values))


TaskType = Literal[
    "subject_add",
    "subject_remove",
    "subject_replace",
    "color_alter",
    "material_alter",
    "text_change",
    "position_change",
    "count_change",
    "background_change",
]
TYPES: tuple[TaskType, ...] = get_args(TaskType)
"""In the order of Table 2."""
DETECTOR_TYPES: frozenset[TaskType] = frozenset(
    ("subject_add", "subject_remove", "subject_replace", "position_change", "count_change")
)
"""Types that boxes decide (T_sym of Section 2.4). The others need an LMM."""
Position = Literal["left", "right", "above", "below"]
POSITIONS: tuple[Position, ...] = get_args(Position)
Form = Literal["ours", "paper"]
FORMS: tuple[Form, ...] = get_args(Form)
"""Wording of instructions: EditLoupe's own, or the paper's templates."""
CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Pattern of a character in a script without spaces between words."""
_FILES: dict[Form, str] = {"ours": "texts.yaml", "paper": "paper_texts.yaml"}

_NEEDED: dict[TaskType, tuple[str, ...]] = {
    "subject_add": ("new_object",),
    "subject_remove": ("object",),
    "subject_replace": ("object", "new_object"),
    "color_alter": ("object", "color"),
    "material_alter": ("object", "material"),
    "text_change": ("text",),
    "position_change": ("object", "reference", "position"),
    "count_change": ("object", "count"),
    "background_change": ("background",),
}
_ALLOWED: dict[TaskType, tuple[str, ...]] = {
    "subject_add": ("reference", "position"),
    "text_change": ("object", "old_text"),
    "background_change": ("unchanged",),
}


class Task(Record):
    """One instruction as structured data. Only the fields of its type are set."""

    type: TaskType
    object: str | None = None
    """Name of the edited object before the edit."""
    new_object: str | None = None
    reference: str | None = None
    """Object that the position refers to."""
    position: Position | None = None
    color: str | None = None
    material: str | None = None
    text: str | None = None
    old_text: str | None = None
    count: int | None = None
    background: str | None = None
    unchanged: tuple[str, ...] = ()
    """Foreground objects that a change of background must not change."""

    @model_validator(mode="after")
    def _check_fields(self) -> Task:
        needed = _NEEDED[self.type]
        for name in needed:
            if getattr(self, name) in (None, ""):
                raise ValueError(f'{self.type} needs "{name}"')
        for name in Task.model_fields:
            allowed = name in ("type", *needed, *_ALLOWED.get(self.type, ()))
            if not allowed and getattr(self, name) not in (None, ()):
                raise ValueError(f'{self.type} has no "{name}"')
        if (self.reference is None) != (self.position is None):
            raise ValueError("a position needs a reference object, and a reference object a position")
        if self.reference is not None and self.reference == self.object:
            raise ValueError(f'"{self.object}" cannot be placed by itself')
        if self.count is not None and self.count < 1:
            raise ValueError("a count is at least 1")
        return self

    @property
    def by_detector(self) -> bool:
        """Whether boxes alone decide the task."""
        return self.type in DETECTOR_TYPES


@cache
def texts(form: Form = "ours") -> dict[str, Any]:
    """Return the texts of instructions and connectors. Ours include the lists from which proposals are drawn."""
    content: dict[str, Any] = load_bundled_yaml(files(__package__) / _FILES[form])
    return content


@cache
def prompts() -> dict[str, Any]:
    """Return the prompts that ask a model for the objects of a picture and for proposals."""
    content: dict[str, Any] = load_bundled_yaml(files(__package__) / "prompts.yaml")
    return content


def wording(task: Task, form: Form = "ours") -> str:
    """Return the instruction of a task for an editing model, in our wording or the paper's.

    >>> wording(Task(type="count_change", object="paper cup", count=5))
    'Show exactly 5 of the paper cup, no more and no fewer.'
    >>> wording(Task(type="count_change", object="paper cup", count=5), "paper")
    'Change the count of paper cup to 5'
    """
    forms = texts(form)["instructions"]
    name: str = task.type
    if task.type == "subject_add" and task.reference is None:
        name = "subject_add_anywhere"
    if task.type == "text_change" and task.object is None:
        name = "text_add"
    elif task.type == "text_change" and task.old_text is None:
        name = "text_on_object"
    if task.type == "background_change" and task.unchanged:
        name = "background_change_but"
    values = task.model_dump(exclude_none=True)
    if form == "ours":
        values["unchanged"] = join_names(task.unchanged)
        values["new_object"] = add_article(task.new_object) if task.new_object else ""
    else:
        values["unchanged"] = ", ".join(task.unchanged)
    if task.position:
        values["position"] = texts(form)["positions"][task.position]
    if name not in forms:
        raise ValueError(f"the paper has no instruction of the form {name}")
    sentence: str = forms[name]
    return sentence.format(**values)


def add_article(noun: str) -> str:
    """Return a noun with "a" or "an", by its first letter.

    >>> add_article("umbrella"), add_article("wooden fence")
    ('an umbrella', 'a wooden fence')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def join_names(names: Sequence[str]) -> str:
    """Join names with "the", commas and "and".

    >>> join_names(["cup", "book", "lamp"])
    'the cup, the book and the lamp'
    """
    with_the = [f"the {name}" for name in names]
    return " and ".join(filter(None, (", ".join(with_the[:-1]), with_the[-1]))) if with_the else ""
