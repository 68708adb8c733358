"""Pictures join a request at the door: until its last moment a request carries a short reference for each of them.

LangChain and the providers' packages copy, check and write out every message of every request as JSON, and a tracer such as
LangSmith uploads what LangChain was given. A conversation sends the same megabytes with each turn, so all of that would be
done anew on text that nobody looks at. A hook of the HTTP client puts the pictures, encoded once, in the place of
their references; what goes over the wire is the same, byte for byte.
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
from editloupe.pictures.encode import Wire, WireLimits
from editloupe.types import Sha

if TYPE_CHECKING:
    from editloupe.agent.providers.provider import Profile

_ATTACHED: ContextVar[tuple[Album, WireLimits] | None] = ContextVar("editloupe_attached", default=None)


def wire_limits(long_side: int, profile: Profile) -> WireLimits:
    """Return how pictures are encoded for a model, where the user allows this long side."""
    return WireLimits(min(long_side, profile.max_long_side or long_side), profile.max_image_bytes)


def fit_limits(shas: Iterable[Sha], album: Album, limits: WireLimits, most: int | None) -> WireLimits:
    """Return limits within which these pictures fit one request; of the same sizes, since the sizes were announced.

    Pictures that come to more than the provider takes are packed more tightly; nothing else about them changes.
    """
    if most is None:
        return limits
    total = 0
    for sha in shas:
        total += len(album[sha].wire(limits).base64)
        if total > most:
            return replace(limits, packed=True)
    return limits


def data_url(wire: Wire) -> str:
    """Return a picture as a data URL."""
    return f"data:{wire.media_type};base64,{wire.base64.decode()}"


def data_url_parts(wire: Wire) -> Iterable[bytes]:
    """Return a picture as a data URL, in pieces."""
    return b"data:", wire.media_type.encode(), b";base64,", wire.base64


@dataclass(frozen=True)
class PictureForm:
    """How a provider is given a picture: as which content block, and what stands in the place of the picture till it leaves."""

    block: Callable[[str, str], dict[str, Any]]
    """The content block for a picture's text (or a reference to it) and its media type."""
    text: Callable[[Wire], str]
    """A picture as the text a block holds."""
    mark: str = ""
    """What a reference begins with, before the picture's hash."""
    fields: tuple[str, ...] = ()
    """The fields of a request's body that hold a picture; without any, pictures stand in lists."""
    sent: Callable[[Wire], Iterable[bytes]] | None = None
    """A picture as a body holds it, in pieces, so that its bytes are not copied for it; without this its text."""

    def reference_to(self, sha: Sha) -> str:
        """Return what stands for a picture until the request leaves."""
        return self.mark + sha

    def attach(self, body: bytes) -> bytes:
        """Return the body of an outgoing request with the pictures that `attach_pictures` provides in this context."""
        pictures = _ATTACHED.get()
        return body if pictures is None else self.fill(body, *pictures)

    def fill(self, body: bytes, album: Album, limits: WireLimits) -> bytes:
        """Return a JSON body with the pictures in the place of their references."""
        parts: list[bytes] = []
        end = 0
        for match in self._reference.finditer(body):
            sha = match["sha"].decode()
            if sha not in album:  # a model made the reference up
                continue
            wire = album[sha].wire(limits)
            parts += [
                body[end : match.start("reference")],
                *(self.sent(wire) if self.sent else (self.text(wire).encode(),)),
            ]
            end = match.end("reference")
        return b"".join([*parts, body[end:]])

    @cached_property
    def _reference(self) -> re.Pattern[bytes]:
        """A whole JSON string where a picture belongs; one quoted in a text is none, for quotes within a text are escaped."""
        before = rf'"(?:{"|".join(self.fields)})": ?' if self.fields else r"[\[,] ?"
        return re.compile(rf'{before}"(?P<reference>{self.mark}(?P<sha>[0-9a-f]+))"'.encode())


def current_pictures() -> tuple[Album, WireLimits] | None:
    """Return where the pictures are that this task's requests refer to, and how they are to be sent."""
    return _ATTACHED.get()


@contextmanager
def attach_pictures(album: Album, limits: WireLimits) -> Iterator[None]:
    """Say where the pictures are that this task's requests refer to, and how they are to be sent."""
    token = _ATTACHED.set((album, limits))
    try:
        yield
    finally:
        _ATTACHED.reset(token)
