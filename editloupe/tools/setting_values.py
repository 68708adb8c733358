"""Settings of the tools as people write them, on a command line or in YAML, read into the values they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from editloupe._util.errors import first_error
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError

OBJECTS = ("extra_tools",)
"""Settings that only a program can give."""
NOTHING, EVERYTHING = "none", "all"


def setting_names() -> tuple[str, ...]:
    """Return the names of all settings that can be written down."""
    return tuple(field.name for field in fields(ToolSettings) if field.name not in OBJECTS)


def read_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name as the values they stand for; an unknown name or a wrong value is the user's mistake.

    >>> read_settings({"tile_levels": "2,3", "network_share": "1", "offered": []})
    {'tile_levels': (2, 3), 'network_share': 1.0, 'offered': ()}
    """
    found = {name: _read(name, value) for name, value in written.items()}
    ToolSettings(**found)  # says what is wrong with a value that has the right form
    return found


def read_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read settings written as KEY=VALUE; the last word on a setting counts.

    >>> read_assignments(["max_regions=3", "tile_levels=none"])
    {'max_regions': 3, 'tile_levels': ()}
    """
    found = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise UserError(f'"{text}" is not KEY=VALUE; write for instance --tool-set max_regions=3')
        found[name] = value
    return read_settings(found)


def read_tool_names(text: str) -> tuple[str, ...] | None:
    """Read the names of tools, with commas between them; `none` names none, and `all`, which is None, whatever can run.

    >>> read_tool_names("zoom_in_image, localize_differences"), read_tool_names("none"), read_tool_names("all")
    (('zoom_in_image', 'localize_differences'), (), None)
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UserError("--tools names tools with commas between them, or none, or all")
    if names == (EVERYTHING,):
        return None
    return () if names == (NOTHING,) else names


def _read(name: str, value: Any) -> Any:
    if name not in setting_names():
        raise UserError(f'"{name}" is no setting of the tools; there are: {", ".join(setting_names())}')
    hint = _hints()[name]
    if get_origin(hint) is Literal:
        return str(value)  # the settings themselves name the choices
    several = any(get_origin(one) is tuple for one in (hint, *get_args(hint)))
    if several and isinstance(value, str):
        value = () if value in ("", NOTHING) else tuple(part.strip() for part in value.split(","))
    elif isinstance(value, str) and value == NOTHING and type(None) in get_args(hint):
        value = None
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        why = first_error(error).message
        raise UserError(f"the setting {name} of the tools cannot be {value!r}: {why}") from None


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(ToolSettings, localns={"Tool": object})


__all__ = ["read_assignments", "read_settings", "read_tool_names", "setting_names"]
