"""The Trace page: pictures, boxes and steps of one verdict, alone or beside another one of the same edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from editloupe.evals.runs.damage import RunDamaged
from editloupe.evals.runs.records import Unit
from editloupe.studio.damage import readable
from editloupe.studio.library import OpenRun
from editloupe.studio.raw_exchange import reply_of, request_of
from editloupe.studio.studio import Studio, studio_of
from editloupe.studio.trace_view import StepView, parting, parting_sentence, steps_of
from editloupe.types import Edit, Trace, UserError

router = APIRouter()
Id = Annotated[str, Query(max_length=1000)]


@dataclass(frozen=True)
class VerdictView:
    """One verdict with the steps behind it."""

    one: OpenRun
    unit: Unit
    trace: Trace | None
    """None where the unit ended before its first step."""
    views: tuple[StepView, ...]
    targets: tuple[int, ...]
    """Targets that were judged one by one, where there were several."""

    @property
    def name(self) -> str:
        """Who judged how, in a few words."""
        repeat = f", repeat {self.unit.repeat + 1}" if self.unit.repeat else ""
        return f"{self.unit.judge} · {self.unit.mode}{repeat}"

    def link(self, **more: Any) -> str:
        """Return the address of this verdict."""
        return trace_link(self.one, self.unit, **more)


def trace_link(one: OpenRun, unit: Unit, **more: Any) -> str:
    """Return the address of a unit's trace."""
    place = {"edit": unit.edit_id, "criterion": unit.criterion, "repeat": unit.repeat}
    return f"/runs/{one.key}/trace?{urlencode({**place, **{k: v for k, v in more.items() if v is not None}}, errors='replace')}"


@router.get("/runs/{key}/trace")
def page(
    request: Request,
    key: str,
    edit: Id,
    criterion: Id = "",
    repeat: int | None = None,
    target: int | None = None,
    beside: Id = "",
) -> Response:
    """Return the page of one verdict; `beside` names another run and repeat as KEY~REPEAT."""
    studio = studio_of(request)
    one = studio.run(key)
    known, pictures = _edit(one, edit)
    units = one.units(edit)
    unit = _chosen(units, criterion, repeat)
    shas = {role: hashes[0] for role, hashes in pictures.items() if hashes}
    left = _verdict_view(one, unit, target, shas, "A" if beside else "") if unit else None
    others = _others(studio, left) if left else []
    right = None
    if left and beside:
        found = next((other for other in others if f"{other[0].key}~{other[1].repeat}" == beside), None)
        if found is None:
            raise HTTPException(404, "There is no such trace of this edit to compare with.")
        right = _verdict_view(found[0], found[1], target, shas, "B")
    both = (left.trace, right.trace) if left and left.trace and right and right.trace else None
    where = parting(*both) if both else None
    return studio.pages.page(
        "trace.html",
        one=one,
        edit=known,
        pictures=shas,
        units=units,
        left=left,
        right=right,
        others=others,
        beside=beside,
        trace_link=trace_link,
        parted_at=where,
        parting=parting_sentence(*both, where) if both else "One of them ended before its first step.",
        human=_human(one, known),
    )


@router.get("/runs/{key}/raw")
def raw(
    request: Request, key: str, edit: Id, criterion: Id, repeat: int, step: int, target: int | None = None
) -> Response:
    """Return the request and the reply behind one step."""
    studio = studio_of(request)
    one = studio.run(key)
    _edit(one, edit)
    traces = one.traces(edit, criterion, repeat)
    trace = next((found for found in traces if found.target == target), None)
    if trace is None or not 0 <= step < len(trace.steps):
        raise HTTPException(404, "There is no such step.")
    with readable(one.name):
        exchange = {"request": request_of(trace, step), "reply": reply_of(one.run, trace, step)}
    return studio.pages.json(exchange)


def _edit(one: OpenRun, edit_id: str) -> tuple[Edit, dict[str, list[str]]]:
    try:
        return one.edit(edit_id)
    except RunDamaged:
        raise
    except UserError as error:
        raise HTTPException(404, str(error)) from None


def _chosen(units: list[Unit], criterion: str, repeat: int | None) -> Unit | None:
    for unit in units:
        if criterion in ("", unit.criterion) and repeat in (None, unit.repeat):
            return unit
    if criterion or repeat is not None:
        raise HTTPException(404, "This edit was not judged by that criterion and repeat.")
    return None


def _verdict_view(one: OpenRun, unit: Unit, target: int | None, shas: dict[str, str], side: str) -> VerdictView:
    traces = one.traces(unit.edit_id, unit.criterion, unit.repeat)
    targets = tuple(found.target for found in traces if found.target is not None)
    trace = next((found for found in traces if target in (None, found.target)), traces[0] if traces else None)
    views = steps_of(trace, shas, side) if trace else ()
    return VerdictView(one, unit, trace, views, targets)


def _others(studio: Studio, left: VerdictView) -> list[tuple[OpenRun, Unit]]:
    """Return all other verdicts on the same edit and criterion, in all open runs."""
    found = []
    for one in studio.library.runs():
        try:
            units = one.units(left.unit.edit_id)
        except UserError:  # its own pages say what is wrong with it
            continue
        for unit in units:
            same = one.key == left.one.key and unit.repeat == left.unit.repeat
            if unit.criterion == left.unit.criterion and not same:
                found.append((one, unit))
    return found


def _human(one: OpenRun, edit: Edit) -> dict[str, dict[str, str]]:
    """Return what people said, by criterion and name."""
    said: dict[str, dict[str, str]] = {}
    for criterion, given in edit.human.items():
        labels = (given,) if isinstance(given, str) else tuple(given)
        said[criterion] = {
            "manifest" if len(labels) == 1 else f"annotator {n}": label for n, label in enumerate(labels, 1)
        }
    for (edit_id, criterion), by_name in one.labels.labels().items():
        if edit_id == edit.id:
            said[criterion] = dict(by_name)
    return said
