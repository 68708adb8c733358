"""The Annotate page: labels and boxes by people, saved with every keystroke; the judge stays hidden until then."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from editloupe.evals.analysis.label_rows import score_of
from editloupe.evals.runs.records import Unit
from editloupe.rubrics.registry import protocols
from editloupe.studio.human_labels import alpha, choices, rubric_for
from editloupe.studio.library import OpenRun
from editloupe.studio.queries import criteria_of
from editloupe.studio.studio import Studio, studio_of
from editloupe.types import Box, Edit, Record, UserError

router = APIRouter()
Name = Annotated[str, Query(max_length=80)]
Id = Annotated[str, Query(max_length=1000)]


class LabelRequest(Record):
    """One keystroke: a label, boxes, or an undo."""

    annotator: str = Field(min_length=1, max_length=80)
    edit: str = Field(default="", max_length=1000)
    criterion: str = Field(default="", max_length=200)
    label: str | None = Field(default=None, max_length=200)
    boxes: tuple[Box, ...] | None = Field(default=None, max_length=50)
    undo: bool = False


@router.get("/annotate")
def choose(request: Request) -> Response:
    """Go to the only run, or let a person choose."""
    studio = studio_of(request)
    runs = studio.library.runs()
    if len(runs) == 1:
        return RedirectResponse(f"/runs/{runs[0].key}/annotate")
    return studio.pages.page("annotate_choose.html", runs=runs)


@router.get("/runs/{key}/annotate")
def page(request: Request, key: str, annotator: Name = "", edit: Id = "") -> Response:
    """Return one edit to label; without a name the page asks for one, without an edit it takes the first unlabelled."""
    studio = studio_of(request)
    one, name = studio.run(key), " ".join(annotator.split())
    if not name:
        return studio.pages.page("annotate_start.html", one=one, names=one.labels.annotators())
    order = _order(one)
    if not order:
        raise HTTPException(404, "This run holds no edits yet.")
    current = edit or _first_open(one, name, order) or order[0]
    if current not in order:
        raise HTTPException(404, "This run has no such edit.")
    known, pictures, _ = one.edit(current)
    place = order.index(current)
    boxes = one.labels.boxes(name, current)
    rubrics = _rubrics(one, known, current)
    return studio.pages.page(
        "annotate.html",
        one=one,
        name=name,
        edit=known,
        edit_name=current,
        pictures={role: hashes[0] for role, hashes in pictures.items() if hashes},
        rubrics=rubrics,
        place=place,
        total=len(order),
        previous=order[place - 1] if place else None,
        following=order[place + 1] if place + 1 < len(order) else None,
        boxes=[list(box) for box in (known.target_boxes if boxes is None else boxes)],
        state=_state(studio, one, name, current),
    )


@router.post("/runs/{key}/labels")
async def give(request: Request, key: str) -> Response:
    """Save one keystroke and return what is known of the edit afterwards."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "This address takes JSON.")
    try:
        given = LabelRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise UserError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from None
    studio = studio_of(request)
    one, name = studio.run(key), " ".join(given.annotator.split())
    if not name:
        raise UserError("an annotator needs a name")
    moved = None
    if given.undo:
        undone = one.labels.undo(name)
        moved = undone.edit_id if undone else None
    elif given.boxes is not None:
        known = one.edit(given.edit).edit
        one.labels.draw(name, given.edit, given.boxes, edit_id=known.id, model=known.model)
    else:
        _label(one, name, given)
    return studio.pages.json({**_state(studio, one, name, moved or given.edit), "moved_to": moved})


@router.get("/runs/{key}/annotators")
def annotators(request: Request, key: str) -> Response:
    """Return everybody's progress and how well they agree."""
    studio = studio_of(request)
    one = studio.run(key)
    names, labels, order = one.labels.annotators(), one.labels.labels(), set(_order(one))
    with one.index.reading() as rows:
        criteria, people = criteria_of(rows), one.index.people.given
    done: dict[str, int] = {}
    for name in names:
        edits = [{e for (e, c), by in labels.items() if c == criterion and name in by} for criterion, _ in criteria]
        done[name] = len(set.intersection(*edits) & order) if edits else 0
    agreement = []
    for criterion, protocol in criteria:
        value, why, shared = alpha(by for (_, c), by in people.get(protocol, {}).items() if c == criterion)
        agreement.append({"criterion": criterion, "protocol": protocol, "alpha": value, "why": why, "shared": shared})
    return studio.pages.page(
        "parts/annotators.html", one=one, names=names, done=done, total=len(order), agreement=agreement
    )


def _label(one: OpenRun, name: str, given: LabelRequest) -> None:
    known = _known(one, given.edit)
    unit = next((unit for unit in known if unit.criterion == given.criterion), None)
    rubric = one.index.rubric(unit.protocol, unit.criterion) if unit else None
    if rubric is None:
        raise UserError("this edit is not judged by that criterion")
    if given.label is not None and score_of(rubric.answer, given.label) is None:
        raise UserError(f"that is no answer to {rubric.title}")
    seen = {"judge_seen": True} if _all_labelled(one, name, given.edit, known) else {}
    edit = one.edit(given.edit).edit
    one.labels.give(name, given.edit, given.criterion, given.label, edit_id=edit.id, model=edit.model, **seen)


def _known(one: OpenRun, edit_id: str) -> list[Unit]:
    one.edit(edit_id)
    return one.units(edit_id)


def _all_labelled(one: OpenRun, name: str, edit_id: str, units: list[Unit]) -> bool:
    given = one.labels.of(name, edit_id)
    asked = {unit.criterion for unit in units if _can_be_labelled(one, unit.protocol, unit.criterion)}
    return bool(asked) and asked <= given.keys()


def _can_be_labelled(one: OpenRun, protocol: str, criterion: str) -> bool:
    rubric = one.index.rubric(protocol, criterion)
    return bool(rubric and choices(rubric.answer))


def _state(studio: Studio, one: OpenRun, name: str, edit_id: str) -> dict[str, Any]:
    """Return the annotator's labels and boxes of an edit; the judge's verdicts only once all of it is labelled."""
    if not edit_id:
        return {"labels": {}, "verdicts": "", "complete": False, "boxes": None}
    units = _known(one, edit_id)
    complete = _all_labelled(one, name, edit_id, units)
    boxes = one.labels.boxes(name, edit_id)
    html = ""
    if complete:
        others = {
            criterion: {who: label for who, label in by.items() if who != name}
            for (edit, criterion), by in one.labels.labels().items()
            if edit == edit_id
        }
        html = studio.pages.text("parts/revealed.html", one=one, units=units, others=others)
    return {
        "labels": one.labels.of(name, edit_id),
        "boxes": None if boxes is None else [list(box) for box in boxes],
        "complete": complete,
        "verdicts": html,
    }


def _rubrics(one: OpenRun, edit: Edit, name: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for unit in one.units(name):
        rubric = rubric_for(unit.protocol, unit.criterion, edit) or one.index.rubric(unit.protocol, unit.criterion)
        if rubric is not None and unit.criterion not in found:
            found[unit.criterion] = {"rubric": rubric, "choices": choices(rubric.answer)}
    order = [rubric.criterion for known in protocols() for rubric in known.rubrics]
    place = {criterion: number for number, criterion in reversed([*enumerate(order)])}
    return sorted(found.values(), key=lambda entry: place.get(entry["rubric"].criterion, len(order)))


def _order(one: OpenRun) -> list[str]:
    with one.index.reading() as rows:
        return [row["name"] for row in rows.execute("SELECT name FROM edits ORDER BY position, edit_id, name")]


def _first_open(one: OpenRun, name: str, order: list[str]) -> str | None:
    """Return the first edit this annotator has not labelled by every criterion."""
    with one.index.reading() as rows:
        wanted: dict[str, set[str]] = {}
        usable = {pair for pair in criteria_of(rows) if _can_be_labelled(one, pair[1], pair[0])}
        for row in rows.execute("SELECT DISTINCT name, criterion, protocol FROM cells"):
            if (row["criterion"], row["protocol"]) in usable:
                wanted.setdefault(row["name"], set()).add(row["criterion"])
    given: dict[str, set[str]] = {}
    for (edit_id, criterion), by in one.labels.labels().items():
        if name in by:
            given.setdefault(edit_id, set()).add(criterion)
    return next((edit for edit in order if wanted.get(edit, set()) - given.get(edit, set())), None)
