"""LangChain messages whose pictures are references until a request is sent, and their records in traces and spans.

Pictures that a tool returns go into a user message after the tool messages of all calls, because Chat Completions
servers accept only text in a tool message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import ToolCall as LangChainCall

from editloupe._util.json_safe import is_json_safe, sanitize
from editloupe.agent.transport.attachments import PictureForm
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.rubrics.wording import USUAL_WORDING, Wording, fill_in
from editloupe.telemetry.spans import Span, captures_content, captures_pictures
from editloupe.types import Observation, RequestMessage, RequestPicture, SentPicture, Sha, Step, ToolCall

PICTURE = "picture"
Block = dict[str, Any]


def picture_block(sha: Sha, name: str) -> Block:
    """Return a reference to a picture, as the graph's state stores it."""
    return {"type": PICTURE, "sha": sha, "name": name}


def text_block(text: str) -> Block:
    """Return a block of text."""
    return {"type": "text", "text": text}


def announce_picture(
    name: str, sha: Sha, album: Album, limits: EncodingLimits, words: Wording = USUAL_WORDING
) -> list[Block]:
    """Return a picture preceded by a line with its name and its size as sent."""
    width, height = album[sha].wire(limits).size
    line = fill_in(words.picture, name=name, width=width, height=height)
    return [*([text_block(line)] if line.strip() else []), picture_block(sha, name)]


def build_observations(
    reply: AIMessage,
    observations: Sequence[Observation],
    album: Album,
    limits: EncodingLimits,
    words: Wording = USUAL_WORDING,
) -> list[AnyMessage]:
    """Return the messages that follow the judge's calls: one sentence per call, all pictures together, and the reminder."""
    native = {call["id"] for call in reply.tool_calls}
    messages: list[AnyMessage] = [
        ToolMessage(o.text, tool_call_id=o.call_id, name=o.tool, artifact=dict(o.data))
        for o in observations
        if o.call_id in native
    ]
    blocks: list[str | Block] = []
    for observation in observations:
        if observation.call_id not in native:
            blocks.append(text_block(f"{observation.tool}: {observation.text}"))
        for sha, caption in zip(observation.pictures, observation.captions, strict=True):
            blocks += announce_picture(caption, sha, album, limits, words)
    if words.reminder:
        blocks.append(text_block(words.reminder))
    if blocks:
        messages.append(HumanMessage(blocks))
    return messages


def build_correction(reply: AIMessage | None, sentence: str, words: Wording = USUAL_WORDING) -> list[AnyMessage]:
    """Return the messages that follow an unusable reply; every call in it gets an answer too."""
    calls = [*reply.tool_calls, *reply.invalid_tool_calls] if reply else []
    unanswered: list[AnyMessage] = [
        ToolMessage(words.not_carried_out, tool_call_id=str(call["id"]), name=call["name"], status="error")
        for call in calls
    ]
    return [*unanswered, HumanMessage(sentence)]


def text_of(message: AIMessage) -> str:
    """Return the visible text of a reply, without its reasoning blocks."""
    if isinstance(message.content, str):
        return message.content
    parts = (part if isinstance(part, str) else part.get("text", "") for part in message.content if _is_text(part))
    return "\n".join(str(part) for part in parts)


def reasoning_of(message: AIMessage) -> str:
    """Return the reasoning that came with a reply, either in blocks of its own or in a field."""
    if isinstance(message.content, list):
        blocks = (part for part in message.content if isinstance(part, dict))
        if reasoning := "\n".join(text for block in blocks if (text := _reasoning_in(block))):
            return reasoning
    return str(message.additional_kwargs.get("reasoning_content") or "")


def _reasoning_in(block: dict[str, Any]) -> str:
    for name in _REASONING:
        if block.get("type") == name:
            content = block.get(name)
            return str(content.get("text") or "") if isinstance(content, dict) else str(content or "")
    return ""


_REASONING = ("thinking", "reasoning", "reasoning_content")
"""Names that clients give to a block of reasoning and to the field in it."""


def _is_text(part: str | dict[str, Any]) -> bool:
    return isinstance(part, str) or part.get("type") == "text"


def to_wire_messages(
    messages: Iterable[AnyMessage], form: PictureForm, album: Album, limits: EncodingLimits, attach: bool = True
) -> list[AnyMessage]:
    """Return the conversation in a provider's format; pictures stay references until the request is sent.

    Without `attach`, the pictures are written into the messages, for clients whose requests no hook can change.
    """
    out: list[AnyMessage] = []
    for message in messages:
        content = message.content
        if isinstance(message, HumanMessage) and isinstance(content, list):
            blocks: list[str | Block] = [
                _fill(part, form, album, limits, attach) if isinstance(part, dict) else part for part in content
            ]
            out.append(HumanMessage(blocks))
        elif isinstance(message, ToolMessage):
            out.append(message.model_copy(update={"artifact": None}))
        else:
            out.append(message)
    return out


def _fill(block: Block, form: PictureForm, album: Album, limits: EncodingLimits, attach: bool) -> Block:
    if block.get("type") != PICTURE:
        return block
    wire = album[block["sha"]].wire(limits)
    return form.block(form.reference_to(block["sha"]) if attach else form.text(wire), wire.media_type)


def find_pictures(messages: Iterable[AnyMessage]) -> Iterator[Sha]:
    """Yield the hash of every picture reference in these messages."""
    return (block["sha"] for block in _picture_blocks(messages))


def _picture_blocks(messages: Iterable[AnyMessage]) -> Iterator[Block]:
    for message in messages:
        if isinstance(message.content, list):
            yield from (part for part in message.content if isinstance(part, dict) and part.get("type") == PICTURE)


def describe_pictures(messages: Iterable[AnyMessage], album: Album, limits: EncodingLimits) -> tuple[SentPicture, ...]:
    """Return how the pictures of these messages are sent, for the trace."""
    return tuple(album[block["sha"]].sent(block["name"], limits) for block in _picture_blocks(messages))


def make_storable(message: AIMessage) -> AIMessage:
    """Return a reply that can be stored and sent back: broken surrogates, extreme nesting and NaN are replaced by marks."""
    parts = {name: getattr(message, name) for name in _PARTS}
    marked = {name: sanitize(part) for name, part in parts.items() if not is_json_safe(part)}
    return message.model_copy(update=marked) if marked else message


_PARTS = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")


def record_messages(messages: Sequence[AnyMessage]) -> tuple[RequestMessage, ...]:
    """Return messages as a step stores them; the first two of a conversation refer to the trace's prompt.

    A reply that was sent back to the model is stored as a marker only: its text is in the step before.
    """
    opens = bool(messages) and isinstance(messages[0], SystemMessage)
    return tuple(
        _build_request_message(message, index if opens and index < len(_OPENING) else None)
        for index, message in enumerate(messages)
    )


_OPENING = ("system", "user")


def _build_request_message(message: AnyMessage, prompt: int | None) -> RequestMessage:
    if isinstance(message, AIMessage):
        return RequestMessage(role="assistant")
    if isinstance(message, ToolMessage):
        name = message.name or ""
        return RequestMessage(role="tool", content=(str(message.content),), call_id=message.tool_call_id, name=name)
    parts = tuple(_split_parts(message.content, prompt is None))
    return RequestMessage(role="system" if isinstance(message, SystemMessage) else "user", content=parts, prompt=prompt)


def _split_parts(content: str | list[Any], texts: bool) -> Iterator[str | RequestPicture]:
    for part in [content] if isinstance(content, str) else content:
        if isinstance(part, dict) and part.get("type") == PICTURE:
            yield RequestPicture(picture=str(part["name"]), sha=part["sha"])
        elif texts:
            yield part if isinstance(part, str) else str(part.get("text", ""))


WRITTEN = "text_"
"""Prefix of the ids of calls that are written in the text of a reply (see `replies/answers.py`)."""
_CLIENTS_OWN = ("tool_calls", "function_call")
"""Fields in which clients repeat the calls of a reply; the message's own calls count."""


def rebuild_reply(step: Step, native: bool) -> AIMessage:
    """Return the reply of a step as a message every provider accepts; without `native`, its calls are written as text.

    >>> step = Step(index=0, raw="I zoom.", calls=(ToolCall(id="c1", name="zoom", parameters={"x": 1}),))
    >>> rebuild_reply(step, native=False).content
    'I zoom.\\n<tool_call>\\n{"name": "zoom", "parameters": {"x": 1}}\\n</tool_call>'
    """
    functions = [call for call in step.calls if not call.id.startswith(WRITTEN)]
    if native:
        return AIMessage(step.raw, tool_calls=_functions(functions))
    return AIMessage(_with_calls(step.raw, functions))


def is_same_reply(message: AIMessage, step: Step) -> bool:
    """Return True if a stored message is the reply a step was parsed from: same text, and same calls by id.

    Two criteria often begin with the same words and the same call, but a conversation can only continue with its own
    ids.
    """
    functions = [call for call in step.calls if not call.id.startswith(WRITTEN)]
    if text_of(message) != step.raw:
        return False
    return not step.calls or (
        len(message.tool_calls) == len(functions) and all(map(_is_same_call, message.tool_calls, functions))
    )


def _is_same_call(message_call: LangChainCall, call: ToolCall) -> bool:
    """Return True if a call of a message is that of a step; some providers give no ids."""
    same_id = (message_call.get("id") or call.id) == call.id
    return same_id and message_call["name"] == call.name and dict(message_call["args"]) == dict(call.parameters)


def change_reply(message: AIMessage, step: Step, thought: str | None, calls: Sequence[ToolCall]) -> AIMessage:
    """Return the reply with a different thought or other call parameters; its answer is dropped.

    Fields that the provider needs to continue, such as signatures of thoughts, are kept.
    """
    functions = [call for call in calls if not call.id.startswith(WRITTEN)]
    content = change_reply_text(step, thought, calls)
    further = {name: value for name, value in message.additional_kwargs.items() if name not in _CLIENTS_OWN}
    if message.tool_calls:
        return AIMessage(content, tool_calls=_functions(functions), additional_kwargs=further)
    return AIMessage(_with_calls(content, functions), additional_kwargs=further)


def change_reply_text(step: Step, thought: str | None, calls: Sequence[ToolCall]) -> str:
    """Return the text of a reply with a different thought or other parameters of the calls written in it.

    >>> change_reply_text(Step(index=0, raw="I zoom.", thought="I zoom."), "I doubt it.", ())
    '<Start Thinking>I doubt it.</Start Thinking>'
    """
    written = [call for call in calls if call.id.startswith(WRITTEN)]
    if thought is None and not written:
        return step.raw
    return _with_calls(f"<Start Thinking>{thought or step.thought}</Start Thinking>", written)


def _functions(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    return [{"name": call.name, "args": dict(call.parameters), "id": call.id, "type": "tool_call"} for call in calls]


def _with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """Append calls to a text in the syntax of the text protocol."""
    if not calls:
        return text
    lines = [json.dumps({"name": call.name, "parameters": dict(call.parameters)}, ensure_ascii=False) for call in calls]
    block = "\n".join(("<tool_call>", *lines, "</tool_call>"))
    return f"{text}\n{block}" if text else block


ROLES = {"human": "user", "ai": "assistant"}


def set_question_content(span: Span, messages: Sequence[AnyMessage], album: Album, limits: EncodingLimits) -> None:
    """Set the attributes of a chat span that describe the request: picture hashes, and messages if these are captured."""
    if not span:
        return
    span.set(editloupe__pictures=list(dict.fromkeys(find_pictures(messages))))
    if captures_content():
        span.set(gen_ai__input__messages=_to_json([_span_message(message, album, limits) for message in messages]))


def set_reply_content(span: Span, message: AIMessage, finish: str) -> None:
    """Set the reply's text on a chat span, if messages are captured."""
    if span and captures_content():
        record = {**_span_message(message, None, None), "finish_reason": finish}
        span.set(gen_ai__output__messages=_to_json([record]))


def _span_message(message: AnyMessage, album: Album | None, limits: EncodingLimits | None) -> dict[str, Any]:
    content = message.content if isinstance(message.content, list) else [message.content]
    parts = [_span_part(part, album, limits) for part in content]
    if isinstance(message, AIMessage):
        parts += [
            {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]}
            for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": str(message.content)}]
    return {"role": ROLES.get(message.type, message.type), "parts": parts}


def _span_part(part: Any, album: Album | None, limits: EncodingLimits | None) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {"type": "text", "content": str(part)}
    if part.get("type") != PICTURE:
        return {"type": "text", "content": str(part.get("text", ""))}
    if album is None or limits is None or not captures_pictures():
        return {"type": "file", "modality": "image", "file_id": part["sha"]}
    wire = album[part["sha"]].wire(limits)
    return {"type": "blob", "modality": "image", "mime_type": wire.media_type, "content": wire.base64.decode()}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
