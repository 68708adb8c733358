"""Routes of the Judge page."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Send

from editloupe.agent.providers.registry import PROVIDERS
from editloupe.demo import demo_manifest
from editloupe.evals.manifests.datasets import read_manifest
from editloupe.judge import DEFAULT_JUDGE, JUDGE_VARIABLE
from editloupe.judge.settings import setup_names
from editloupe.pictures.memory import require_path
from editloupe.rubrics.registry import protocols as all_protocols
from editloupe.servers.studio.judging.live import LiveJob
from editloupe.servers.studio.judging.requests import (
    JudgeRequest,
    build_edit,
    build_judge,
    fill_in_settings,
    list_further_roles,
    parse_json,
)
from editloupe.servers.studio.studio import Studio, studio_of
from editloupe.types import UserError

router = APIRouter()
PROPOSED = ("rules", *(provider.example for provider in PROVIDERS))


@router.get("/judge")
def page(request: Request, job: str = "", run: str = "", edit: str = "") -> Response:
    """Return the page, empty, or filled in from a job or an edit of a run."""
    studio = studio_of(request)
    live_job = studio.jobs.get(job)
    judge_request = live_job.request if live_job else JudgeRequest(judge=_default_judge(studio))
    if run and edit and not live_job:
        judge_request = fill_in_settings(judge_request, studio.run(run), edit, studio.uploads)
    protocols = [
        {
            "name": each.name,
            "title": each.title,
            "modes": list(each.modes),
            "default": each.default_mode,
            "types": list(each.types),
            "roles": list(list_further_roles(each)),
            "criteria": {rubric.criterion: rubric.title for rubric in each.rubrics},
        }
        for each in all_protocols()
    ]
    return studio.pages.page(
        "judge.html",
        asked=judge_request,
        job=live_job.id if live_job else "",
        protocols=protocols,
        further={role: name for each in all_protocols() for role, name in list_further_roles(each).items()},
        setups=setup_names(),
        examples=_examples(),
        proposed=list(dict.fromkeys([judge_request.judge, *PROPOSED])),
        servers=list(studio.settings.servers),
        server=_default_server(studio) if judge_request.base_url is None else judge_request.base_url,
    )


@router.post("/uploads")
async def upload(request: Request) -> Response:
    """Store an uploaded picture; the body is the file."""
    uploads = studio_of(request).uploads
    async with aclosing(request.stream()) as parts:
        received = await uploads.receive(parts)
    return JSONResponse(await asyncio.to_thread(uploads.take, received))


@router.post("/examples/{name}")
def example(request: Request, name: str) -> Response:
    """Return a bundled example, as if its pictures had been uploaded."""
    edit = next((edit for edit in read_manifest(demo_manifest()) if edit.id == name), None)
    if edit is None:
        raise HTTPException(404, "There is no such example.")
    uploads = studio_of(request).uploads
    return JSONResponse(
        {
            "name": edit.id,
            "instruction": edit.instruction,
            "instruction_type": edit.instruction_type or "",
            "boxes": [list(box) for box in edit.target_boxes],
            "pictures": {role: uploads.copy(require_path(paths[0])) for role, paths in edit.files.items()},
        }
    )


@router.post("/judge")
async def start(request: Request) -> Response:
    """Start judging and return the address of the events."""
    studio, body = studio_of(request), await parse_json(request, JudgeRequest)
    studio.jobs.check_room()
    edit = build_edit(body, studio.uploads)
    judge = await asyncio.to_thread(build_judge, body, studio.settings)
    try:
        job = studio.jobs.start(body, judge, edit)
    except BaseException:
        await judge.aclose()
        raise
    return JSONResponse({"job": job.id})


@router.get("/jobs/{key}/events")
async def events(request: Request, key: str) -> Response:
    """Stream the events of a job; after a break, from the last event the page got."""
    last = request.headers.get("last-event-id", "")
    position = int(last) if last.isascii() and last.isdigit() else 0
    return _Events(
        _job(request, key).follow(position), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


@router.post("/jobs/{key}/stop")
async def stop(request: Request, key: str) -> Response:
    """Stop a job."""
    studio_of(request).jobs.stop(_job(request, key))
    return JSONResponse({"stopped": True})


class _Events(StreamingResponse):
    """A stream that is closed as soon as the browser leaves."""

    async def stream_response(self, send: Send) -> None:
        """Send the events until there are no more."""
        events = cast(AsyncGenerator[str, None], self.body_iterator)
        async with aclosing(events):
            await super().stream_response(send)


def _job(request: Request, key: str) -> LiveJob:
    job = studio_of(request).jobs.get(key)
    if job is None:
        raise HTTPException(404, "This judging is no longer known here.")
    return job


def _default_judge(studio: Studio) -> str:
    return studio.settings.judge or os.environ.get(JUDGE_VARIABLE) or DEFAULT_JUDGE


def _default_server(studio: Studio) -> str:
    return next(iter(studio.settings.servers), "")


def _examples() -> list[dict[str, Any]]:
    try:
        edits = list(read_manifest(demo_manifest()))
    except UserError:
        return []
    return [{"id": edit.id, "instruction": edit.instruction, "type": edit.instruction_type} for edit in edits]
