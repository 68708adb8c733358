"""Starts the studio: takes a port, says where it is, and serves until it is stopped."""

from __future__ import annotations

import os
import signal
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

from editloupe.servers.http.access import server_url
from editloupe.servers.http.server import STOPPING, Ending, StoppableServer, listen
from editloupe.servers.studio.app import create_app
from editloupe.servers.studio.settings import StudioSettings
from editloupe.servers.studio.studio import Studio

STOPPED = "editloupe: the studio was stopped"
LEAVE_AFTER = 1.6
"""Seconds after which a stopped studio ends whatever a worker thread is still busy with."""


def serve(settings: StudioSettings, open_browser: bool = False) -> int:
    """Serve until stopped and return the exit code; a port that is taken is the user's to change.

    This is the last thing a program does: once stopped, the process ends within two seconds.
    """
    with listen(settings.host, settings.port, "the studio") as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(settings)
        studio: Studio = app.state.studio
        with _leaving_properly(studio), closing(studio):
            studio.pages.warm()
            where = address(settings)
            print(f"EditLoupe studio: {where}\nPress Ctrl+C to stop.", file=sys.stderr, flush=True)
            server = StoppableServer(app, Ending(STOPPED, studio.end, studio.leave, LEAVE_AFTER))
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


def address(settings: StudioSettings) -> str:
    """Return the address to open; it holds the token."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"{server_url(host, settings.port)}/?token={quote(settings.token, safe='')}"


def _way_in(folder: Path, where: str) -> Path:
    """Write a file that leads to the address and that only this user can read.

    The address itself would stand among the browser's arguments, which everybody on this machine can list.
    """
    file = folder / "open.html"
    file.touch(0o600)
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(where)}">', "utf-8")
    return file
