"""The texts of a conversation for a span, where they are asked for: pictures by hash, as bytes only where that is asked too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from editloupe.agent.messages import PICTURE
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import WireLimits
from editloupe.telemetry.spans import Span, holds_content, holds_pictures
from editloupe.types import Sha

ROLES = {"human": "user", "ai": "assistant"}


def put_question(span: Span, messages: Sequence[AnyMessage], album: Album, limits: WireLimits) -> None:
    """Put what is asked into a chat span."""
    if not span:
        return
    span.set(editloupe__pictures=list(dict.fromkeys(_pictures(messages))))
    if holds_content():
        span.set(gen_ai__input__messages=_dumped([_message(message, album, limits) for message in messages]))


def put_reply(span: Span, message: AIMessage, finish: str) -> None:
    """Put what was answered into a chat span."""
    if span and holds_content():
        told = {**_message(message, None, None), "finish_reason": finish}
        span.set(gen_ai__output__messages=_dumped([told]))


def _pictures(messages: Iterable[AnyMessage]) -> Iterable[Sha]:
    for message in messages:
        for part in message.content if isinstance(message.content, list) else ():
            if isinstance(part, dict) and part.get("type") == PICTURE:
                yield part["sha"]


def _message(message: AnyMessage, album: Album | None, limits: WireLimits | None) -> dict[str, Any]:
    content = message.content if isinstance(message.content, list) else [message.content]
    parts = [_part(part, album, limits) for part in content]
    if isinstance(message, AIMessage):
        parts += [
            {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]}
            for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": str(message.content)}]
    return {"role": ROLES.get(message.type, message.type), "parts": parts}


def _part(part: Any, album: Album | None, limits: WireLimits | None) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {"type": "text", "content": str(part)}
    if part.get("type") != PICTURE:
        return {"type": "text", "content": str(part.get("text", ""))}
    if album is None or limits is None or not holds_pictures():
        return {"type": "file", "modality": "image", "file_id": part["sha"]}
    wire = album[part["sha"]].wire(limits)
    return {"type": "blob", "modality": "image", "mime_type": wire.media_type, "content": wire.base64.decode()}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
