"""Routes of pictures by hash: whole, small, and the difference of two."""

from __future__ import annotations

from functools import cache
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from editloupe.demo import demo_manifest
from editloupe.evals.manifests.datasets import read_manifest
from editloupe.pictures.decode import open_picture
from editloupe.pictures.memory import require_path
from editloupe.servers.studio.judging.uploads import SHA
from editloupe.servers.studio.picture_cache import MEDIA_TYPES, small_copy
from editloupe.servers.studio.studio import studio_of

router = APIRouter()
Sha = Annotated[str, Path(pattern=SHA)]
BOX = r"^\d{1,5},\d{1,5},\d{1,5},\d{1,5}$"
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
"""Pictures can be cached forever: a hash never means another picture."""


@router.get("/pictures/{sha}")
def whole(request: Request, sha: Sha) -> Response:
    """Return a picture as it is stored."""
    path = studio_of(request).picture_cache.find(sha)
    if path is None:
        raise HTTPException(404, "No open run holds this picture.")
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=FOREVER)


@router.get("/pictures/{sha}/small")
def small(request: Request, sha: Sha) -> Response:
    """Return a small copy."""
    return _make_picture(studio_of(request).picture_cache.small(sha), "image/jpeg")


@router.get("/pictures/{sha}/difference/{other}")
def difference(request: Request, sha: Sha, other: Sha) -> Response:
    """Return where the second picture differs from the first, as a transparent overlay."""
    return _make_picture(studio_of(request).picture_cache.difference(sha, other), "image/png")


@router.get("/pictures/{sha}/crop/{frame}")
def crop(request: Request, sha: Sha, frame: Sha, box: Annotated[str, Query(pattern=BOX)]) -> Response:
    """Return the part of a picture around a box, which is in pixels of the picture `frame`."""
    x1, y1, x2, y2 = (int(value) for value in box.split(","))
    if x1 >= x2 or y1 >= y2:
        raise HTTPException(404, "There is no such part of the picture.")
    return _make_picture(studio_of(request).picture_cache.crop(sha, frame, (x1, y1, x2, y2)), "image/jpeg")


@router.get("/pictures/{sha}/regions/{other}")
def regions(request: Request, sha: Sha, other: Sha) -> Response:
    """Return the boxes of the most significant differences of two pictures, in pixels of the first."""
    return _make_picture(studio_of(request).picture_cache.regions(sha, other), "application/json")


@router.get("/examples/{name}/small")
def example(name: str) -> Response:
    """Return a small copy of a bundled example's edited picture."""
    path = _example_pictures().get(name)
    if path is None:
        raise HTTPException(404, "There is no such example.")
    return _make_picture(small_copy(open_picture(path).pixels), "image/jpeg")


@cache
def _example_pictures() -> dict[str, FilePath]:
    return {edit.id: require_path(edit.edited) for edit in read_manifest(demo_manifest())}


def _make_picture(data: bytes | None, media_type: str) -> Response:
    if data is None:
        raise HTTPException(404, "No open run holds this picture.")
    return Response(data, media_type=media_type, headers=FOREVER)
