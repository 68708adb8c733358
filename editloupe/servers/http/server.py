"""Run an ASGI application until it is stopped, and finish pending work within a time limit."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from editloupe.types import UserError

STOPPING = (signal.SIGINT, signal.SIGTERM)
BACKLOG = 1024
"""Connections that may wait to be accepted."""


@dataclass(frozen=True)
class ServerShutdown:
    """How a server ends."""

    sentence: str
    """Printed once when the server was stopped."""
    before: Callable[[], Awaitable[None]]
    """Finishes pending work before the connections are closed."""
    leave: Callable[[], None]
    """Removes temporary files if the process is ended by force."""
    seconds: float
    """Time limit after which the process ends even if a worker thread is still busy."""


class StoppableServer(uvicorn.Server):
    """A uvicorn server that finishes pending work when stopped and exits without re-raising the signal."""

    def __init__(self, app: ASGIApp, ending: ServerShutdown, answering: int = 1, keep_alive: int = 5) -> None:
        """Configure the server.

        Args:
            app: The application.
            ending: How the server ends.
            answering: Seconds for the last answers to go out once `ending.before` is done.
            keep_alive: Seconds an idle connection stays open.
        """
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,  # it would write down a token that is part of an address
                server_header=False,
                proxy_headers=False,  # else anyone on this machine could pose as another sender with every guess
                timeout_graceful_shutdown=answering,
                timeout_keep_alive=keep_alive,
                backlog=BACKLOG,
                ws="none",
            )
        )
        self._ending = ending
        self.stopped_by: int | None = None
        self._stop_announced = False

    @property
    def exit_code(self) -> int:
        """130 after Ctrl+C, 143 after SIGTERM, as a shell counts them."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle Ctrl+C and SIGTERM while the server runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in STOPPING}
        try:
            yield
        finally:
            # Nothing is left to be interrupted but the end; a second Ctrl+C must not turn it into a traceback.
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self.stopped_by else handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server. The process ends within the time limit even if a worker thread does not."""
        if self.stopped_by is None:
            self.stopped_by = sig
            last = threading.Timer(self._ending.seconds, self._leave)
            last.daemon = True
            last.start()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish pending work, then close the connections."""
        # A request that is cut off here was not a fault.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await self._ending.before()
        await super().shutdown(sockets)

    def say_stopped(self) -> None:
        """Print once that the server was stopped, if it was."""
        if self.stopped_by is not None and not self._stop_announced:
            self._stop_announced = True
            print(self._ending.sentence, file=sys.stderr, flush=True)

    def _leave(self) -> None:
        self._ending.leave()
        self.say_stopped()
        os._exit(self.exit_code)


def listen(host: str, port: int, what: str, option: str = "--port") -> socket.socket:
    """Return a listening socket; raise UserError, with the option that chooses the port, if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        why = error.strerror or str(error)
        raise UserError(f"{what} cannot listen on {host} port {port} ({why}); choose another with {option}") from None
    listener.listen(BACKLOG)
    return listener
