"""Routes of the Pairs page: people rate two candidates and choose the better one, without seeing the models."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, RedirectResponse, Response

from editloupe.evals.preferences.pairs import RATING_SCALE, TIE, OpenPair
from editloupe.pictures.decode import declared_size
from editloupe.pictures.pixels import ImageError
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
def page(
    request: Request, key: str, annotator: Name = "", pair: Id = "", last: Id = "", again: bool = False
) -> Response:
    """Return a pair, by default the next open one; without a person's name the page asks for it.

    `last` is the pair that was answered before, to return to. With `again`, the ratings of a pair are asked once more; the new
    ones replace them.
    """
    studio, pair_file, who = studio_of(request), _file(request, key), " ".join(annotator.split())
    if not who:
        return studio.pages.page("pairs_start.html", pair_file=pair_file, people=pair_file.people())
    queue = pair_file.queue(who)
    open_pair = _pair(pair_file, pair) if pair else queue.first
    here = f"/pairs/{key}?annotator={quote(who)}"
    back = f"{here}&pair={quote(last)}" if last in pair_file.pairs() else ""
    if open_pair is None:
        people = pair_file.people()
        return studio.pages.page("pairs_start.html", pair_file=pair_file, people=people, finished=who, undo=back)
    answer = pair_file.answers.of(open_pair.id, who)
    sides = {getattr(open_pair, side).key: side for side in ("a", "b")}
    choosing = open_pair.kind == "rationales" or (bool(answer.ratings) and not again)
    return studio.pages.page(
        "pairs.html",
        pair_file=pair_file,
        who=who,
        pair=open_pair,
        choosing=choosing,
        rated={side: answer.ratings.get(side_key) for side_key, side in sides.items()},
        chosen=TIE if answer.choice == TIE else sides.get(answer.choice or "", ""),
        size=_picture_size(pair_file, open_pair),
        undo=f"{here}&pair={quote(open_pair.id)}&last={quote(last)}&again=true"
        if choosing and answer.ratings
        else back,
        again=again,
        last=last,
        words=WORDS,
        references=len(open_pair.references),
        done=queue.done,
        left=queue.left,
    )


def _picture_size(pair_file: PairFile, pair: OpenPair) -> tuple[int, int]:
    """Return width and height of a pair's source picture; 4 by 3 if it cannot be read."""
    content = pair_file.picture(pair, "source")
    try:
        return declared_size(content[0]) if content else (4, 3)
    except ImageError:
        return 4, 3


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
    if "choice" in form:
        sides = {"a": pair.a.key, "b": pair.b.key, TIE: TIE}
        pair_file.answers.choose(pair, who, sides.get(form["choice"], ""))
        more = f"&last={quote(pair.id)}"
    else:
        pair_file.answers.rate(pair, who, {pair.a.key: _rating(form.get("a")), pair.b.key: _rating(form.get("b"))})
        more = f"&pair={quote(pair.id)}&last={quote(form.get('last', ''))}"
    return RedirectResponse(f"/pairs/{key}?annotator={quote(who)}{more}", 303)


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
