"""Checks that every server of ours makes before anything else: who asks, by which name, and how much comes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive


class TokenAttempts:
    """Counts wrong tokens by who sent them: so many at once, then one every few seconds.

    While somebody has to wait, a right token is refused as well: else the answer would tell that it was right.
    """

    def __init__(self, at_once: int = 10, seconds: float = 6.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once = at_once
        self._seconds = seconds
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def wait(self, who: str) -> float:
        """Return the seconds before somebody may try again, 0 where that is at once."""
        ahead = self._until.get(who, 0.0) - self._clock()
        return max(0.0, ahead - (self._at_once - 1) * self._seconds)

    def wrong(self, who: str) -> None:
        """Count a wrong token."""
        self._until[who] = max(self._until.pop(who, 0.0), self._clock()) + self._seconds
        while len(self._until) > 4096:
            self._until.popitem(last=False)


def host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets.

    >>> host_name("localhost:8642"), host_name("[::1]:8642"), host_name("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def counted(receive: Receive, limit: int) -> Receive:
    """Count the bytes that really come: a request can state one length and send another."""
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit:
            raise HTTPException(413, too_large(limit))
        return message

    return receive_some


def too_large(limit: int) -> str:
    """Say that a request is larger than it may be."""
    return f"That is more than the limit of {limit // 2**20} MB."
