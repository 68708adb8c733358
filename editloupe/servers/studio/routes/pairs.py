"""Routes of the Pairs page: people rate two candidates and choose the better one, without seeing the models."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, RedirectResponse, Response

from editloupe.evals.preferences.answers import RATING_SCALE
from editloupe.evals.preferences.pairs import TIE, OpenPair
from editloupe.servers.studio.studio import studio_of
from editloupe.servers.studio.work_folders import PairFile
from editloupe.types import UserError

router = APIRouter()
Name = Annotated[str, Query(max_length=80)]
Id = Annotated[str, Query(max_length=200)]
WORDS = {1: "very bad", 2: "bad", 3: "fair", 4: "good", 5: "very good"}


@router.get("/pairs")
def choose(request: Request) -> Response:
    """Redirect to the only file of pairs, or let a person choose."""
    studio = studio_of(request)
    files = studio.pairs.all()
    if len(files) == 1:
        return RedirectResponse(f"/pairs/{files[0].key}")
    return studio.pages.page("pairs_choose.html", files=files)


@router.get("/pairs/{key}")
def page(request: Request, key: str, annotator: Name = "", pair: Id = "") -> Response:
    """Return a pair, by default the next open one; without a person's name the page asks for it."""
    studio, pair_file, who = studio_of(request), _file(request, key), " ".join(annotator.split())
    if not who:
        return studio.pages.page("pairs_start.html", pair_file=pair_file, people=pair_file.people())
    queue = pair_file.queue(who)
    asked = _pair(pair_file, pair) if pair else queue.first
    if asked is None:
        return studio.pages.page("pairs_start.html", pair_file=pair_file, people=pair_file.people(), finished=who)
    answer = pair_file.answers.of(asked.id, who)
    rated = {side: answer.ratings.get(getattr(asked, side).key) for side in ("a", "b")}
    return studio.pages.page(
        "pairs.html",
        pair_file=pair_file,
        who=who,
        pair=asked,
        choosing=asked.kind == "rationales" or bool(answer.ratings),
        rated=rated,
        words=WORDS,
        references=len(asked.references),
        done=queue.done,
        left=queue.left,
    )


@router.post("/pairs/{key}/answers")
async def answer(request: Request, key: str) -> Response:
    """Save ratings or a choice, and redirect to the next question."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This address takes a form.")
    pair_file = _file(request, key)
    try:
        form = {name: values[-1] for name, values in parse_qs((await request.body()).decode()).items()}
    except ValueError:
        raise UserError("the form cannot be read") from None
    who = " ".join(form.get("annotator", "").split())[:80]
    if not who:
        raise UserError("an annotator needs a name")
    pair = _pair(pair_file, form.get("pair", ""))
    stay = ""
    if "choice" in form:
        sides = {"a": pair.a.key, "b": pair.b.key, TIE: TIE}
        pair_file.answers.choose(pair, who, sides.get(form["choice"], ""))
    else:
        pair_file.answers.rate(pair, who, {pair.a.key: _rating(form.get("a")), pair.b.key: _rating(form.get("b"))})
        stay = f"&pair={quote(pair.id)}"
    return RedirectResponse(f"/pairs/{key}?annotator={quote(who)}{stay}", 303)


@router.get("/pairs/{key}/pictures/{pair}/{which}")
def picture(request: Request, key: str, pair: str, which: str) -> Response:
    """Return a picture of a pair; the address does not reveal the model."""
    pair_file = _file(request, key)
    content = pair_file.picture(_pair(pair_file, pair), which)
    if content is None:
        raise HTTPException(404, "This picture is not there.")
    return FileResponse(content[0], media_type=content[1])


def _file(request: Request, key: str) -> PairFile:
    pair_file = studio_of(request).pairs.get(key)
    if pair_file is None:
        raise HTTPException(404, "There is no such file of pairs here.")
    return pair_file


def _pair(pair_file: PairFile, name: str) -> OpenPair:
    pair = pair_file.pairs().get(name)
    if pair is None:
        raise HTTPException(404, "There is no such pair here.")
    return pair


def _rating(text: str | None) -> int:
    return next((value for value in RATING_SCALE if text == str(value)), 0)
