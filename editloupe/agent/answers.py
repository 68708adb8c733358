"""The answer grammar: reads a reply into thought + (calls | answer | problem), and never guesses.

A problem is a sentence the model is told, so that it can say the same thing again in a form that can be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editloupe.agent.sections import Sections, split
from editloupe.rubrics.model import (
    Answer,
    ChecksAnswer,
    LabelAnswer,
    NumberAnswer,
    TextAnswer,
    YesNoAnswer,
)
from editloupe.types import ToolCall

_CURLY = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'"})
_BEGINS_AN_OBJECT = re.compile(r"\{\s*[\"“{]")
_MARKS = " \t\r\n*_`#>\"'“”‘’"


class Malformed(Exception):
    """A reply that cannot be read; the sentence says exactly what is wrong."""


@dataclass(frozen=True)
class Given:
    """An answer that was read."""

    text: str
    """The label, or the answer as compact JSON."""
    label: str | None = None
    score: float | None = None
    score_100: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Reading:
    """What a reply says: calls, or an answer, or a problem; never two of them."""

    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    answer: Given | None = None
    problem: str | None = None


def read(
    text: str,
    answer: Answer,
    *,
    native_calls: Sequence[Mapping[str, Any]] = (),
    broken_calls: Sequence[Mapping[str, Any]] = (),
    tools: Sequence[str] = (),
) -> Reading:
    """Read one reply: its text, the provider's own tool calls, and those the provider could not parse.

    >>> from editloupe.rubrics.model import YesNoAnswer
    >>> read('It is red. {"answer": "yes", "reason": "red"}', YesNoAnswer()).answer.score
    1.0
    """
    sections = split(text)
    try:
        calls = _calls(sections, native_calls, broken_calls, tools)
        if calls:
            if sections.answers:
                raise Malformed(
                    "Your reply has both a tool call and a final answer; give one or the other, never both."
                )
            return Reading(sections.thought, calls=calls)
        given = _label(sections, answer) if isinstance(answer, LabelAnswer) else _from_json(sections, answer)
    except Malformed as problem:
        return Reading(sections.thought, problem=str(problem))
    thought = sections.thought if isinstance(answer, LabelAnswer) else given.reason or sections.thought
    return Reading(thought, answer=given)


def _calls(
    sections: Sections, native: Sequence[Mapping[str, Any]], broken: Sequence[Mapping[str, Any]], tools: Sequence[str]
) -> tuple[ToolCall, ...]:
    for call in broken:
        raise Malformed(
            f'The arguments of your call of "{call.get("name")}" are not a JSON object; call it again with valid JSON.'
        )
    found = [
        ToolCall(id=str(c.get("id") or f"call_{i}"), name=str(c["name"]), parameters=c["args"])
        for i, c in enumerate(native)
    ]
    for block in sections.calls:
        for name, parameters in _json_calls(block):
            if not any(c.name == name and c.parameters == parameters for c in found):
                found.append(ToolCall(id=f"text_{len(found)}", name=name, parameters=parameters))
    for known in found:
        if not tools:
            raise Malformed(f'You called "{known.name}", but there are no tools at this point; give your final answer.')
        if known.name not in tools:
            raise Malformed(f'There is no tool called "{known.name}"; the tools are: {", ".join(tools)}.')
    return tuple(found)


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
        yield name.strip(), parameters


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
    decoder = json.JSONDecoder(object_pairs_hook=_no_duplicates)
    items: list[dict[str, Any]] = []
    position = 0
    while True:
        while position < len(body) and body[position] in " \t\r\n,;":
            position += 1
        if position >= len(body):
            return items
        value, position = decoder.raw_decode(body, position)
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise ValueError("a call must be a JSON object")
            items.append(item)


def _label(sections: Sections, answer: LabelAnswer) -> Given:
    names = [label.name for label in answer.labels]
    listed = ", ".join(names)
    if not sections.answers:
        raise Malformed(
            "Your reply has no final answer; end with <Start Final Answer>Label</Start Final Answer>, "
            f"Label being one of: {listed}."
        )
    by_key = {name.casefold(): name for name in names}
    found = []
    for text in sections.answers:
        name = by_key.get(plain(text).casefold())
        if name is None:
            raise Malformed(
                f'"{_short(text)}" is not one of the labels; write exactly one of: {listed}, and nothing else between the tags.'
            )
        found.append(name)
    if len(set(found)) > 1:
        raise Malformed(
            f"Your reply gives {len(set(found))} different labels ({', '.join(dict.fromkeys(found))}); give exactly one."
        )
    name = found[0]
    return Given(name, label=name, score=answer.score(name), score_100=answer.score_100(name))


def plain(text: str) -> str:
    """Strip what may stray around a label: spaces, newlines, bold marks, quotes, a full stop.

    >>> plain("  **Over  Modification.**\\n")
    'Over Modification'
    """
    return " ".join(text.strip(_MARKS).rstrip(".!").strip(_MARKS).rstrip(".!").split())


def _from_json(sections: Sections, answer: NumberAnswer | ChecksAnswer | YesNoAnswer | TextAnswer) -> Given:
    item = last_object("\n".join((sections.outside, *sections.answers)) if sections.answers else sections.outside)
    reason_key = None if isinstance(answer, TextAnswer) else answer.reason_key
    reason = item.get(reason_key, "") if reason_key else ""
    if not isinstance(reason, str):
        raise Malformed(f'"{reason_key}" must be a string.')
    text = json.dumps(item, ensure_ascii=False, sort_keys=True)
    if isinstance(answer, NumberAnswer):
        number = _number(item, answer)
        return Given(text, score=number, score_100=answer.score_100(number), values={answer.key: number}, reason=reason)
    if isinstance(answer, ChecksAnswer):
        given = _checks(item, answer)
        total = answer.total(given)
        return Given(text, score=total, score_100=None if total is None else total * 100, values=given, reason=reason)
    if isinstance(answer, YesNoAnswer):
        word = _string(item, answer.key).casefold()
        if word not in ("yes", "no"):
            raise Malformed(f'"{answer.key}" must be "yes" or "no", not "{_short(word)}".')
        yes = float(word == "yes")
        return Given(text, label=word, score=yes, score_100=yes * 100, values={answer.key: word}, reason=reason)
    return Given(text, values={answer.key: _string(item, answer.key)})


def _number(item: Mapping[str, Any], answer: NumberAnswer) -> float:
    value = _need(item, answer.key)
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and answer.low <= value <= answer.high
    if not number or value != int(value):
        raise Malformed(
            f'"{answer.key}" must be a whole number from {answer.low} to {answer.high}, not {_short(json.dumps(value))}.'
        )
    return float(value)


def _checks(item: Mapping[str, Any], answer: ChecksAnswer) -> dict[str, str]:
    answers = {}
    for check in answer.checks:
        value = _need(item, check.key)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e6
        word = (str(int(value)) if value == int(value) else repr(value)) if number else value
        by_key = {allowed.casefold(): allowed for allowed in check.values}
        known = by_key.get(word.strip().casefold()) if isinstance(word, str) else None
        if known is None:
            raise Malformed(f'"{check.key}" must be one of {", ".join(check.values)}, not {_short(json.dumps(value))}.')
        answers[check.key] = known
    return answers


def _need(item: Mapping[str, Any], key: str) -> Any:
    if key not in item:
        raise Malformed(f'Your JSON object has no "{key}".')
    return item[key]


def _string(item: Mapping[str, Any], key: str) -> str:
    value = _need(item, key)
    if not isinstance(value, str):
        raise Malformed(f'"{key}" must be a string, not {_short(json.dumps(value))}.')
    return value.strip()


def last_object(text: str) -> dict[str, Any]:
    """Return the last JSON object of a text; prose and code fences around it are allowed, a broken object is not.

    A brace in prose before the object does no harm; one that begins an object which is then not finished does, for what
    stands inside a broken object is not the model's answer.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    last: dict[str, Any] | None = None
    broken = ""
    position = text.find("{")
    while position >= 0:
        try:
            value, position = decoder.raw_decode(text, position)
            last, broken = value, ""
        except (ValueError, RecursionError) as error:
            broken = str(error)
            if _BEGINS_AN_OBJECT.match(text, position):
                break
            position += 1
        position = text.find("{", position)
    if last is None or broken:
        detail = f" ({broken})" if broken else ""
        raise Malformed(f"Your reply does not end in a valid JSON object{detail}; end with exactly one.")
    return last


def _parse_object(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise Malformed(f'"parameters" is not a valid JSON object ({error}).') from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    item = dict(pairs)
    if len(item) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return item


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _short(text: str, limit: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
