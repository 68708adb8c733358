"""What a request said, for the trace: its messages word for word, its pictures by hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage

from editloupe.agent.messages import PICTURE
from editloupe.types import AskedMessage, AskedPicture


def asked_messages(messages: Sequence[AnyMessage]) -> tuple[AskedMessage, ...]:
    """Return messages as a step keeps them; the first two of a conversation stand in the trace's prompt.

    A reply that went back to the model stands as a mark: its words are in the step before.
    """
    opens = bool(messages) and isinstance(messages[0], SystemMessage)
    return tuple(
        _message(message, place if opens and place < len(_OPENING) else None) for place, message in enumerate(messages)
    )


_OPENING = ("system", "user")


def _message(message: AnyMessage, prompt: int | None) -> AskedMessage:
    if isinstance(message, AIMessage):
        return AskedMessage(role="assistant")
    if isinstance(message, ToolMessage):
        name = message.name or ""
        return AskedMessage(role="tool", content=(str(message.content),), call_id=message.tool_call_id, name=name)
    parts = tuple(_parts(message.content, prompt is None))
    return AskedMessage(role="system" if isinstance(message, SystemMessage) else "user", content=parts, prompt=prompt)


def _parts(content: str | list[Any], texts: bool) -> Iterator[str | AskedPicture]:
    for part in [content] if isinstance(content, str) else content:
        if isinstance(part, dict) and part.get("type") == PICTURE:
            yield AskedPicture(picture=str(part["name"]), sha=part["sha"])
        elif texts:
            yield part if isinstance(part, str) else str(part.get("text", ""))
