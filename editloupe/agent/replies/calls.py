"""Reads the tool calls of a reply: the provider's own, and those written in the papers' text protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from editloupe.agent.replies.problems import Malformed, shallow
from editloupe.agent.replies.sections import DECODER, Sections
from editloupe.types import ToolCall

MOST_CALLS = 64
"""Calls that are looked at in one reply; one with more of them is sent back whole."""
_CURLY = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'"})


def read_calls(
    sections: Sections, native: Sequence[Mapping[str, Any]], broken: Sequence[Mapping[str, Any]], tools: Sequence[str]
) -> tuple[ToolCall, ...]:
    """Return the calls of a reply; raises Malformed where one cannot be read or there is no such tool."""
    blocks = sections.calls
    if len(native) + len(broken) + len(blocks) > MOST_CALLS:
        raise _too_many()
    for call in broken:
        raise Malformed(
            f'The arguments of your call of "{call.get("name")}" are not a JSON object; call it again with valid JSON.'
        )
    found = [
        ToolCall(id=str(c.get("id") or f"call_{i}"), name=str(c["name"]), parameters=shallow(c["args"]))
        for i, c in enumerate(native)
    ]
    for block in blocks:
        for name, parameters in _json_calls(block):
            if not any(c.name == name and c.parameters == parameters for c in found):
                found.append(ToolCall(id=f"text_{len(found)}", name=name, parameters=parameters))
    if len(found) > MOST_CALLS:
        raise _too_many()
    for known in found:
        if not tools:
            raise Malformed(f'You called "{known.name}", but there are no tools at this point; give your final answer.')
        if known.name not in tools:
            raise Malformed(f'There is no tool called "{known.name}"; the tools are: {", ".join(tools)}.')
    return tuple(found)


def _too_many() -> Malformed:
    return Malformed(f"Your reply has more than {MOST_CALLS} tool calls; make a few at a time.")


def _json_calls(block: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls of a block: JSON objects one after another, in a list, or behind a code fence."""
    body = block.replace("```json", " ").replace("```", " ").strip()
    if not body:
        raise Malformed("Your tool_call block is empty; put one JSON object a call into it.")
    for item in _objects_of(body):
        name = item.get("name")
        parameters = item.get("parameters", item.get("arguments", {}))
        if isinstance(parameters, str):
            parameters = _parse_object(parameters)
        if not isinstance(name, str) or not isinstance(parameters, dict):
            raise Malformed('A tool call needs "name" (a string) and "parameters" (an object).')
        yield name.strip(), shallow(parameters)


def _objects_of(body: str) -> list[dict[str, Any]]:
    try:
        return _sequence(body)
    except (ValueError, RecursionError):
        pass
    try:
        return _sequence(body.translate(_CURLY))
    except (ValueError, RecursionError) as error:
        raise Malformed(
            f"Your tool_call block is not valid JSON ({error}); write each call as"
            ' {"name": "…", "parameters": {…}} with straight double quotes.'
        ) from None


def _sequence(body: str) -> list[dict[str, Any]]:
    """Decode JSON objects that follow each other, with commas, brackets or nothing between them."""
    items: list[dict[str, Any]] = []
    position = 0
    while True:
        while position < len(body) and body[position] in " \t\r\n,;":
            position += 1
        if position >= len(body):
            return items
        value, position = DECODER.raw_decode(body, position)
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise ValueError("a call must be a JSON object")
            items.append(item)
        if len(items) > MOST_CALLS:
            raise _too_many()


def _parse_object(text: str) -> Any:
    try:
        return DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f'"parameters" is not a valid JSON object ({error}).') from None
