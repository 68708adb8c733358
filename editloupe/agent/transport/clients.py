"""The chat clients of one judge, one an event loop: a connection belongs to the loop it was opened on."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


@dataclass(frozen=True)
class Client:
    """A LangChain chat client, and how its connections are closed."""

    model: BaseChatModel
    aclose: Callable[[], Awaitable[None]]
    attaches: bool = True
    """Whether a hook puts the pictures into its requests on their way; else they are written into its messages."""
    notes: tuple[str, ...] = ()
    """What a user should know about how this client was opened."""


class Clients:
    """Opens a client for every loop that asks; the first is opened at once, so that what is wrong with it is told at once."""

    def __init__(self, open_client: Callable[[], Client]) -> None:
        self._open = open_client
        self._spare: Client | None = open_client()
        self.notes = self._spare.notes
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def here(self) -> Client:
        """Return the client of the running loop."""
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            with self._lock:
                client, self._spare = self._spare or self._open(), None
                self._by_loop[loop] = client
        return client

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        with self._lock:
            client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client:
            await client.aclose()

    def drop(self) -> None:
        """Have every loop that still runs close its connections when it comes to it; waits for nothing."""
        with self._lock:
            clients, self._by_loop = list(self._by_loop.items()), weakref.WeakKeyDictionary()
        for loop, client in clients:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(_close_soon, client)


_CLOSING: set[asyncio.Task[None]] = set()


def _close_soon(client: Client) -> None:
    async def close() -> None:
        with suppress(Exception):  # nobody is left to be told
            await client.aclose()

    task = asyncio.get_running_loop().create_task(close())
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)
