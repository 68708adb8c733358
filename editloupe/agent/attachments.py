"""Pictures join a request at the door: until its last moment a request carries a short reference for each of them.

LangChain and the providers' packages copy, check and write out every message of every request as JSON, and a tracer such as
LangSmith uploads what LangChain was given. A conversation sends the same megabytes with each turn, so all of that would be
done anew on text that nobody looks at. A hook of the HTTP client puts the pictures, encoded once, in the place of
their references; what goes over the wire is the same, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from editloupe.images import Album, WireLimits
from editloupe.types import Sha

_MARK = "editloupe-picture:"
_INLINE = "EditLoupePicture"
"""Gemini's client decodes and encodes what it takes for base64. These 16 letters and a hash of 32 come out as they went in."""
_REFERENCE = re.compile(
    rf'"(?:(?:image_)?url": ?"{_MARK}(?P<url>[0-9a-f]+)"|data": ?"{_INLINE}(?P<data>[0-9a-f]+)")'.encode()
)
"""A whole JSON string where a picture belongs. A reference quoted in a text is not one: quotes within a text are escaped."""
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
"""Gemini's client writes bytes in the alphabet for addresses."""
_ATTACHED: ContextVar[tuple[Album, WireLimits] | None] = ContextVar("editloupe_attached", default=None)


def reference_to(sha: Sha) -> str:
    """Return what stands for a picture's data URL until the request leaves."""
    return _MARK + sha


def inline_reference_to(sha: Sha) -> str:
    """Return what stands for a picture's bare base64 text until the request leaves."""
    return _INLINE + sha


@contextmanager
def attaching(album: Album, limits: WireLimits) -> Iterator[None]:
    """Say where the pictures are that this task's requests refer to, and how they are to be sent."""
    token = _ATTACHED.set((album, limits))
    try:
        yield
    finally:
        _ATTACHED.reset(token)


async def attach(request: Any) -> None:
    """Put the pictures into an outgoing HTTP request; a hook for `event_hooks={"request": [attach]}`."""
    attached = _ATTACHED.get()
    if attached is None:
        return
    body = filled(await request.aread(), *attached)
    request.stream = type(request.stream)(body)
    request.headers["Content-Length"] = str(len(body))


def filled(body: bytes, album: Album, limits: WireLimits) -> bytes:
    """Return a JSON body with the pictures in the place of their references."""
    parts: list[bytes] = []
    end = 0
    for found in _REFERENCE.finditer(body):
        kind = str(found.lastgroup)
        try:
            wire = album[found[kind].decode()].wire(limits)
        except KeyError:  # the words of a model that made one up
            continue
        before = body[end : found.start(kind) - len(_MARK if kind == "url" else _INLINE)]
        if kind == "url":
            parts += [before, b"data:", wire.media_type.encode(), b";base64,", wire.base64]
        else:
            parts += [before, wire.base64.translate(_URL_SAFE)]
        end = found.end(kind)
    return b"".join([*parts, body[end:]])
