"""The answer grammar, which parses a reply into a thought and calls, an answer or a problem, and never guesses.

An answer is given once, outside any thought, quotation or code example, at the end of a complete reply:

- Text in a thought is not an answer under any tag name; a thought that is never closed is a problem.
- Only layout (nothing with a letter or a digit), a closing fence and end-of-turn tokens may follow the answer.
- Answers that differ are a problem; repeating the same answer is not.
- An answer in quotation marks, in inline code within a sentence, in a quoted block, between unknown tags, or introduced as an
  example is only quoted: it neither counts nor contradicts. So is one that is struck out, or in a comment of code.
- A sentence that merely mentions an example makes the following answer an example only if another answer comes later.
- A JSON object alone in a code fence counts, because models write them so; a label alone in a fence if the fence ends the reply.
- An object within a sentence, without punctuation before it, is mentioned rather than given.
- What is clearly given is read: a whole number as a text ("8") or with a point (8.), true and false for yes and no, a comma
  before the closing brace. A number between two of the scale, outside it, or in prose is not an answer.
- An answer form that was copied without being filled in is not an answer.
- A reply that was cut off is never read.

A problem is a sentence for the model, so that it can repeat its answer in a form that can be parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from editloupe.agent.replies.quoted_answers import find_given, quote_comments, require_own_line
from editloupe.agent.replies.sections import (
    DECODER,
    Malformed,
    ReplyPart,
    Sections,
    check_depth,
    shorten,
    split_sections,
)
from editloupe.agent.replies.tags import drop_layout, is_struck_out
from editloupe.rubrics.model import (
    Answer,
    ChecksAnswer,
    LabelAnswer,
    MeasuredAnswer,
    NumberAnswer,
    TextAnswer,
    YesNoAnswer,
)
from editloupe.types import NOT_APPLICABLE, ToolCall

LONGEST_REPLY = 1_000_000
"""Characters; a longer reply is not parsed."""
_MARKS = " \t\r\n*_`#>\"'“”‘’"
_NOT_FILLED_IN = re.compile(r"\s*+(?:<[^<>]*+>|…|\.\.\.)\s*+")
_LONGEST_LABEL = 400
_WHOLE_NUMBER = re.compile(r"\s*+-?[0-9]{1,9}+(?:\.0*+)?+\s*+")
_NUMBER = re.compile(r"\s*+-?[0-9]{1,9}+(?:\.[0-9]{0,9}+)?+\s*+")
"""Numbers that were written as a text, which some models do although the form has a number."""
_TRUTH = {True: "yes", False: "no"}
"""What true and false mean where yes or no is asked for."""


@dataclass(frozen=True)
class ParsedAnswer:
    """A parsed answer."""

    text: str
    """The label, or the answer as compact JSON."""
    label: str | None = None
    score: float | None = None
    score_100: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    reasoning: str = ""
    """Step-by-step reasoning that was written before the decision, if the form has a field for it."""


@dataclass(frozen=True)
class ParsedReply:
    """The content of a reply: calls, an answer or a problem, and never two of them."""

    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    answer: ParsedAnswer | None = None
    problem: str | None = None
    called: bool = False
    """True if the reply calls tools, even unknown ones."""


def parse_reply(
    text: str,
    answer: Answer,
    *,
    native_calls: Sequence[Mapping[str, Any]] = (),
    broken_calls: Sequence[Mapping[str, Any]] = (),
    tools: Sequence[str] = (),
    unfinished: str | None = None,
) -> ParsedReply:
    """Parse one reply.

    Args:
        text: The text of the reply.
        answer: The form of the answer that the rubric asks for.
        native_calls: The provider's own tool calls.
        broken_calls: Tool calls that the provider could not parse.
        tools: Names of the tools that may be called.
        unfinished: Why the reply is incomplete; such a reply is not parsed for calls or an answer.

    >>> from editloupe.rubrics.model import YesNoAnswer
    >>> parse_reply('It is red. {"answer": "yes", "reason": "red"}', YesNoAnswer()).answer.score
    1.0
    """
    if len(text) > LONGEST_REPLY:
        return ParsedReply(problem=f"Your reply is longer than {LONGEST_REPLY:,} characters; be much shorter.")
    if isinstance(answer, MeasuredAnswer):
        raise TypeError("a measure is computed and has no replies")
    labels = isinstance(answer, LabelAnswer)
    sections = Sections()
    try:
        sections = _drop_fence(split_sections(text, objects=not labels), objects=not labels)
        if unfinished:
            raise Malformed(unfinished)
        calls = parse_calls(sections, native_calls, broken_calls, tools)
        if calls:
            if any(part.kind == "answer" for part in sections.parts):
                raise Malformed(
                    "Your reply has both a tool call and a final answer; give one or the other, never both."
                )
            return ParsedReply(sections.thought, calls=calls, called=True)
        _check_closed(sections)
        parsed = _parse_label(sections, answer) if isinstance(answer, LabelAnswer) else _parse_json(sections, answer)
    except Malformed as problem:
        called = bool(native_calls or broken_calls or sections.calls)
        return ParsedReply(sections.thought, problem=str(problem), called=called)
    return ParsedReply(
        sections.thought if labels else parsed.reasoning or parsed.reason or sections.thought, answer=parsed
    )


def parse_object(text: str) -> dict[str, Any]:
    """Return the JSON object that ends a reply; raise Malformed if there is none, or several that differ."""
    if len(text) > LONGEST_REPLY:
        raise Malformed(f"Your reply is longer than {LONGEST_REPLY:,} characters; be much shorter.")
    sections = _drop_fence(split_sections(text, objects=True), objects=True)
    _check_closed(sections)
    return _final_object(sections, ())


def _drop_fence(sections: Sections, objects: bool) -> Sections:
    """Remove a fence around the whole reply (except thoughts) or around a label that ends the reply."""
    spoken = [part for part in sections.parts if not part.blank and part.kind != "thought"]
    if not spoken or spoken[-1].kind != "code":
        return sections
    if len(spoken) == 1:
        thoughts = [part for part in sections.parts if part.kind == "thought"]
        inside = split_sections(spoken[0].text, objects)
        parts = quote_comments(inside.parts, spoken[0].source)
        return Sections((*thoughts, *parts), inside.broken, inside.scraps)
    if objects:
        return sections  # an object in a fence is read in place
    inside_last = quote_comments(split_sections(spoken[-1].text).parts, spoken[-1].source)
    alone = [part for part in inside_last if not part.blank]
    if len(alone) != 1 or alone[0].kind != "answer" or not alone[0].closed:
        return sections
    return replace(sections, parts=tuple(alone[0] if part is spoken[-1] else part for part in sections.parts))


def _check_closed(sections: Sections) -> None:
    if sections.unclosed:
        raise Malformed(
            "Your thinking was never closed, so that nothing in it can be taken for an answer; "
            "close its tag and give the final answer behind it."
        )


def _parse_label(sections: Sections, answer: LabelAnswer) -> ParsedAnswer:
    names = [label.name for label in answer.labels]
    allowed = ", ".join(names)
    parts = sections.parts
    positions = find_given(parts, [i for i, part in enumerate(parts) if part.kind == "answer"])
    if not positions:
        raise Malformed(
            "Your reply has no final answer; end with <Start Final Answer>Label</Start Final Answer>, outside any "
            f"quotation or code, Label being one of: {allowed}."
        )
    by_key = {name.casefold(): name for name in names}
    labels = []
    for index in positions:
        text = parts[index].text
        name = by_key.get(normalize_label(text).casefold())
        if name is None:
            raise Malformed(
                f'"{shorten(text)}" is not one of the labels; write exactly one of: {allowed}, and nothing else between the tags.'
            )
        labels.append(name)
    if len(set(labels)) > 1:
        raise Malformed(
            f"Your reply gives {len(set(labels))} different labels ({', '.join(dict.fromkeys(labels))}); give exactly one."
        )
    _check_end(parts, positions[-1], "final answer")
    name = labels[0]
    longer = [n for n in names if n != name and n.casefold().startswith(name.casefold())]
    if longer and not parts[positions[-1]].closed:
        raise Malformed(f"Your final answer breaks off: {name} could become {longer[0]}; close its tag.")
    return ParsedAnswer(name, label=name, score=answer.score(name), score_100=answer.score_100(name))


def normalize_label(text: str) -> str:
    """Strip spaces, newlines, bold marks, quotes, boxes and a full stop around a label.

    >>> normalize_label("  **Over  Modification.**\\n")
    'Over Modification'
    """
    text = drop_layout(text[:_LONGEST_LABEL]) if len(text.strip()) <= _LONGEST_LABEL else text
    return " ".join(text.strip(_MARKS).rstrip(".!").strip(_MARKS).rstrip(".!").split())


def _parse_json(sections: Sections, answer: NumberAnswer | ChecksAnswer | YesNoAnswer | TextAnswer) -> ParsedAnswer:
    item = _final_object(sections, _keys(answer))
    reasoning = item.pop(REASONING, "") if REASONING not in _keys(answer) else ""
    parsed = _parse_fields(item, answer)
    return replace(parsed, reasoning=reasoning) if isinstance(reasoning, str) else parsed


def _parse_fields(
    item: Mapping[str, Any], answer: NumberAnswer | ChecksAnswer | YesNoAnswer | TextAnswer
) -> ParsedAnswer:
    if not isinstance(answer, TextAnswer):  # text in a picture may be anything
        _check_filled(item)
    reason_key = None if isinstance(answer, TextAnswer) else answer.reason_key
    reason = item.get(reason_key, "") if reason_key else ""
    if not isinstance(reason, str):
        raise Malformed(f'"{reason_key}" must be a string.')
    text = json.dumps(item, ensure_ascii=False, sort_keys=True)
    if isinstance(answer, NumberAnswer):
        number = _number(item, answer)
        return ParsedAnswer(
            text, score=number, score_100=answer.score_100(number), values={answer.key: number}, reason=reason
        )
    if isinstance(answer, ChecksAnswer):
        choices = _checks(item, answer)
        total = answer.total(choices)
        if total is None:
            return ParsedAnswer(text, label=NOT_APPLICABLE, values=choices, reason=reason)
        return ParsedAnswer(text, score=total, score_100=total * 100, values=choices, reason=reason)
    if isinstance(answer, YesNoAnswer):
        value = item.get(answer.key)
        word = _TRUTH[value] if isinstance(value, bool) else normalize_label(_string(item, answer.key)).casefold()
        if word not in ("yes", "no"):
            raise Malformed(f'"{answer.key}" must be "yes" or "no", not "{shorten(word)}".')
        yes = float(word == "yes")
        return ParsedAnswer(text, label=word, score=yes, score_100=yes * 100, values={answer.key: word}, reason=reason)
    return ParsedAnswer(text, values={answer.key: _string(item, answer.key)})


def _check_filled(item: Mapping[str, Any]) -> None:
    for key, value in item.items():
        if isinstance(value, str) and _NOT_FILLED_IN.fullmatch(value):
            raise Malformed(
                f'"{shorten(key)}" is {shorten(json.dumps(value))}: the form is not filled in; say what you mean there.'
            )


def _keys(answer: NumberAnswer | ChecksAnswer | YesNoAnswer | TextAnswer) -> tuple[str, ...]:
    """Return the keys that decide an answer; objects without any of them do not compete with it."""
    return tuple(check.key for check in answer.checks) if isinstance(answer, ChecksAnswer) else (answer.key,)


def _final_object(sections: Sections, keys: Sequence[str]) -> dict[str, Any]:
    """Return the object that ends a reply; earlier objects must agree with it in these keys, or in all if there are none."""
    parts = sections.parts
    objects = {i: value for i, part in enumerate(parts) if (value := _object_in(part)) is not None}
    positions = find_given(parts, list(objects))
    rivals = [scrap for scrap in sections.scraps if not keys or any(key in scrap for key in keys)]
    if rivals or not positions:
        detail = f" ({sections.broken})" if sections.broken else ""
        raise Malformed(
            f"Your reply does not end in a valid JSON object{detail}; end with exactly one, outside any quotation or code."
        )
    last, item = positions[-1], objects[positions[-1]]
    _check_end(parts, last, "JSON object")
    require_own_line(parts, last)
    for other in (objects[index] for index in positions[:-1]):
        rival = any(key in other for key in keys) if keys else bool(other)
        if rival and any(other.get(key) != item.get(key) for key in keys or {*other, *item}):
            raise Malformed("Your reply has several JSON objects that differ; give exactly one, at the end.")
    return item


def _object_in(part: ReplyPart) -> dict[str, Any] | None:
    """Return the object of a part: the part itself, or the only content of a code fence or of answer tags."""
    return _sole_object(part) if part.kind in ("object", "code", "answer") else None


def _sole_object(part: ReplyPart, depth: int = 2) -> dict[str, Any] | None:
    if part.kind == "object":
        return dict(check_depth(part.value))
    if not depth or is_struck_out(part.text):
        return None
    parts = quote_comments(split_sections(part.text, objects=True).parts, part.source)
    inside = [inner for inner in parts if not inner.blank]
    if len(inside) == 3 and (inside[0].text.strip(), inside[2].text.strip()) == ("[", "]"):
        inside = inside[1:2]  # a list with one item
    return _sole_object(inside[0], depth - 1) if len(inside) == 1 and inside[0].kind in ("object", "code") else None


def _check_end(parts: Sequence[ReplyPart], index: int, name: str) -> None:
    """Raise Malformed if anything follows the answer; a list around a single object is accepted."""
    behind = [part for part in parts[index + 1 :] if not part.blank]
    in_list = parts[index].kind == "object" and index > 0 and parts[index - 1].text.rstrip().endswith("[")
    if behind and not (in_list and len(behind) == 1 and behind[0].text.strip(" \t\r\n*_`") == "]"):
        raise Malformed(
            f'Something stands behind your {name} ("{shorten(behind[0].text)}"); '
            f"say it before, and end the reply with the {name}."
        )


def _number(item: Mapping[str, Any], answer: NumberAnswer) -> float:
    value = _require(item, answer.key)
    number = float(value) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else value
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not is_number or not answer.low <= number <= answer.high or number != int(number):
        raise Malformed(
            f'"{answer.key}" must be a whole number from {answer.low} to {answer.high}, not {shorten(json.dumps(value))}.'
        )
    return float(number)


def _checks(item: Mapping[str, Any], answer: ChecksAnswer) -> dict[str, str]:
    answers = {}
    for check in answer.checks:
        value = _require(item, check.key)
        by_key = {choice.casefold(): choice for choice in check.values}
        plain = _TRUTH[value] if isinstance(value, bool) else value
        plain = float(plain) if isinstance(plain, str) and _NUMBER.fullmatch(plain) else plain
        number = isinstance(plain, (int, float)) and abs(plain) < 1e6
        word = (str(int(plain)) if plain == int(plain) else repr(plain)) if number else plain
        choice = by_key.get(word.strip().casefold()) if isinstance(word, str) else None
        if choice is None:
            raise Malformed(
                f'"{check.key}" must be one of {", ".join(check.values)}, not {shorten(json.dumps(value))}.'
            )
        answers[check.key] = choice
    return answers


def _require(item: Mapping[str, Any], key: str) -> Any:
    if key not in item:
        raise Malformed(f'Your JSON object has no "{key}".')
    return item[key]


def _string(item: Mapping[str, Any], key: str) -> str:
    value = _require(item, key)
    if not isinstance(value, str):
        raise Malformed(f'"{key}" must be a string, not {shorten(json.dumps(value))}.')
    return value.strip()


MOST_CALLS = 64
"""Maximum number of calls in one reply; a reply with more is rejected."""
_CURLY = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'"})


def parse_calls(
    sections: Sections, native: Sequence[Mapping[str, Any]], broken: Sequence[Mapping[str, Any]], tools: Sequence[str]
) -> tuple[ToolCall, ...]:
    """Return the calls of a reply; raise Malformed if one cannot be parsed, or if none names an existing tool.

    Next to a call of an existing tool, a call of an unknown one is returned too: it is answered with an error, and the others
    are carried out.
    """
    blocks = sections.calls
    if len(native) + len(broken) + len(blocks) > MOST_CALLS:
        raise _too_many()
    if broken:
        raise Malformed(
            f'The arguments of your call of "{broken[0].get("name")}" are not a JSON object; call it again with valid JSON.'
        )
    calls = [
        ToolCall(id=str(c.get("id") or f"call_{i}"), name=str(c["name"]), parameters=check_depth(c["args"]))
        for i, c in enumerate(native)
    ]
    for block in blocks:
        for name, parameters in _parse_call_block(block):
            if not any(c.name == name and c.parameters == parameters for c in calls):
                calls.append(ToolCall(id=f"text_{len(calls)}", name=name, parameters=parameters))
    if len(calls) > MOST_CALLS:
        raise _too_many()
    if calls and not tools:
        raise Malformed(f'You called "{calls[0].name}", but there are no tools at this point; give your final answer.')
    if calls and not any(call.name in tools for call in calls):
        raise Malformed(describe_unknown_tool(calls[0].name, tools))
    return tuple(calls)


def describe_unknown_tool(name: str, tools: Sequence[str]) -> str:
    """Return the sentence for the model about a tool that it called and that is not offered."""
    return f'There is no tool called "{name}"; the tools are: {", ".join(tools)}.'


def _too_many() -> Malformed:
    return Malformed(f"Your reply has more than {MOST_CALLS} tool calls; make a few at a time.")


def _parse_call_block(block: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the calls of a block: JSON objects one after another, in a list, or in a code fence."""
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
        yield name.strip(), check_depth(parameters)


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
    """Decode consecutive JSON objects, separated by commas, brackets or nothing."""
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


REASONING = "step_by_step"
"""The field for the written reasoning of a model that does not reason by itself; it comes first."""


def build_answer_schema(answer: Answer, written: bool = False) -> dict[str, Any] | None:
    """Return the JSON schema of a rubric's answer, with the reason before the decision; None for labels.

    If reasoning is `written`, it has a field of its own before all others; an answer that is only text needs none.

    >>> build_answer_schema(NumberAnswer(low=1, high=5))["properties"]["score"]
    {'type': 'integer', 'minimum': 1, 'maximum': 5}
    """
    if isinstance(answer, (LabelAnswer, MeasuredAnswer)):
        return None
    properties: dict[str, Any] = {}
    if written and not isinstance(answer, TextAnswer):
        properties[REASONING] = {"type": "string"}
    if not isinstance(answer, TextAnswer) and answer.reason_key:
        properties[answer.reason_key] = {"type": "string"}
    if isinstance(answer, NumberAnswer):
        properties[answer.key] = {"type": "integer", "minimum": answer.low, "maximum": answer.high}
    elif isinstance(answer, ChecksAnswer):
        properties |= {check.key: {"type": "string", "enum": list(check.values)} for check in answer.checks}
    elif isinstance(answer, YesNoAnswer):
        properties[answer.key] = {"type": "string", "enum": ["yes", "no"]}
    else:
        properties[answer.key] = {"type": "string"}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


__all__ = [
    "LONGEST_REPLY",
    "MOST_CALLS",
    "REASONING",
    "Malformed",
    "ParsedAnswer",
    "ParsedReply",
    "build_answer_schema",
    "normalize_label",
    "parse_calls",
    "parse_object",
    "parse_reply",
]
