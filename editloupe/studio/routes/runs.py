"""The Runs page: all runs, and the table of one with its filters, order, pages and charts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from editloupe.evals.runs.damage import RunDamaged
from editloupe.rubrics.registry import known_protocol, protocols
from editloupe.studio.charts import TITLES
from editloupe.studio.human_labels import choices, rubric_of
from editloupe.studio.library import ClosedRun, OpenRun
from editloupe.studio.queries import AGREEMENTS, ORDERS, STATUSES, UNJUDGED, Facts, Wanted, facts_of, page_of
from editloupe.studio.studio import studio_of
from editloupe.types import UserError

router = APIRouter()
Text = Annotated[str, Query(max_length=300)]


@router.get("/runs")
def all_runs(request: Request) -> Response:
    """Return the list of runs."""
    studio = studio_of(request)
    found: list[tuple[OpenRun | ClosedRun, Facts | None, list[dict[str, Any]], str]] = []
    for one in studio.library.all():
        try:
            if isinstance(one, ClosedRun):
                raise RunDamaged(one.why)
            with one.index.reading() as rows:
                found.append((one, facts_of(rows), one.configurations(), ""))
        except UserError as error:
            found.append((one, None, [], str(error)))
    return studio.pages.page("runs.html", found=found)


@router.get("/runs/{key}")
def one_run(
    request: Request,
    key: str,
    text: Text = "",
    type: Text = "",
    criterion: Text = "",
    label: Text = "",
    status: Text = "",
    apart: Text = "",
    order: Text = "manifest",
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
) -> Response:
    """Return the table of a run, or only its rows where the page's script asks for them."""
    studio = studio_of(request)
    one = studio.run(key)
    wanted = Wanted(
        text=text,
        type=type,
        criterion=criterion,
        label=label,
        status=status if status in STATUSES else "",
        apart=apart if apart in AGREEMENTS else "",
        order=order if order in ORDERS else "manifest",
        page=page,
    )
    with one.index.reading() as rows:
        found, facts = page_of(rows, wanted), facts_of(rows)
    values: dict[str, Any] = {
        "one": one,
        "wanted": wanted,
        "page": found,
        "run_facts": facts,
        "criteria": _criteria(facts),
    }
    if request.headers.get("x-part") == "rows":
        return studio.pages.page("parts/rows.html", **values)
    return studio.pages.page(
        "run.html",
        **values,
        orders=ORDERS,
        statuses=STATUSES,
        agreements=AGREEMENTS,
        bars=_bars(facts),
        configurations=one.configurations(),
    )


@router.get("/runs/{key}/charts")
def charts(request: Request, key: str) -> Response:
    """Return the report's answer and its figures; worked out here, so the page asks for them after it is shown."""
    studio = studio_of(request)
    one = studio.run(key)
    with one.index.reading() as rows:
        protocols = list(dict.fromkeys(protocol for _, protocol in _criteria(facts_of(rows))))
    found = [(protocol, studio.charts.charts(one, protocol)) for protocol in protocols]
    return studio.pages.page("parts/charts.html", one=one, found=found, titles=TITLES)


@router.get("/runs/{key}/charts/{protocol}/{name}")
def chart(request: Request, key: str, protocol: str, name: str) -> Response:
    """Return one figure as SVG."""
    studio = studio_of(request)
    found = None
    if known_protocol(protocol):
        found = studio.charts.charts(studio.run(key), protocol).figures.get(name)
    if found is None:
        raise HTTPException(404, "There is no such figure.")
    return Response(found, media_type="image/svg+xml")


def _criteria(facts: Facts) -> list[tuple[str, str]]:
    """Return criteria with their protocols, in the protocols' order."""
    order = [rubric.criterion for known in protocols() for rubric in known.rubrics]
    return sorted(facts.criteria, key=lambda one: order.index(one[0]) if one[0] in order else len(order))


def _bars(facts: Facts) -> list[dict[str, Any]]:
    """Return the shares of every criterion's labels, worst first, unjudged last."""
    bars = []
    for criterion, protocol in _criteria(facts):
        counts = dict(facts.counts.get(criterion, {}))
        rubric = rubric_of(protocol, criterion)
        known = {choice.value: choice.place for choice in (choices(rubric.answer) if rubric else ())}
        names = [
            name for name in (*known, *sorted(set(counts) - set(known) - {UNJUDGED}), UNJUDGED) if counts.get(name)
        ]
        total, place, parts = sum(counts.values()), 0.0, []
        for name in names:
            share = counts[name] / total
            parts.append(
                {"label": name, "count": counts[name], "share": share, "from": place, "place": known.get(name)}
            )
            place += share
        bars.append({"criterion": criterion, "protocol": protocol, "parts": parts, "total": total})
    return bars
