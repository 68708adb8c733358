"""The conversation as the graph keeps it: LangChain messages whose pictures are references, filled in only on the way out.

Pictures a tool returns go back in a user message, after the tool messages of all calls: Chat Completions servers take only text
in a tool message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from editloupe.agent.attachments import inline_reference_to, reference_to
from editloupe.agent.profiles import Provider
from editloupe.images import Album, WireLimits
from editloupe.storable import fits, storable
from editloupe.types import Observation, Reason, Sent, Sha

PICTURE = "picture"
FILTERED = ("content_filter", "safety", "prohibited_content", "blocklist", "recitation", "spii", "image_safety")
"""Finish reasons by which OpenAI and Gemini say that a filter held the reply back, or the rest of it."""
CUT_OFF = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
"""Finish reasons by which providers say that a reply reached the length limit."""
BROKEN_OFF = ("incomplete", "failed", "cancelled", "abort", "aborted", "error", "other", "insufficient_system_resource")
"""Finish reasons by which servers say that a reply ended early for another reason."""
Block = dict[str, Any]


@dataclass(frozen=True)
class Unfinished:
    """A reply that is not whole, so that nothing in it is an answer."""

    problem: str
    """What the model is told."""
    detail: str
    """What a person is told."""
    truncated: bool = True
    """True where the length limit was reached."""


def picture_block(sha: Sha, name: str) -> Block:
    """Return a reference to a picture, as it stands in the graph's state."""
    return {"type": PICTURE, "sha": sha, "name": name}


def text_block(text: str) -> Block:
    """Return a block of text."""
    return {"type": "text", "text": text}


def announced(name: str, sha: Sha, album: Album, limits: WireLimits) -> list[Block]:
    """Return a picture behind a line that gives its name and its size as sent."""
    width, height = album[sha].wire(limits).size
    return [text_block(f"{name} ({width} × {height} pixels):"), picture_block(sha, name)]


def observed(
    reply: AIMessage, observations: Sequence[Observation], album: Album, limits: WireLimits
) -> list[AnyMessage]:
    """Return what the judge reads after its calls: a sentence for every call, then the pictures together."""
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
            blocks += announced(caption, sha, album, limits)
    if blocks:
        messages.append(HumanMessage(blocks))
    return messages


def told(reply: AIMessage | None, sentence: str) -> list[AnyMessage]:
    """Return what the judge reads when its reply could not be used; every call it made gets its answer too."""
    asked = [*reply.tool_calls, *reply.invalid_tool_calls] if reply else []
    unanswered: list[AnyMessage] = [
        ToolMessage("Not carried out.", tool_call_id=str(call["id"]), name=call["name"], status="error")
        for call in asked
    ]
    return [*unanswered, HumanMessage(sentence)]


def text_of(message: AIMessage) -> str:
    """Return the visible text of a reply, without its reasoning blocks."""
    if isinstance(message.content, str):
        return message.content
    parts = (part if isinstance(part, str) else part.get("text", "") for part in message.content if _is_text(part))
    return "\n".join(str(part) for part in parts)


def finish_of(message: AIMessage) -> str:
    """Return the provider's word for how a reply ended; empty where it says nothing."""
    facts = message.response_metadata
    why = facts.get("incomplete_details") or {}
    said = why.get("reason") if isinstance(why, dict) else None
    said = said or facts.get("finish_reason") or facts.get("stop_reason")
    status = str(facts.get("status") or "")
    return str(said or (status if status in BROKEN_OFF else ""))


def unfinished(message: AIMessage) -> Unfinished | None:
    """Say in what way a reply is not whole; None where it is."""
    finish = finish_of(message)
    if finish.lower() in CUT_OFF:
        return Unfinished(
            f"Your reply was cut off by the length limit (finish reason: {finish}), so nothing in it counts; "
            "keep your reasoning much shorter and come to the end.",
            f"the judge's reply was cut off by the length limit (finish reason: {finish}); "
            "--max-output-tokens allows longer replies",
        )
    if finish.lower() in BROKEN_OFF:
        return Unfinished(
            f"Your reply broke off (finish reason: {finish}), so nothing in it counts.",
            f"the judge's reply broke off (finish reason: {finish})",
            truncated=False,
        )
    return None


def refusal_of(message: AIMessage) -> dict[str, str] | None:
    """Return why a provider's filter or the model itself declined to answer, in the form of a judge's own `unjudged`."""
    facts = message.response_metadata
    refusal = message.additional_kwargs.get("refusal")
    finish = finish_of(message)
    if refusal:
        said = f"the model declined to answer: {refusal}"
    elif finish.lower() in FILTERED:
        held = "a part of the reply" if text_of(message).strip() else "the reply"
        said = f"the provider's content filter held {held} back (finish reason {finish})"
    elif not finish and (facts.get("prompt_feedback") or {}).get("block_reason"):
        said = "the provider's content filter refused the request"
    else:
        return None
    return {"reason": Reason.REFUSED.value, "detail": said}


def _is_text(part: str | dict[str, Any]) -> bool:
    return isinstance(part, str) or part.get("type") == "text"


def on_the_wire(
    messages: Iterable[AnyMessage], provider: Provider, album: Album, limits: WireLimits
) -> list[AnyMessage]:
    """Return the conversation in the provider's form; its pictures stay references until the request leaves."""
    out: list[AnyMessage] = []
    for message in messages:
        content = message.content
        if isinstance(message, HumanMessage) and isinstance(content, list):
            blocks: list[str | Block] = [
                _filled(part, provider, album, limits) if isinstance(part, dict) else part for part in content
            ]
            out.append(HumanMessage(blocks))
        elif isinstance(message, ToolMessage):
            out.append(message.model_copy(update={"artifact": None}))
        else:
            out.append(message)
    return out


def _filled(block: Block, provider: Provider, album: Album, limits: WireLimits) -> Block:
    if block.get("type") != PICTURE:
        return block
    if provider == "openai":
        return {"type": "image_url", "image_url": {"url": reference_to(block["sha"]), "detail": "high"}}
    media_type = album[block["sha"]].wire(limits).media_type
    return {"type": "image", "base64": inline_reference_to(block["sha"]), "mime_type": media_type}


def sent_pictures(messages: Iterable[AnyMessage], album: Album, limits: WireLimits) -> tuple[Sent, ...]:
    """Say how the pictures of these messages go out, for the trace."""
    blocks = (part for m in messages if isinstance(m.content, list) for part in m.content if isinstance(part, dict))
    return tuple(album[b["sha"]].sent(b["name"], limits) for b in blocks if b.get("type") == PICTURE)


def storable_message(message: AIMessage) -> AIMessage:
    """Return a reply that can be kept, traced and sent back: half an emoji, endless nesting or NaN carry a mark."""
    parts = {name: getattr(message, name) for name in _PARTS}
    marked = {name: storable(part) for name, part in parts.items() if not fits(part)}
    return message.model_copy(update=marked) if marked else message


_PARTS = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "response_metadata")
