"""The studio as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from editloupe.evals.runs.damage import RunDamaged
from editloupe.servers.studio.guard import PageGuard
from editloupe.servers.studio.library import OpenRun
from editloupe.servers.studio.render import HERE
from editloupe.servers.studio.routes import (
    annotate,
    corrected,
    fork,
    judge,
    making,
    pairs,
    pictures,
    runs,
    trace,
    traces,
)
from editloupe.servers.studio.settings import StudioSettings
from editloupe.servers.studio.studio import Studio, studio_of
from editloupe.types import UserError


def create_app(settings: StudioSettings) -> FastAPI:
    """Return the studio for these settings; runs that cannot be opened raise UserError at once."""
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
    for part in (judge, runs, trace, traces, fork, annotate, corrected, making, pairs, pictures):
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_api_route("/", home, methods=["GET"])
    app.add_exception_handler(UserError, _mistake)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _http_error)
    return app


def home(request: Request) -> Response:
    """Go to the run that was named, or to the Judge page."""
    studio = studio_of(request)
    found = studio.library.all()
    if not found and studio.making.folders:
        (first, *others) = studio.making.folders
        return RedirectResponse("/making" if others else f"/making/{first}")
    if len(found) == 1 and isinstance(found[0], OpenRun):
        return RedirectResponse(f"/runs/{found[0].key}")
    if not found and studio.pairs.all():
        return RedirectResponse("/pairs")
    return RedirectResponse("/runs" if found else "/judge")


def _mistake(request: Request, error: Exception) -> Response:
    return _error_response(request, 503 if isinstance(error, RunDamaged) else 400, str(error))


def _not_understood(request: Request, error: Exception) -> Response:
    return _error_response(request, 404, "There is nothing at this address.")


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    known = {404: "There is nothing at this address.", 405: "This address is not used that way."}
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    return _error_response(
        request, status, known.get(status, detail) if detail in ("Not Found", "Method Not Allowed") else detail
    )


def _error_response(request: Request, status: int, sentence: str) -> Response:
    """Say a sentence: as a page to a person, as JSON to the page's own scripts."""
    if "text/html" in request.headers.get("accept", ""):
        return studio_of(request).pages.page("error.html", status, sentence=sentence)
    return studio_of(request).pages.json({"sentence": sentence}, status)
