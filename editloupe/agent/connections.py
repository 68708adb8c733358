"""Connections to a model server, each found at once however many there are.

The HTTP libraries' own pool looks at every connection it has, and asks the system about every idle one, whenever a request begins
or ends. With 32 requests under way that is a tenth of the event loop's work.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

from editloupe.agent.http import trust


class SingleConnections:
    """A transport made of transports with one connection each; the one used last is used next."""

    def __init__(self, make: Callable[[], Any], stream: type[Any]) -> None:
        self._make = make
        self._stream = stream
        self._free: list[Any] = []
        self._all: list[Any] = []

    async def __aenter__(self) -> SingleConnections:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request over a free connection, or over one more."""
        one = self._free.pop() if self._free else self._another()
        try:
            response = await one.handle_async_request(request)
        except BaseException:
            self._free.append(one)
            raise
        response.stream = self._stream(response.stream, lambda: self._free.append(one))
        return response

    def _another(self) -> Any:
        self._all.append(self._make())
        return self._all[-1]

    async def aclose(self) -> None:
        """Close all connections."""
        self._free.clear()
        while self._all:
            await self._all.pop().aclose()


class OneConnection:
    """Stands for the pool of a transport that has one connection: that is used again, or another is opened in its place.

    The pool would look three times at each request whether the server has closed it; once, before the request, is enough.
    """

    def __init__(self, pool: Any, unavailable: type[Exception]) -> None:
        self._pool = pool
        self._unavailable = unavailable
        self._connection: Any = None

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request."""
        try:
            return await (await self._usable(request)).handle_async_request(request)
        except self._unavailable:  # the server closed it after we looked, and nothing was sent
            return await (await self._another(request)).handle_async_request(request)

    async def _usable(self, request: Any) -> Any:
        one, origin = self._connection, request.url.origin
        if one is None or one.is_closed() or not one.can_handle_request(origin) or one.has_expired():
            return await self._another(request)
        return one

    async def _another(self, request: Any) -> Any:
        await self.aclose()
        self._connection = self._pool.create_connection(request.url.origin)
        return self._connection

    async def aclose(self) -> None:
        """Close the connection."""
        one, self._connection = self._connection, None
        if one is not None:
            await one.aclose()


@cache
def _returning(base: type[Any]) -> type[Any]:
    class Returning(base):  # type: ignore[misc]
        """The body of a reply; when it is closed, its connection is free again."""

        def __init__(self, body: Any, free: Callable[[], None]) -> None:
            self._body = body
            self._free: Callable[[], None] | None = free

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self._body:
                yield part

        async def aclose(self) -> None:
            """Close the body and give the connection back, once."""
            free, self._free = self._free, None
            try:
                await self._body.aclose()
            finally:
                if free:
                    free()

    return Returning


def spread(client: Any) -> bool:
    """Have an HTTP client use single connections; False, and nothing is changed, where its version is built otherwise.

    Requests that the environment sends through a proxy keep the library's own pool.
    """
    library: Any = next(
        (sys.modules.get(kind.__module__.partition(".")[0]) for kind in type(client).__mro__[-2::-1]), None
    )
    usual: Any = getattr(library, "AsyncHTTPTransport", None)
    stream: Any = getattr(library, "AsyncByteStream", None)
    if usual is None or stream is None or type(getattr(client, "_transport", None)) is not usual:
        return False
    client._transport = SingleConnections(lambda: _with_one_connection(library), _returning(stream))
    return True


def _with_one_connection(library: Any) -> Any:
    """Return a transport with one connection; with the library's own pool for it where its version is built otherwise."""
    single = library.Limits(max_connections=1, max_keepalive_connections=1)
    transport = library.AsyncHTTPTransport(verify=trust(), limits=single)
    pool = getattr(transport, "_pool", None)
    core = sys.modules.get(type(pool).__module__.partition(".")[0])
    unavailable = getattr(core, "ConnectionNotAvailable", None)
    if unavailable is not None and hasattr(pool, "create_connection"):
        transport._pool = OneConnection(pool, unavailable)
    return transport
