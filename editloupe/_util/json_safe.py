"""Make values safe to store as JSON, and hash them.

A model may reply with half an emoji, with deeply nested parameters or with NaN. Such values are stored like any other: what JSON
or SQLite cannot represent is replaced by U+FFFD or by a text, never dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

MARK = "\ufffd"
DEEPEST = 64
"""The largest nesting of lists and mappings; readers of JSON give up at about 200."""
LARGEST = 2**63 - 1
"""The largest whole number of SQLite and of Parquet."""
DEEPEST_FIELD = 50
"""The largest nesting in a manifest's own fields."""
MOST_BITS = 4096
"""The largest number of bits of an integer in a manifest's own fields."""
_LEAVES = (bool, int, float, Decimal, date, time, timedelta, UUID, PurePath, BaseModel)
_LONGEST_NUMBER = 10**300
"""Larger integers are stored as text, because Python refuses to print very long ones."""

_ENDLESS = {math.inf: "Infinity", -math.inf: "-Infinity"}


def sanitize_text(text: str) -> str:
    r"""Return the text with U+FFFD in place of lone surrogates.

    >>> sanitize_text("cup \ud83d red"), sanitize_text("\ud83d\ude00")
    ('cup � red', '😀')
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_json_safe(value: Any) -> bool:
    """Return True if a value can be stored as JSON unchanged."""
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, str):
            if sanitize_text(item) is not item:
                return False
        elif isinstance(item, (Mapping, list, tuple)):
            if depth >= DEEPEST:
                return False
            waiting += [(inner, depth + 1) for inner in (item.values() if isinstance(item, Mapping) else item)]
            if isinstance(item, Mapping):
                waiting += [(name, depth) for name in item]
        elif isinstance(item, PathLike):
            waiting.append((fspath(item), depth))
        elif isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif isinstance(item, int) and not -_LONGEST_NUMBER < item < _LONGEST_NUMBER:
            return False
    return True


def sanitize(value: Any, depth: int = 0) -> Any:
    """Return a value as plain JSON. Records become mappings, and values that JSON cannot hold are marked.

    >>> sanitize({"box": (1, float("nan")), "text": "half \\ud83d"})
    {'box': [1, 'NaN'], 'text': 'half �'}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return sanitize(value.value, depth)
    if isinstance(value, str):
        return sanitize_text(str(value))
    if isinstance(value, Integral):
        return int(value) if -_LONGEST_NUMBER < int(value) < _LONGEST_NUMBER else f"{MARK} a number too long to keep"
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else _ENDLESS.get(number, "NaN")
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        if depth >= DEEPEST:
            return f"{MARK} nested deeper than {DEEPEST} levels"
        if isinstance(value, Mapping):
            return {sanitize_text(str(name)): sanitize(inner, depth + 1) for name, inner in value.items()}
        return [sanitize(inner, depth + 1) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return sanitize_text(str(fspath(value) if isinstance(value, PathLike) else value))


def validate_field(value: Any, room: int = DEEPEST_FIELD) -> Any:
    """Return a field of the user's as a value that JSON can hold. Lone surrogates are replaced.

    Raises:
        ValueError: If the value has a wrong type, is nested too deeply, or holds a number that is too long.
    """
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        if not room:
            raise ValueError(f"a field is nested more than {DEEPEST_FIELD} deep")
        if isinstance(value, Mapping):
            return {validate_field(key, room - 1): validate_field(item, room - 1) for key, item in value.items()}
        items = (validate_field(item, room - 1) for item in value)
        return tuple(items) if isinstance(value, tuple) else type(value)(items)
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ValueError("a field holds a number too long to write")
    if value is None or isinstance(value, _LEAVES):
        return value
    if getattr(value, "shape", None) == ():  # one number of an array
        return value.item()
    raise ValueError(f"a field holds {type(value).__name__}; only texts, numbers, lists and mappings can be kept")


def dump_record(record: BaseModel, without: Set[str] = frozenset()) -> str:
    """Return a record as JSON that can be stored and read back, without the fields in `without`."""
    try:
        text = record.model_dump_json(exclude=set(without) or None)
        # With fewer brackets than allowed levels, the nesting cannot be too deep. Otherwise the levels are counted.
        # Pydantic writes three marks for a lone surrogate in a key, where one is correct.
        if text.count("{") + text.count("[") <= DEEPEST and MARK not in text:
            return text
    except (ValueError, RecursionError):  # pydantic's own error is a ValueError
        pass
    fields = {name: getattr(record, name) for name in type(record).model_fields if name not in without}
    return json.dumps(sanitize(fields), ensure_ascii=False)


def clamp_integer(value: int) -> int:
    """Return an integer within SQLite's range."""
    return max(-LARGEST, min(LARGEST, value))


def finite_number(value: float | None) -> float | None:
    """Return a number, or None if it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None
