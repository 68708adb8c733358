"""Extensions of the reference page: examples as code, and the fields of records as their parameters."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Put every example of a docstring into a code block. Markdown would read `>>>` as quotations."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", obj.docstring.value)


class RecordParameters(griffe.Extension):
    """Give every record, a pydantic model, its fields as parameters. Griffe reads the source and sees no `__init__`."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Add a constructor to every record of a package."""
        _add_constructors(pkg)


def _add_constructors(parent: griffe.Module | griffe.Class) -> None:
    for member in [*parent.modules.values(), *parent.classes.values()]:
        if not member.is_alias:
            _add_constructors(member)
    if not isinstance(parent, griffe.Class):
        return
    family = [*reversed(parent.mro()), parent]
    if "Record" in [own.name for own in family]:
        fields = {name: field for own in family for name, field in own.attributes.items() if field.annotation}
        parameters = (
            griffe.Parameter(
                name, annotation=field.annotation, default=field.value, kind=griffe.ParameterKind.keyword_only
            )
            for name, field in fields.items()
            if "property" not in field.labels
        )
        parent.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters)))
