"""Check the parameters of a tool call and explain every mistake to the model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from editloupe._util.text import quote_line
from editloupe.tools.contract import SYNONYMS, Frame, ToolError
from editloupe.tools.geometry import round_outwards
from editloupe.types import Box

KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def check_parameters(tool: str, parameters: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call converted to the types of the tool's schema.

    Raises:
        ToolError: If a parameter is missing, unknown or of the wrong type.
    """
    if not isinstance(parameters, Mapping):
        raise ToolError(f"The parameters of {tool} are an object, not {_format_value(parameters)}.")
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    listed = ", ".join(properties) or "none"
    unknown = [name for name in parameters if name not in properties]
    if unknown:
        raise ToolError(f"{tool} has no parameter {_join_names(unknown)}; its parameters are {listed}.")
    missing = [name for name in schema.get("required", ()) if parameters.get(name) is None]
    if missing:
        raise ToolError(f"{tool} needs {_join_names(missing)}; its parameters are {listed}.")
    values = {name: value for name, value in parameters.items() if value is not None}
    return {name: _check_value(tool, name, value, properties[name]) for name, value in values.items()}


def read_box(value: Any, name: str, frame: Frame) -> Box:
    """Convert a box from the model's numbers to pixels of the original, cut at the borders of the picture.

    Args:
        value: Four numbers [x1, y1, x2, y2], as the model wrote them.
        name: The name of the picture, for the error message.
        frame: The coordinate system of the picture.

    Raises:
        ToolError: If the value is not a box, has no area, or is outside the picture.

    >>> read_box([10, 10, 20, 2000], "Source Image", Frame(size=(400, 200), sent=(100, 50)))
    Box(x1=40, y1=40, x2=80, y2=200)
    """
    right, bottom = frame.limits
    allowed = f"in {name} x goes from 0 to {right} and y from 0 to {bottom}"
    if not isinstance(value, (list, tuple)) or len(value) != 4 or not all(_is_number(v) for v in value):
        raise ToolError(f"A box is four numbers [x1, y1, x2, y2], not {_format_value(value)}; {allowed}.")
    x1, y1, x2, y2 = (float(v) for v in value)
    if x2 <= x1 or y2 <= y1:
        raise ToolError(
            f"The box {_format_value(value)} has no area: x2 must be greater than x1 and y2 than y1; {allowed}."
        )
    # Clamp to one unit outside the picture: mapping a huge number would overflow.
    x1, x2 = (min(max(v, -1.0), right + 1.0) for v in (x1, x2))
    y1, y2 = (min(max(v, -1.0), bottom + 1.0) for v in (y1, y2))
    if x2 > x1 and y2 > y1:
        box = round_outwards(frame.to_original((x1, y1, x2, y2))).clamped(*frame.size)
        if box is not None:
            return box
    raise ToolError(f"The box {_format_value(value)} lies outside the picture; {allowed}.")


def _check_value(tool: str, name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in KINDS:
        value = _as_kind(value, kind)
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise ToolError(
                f"{name} of {tool} is a{'n' if kind[0] in 'aio' else ''} {kind}, not {_format_value(value)}."
            )
    choices = schema.get("enum")
    if choices is not None:
        value = _check_choice(tool, name, value, choices)
    return value


def _as_kind(value: Any, kind: str) -> Any:
    """Parse a number or list that was sent as JSON text, a common and unambiguous slip."""
    if isinstance(value, str) and kind != "string":
        try:
            return json.loads(value)
        except ValueError:
            return value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _check_choice(tool: str, name: str, value: Any, choices: list[Any]) -> Any:
    wanted = str(value).strip().casefold()
    wanted = SYNONYMS.get(wanted, wanted).casefold()
    for choice in choices:
        if str(choice).casefold() == wanted:
            return choice
    listed = ", ".join(f'"{choice}"' for choice in choices)
    raise ToolError(f"{name} of {tool} cannot be {quote_line(str(value))}; it is one of {listed}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _join_names(names: list[Any]) -> str:
    return " and ".join(quote_line(str(name)) for name in names)


def _format_value(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
