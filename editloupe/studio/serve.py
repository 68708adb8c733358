"""Starts the studio: takes a port, says where it is, and serves until interrupted."""

from __future__ import annotations

import socket
import sys
import webbrowser
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote

import uvicorn

from editloupe.studio.app import create_app
from editloupe.studio.settings import StudioSettings
from editloupe.types import UserError


def serve(settings: StudioSettings, open_browser: bool = False) -> None:
    """Serve until interrupted; a port that is taken is the user's to change."""
    with listening(settings) as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(settings)
        app.state.studio.pages.warm()
        where = address(settings)
        print(f"EditLoupe studio: {where}\nPress Ctrl+C to stop.", file=sys.stderr, flush=True)
        if open_browser:
            webbrowser.open(where)
        # No access log: with a token in the first address, it would write the secret down.
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2, ws="none"
        )
        # Ctrl+C is how a server ends; uvicorn hands it on after it has closed everything.
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


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
    """Return the address to open, with the token where there is one."""
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    name = "127.0.0.1" if name in ("0.0.0.0", "[::]") else name
    rest = f"?token={quote(settings.token, safe='')}" if settings.token else ""
    return f"http://{name}:{settings.port}/{rest}"
