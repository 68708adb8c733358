"""Starts the studio: takes a port, says where it is, and serves until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path
from types import FrameType
from urllib.parse import quote

import uvicorn

from editloupe.studio.app import create_app
from editloupe.studio.settings import StudioSettings
from editloupe.studio.studio import Studio
from editloupe.types import UserError

STOPPING = (signal.SIGINT, signal.SIGTERM)
STOPPED = "editloupe: the studio was stopped"
LEAVE_AFTER = 1.6
"""Seconds after which a stopped studio ends whatever a worker thread is still busy with."""


def serve(settings: StudioSettings, open_browser: bool = False) -> int:
    """Serve until stopped and return the exit code; a port that is taken is the user's to change.

    This is the last thing a program does: once stopped, the process ends within two seconds.
    """
    with listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(settings)
        studio: Studio = app.state.studio
        with _leaving_properly(studio), closing(studio):
            studio.pages.warm()
            where = address(settings)
            print(f"EditLoupe studio: {where}\nPress Ctrl+C to stop.", file=sys.stderr, flush=True)
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,  # it would write the token of the first address down
                server_header=False,
                proxy_headers=False,  # whoever is on this machine could pretend to be somebody else with every guess
                timeout_graceful_shutdown=1,
                ws="none",
            )
            server = StoppableServer(config, studio)
            if open_browser:
                webbrowser.open(_way_in(studio.uploads.folder, where).as_uri())
            server.run(sockets=[listener])
    server.say_stopped()
    return server.exit_code


@contextmanager
def _leaving_properly(studio: Studio) -> Iterator[None]:
    """Until the server listens to signals itself, a stop ends the process at once, without what is temporary."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        studio.leave()
        os.write(2, f"{STOPPED}\n".encode())
        os._exit(128 + number)

    before = {number: signal.signal(number, leave) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is leave:
                signal.signal(number, handler)


class StoppableServer(uvicorn.Server):
    """A server that ends its event streams when it is stopped, and ends by itself instead of raising the signal anew."""

    def __init__(self, config: uvicorn.Config, studio: Studio) -> None:
        super().__init__(config)
        self._studio = studio
        self.stopped_by: int | None = None
        self._said = False

    @property
    def exit_code(self) -> int:
        """130 after Ctrl+C, 143 after SIGTERM, as a shell counts them."""
        return 0 if self.stopped_by is None else 128 + self.stopped_by

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to Ctrl+C and SIGTERM for as long as the server runs."""
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
        """Stop; the process ends within the time given even where a worker thread does not."""
        if self.stopped_by is None:
            self.stopped_by = sig
            last = threading.Timer(LEAVE_AFTER, self._leave)
            last.daemon = True
            last.start()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every judging, and with it the streams that follow it; then close the connections."""
        # A request that is cut off here was not a fault.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await self._studio.jobs.close()
        await super().shutdown(sockets)

    def say_stopped(self) -> None:
        """Say once that the studio was stopped, where it was."""
        if self.stopped_by is not None and not self._said:
            self._said = True
            print(STOPPED, file=sys.stderr, flush=True)

    def _leave(self) -> None:
        self._studio.leave()
        self.say_stopped()
        os._exit(self.exit_code)


def listening(settings: StudioSettings) -> socket.socket:
    """Return a socket on the wanted address."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        why = error.strerror or str(error)
        raise UserError(
            f"the studio cannot listen on {settings.host} port {settings.port} ({why}); choose another with --port"
        ) from None
    listener.listen(128)
    return listener


def address(settings: StudioSettings) -> str:
    """Return the address to open; it holds the token."""
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    name = "127.0.0.1" if name in ("0.0.0.0", "[::]") else name
    return f"http://{name}:{settings.port}/?token={quote(settings.token, safe='')}"


def _way_in(folder: Path, where: str) -> Path:
    """Write a file that leads to the address and that only this user can read.

    The address itself would stand among the browser's arguments, which everybody on this machine can list.
    """
    file = folder / "open.html"
    file.touch(0o600)
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(where)}">', "utf-8")
    return file
