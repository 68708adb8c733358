"""LangChain messages whose pictures are references until a request is sent.

Pictures that a tool returns go into a user message after the tool messages of all calls, because Chat Completions
servers accept only text in a tool message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from editloupe._util.json_safe import is_json_safe, sanitize
from editloupe.agent.transport.attachments import PictureForm
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.rubrics.wording import USUAL_WORDING, Wording, fill_in
from editloupe.types import Observation, SentPicture, Sha

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
    for message in messages:
        if isinstance(message.content, list):
            yield from (b["sha"] for b in message.content if isinstance(b, dict) and b.get("type") == PICTURE)


def describe_pictures(messages: Iterable[AnyMessage], album: Album, limits: EncodingLimits) -> tuple[SentPicture, ...]:
    """Return how the pictures of these messages are sent, for the trace."""
    blocks = (part for m in messages if isinstance(m.content, list) for part in m.content if isinstance(part, dict))
    return tuple(album[b["sha"]].sent(b["name"], limits) for b in blocks if b.get("type") == PICTURE)


def make_storable(message: AIMessage) -> AIMessage:
    """Return a reply that can be stored and sent back: broken surrogates, extreme nesting and NaN are replaced by marks."""
    parts = {name: getattr(message, name) for name in _PARTS}
    marked = {name: sanitize(part) for name, part in parts.items() if not is_json_safe(part)}
    return message.model_copy(update=marked) if marked else message


_PARTS = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")
