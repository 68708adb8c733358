"""Repair replies that a provider's client would reject as a whole because of a detail that no verdict depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from editloupe._util.json_safe import sanitize_text

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_COUNT = re.compile(r"tokens$|_count$|_duration$", re.IGNORECASE)
_DETAILS = re.compile(r"_details$|^cache_creation$|^server_tool_use$")


def repair_text(body: bytes) -> bytes:
    r"""Return a JSON body with U+FFFD in place of lone surrogates.

    >>> repair_text(rb'{"text": "cup \ud83d red"}').decode()
    '{"text": "cup � red"}'
    """
    if not _SURROGATE.search(body):
        return body
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):  # the client reports it
        return body
    repaired = sanitize_text(text)
    return body if repaired is text else repaired.encode()


def repair_usage(*needed: str) -> Callable[[bytes], bytes]:
    """Return a function that repairs the field `usage` of a JSON body: only the token counts that can be read are kept.

    Args:
        needed: Counts that the client cannot do without; they become 0.
    """

    def repair(reply: dict[str, Any]) -> bool:
        usage: Any = reply.get("usage")
        if (_is_usage(usage) and all(name in usage for name in needed)) or (usage is None and not needed):
            return False
        counts = {name: n for name, n in usage.items() if _COUNT.search(name) and n} if isinstance(usage, dict) else {}
        reply["usage"] = dict.fromkeys(needed, 0) | {name: n for name, n in counts.items() if _is_count(n)}
        return True

    return lambda body: _change(body, repair)


def repair_counts(body: bytes) -> bytes:
    """Return a JSON body without the counts and durations at its top level that are not whole numbers."""

    def repair(reply: dict[str, Any]) -> bool:
        broken = [name for name, value in reply.items() if _COUNT.search(name) and not _is_count(value)]
        for name in broken:
            del reply[name]
        return bool(broken)

    return _change(body, repair)


def _change(body: bytes, repair: Callable[[dict[str, Any]], bool]) -> bytes:
    """Return a JSON object after a repair, or the same bytes if the repair changed nothing."""
    try:
        reply = json.loads(body)
        return json.dumps(reply).encode() if isinstance(reply, dict) and repair(reply) else body
    except (ValueError, RecursionError):  # the client reports it
        return body


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _is_usage(usage: Any) -> bool:
    """Return whether the counts in an object, and in the objects it contains, are whole numbers."""
    if not isinstance(usage, dict):
        return False
    for name, value in usage.items():
        details = value is not None and _DETAILS.search(name)
        if not (_is_usage(value) if details else _is_count(value) or not _COUNT.search(name)):
            return False
    return True
