"""The Judge page: one edit, its steps as they happen, its verdicts."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse

from editloupe.demo import demo_manifest
from editloupe.evals.datasets import load_manifest
from editloupe.judge import DEFAULT_JUDGE, JUDGE_VARIABLE
from editloupe.rubrics.registry import PROTOCOLS
from editloupe.studio.live import Job
from editloupe.studio.request import JudgeRequest, edit_of, judge_of, keep_upload, read_request
from editloupe.studio.settings import UPLOAD_BYTES
from editloupe.studio.studio import Studio, studio_of
from editloupe.types import UserError

router = APIRouter()
PROPOSED = ("rules", "openai:gpt-5.1", "google_genai:gemini-3-pro")


@router.get("/judge")
def page(request: Request, job: str = "") -> Response:
    """Return the page; with a job it shows that one again."""
    studio = studio_of(request)
    found = studio.desk.get(job)
    asked = found.request if found else JudgeRequest(judge=_default_judge(studio))
    protocols = [
        {
            "name": one.name,
            "title": one.title,
            "modes": list(one.modes),
            "default": one.default_mode,
            "types": list(one.types),
            "criteria": {rubric.criterion: rubric.title for rubric in one.rubrics},
        }
        for one in PROTOCOLS
    ]
    return studio.pages.page(
        "judge.html",
        asked=asked,
        job=found.id if found else "",
        protocols=protocols,
        examples=_examples(),
        proposed=list(dict.fromkeys([asked.judge, *PROPOSED])),
        base_url=asked.base_url or studio.settings.base_url or "",
    )


@router.post("/uploads")
async def upload(request: Request) -> Response:
    """Take one picture; the body is the file itself."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > UPLOAD_BYTES:
            raise HTTPException(413, f"That is more than the limit of {UPLOAD_BYTES // 2**20} MB.")
    return JSONResponse(await asyncio.to_thread(keep_upload, bytes(data), studio_of(request).library))


@router.post("/examples/{name}")
def example(request: Request, name: str) -> Response:
    """Put a bundled example on the desk, as if its pictures had been uploaded."""
    edit = next((edit for edit in load_manifest(demo_manifest()) if edit.id == name), None)
    if edit is None:
        raise HTTPException(404, "There is no such example.")
    library = studio_of(request).library
    files = {"source": edit.source, "edited": edit.edited, **({"reference": edit.reference} if edit.reference else {})}
    return JSONResponse(
        {
            "name": edit.id,
            "instruction": edit.instruction,
            "instruction_type": edit.instruction_type or "",
            "boxes": [list(box) for box in edit.target_boxes],
            "pictures": {role: keep_upload(path.read_bytes(), library) for role, path in files.items()},
        }
    )


@router.post("/judge")
async def start(request: Request) -> Response:
    """Begin judging and say where the steps can be followed."""
    _json_only(request)
    studio, asked = studio_of(request), read_request(await request.body())
    edit = await asyncio.to_thread(edit_of, asked, studio.library)
    judge = await asyncio.to_thread(judge_of, asked, studio.settings)
    job = studio.desk.start(asked, judge, edit, {"source": asked.source, "edited": asked.edited})
    return JSONResponse({"job": job.id})


@router.get("/jobs/{key}/events")
async def events(request: Request, key: str) -> Response:
    """Send the events of a job as they happen; after a break, from where the page had got to."""
    last = request.headers.get("last-event-id", "")
    place = int(last) if last.isascii() and last.isdigit() else 0
    return StreamingResponse(
        _job(request, key).follow(place), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


@router.post("/jobs/{key}/stop")
async def stop(request: Request, key: str) -> Response:
    """Stop a job."""
    studio_of(request).desk.stop(_job(request, key))
    return JSONResponse({"stopped": True})


def _job(request: Request, key: str) -> Job:
    job = studio_of(request).desk.get(key)
    if job is None:
        raise HTTPException(404, "This judging is no longer known here.")
    return job


def _json_only(request: Request) -> None:
    """A form of another site cannot send JSON without being asked first; this one can."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "This address takes JSON.")


def _default_judge(studio: Studio) -> str:
    return studio.settings.judge or os.environ.get(JUDGE_VARIABLE) or DEFAULT_JUDGE


def _examples() -> list[dict[str, Any]]:
    try:
        edits = list(load_manifest(demo_manifest()))
    except UserError:
        return []
    return [{"id": edit.id, "instruction": edit.instruction, "type": edit.instruction_type} for edit in edits]
