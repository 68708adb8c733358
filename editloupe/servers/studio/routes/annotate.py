"""Routes of the Annotate page. Labels are saved at once. The judge's verdict is hidden until an edit is labelled."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from editloupe._util.text import normalize_name
from editloupe.evals.labels.label_form import RubricForm, build_forms
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.servers.studio.annotation.worklists import (
    ALL,
    DIFFER,
    LabelRequest,
    all_done,
    build_worklist,
    count_open_differences,
    count_progress,
    describe_queues,
    find_differing,
    find_first_open,
    keep_random_subset,
    label_edit,
    labels_of_edit,
    measure_alpha,
    propose_worklist,
)
from editloupe.servers.studio.judging.requests import parse_json
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.studio import Studio, studio_of
from editloupe.servers.studio.traces.trace_view import first_pictures
from editloupe.types import Record, UserError

router = APIRouter()
Name = Annotated[str, Query(max_length=80)]
Id = Annotated[str, Query(max_length=1000)]
Work = Annotated[str, Query(max_length=300)]
SHOWN_LARGE = ("source", "edited")


class SubsetRequest(Record):
    """Size and seed of a random subset."""

    size: int = Field(ge=1, le=1_000_000)
    seed: int = Field(default=0, ge=0, le=2**31)


@router.get("/annotate")
def choose(request: Request) -> Response:
    """Redirect to the only run, or let a person choose."""
    studio = studio_of(request)
    runs = studio.catalog.runs()
    if len(runs) == 1:
        return RedirectResponse(f"/runs/{runs[0].key}/annotate")
    return studio.pages.page("annotate_choose.html", runs=runs)


@router.get("/runs/{key}/annotate")
def page(request: Request, key: str, annotator: Name = "", edit: Id = "", work: Work = ALL) -> Response:
    """Return an edit to label, by default the first open one; without an annotator the page asks for a name."""
    studio = studio_of(request)
    open_run, name = studio.run(key), normalize_name(annotator)
    if not name:
        return studio.pages.page(
            "annotate_start.html",
            run=open_run,
            names=open_run.labels.annotators(),
            queues=describe_queues(open_run, studio.settings.queues),
            differ=count_open_differences(open_run),
            differ_key=DIFFER,
            work=work if "work" in request.query_params else propose_worklist(open_run, studio.settings.queues),
            total=len(build_worklist(open_run, ALL, name, ()).names),
        )
    worklist = build_worklist(open_run, work, name, studio.settings.queues)
    order = worklist.names
    if not order:
        if work == ALL:
            raise HTTPException(404, "This run holds no edits yet.")
        return studio.pages.page("annotate_nothing.html", run=open_run, name=name, work=worklist)
    waiting = find_first_open(open_run, name, worklist)
    current = edit or waiting or order[0]
    if current not in order:
        raise HTTPException(404, "This run has no such edit.")
    stored = open_run.edit(current)
    position = order.index(current)
    boxes = open_run.labels.boxes(name, current)
    forms = _forms_of_edit(open_run, worklist.adjudicates, current)
    return studio.pages.page(
        "annotate.html",
        run=open_run,
        name=name,
        work=worklist,
        edit=stored.edit,
        edit_name=current,
        pictures=first_pictures(stored.pictures),
        further=_list_further_pictures(open_run, stored),
        forms=forms,
        place=position,
        total=len(order),
        through=waiting is None,
        previous=order[position - 1] if position else None,
        following=order[position + 1] if position + 1 < len(order) else None,
        boxes=[list(box) for box in (stored.edit.target_boxes if boxes is None else boxes)],
        said=labels_of_edit(open_run, current) if worklist.adjudicates else {},
        remarks=_remarks(open_run, current) if worklist.adjudicates else {},
        state=_state(studio, open_run, name, worklist.adjudicates, current),
    )


@router.post("/runs/{key}/random-subset")
async def random_subset(request: Request, key: str) -> Response:
    """Draw a random subset of the run's edits and return the worklist it is saved as."""
    body = await parse_json(request, SubsetRequest)
    studio = studio_of(request)
    return studio.pages.json({"work": keep_random_subset(studio.run(key), body.size, body.seed)})


@router.post("/runs/{key}/labels")
async def give(request: Request, key: str) -> Response:
    """Save an action of an annotator and return the state of the edit."""
    body = await parse_json(request, LabelRequest)
    studio = studio_of(request)
    open_run, name = studio.run(key), normalize_name(body.annotator)
    if not name:
        raise UserError("an annotator needs a name")
    adjudicates = body.work == DIFFER
    moved = None
    if body.undo:
        undone = open_run.labels.undo(name)
        moved = undone.edit_id if undone else None
    else:
        edit = open_run.edit(body.edit).edit
        about = {"edit_id": edit.id, "model": edit.model}
        if body.boxes is not None:
            open_run.labels.draw(name, body.edit, body.boxes, **about)
        elif body.skip is not None:
            open_run.labels.skip(name, body.edit, body.skip, **about)
        elif body.comment is not None:
            open_run.labels.remark(name, body.edit, body.comment, **about)
        else:
            label_edit(open_run, name, body, _forms_of_edit(open_run, adjudicates, body.edit), adjudicates, about)
    return studio.pages.json({**_state(studio, open_run, name, adjudicates, moved or body.edit), "moved_to": moved})


@router.get("/runs/{key}/annotators")
def annotators(request: Request, key: str, work: Work = ALL) -> Response:
    """Return the progress and the agreement of the annotators."""
    studio = studio_of(request)
    open_run = studio.run(key)
    criteria, people = open_run.index.criteria(), open_run.index.people().given
    agreement = []
    for criterion, protocol in criteria:
        value, why, shared = measure_alpha(by for (_, c), by in people.get(protocol, {}).items() if c == criterion)
        agreement.append({"criterion": criterion, "protocol": protocol, "alpha": value, "why": why, "shared": shared})
    done = count_progress(
        open_run,
        {name: build_worklist(open_run, work, name, studio.settings.queues) for name in open_run.labels.annotators()},
    )
    return studio.pages.page(
        "parts/annotators.html",
        run=open_run,
        done=done,
        agreement=agreement,
        differ=len(find_differing(open_run)),
        waiting=count_open_differences(open_run),
        differ_key=DIFFER,
    )


def _forms_of_edit(open_run: OpenRun, adjudicates: bool, name: str) -> list[RubricForm]:
    """Return the forms of an edit: all, or those on which annotators differ."""
    forms = build_forms(open_run.units(name), open_run.edit(name).edit, open_run.find_recorded_rubric)
    if not adjudicates:
        return forms
    apart = find_differing(open_run).get(name, set())
    return [form for form in forms if form.rubric.criterion in apart]


def _remarks(open_run: OpenRun, edit_name: str) -> dict[str, str]:
    return {
        who: comment for who in open_run.labels.annotators() if (comment := open_run.labels.comment(who, edit_name))
    }


def _state(studio: Studio, open_run: OpenRun, name: str, adjudicates: bool, edit_name: str) -> dict[str, Any]:
    """Return an annotator's labels of an edit, and the judge's verdicts once all is labelled; never for adjudicators."""
    if not edit_name:
        return {"labels": {}, "checks": {}, "unsure": [], "verdicts": "", "complete": False, "boxes": None}
    forms = _forms_of_edit(open_run, adjudicates, edit_name)
    values = open_run.labels.about(name, edit_name, "adjudicated" if adjudicates else "label")
    complete = all_done(forms, values)
    boxes = open_run.labels.boxes(name, edit_name)
    html = ""
    if complete and not adjudicates:
        # From the label file itself: merging all labels of a large run would take longer than a keystroke may.
        others: dict[str | None, dict[str, str]] = {}
        for who, label_key, value in open_run.labels.said():
            if label_key.edit_id == edit_name and who != name and value.label:
                others.setdefault(label_key.criterion, {})[who] = value.label
        html = studio.pages.text("parts/revealed.html", run=open_run, units=open_run.units(edit_name), others=others)
    return {
        "labels": {criterion: value.label for criterion, value in values.items() if value.label is not None},
        "checks": {criterion: dict(value.checks) for criterion, value in values.items() if value.checks},
        "unsure": [criterion for criterion, value in values.items() if value.unsure],
        "skipped": edit_name in open_run.labels.skipped(name),
        "comment": open_run.labels.comment(name, edit_name),
        "boxes": None if boxes is None else [list(box) for box in boxes],
        "complete": complete,
        "verdicts": html,
    }


def _list_further_pictures(open_run: OpenRun, stored: StoredEdit) -> list[tuple[str, str]]:
    """Return caption and hash of the further pictures of an edit: references, marks, and pictures made from them.

    Only what was sent before the judge's first word is among them: what its tools returned would tell what it thought.
    """
    large = {hashes[0] for role, hashes in stored.pictures.items() if role in SHOWN_LARGE and hashes}
    captions: dict[str, str] = {}
    for role, hashes in stored.pictures.items():
        for number, sha in enumerate(hashes):
            if role not in SHOWN_LARGE or number:
                title = role.replace("_", " ").capitalize()
                captions.setdefault(sha, f"{title} {number + 1}" if len(hashes) > 1 else title)
    for unit in open_run.units(stored.name):
        try:
            traces = open_run.traces(unit)
        except UserError:  # the trace's own page says what is wrong with it
            continue
        for trace in traces:
            for sent in trace.steps[0].sent if trace.steps else ():
                if sent.sha not in large:
                    captions.setdefault(sent.sha, sent.name)
    return [(caption, sha) for sha, caption in captions.items() if sha in open_run.run.pictures]
