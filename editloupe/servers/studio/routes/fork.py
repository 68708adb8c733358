"""Routes of the Fork pages."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from editloupe._util.text import number_of
from editloupe.agent.providers.registry import PROVIDERS
from editloupe.evals.forks import Fork, fork, forks_of
from editloupe.evals.forks.fork_store import (
    count_labels,
    find_parting,
    find_trace,
    group_forks,
    load_fork,
)
from editloupe.evals.forks.fork_trace import ForkStop, ForkStopped
from editloupe.evals.runs.damage import RunDamaged, raise_run_damaged
from editloupe.graphs.forking import find_box_parameter
from editloupe.judge.settings import setup_names
from editloupe.rubrics.registry import find_protocol
from editloupe.servers.studio.judging.requests import TOOL_SETTINGS, ForkRequest, parse_json
from editloupe.servers.studio.run_catalog import HERE, OpenRun
from editloupe.servers.studio.studio import Studio, studio_of
from editloupe.servers.studio.traces.trace_view import build_steps, find_drawn_box, find_kinds, first_pictures
from editloupe.types import UserError

router = APIRouter()
Id = Annotated[str, Query(max_length=1000)]


@router.get("/runs/{key}/fork")
def form(
    request: Request,
    key: str,
    edit: Id,
    criterion: Id,
    step: int,
    repeat: int | None = None,
    configuration: Id = "",
    target: int | None = None,
    parent: int | None = None,
) -> Response:
    """Return the form of a fork at a step."""
    studio = studio_of(request)
    open_run = studio.run(key)
    names: dict[str, Any] = {"repeat": repeat, "target": target, "configuration": configuration or None, "fork": parent}
    try:
        with raise_run_damaged(open_run.name):
            stored = find_trace(open_run.run, edit, criterion, **names)
    except RunDamaged:
        raise
    except UserError as error:
        raise HTTPException(404, str(error)) from None
    steps = stored.parent.trace.steps
    if not 1 <= step <= len(steps):
        have = number_of(len(steps), "step")
        raise HTTPException(404, f"The trace has {have}, counted from 1; there is no step {step}.")
    trace, shas = stored.parent.trace, first_pictures(stored.pictures)
    view = build_steps(trace, shas)[step - 1]
    protocol = find_protocol(stored.protocol)
    per_mille = bool((stored.asked or {}).get("per_mille"))
    calls = [
        {
            "call": call,
            "drawn": find_drawn_box(trace, call, shas, per_mille),
            "box": ", ".join(f"{n:g}" for n in call.parameters[name]) if (name := find_box_parameter(call)) else None,
        }
        for call in view.step.calls
    ]
    where = {**names, "edit": stored.parent.edit, "criterion": criterion, "step": step, "parent": parent}
    return studio.pages.page(
        "fork.html",
        run=open_run,
        kept=stored,
        view=view,
        step=step,
        calls=calls,
        where={name: value for name, value in where.items() if value is not None and name != "fork"},
        modes=list(protocol.modes) if protocol else [stored.mode],
        proposed=list(dict.fromkeys([stored.judge, "rules", *(provider.example for provider in PROVIDERS)])),
        servers=list(studio.settings.servers),
        title=open_run.title_of(criterion, stored.protocol),
        setups=setup_names(),
        tool_settings=TOOL_SETTINGS,
        job=secrets.token_urlsafe(12),
    )


@router.post("/runs/{key}/fork")
async def make(request: Request, key: str) -> Response:
    """Make a fork and return its address; it is made even if the browser leaves."""
    studio, body = studio_of(request), await parse_json(request, ForkRequest)
    open_run = studio.run(key)
    with studio.forks.room(body.job or secrets.token_urlsafe(12)) as stop:
        try:
            made, stopped = await asyncio.to_thread(_make_fork, studio, open_run, body, stop), ""
        except ForkStopped as error:
            made, stopped = sorted(error.made, key=lambda fork: fork.number), str(error)
    address = f"/runs/{key}/forks/{made[0].number}" if made else None
    why = {"stopped": stopped} if stopped else {}
    return JSONResponse({"address": address, "labels": count_labels(made), **why})


@router.post("/forking/{job}/stop")
async def stop(request: Request, job: str) -> Response:
    """Stop a fork that is under way."""
    if not await asyncio.to_thread(studio_of(request).forks.stop, job):
        raise HTTPException(404, "This fork is not under way any more.")
    return JSONResponse({"stopped": True})


def _make_fork(studio: Studio, open_run: OpenRun, body: ForkRequest, stop: ForkStop) -> list[Fork]:
    with body.rubric_files() as rubrics:
        return fork(
            open_run.run.folder,
            body.edit,
            body.criterion,
            body.step,
            thought=body.thought,
            drop=body.dropped,
            again=body.again,
            boxes=body.box_numbers(),
            pictures=body.picture_files(studio.uploads),
            other=body.other(studio.settings, rubrics),
            repeat=body.repeat,
            target=body.target,
            configuration=body.configuration,
            parent=body.parent,
            times=body.times,
            out=studio.catalog.writer() if open_run.key == HERE else None,
            stop=stop,
        )


@router.get("/runs/{key}/forks")
def all_forks(request: Request, key: str) -> Response:
    """Return the list of a run's forks."""
    studio = studio_of(request)
    open_run = studio.run(key)
    with raise_run_damaged(open_run.name):
        groups = group_forks(open_run.run)
    return studio.pages.page("forks.html", run=open_run, groups=groups)


@router.get("/runs/{key}/forks/{number}")
def page(request: Request, key: str, number: int) -> Response:
    """Return the page of a fork and its parent."""
    studio = studio_of(request)
    open_run = studio.run(key)
    try:
        with raise_run_damaged(open_run.name):
            stored_fork = load_fork(open_run.run, number)
            alike = [
                other
                for other in forks_of(open_run.run, stored_fork.parent.edit)
                if other.identity == stored_fork.identity
            ]
    except UserError as error:
        raise HTTPException(404, str(error)) from None
    shas = first_pictures(stored_fork.pictures)
    parted = find_parting(stored_fork.parent.trace, stored_fork.trace)
    parent = "The parent" if stored_fork.parent.fork is None else f"Fork {stored_fork.parent.fork}"
    sides = [
        (letter, name, trace, build_steps(trace, shas, letter), outcome)
        for letter, name, trace, outcome in (
            ("A", parent, stored_fork.parent.trace, stored_fork.parent.outcome),
            ("B", f"Fork {stored_fork.number}", stored_fork.trace, stored_fork.outcome),
        )
    ]
    return studio.pages.page(
        "fork_result.html",
        run=open_run,
        fork=stored_fork,
        title=open_run.title_of(stored_fork.parent.criterion, stored_fork.protocol),
        pictures=shas,
        parted=parted,
        sides=sides,
        kinds=find_kinds(step for _, _, _, steps, _ in sides for step in steps),
        labels=count_labels(alike),
        alike=alike,
        parent_link=_parent_link(open_run, stored_fork),
        fork_link=lambda step: (
            f"/runs/{key}/fork?" + urlencode({**_where(stored_fork), "step": step, "parent": stored_fork.number})
        ),
    )


def _where(fork: Fork) -> dict[str, Any]:
    return {"edit": fork.parent.edit, "criterion": fork.parent.criterion}


def _parent_link(open_run: OpenRun, fork: Fork) -> str | None:
    """Return the address of the parent, None if this run does not hold it."""
    if fork.parent.fork is not None:
        return f"/runs/{open_run.key}/forks/{fork.parent.fork}"
    try:
        open_run.edit(fork.parent.edit)
    except UserError:
        return None
    values = {**_where(fork), "repeat": fork.parent.repeat}
    return f"/runs/{open_run.key}/trace?{urlencode(values, errors='replace')}"
