"""Replace references to pictures by their bytes just before a request is sent.

LangChain and the providers' packages copy, check and serialize every message of every request, and a tracer such as
LangSmith uploads LangChain's inputs. A conversation sends the same megabytes with each turn. The messages therefore
carry short references, and a hook of the HTTP client inserts the pictures, which are encoded once. The request on the
wire is the same, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodedPicture, EncodingLimits
from editloupe.types import Sha

if TYPE_CHECKING:
    from editloupe.agent.providers.provider import Profile

_ATTACHED: ContextVar[tuple[Album, EncodingLimits] | None] = ContextVar("editloupe_attached", default=None)

OWN_PIECE = 2**16
"""Bytes from which a part of a body is sent without being copied. Smaller ones are joined, since each piece is a system call."""


def wire_limits(long_side: int, profile: Profile) -> EncodingLimits:
    """Return the limits for encoding pictures for a model, given the user's maximum long side."""
    return EncodingLimits(min(long_side, profile.max_long_side or long_side), profile.max_image_bytes)


def fit_limits(shas: Iterable[Sha], album: Album, limits: EncodingLimits, most: int | None) -> EncodingLimits:
    """Return limits under which these pictures fit into one request.

    Pictures that exceed the provider's maximum are compressed more; their sizes stay, because they were announced.
    """
    if most is None:
        return limits
    total = 0
    for sha in shas:
        total += len(album[sha].wire(limits).base64)
        if total > most:
            return replace(limits, packed=True)
    return limits


def data_url(wire: EncodedPicture) -> str:
    """Return a picture as a data URL."""
    return f"data:{wire.media_type};base64,{wire.base64.decode()}"


def data_url_parts(wire: EncodedPicture) -> Iterable[bytes]:
    """Return a picture as a data URL, in pieces."""
    return b"data:", wire.media_type.encode(), b";base64,", wire.base64


def base64_text(wire: EncodedPicture) -> str:
    """Return a picture in base64."""
    return wire.base64.decode()


def base64_parts(wire: EncodedPicture) -> Iterable[bytes]:
    """Return a picture in base64, in pieces."""
    return (wire.base64,)


def base64_block(text: str, media_type: str) -> dict[str, Any]:
    """Return LangChain's block of a picture in base64, which most clients translate for their provider."""
    return {"type": "image", "base64": text, "mime_type": media_type}


@dataclass(frozen=True)
class PictureForm:
    """The content block in which a provider takes a picture, and the reference that represents it until the request is sent."""

    block: Callable[[str, str], dict[str, Any]]
    """Builds the content block from a picture's text (or a reference to it) and its media type."""
    text: Callable[[EncodedPicture], str]
    """A picture as the text of a block."""
    mark: str = ""
    """Prefix of a reference, followed by the picture's hash."""
    fields: tuple[str, ...] = ()
    """Fields of a request's body that hold a picture; if empty, pictures are items of lists."""
    sent: Callable[[EncodedPicture], Iterable[bytes]] | None = None
    """A picture as it appears in a body, in pieces, so that its bytes are not copied; default: its text."""

    def reference_to(self, sha: Sha) -> str:
        """Return the reference that represents a picture until the request is sent."""
        return self.mark + sha

    def attach(self, body: bytes) -> list[bytes]:
        """Return the body of a request, in pieces, with the pictures of the current `attach_pictures` context."""
        pictures = _ATTACHED.get()
        return [body] if pictures is None else self.fill(body, *pictures)

    def fill(self, body: bytes, album: Album, limits: EncodingLimits) -> list[bytes]:
        """Return a JSON body, in pieces, with all references replaced by pictures.

        A picture is a piece of its own: all requests of an edit share its bytes while they wait for their replies.
        """
        pieces: list[bytes] = []
        before: list[bytes] = []
        end = 0
        for match in self._reference.finditer(body):
            sha = match["sha"].decode()
            if sha not in album:  # the model invented the reference
                continue
            wire = album[sha].wire(limits)
            before.append(body[end : match.start("reference")])
            for part in self.sent(wire) if self.sent else (self.text(wire).encode(),):
                before.append(part)
                if len(part) >= OWN_PIECE:
                    pieces += [b"".join(before[:-1]), part]
                    before = []
            end = match.end("reference")
        return [*pieces, b"".join([*before, body[end:]])]

    @cached_property
    def _reference(self) -> re.Pattern[bytes]:
        """Matches a complete JSON string in the position of a picture.

        References quoted in a text do not match, because their quotes are escaped.
        """
        before = rf'"(?:{"|".join(self.fields)})": ?' if self.fields else r"[\[,] ?"
        return re.compile(rf'{before}"(?P<reference>{self.mark}(?P<sha>[0-9a-f]+))"'.encode())


def current_pictures() -> tuple[Album, EncodingLimits] | None:
    """Return the album and limits that this task's requests use, or None."""
    return _ATTACHED.get()


@contextmanager
def attach_pictures(album: Album, limits: EncodingLimits) -> Iterator[None]:
    """Set the album and limits that this task's requests use."""
    token = _ATTACHED.set((album, limits))
    try:
        yield
    finally:
        _ATTACHED.reset(token)
