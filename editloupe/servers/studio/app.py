"""Builds the studio's ASGI application and serves it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from editloupe.evals.runs.damage import RunDamaged
from editloupe.servers.http.access import server_url
from editloupe.servers.http.server import STOPPING, ServerShutdown, StoppableServer, listen
from editloupe.servers.studio.guard import PageGuard
from editloupe.servers.studio.render import HERE
from editloupe.servers.studio.routes import annotate, fork, judge, making, pairs, pictures, runs, trace, traces
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.settings import StudioSettings
from editloupe.servers.studio.studio import Studio, studio_of
from editloupe.types import UserError


def create_app(settings: StudioSettings) -> FastAPI:
    """Return the studio's application.

    Args:
        settings: The studio's settings.

    Raises:
        UserError: A run cannot be opened.
    """
    studio = Studio.open(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await studio.end()
        studio.close()

    app = FastAPI(
        title="EditLoupe studio",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        middleware=[Middleware(PageGuard, settings=settings, pages=studio.pages)],
    )
    app.state.studio = studio
    for part in (judge, runs, trace, traces, fork, annotate, making, pairs, pictures):
        app.include_router(part.router)
    app.add_api_route("/static/tokens.css", tokens, methods=["GET"])
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_api_route("/", home, methods=["GET"])
    app.add_exception_handler(UserError, _mistake)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _http_error)
    return app


def tokens() -> Response:
    """Return the colours and sizes that the studio shares with reports."""
    return FileResponse(str(files("editloupe.evals.report").joinpath("tokens.css")), media_type="text/css")


def home(request: Request) -> Response:
    """Redirect to the run the studio was started with, or to the Judge page."""
    studio = studio_of(request)
    runs_found = studio.catalog.all()
    if not runs_found and studio.making.folders:
        (first, *others) = studio.making.folders
        return RedirectResponse("/making" if others else f"/making/{first}")
    if len(runs_found) == 1 and isinstance(runs_found[0], OpenRun):
        return RedirectResponse(f"/runs/{runs_found[0].key}")
    if not runs_found and studio.pairs.all():
        return RedirectResponse("/pairs")
    return RedirectResponse("/runs" if runs_found else "/judge")


def _mistake(request: Request, error: Exception) -> Response:
    return _error_response(request, 503 if isinstance(error, RunDamaged) else 400, str(error))


def _not_understood(request: Request, error: Exception) -> Response:
    return _error_response(request, 404, "There is nothing at this address.")


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentences = {404: "There is nothing at this address.", 405: "This address is not used that way."}
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    return _error_response(
        request, status, sentences.get(status, detail) if detail in ("Not Found", "Method Not Allowed") else detail
    )


def _error_response(request: Request, status: int, sentence: str) -> Response:
    """Return an error, as a page for people and as JSON for the page's scripts."""
    if "text/html" in request.headers.get("accept", ""):
        return studio_of(request).pages.page("error.html", status, sentence=sentence)
    return studio_of(request).pages.json({"sentence": sentence}, status)


STOPPED = "editloupe: the studio was stopped"
LEAVE_AFTER = 1.6
"""Seconds after which a stopped studio ends the process, even if a worker thread is busy."""


def serve(settings: StudioSettings, open_browser: bool = False) -> int:
    """Serve until stopped and return the exit code; raise UserError if the port is taken.

    Once stopped, the process ends within two seconds.
    """
    with listen(settings.host, settings.port, "the studio") as listener:
        settings = replace(settings, port=listener.getsockname()[1])
        app = create_app(settings)
        studio: Studio = app.state.studio
        with _leaving_properly(studio), closing(studio):
            studio.pages.warm()
            where = format_address(settings)
            print(f"EditLoupe studio: {where}\nPress Ctrl+C to stop.", file=sys.stderr, flush=True)
            server = StoppableServer(app, ServerShutdown(STOPPED, studio.end, studio.leave, LEAVE_AFTER))
            if open_browser:
                webbrowser.open(_way_in(studio.uploads.folder, where).as_uri())
            server.run(sockets=[listener])
    server.say_stopped()
    return server.exit_code


@contextmanager
def _leaving_properly(studio: Studio) -> Iterator[None]:
    """Until the server handles signals itself, end the process at once and remove temporary files."""
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


def format_address(settings: StudioSettings) -> str:
    """Return the address to open; it holds the token."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    return f"{server_url(host, settings.port)}/?token={quote(settings.token, safe='')}"


def _way_in(folder: Path, where: str) -> Path:
    """Write a file that redirects to the address and that only this user can read.

    The address itself would be an argument of the browser, which every user of this machine can list.
    """
    file = folder / "open.html"
    file.touch(0o600)
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(where)}">', "utf-8")
    return file
