"""Routes of the Trace page: one verdict with its steps, alone or compared with another one on the same content."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from editloupe._util.text import number_of
from editloupe.evals.forks.fork_store import ForkGroup, format_label, group_forks
from editloupe.evals.runs.damage import RunDamaged, raise_run_damaged
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.evals.runs.unit_rows import Unit
from editloupe.rubrics.model import Rubric
from editloupe.servers.studio.annotation.worklists import labels_of_edit
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.studio import studio_of
from editloupe.servers.studio.traces.claim_marks import MarkedClaims, read_marks
from editloupe.servers.studio.traces.trace_pages import encode_query, find_neighbours, verdict_link
from editloupe.servers.studio.traces.trace_view import (
    StepView,
    build_steps,
    compare_settings,
    describe_differences,
    describe_parting,
    describe_request_source,
    diff_prompts,
    find_comparable_verdicts,
    find_kinds,
    find_parting,
    first_pictures,
    format_reply,
    format_request,
)
from editloupe.types import Trace, UserError, Verdict

router = APIRouter()
Id = Annotated[str, Query(max_length=1000)]


@dataclass(frozen=True)
class Tab:
    """One of several traces of a verdict."""

    name: str
    target: int | None
    part: str
    chosen: bool


@dataclass(frozen=True)
class VerdictView:
    """A verdict with its steps."""

    open_run: OpenRun
    unit: Unit
    trace: Trace | None
    """None if the unit ended before its first step."""
    views: tuple[StepView, ...]
    tabs: tuple[Tab, ...]
    """All traces of the verdict, of several targets or of the judges of a panel."""
    claims: MarkedClaims | None = None
    """The checked claims; None if the run was not verified."""

    @property
    def name(self) -> str:
        """The short name of the configuration, and the repeat if it is not the first."""
        repeat = f", repeat {self.unit.repeat + 1}" if self.unit.repeat else ""
        return f"{self.open_run.short_name_of(self.unit)}{repeat}"

    @property
    def place(self) -> str:
        """The verdict as CONFIGURATION~REPEAT, unique for its edit and criterion."""
        return self.open_run.place_of(self.unit)

    @property
    def rubric(self) -> Rubric | None:
        """The criterion's rubric."""
        return self.open_run.rubric(self.unit.protocol, self.unit.criterion)

    def link(self, **more: Any) -> str:
        """Return the address of this verdict."""
        return verdict_link(self.open_run, self.unit, **more)

    @property
    def grid_link(self) -> str:
        """The address of all verdicts on the same content by the same criterion."""
        values = {"edit": self.unit.name, "criterion": self.unit.criterion}
        return f"/runs/{self.open_run.key}/verdicts?{encode_query(values)}"

    def raw_link(self, step: int) -> str:
        """Return the address of the raw request and reply of a step."""
        trace = self.trace
        target, part = (trace.target, trace.part or None) if trace else (None, None)
        return verdict_link(self.open_run, self.unit, "raw", step=step, target=target, part=part)

    def fork_link(self, position: int) -> str:
        """Return the address of the form that forks this trace at a step."""
        unit, target = self.unit, self.trace.target if self.trace else None
        values = {"edit": unit.name, "criterion": unit.criterion, "repeat": unit.repeat}
        values |= {"configuration": unit.configuration or "", "step": position + 1}
        values |= {} if target is None else {"target": target + 1}
        return f"/runs/{self.open_run.key}/fork?{encode_query(values)}"


@router.get("/runs/{key}/trace")
def page(
    request: Request,
    key: str,
    edit: Id,
    criterion: Id = "",
    repeat: int | None = None,
    target: int | None = None,
    part: Id = "",
    beside: Id = "",
    configuration: Id = "",
    verdict: Id = "",
    where: Annotated[str | None, Query(max_length=5000)] = None,
    order: Id = "",
    among: Annotated[str | None, Query(max_length=20_000)] = None,
) -> Response:
    """Return the page of a verdict on an edit, given by its name.

    `verdict` is CONFIGURATION~REPEAT; `beside` is another verdict of an open run, with the
    run's key before them. `among` is the query string of the list that is stepped through; addresses of earlier versions have
    `where` and `order` of a list by verdict instead.
    """
    studio = studio_of(request)
    open_run = studio.run(key)
    stored = _edit(open_run, edit)
    units = open_run.units(stored.name)
    if verdict:
        configuration, repeat = _parse_verdict(verdict)
        if not any(
            u.repeat == repeat and u.criterion == criterion and open_run.asks(configuration, u.asked) for u in units
        ):
            configuration, repeat = "", None  # another criterion was chosen, which was judged by others
    if among is not None and not any(unit.criterion == criterion for unit in units):
        criterion = ""  # a neighbour in the table need not have been asked the same criterion
    unit = _choose_unit(open_run, units, criterion, repeat, configuration)
    shas = first_pictures(stored.pictures)
    left = _verdict_view(open_run, unit, (target, part), shas, "A" if beside else "") if unit else None
    others = find_comparable_verdicts(studio.catalog, open_run, left.unit) if left else []
    right = None
    if left and beside:
        compared = next((other for other in others if _is_beside(other, beside)), None)
        if compared is None:
            raise HTTPException(404, "There is no such trace of the same pictures and instruction to compare with.")
        right = _verdict_view(compared[0], compared[1], (target, part), shas, "B")
        beside = f"{compared[0].key}~{right.place}"
    both = (left.trace, right.trace) if left and left.trace and right and right.trace else None
    parted = find_parting(*both) if both else None
    is_listed = left is not None or among is not None
    around = (
        find_neighbours(open_run, left.unit if left else None, stored.name, among, where, order) if is_listed else None
    )
    return studio.pages.page(
        "trace.html",
        run=open_run,
        edit=stored.edit,
        edit_name=stored.name,
        siblings=open_run.siblings(stored.edit.id),
        pictures=shas,
        units=units,
        places=[(open_run.place_of(u), u) for u in units if left and u.criterion == left.unit.criterion],
        left=left,
        right=right,
        kinds=find_kinds(step for view in (left, right) if view for step in view.views),
        others=[(f"{other.key}~{other.place_of(u)}", other, u) for other, u in others],
        beside=beside,
        grid_link=left.grid_link if left else "",
        parted_at=parted,
        differs=describe_differences((open_run, left.unit), (right.open_run, right.unit)) if left and right else [],
        changed=compare_settings([(v.open_run, v.unit.asked) for v in (left, right)]) if left and right else [],
        prompt_lines=diff_prompts(left.trace, right.trace) if left and right else [],
        parting=describe_parting(*both, parted) if both else "One of them ended before its first step.",
        human=labels_of_edit(open_run, stored.name),
        around=around,
        forks_from=_forks_from,
        apart_from_people=_describe_disagreement,
    )


@dataclass(frozen=True)
class GridColumn:
    """The verdicts of one configuration on the same content, by repeat."""

    key: str
    """The run's key and the configuration."""
    verdicts: tuple[VerdictView, ...]
    """The repeats; the steps of the first are shown."""

    @property
    def title(self) -> str:
        """Judge, protocol and mode, and how the configuration differs from others of its run."""
        open_run, unit = self.first.open_run, self.first.unit
        titles = {each["configuration"]: str(each["title"]) for each in open_run.index.facts().configurations}
        return titles.get(open_run.configuration_of(unit)) or self.first.name

    @property
    def first(self) -> VerdictView:
        """The first repeat."""
        return self.verdicts[0]

    @property
    def labels(self) -> list[tuple[str, int]]:
        """How often each outcome occurs, the most frequent first."""
        return Counter(format_label(verdict.unit.outcome) for verdict in self.verdicts).most_common()


@router.get("/runs/{key}/verdicts")
def grid(
    request: Request,
    key: str,
    edit: Id,
    criterion: Id,
    column: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> Response:
    """Return all verdicts on one edit by one criterion, a column per configuration; `column` names those that are shown."""
    studio = studio_of(request)
    open_run = studio.run(key)
    stored = _edit(open_run, edit)
    unit = _choose_unit(open_run, open_run.units(stored.name), criterion, None)
    if unit is None:
        raise HTTPException(404, "This edit has not been judged yet.")
    judged: dict[str, list[tuple[OpenRun, Unit]]] = {}
    for each in ((open_run, unit), *find_comparable_verdicts(studio.catalog, open_run, unit)):
        judged.setdefault(f"{each[0].key}~{each[0].configuration_of(each[1])}", []).append(each)
    shas = first_pictures(stored.pictures)
    all_columns = []
    for column_key, units in judged.items():
        units.sort(key=lambda each: each[1].repeat)
        first = _verdict_view(*units[0], (None, ""), shas, "")
        rest = (VerdictView(of, other, None, (), ()) for of, other in units[1:])
        all_columns.append(GridColumn(column_key, (first, *rest)))
    columns = [each for each in all_columns if not column or each.key in column]
    if not columns:
        raise HTTPException(404, "There is no such verdict on this edit.")
    reference = columns[0].first.trace
    return studio.pages.page(
        "verdicts.html",
        run=open_run,
        edit=stored.edit,
        edit_name=stored.name,
        criterion=criterion,
        pictures=shas,
        all_columns=all_columns,
        columns=columns,
        human=labels_of_edit(open_run, stored.name).get(criterion, {}),
        apart_from_people=_describe_disagreement,
        title=open_run.title_of(criterion, unit.protocol),
        changed=compare_settings([(each.first.open_run, each.first.unit.asked) for each in columns]),
        prompts=[diff_prompts(reference, each.first.trace) for each in columns],
    )


@router.get("/runs/{key}/raw")
def raw(
    request: Request,
    key: str,
    edit: Id,
    criterion: Id,
    step: int,
    repeat: int | None = None,
    target: int | None = None,
    part: Id = "",
    verdict: Id = "",
) -> Response:
    """Return the raw request and reply of a step."""
    studio = studio_of(request)
    open_run = studio.run(key)
    configuration = ""
    if verdict:
        configuration, repeat = _parse_verdict(verdict)
    unit = _choose_unit(open_run, open_run.units(_edit(open_run, edit).name), criterion, repeat, configuration)
    traces = open_run.traces(unit) if unit else ()
    trace = next((candidate for candidate in traces if (candidate.target, candidate.part) == (target, part)), None)
    if trace is None or not 0 <= step < len(trace.steps):
        raise HTTPException(404, "There is no such step.")
    with raise_run_damaged(open_run.name):
        exchange = {"request": format_request(trace, step), "reply": format_reply(open_run.run, trace, step)}
    if note := describe_request_source(trace, step):
        exchange = {"note": note, **exchange}
    return studio.pages.json(exchange)


def _parse_verdict(verdict: str) -> tuple[str, int | None]:
    """Return configuration and repeat of CONFIGURATION~REPEAT."""
    configuration, _, repeat = verdict.rpartition("~")
    if not repeat.isdecimal():
        raise HTTPException(404, "There is no such verdict.")
    return configuration, int(repeat)


def _is_beside(other: tuple[OpenRun, Unit], beside: str) -> bool:
    """True if `beside` names a unit, as KEY~CONFIGURATION~REPEAT or KEY~REPEAT."""
    open_run, unit = other
    return beside in (f"{open_run.key}~{open_run.place_of(unit)}", f"{open_run.key}~{unit.repeat}")


def _edit(open_run: OpenRun, name: str) -> StoredEdit:
    try:
        return open_run.edit(name)
    except RunDamaged:
        raise
    except UserError as error:
        raise HTTPException(404, str(error)) from None


def _choose_unit(
    open_run: OpenRun, units: list[Unit], criterion: str, repeat: int | None, configuration: str = ""
) -> Unit | None:
    fitting = [u for u in units if criterion in ("", u.criterion) and repeat in (None, u.repeat)]
    own = [unit for unit in fitting if open_run.asks(configuration, unit.asked)] if configuration else fitting
    fitting = own if criterion or repeat is not None else own or fitting
    if fitting:
        return min(
            fitting, key=lambda unit: (unit.criterion != fitting[0].criterion, open_run.position_of(unit), unit.repeat)
        )
    if criterion or repeat is not None:
        raise HTTPException(404, "This edit was not judged by that criterion and repeat.")
    return None


def _verdict_view(
    open_run: OpenRun, unit: Unit, tab: tuple[int | None, str], shas: dict[str, str], side: str
) -> VerdictView:
    """Return a verdict with the trace of a target and part, or the first trace if there is none of these."""
    traces = open_run.traces(unit)
    target, part = tab
    fitting = [candidate for candidate in traces if target in (None, candidate.target) and part in ("", candidate.part)]
    trace = next(iter((*fitting, *traces)), None)
    views = build_steps(trace, shas, side) if trace else ()
    tabs = tuple(
        Tab(_tab_name(candidate), candidate.target, candidate.part, candidate is trace) for candidate in traces
    )
    return VerdictView(open_run, unit, trace, views, tabs, read_marks(open_run.run, unit, shas))


def _tab_name(trace: Trace) -> str:
    target = "" if trace.target is None else f"Target {trace.target + 1}"
    part = f"{trace.part.capitalize()}: {trace.judge}" if trace.part else ""
    return " · ".join(filter(None, (part, target))) or "Steps"


def _describe_disagreement(verdict: VerdictView) -> str:
    """Return how far people's consensus is from a verdict; empty if they agree, or if there is nothing to compare."""
    outcome = verdict.unit.outcome
    consensus = verdict.open_run.index.consensus(verdict.unit.name).get(verdict.unit.criterion)
    if not isinstance(outcome, Verdict) or consensus is None or outcome.label in (None, consensus):
        return ""
    steps = verdict.open_run.labels_apart(verdict.unit.protocol, verdict.unit.criterion, consensus, outcome.label)
    return "differs from the judge" if steps is None else f"{number_of(steps, 'label')} apart"


def _forks_from(verdict: VerdictView) -> list[ForkGroup]:
    """Return the forks of a verdict's trace."""
    own = verdict.unit
    with raise_run_damaged(verdict.open_run.name):
        groups = group_forks(verdict.open_run.run, own.name, own.criterion)
    return [group for group in groups if (group.repeat, group.asked) == (own.repeat, own.asked)]
