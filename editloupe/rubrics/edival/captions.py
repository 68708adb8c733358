"""What a picture shows before and after an instruction, as two captions."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from editloupe.rubrics.edival.tasks import Task, texts
from editloupe.rubrics.yaml_files import bundled_yaml


class Captions(NamedTuple):
    """Two captions whose difference is the asked edit."""

    before: str
    after: str


@cache
def _forms() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = bundled_yaml(files(__package__) / "captions.yaml")
    return content


def captions(task: Task) -> Captions:
    """Return the captions of a task.

    >>> captions(Task(type="color_alter", object="paper cup", color="blue"))
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
