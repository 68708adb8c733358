"""Pictures join a request at the door: until its last moment a request carries a short reference for each of them.

LangChain and the openai package copy, check and write out every message of every request as JSON. A conversation sends the same
megabytes with each turn, so all of that would be done anew on text that nobody looks at. A hook of the HTTP client puts
the pictures, encoded once, in the place of their references; what goes over the wire is the same, byte for byte.
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
_REFERENCE = re.compile(rb'(?<!\\)"' + _MARK.encode() + rb'([0-9a-f]+)"')
"""A whole JSON string. A reference somebody quotes in a text is not one: quotes within a text are escaped."""
_ATTACHED: ContextVar[tuple[Album, WireLimits] | None] = ContextVar("editloupe_attached", default=None)


def reference_to(sha: Sha) -> str:
    """Return what stands for a picture's data URL until the request leaves."""
    return _MARK + sha


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
    """Return a JSON body with the pictures' data URLs in the place of their references."""
    parts: list[bytes] = []
    end = 0
    for found in _REFERENCE.finditer(body):
        wire = album[found[1].decode()].wire(limits)
        parts += [body[end : found.start()], b'"data:', wire.media_type.encode(), b";base64,", wire.base64, b'"']
        end = found.end()
    return b"".join([*parts, body[end:]])
