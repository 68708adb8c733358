"""Routes of the benchmark pages: people draw boxes and review samples, without the decisions of others."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from editloupe.making.folder import MakingFolder, Sample
from editloupe.making.records import MOST_TARGETS, REGENERATIONS, ReviewDecision
from editloupe.making.reviews import draw_boxes, list_edit_types, review, review_agreement
from editloupe.servers.studio.judging.requests import parse_json
from editloupe.servers.studio.studio import Studio, studio_of
from editloupe.servers.studio.work_folders import BOXES, REVIEW, find_waiting_samples
from editloupe.types import Boxes, Record, UserError

router = APIRouter()
Name = Annotated[str, Query(max_length=80)]
Id = Annotated[str, Query(max_length=1000)]
CORRECTABLE = ("edit_instruction", "modified_object", "prompt_clean", "prompt_adv")
"""Fields a reviewer can correct, in addition to the instruction type."""
WORDS = {
    "metadata": "Wait for metadata",
    "boxes": "Wait for boxes",
    "confirm boxes": "Boxes to look at",
    "reference": "Wait for a reference",
    "review": "Wait for review",
    "regenerate": "Reference to be made again",
    "accepted": "Accepted",
    "discarded": "Discarded",
    "disputed": "Disputed among reviewers",
    "left out": "Left out",
}
SHOWN = {
    "edit_instruction": "Instruction",
    "modified_object": "Target",
    "prompt_clean": "Caption of the source",
    "prompt_adv": "Caption of the reference",
}


class BoxesRequest(Record):
    """The boxes a person drew or confirmed; empty if the target is not in the picture."""

    name: str = Field(min_length=1, max_length=80)
    sample: str = Field(max_length=1000)
    boxes: Boxes = Field(max_length=MOST_TARGETS)


class ReviewRequest(Record):
    """A reviewer's decision about a sample."""

    name: str = Field(min_length=1, max_length=80)
    sample: str = Field(max_length=1000)
    key: str = Field(max_length=64)
    decision: ReviewDecision
    checks: dict[str, bool] = Field(default_factory=dict)
    note: str = Field(default="", max_length=2000)
    corrected: dict[str, str] = Field(default_factory=dict)
    boxes: Boxes | None = Field(default=None, max_length=MOST_TARGETS)


@router.get("/making")
def making_folders(request: Request) -> Response:
    """List the benchmarks in the making."""
    studio = studio_of(request)
    benchmarks = [(key, folder.path.resolve().name) for key, folder in studio.making.folders.items()]
    return studio.pages.page("making_choose.html", found=benchmarks)


@router.get("/making/{key}")
def overview(request: Request, key: str) -> Response:
    """Return the progress of the samples, and ask for a name."""
    studio, folder = studio_of(request), _folder(request, key)
    return studio.pages.page(
        "making.html",
        key=key,
        name=folder.path.resolve().name,
        steps=folder.steps(),
        words=WORDS,
        names=sorted(folder.people()),
        agreement=review_agreement(folder),
    )


@router.get("/making/{key}/boxes")
def boxes_page(request: Request, key: str, name: Name = "", sample: Id = "") -> Response:
    """Return one sample whose boxes are to be drawn or confirmed."""
    return _page(request, key, BOXES, name, sample)


@router.get("/making/{key}/review")
def review_page(request: Request, key: str, name: Name = "", sample: Id = "") -> Response:
    """Return a sample to review, without the decisions of others."""
    return _page(request, key, REVIEW, name, sample)


@router.post("/making/{key}/boxes")
async def give_boxes(request: Request, key: str) -> Response:
    """Save boxes."""
    body = await parse_json(request, BoxesRequest)
    folder = _folder(request, key)
    draw_boxes(folder, body.sample, body.boxes, _name(body.name))
    return _next(request, key, BOXES, body.name)


@router.post("/making/{key}/review")
async def give_review(request: Request, key: str) -> Response:
    """Save a decision."""
    body = await parse_json(request, ReviewRequest)
    folder = _folder(request, key)
    review(
        folder,
        body.sample,
        _name(body.name),
        body.decision,
        body.checks,
        body.note,
        body.corrected,
        body.boxes,
        body.key,
    )
    return _next(request, key, REVIEW, body.name)


def _page(request: Request, key: str, task: str, who: str, sample_id: str) -> Response:
    studio, folder = studio_of(request), _folder(request, key)
    name = " ".join(who.split())
    if not name:
        return overview(request, key)
    waiting = find_waiting_samples(folder, task, name)
    sample = folder.sample(sample_id) if sample_id else (waiting[0] if waiting else None)
    about: dict[str, Any] = {"key": key, "name": name, "folder": folder.path.resolve().name, "left": len(waiting)}
    if sample is None:
        return studio.pages.page("making_done.html", task=task, **about)
    return studio.pages.page(f"making_{task}.html", **about, **_facts(studio, sample))


def _facts(studio: Studio, sample: Sample) -> dict[str, Any]:
    boxes = sample.boxes.boxes if sample.boxes else ()
    is_found = studio.picture_cache.find(sample.question.sha) is not None
    return {
        "sample": sample,
        "boxes": [list(box) for box in boxes],
        "has_picture": is_found,
        "fields": [(field, SHOWN[field], getattr(sample.metadata, field, "")) for field in CORRECTABLE],
        "types": list_edit_types(),
        "last": bool(sample.reference and sample.reference.made_anew >= REGENERATIONS),
        "most": MOST_TARGETS,
    }


def _next(request: Request, key: str, task: str, who: str) -> Response:
    """Return the number of samples left; the page then loads the next one."""
    folder = _folder(request, key)
    return studio_of(request).pages.json({"left": len(find_waiting_samples(folder, task, _name(who)))})


def _folder(request: Request, key: str) -> MakingFolder:
    folder = studio_of(request).making.folders.get(key)
    if folder is None:
        raise HTTPException(404, "There is no such benchmark here.")
    folder.refresh()
    return folder


def _name(text: str) -> str:
    name = " ".join(text.split())
    if not name:
        raise UserError("a reviewer needs a name")
    return name
