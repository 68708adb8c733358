"""What a request said, as a trace keeps it: the texts word for word, pictures by hash."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from editloupe.frozen_record import Record, Sha


class AskedPicture(Record):
    """A picture in a message to the model; its pixels are kept by hash."""

    picture: str
    """Its name, as the model is told."""
    sha: Sha


class AskedMessage(Record):
    """A message of a request, word for word."""

    role: Literal["system", "user", "tool", "assistant"]
    content: tuple[str | AskedPicture, ...] = ()
    """Texts and pictures in the order in which they were sent; nothing of a reply, whose words are in an earlier step."""
    prompt: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """Which text of the trace's prompt is the message's; its pictures are in `content`."""
    call_id: str = Field(default="", exclude_if=lambda value: not value)
    name: str = Field(default="", exclude_if=lambda value: not value)
    """Of the tool that answers."""
