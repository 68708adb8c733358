"""The graph of one edit makes its cases, judges them concurrently by their engines, and decides the criteria."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send
from typing_extensions import TypedDict  # pydantic makes no schema of typing's own before Python 3.12

from editloupe.graphs.context import LiveContext, SharedContext
from editloupe.graphs.engines import ENGINES, Engine
from editloupe.graphs.loop import CaseContext, CaseResult, Failure, sum_usage
from editloupe.pictures.memory import MemoryPicture
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import LabelAnswer, Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, find_worst_label
from editloupe.telemetry.spans import Span, criterion_span, set_decision
from editloupe.types import UNJUDGED, Edit, Mode, Outcome, Reason, Served, Trace, Unjudged, Usage, UserError, Verdict


@dataclass(frozen=True)
class EditContext(LiveContext):
    """The context of the graph of one edit."""

    shared: SharedContext
    protocol: Protocol
    criteria: tuple[str, ...]
    mode: Mode
    min_confidence: float = 0.0


class EditState(TypedDict, total=False):
    """The state of the graph of one edit."""

    edit: Edit
    cases: list[Case]
    case: Case
    """The case of one branch."""
    judged: Annotated[list[CaseResult], operator.add]
    outcomes: Annotated[list[Outcome], operator.add]


async def prepare(state: EditState, runtime: Runtime[EditContext]) -> EditState:
    """Open the pictures and make the cases of every rubric that applies to the edit."""
    context, edit = runtime.context, state["edit"]
    cases: list[Case] = []
    outcomes: list[Outcome] = []
    try:
        rubrics = context.protocol.rubrics_for(edit, context.criteria)
    except MissingInput as error:
        if context.shared.strict:
            raise
        missing = Reason.MISSING_INPUT
        return EditState(
            cases=[],
            outcomes=[Unjudged(criterion=name, reason=missing, detail=str(error)) for name in context.criteria],
        )
    unsettled: list[Rubric] = []
    for rubric in rubrics:
        if settled := context.protocol.settle(edit, rubric):
            outcomes.append(settled)
        else:
            unsettled.append(rubric)
    for outcome in await asyncio.to_thread(lambda: [_cases(context, edit, rubric) for rubric in unsettled]):
        if isinstance(outcome, Unjudged):
            outcomes.append(outcome)
        else:
            cases += outcome
    return EditState(cases=cases, outcomes=outcomes)


def _cases(context: EditContext, edit: Edit, rubric: Rubric) -> list[Case] | Unjudged:
    try:
        return context.protocol.make_cases(edit, rubric, context.mode, context.shared.album)
    except ImageError as error:
        detail = _with_role(edit, str(error))
        if context.shared.strict:
            raise ImageError(detail) from None
        return Unjudged(criterion=rubric.criterion, reason=Reason.BAD_IMAGE, detail=detail)
    except MissingInput as error:
        if context.shared.strict:
            raise
        return Unjudged(criterion=rubric.criterion, reason=Reason.MISSING_INPUT, detail=str(error))


def _with_role(edit: Edit, sentence: str) -> str:
    """Add the role of a picture to a sentence about it if the picture is in memory and has no file name."""
    for role, sources in edit.files.items():
        for source in sources:
            if isinstance(source, MemoryPicture) and (source.problem or source.label) in sentence:
                return f"the {role} picture: {sentence}"
    return sentence


async def fan_out(state: EditState) -> list[Send]:
    """Send every case to its engine."""
    cases = state.get("cases", [])
    if unknown := {case.engine for case in cases} - set(ENGINES):
        raise UserError(f"there is no engine {unknown.pop()}; there are: {', '.join(ENGINES)}")
    return [Send(_node(case.engine), EditState(case=case)) for case in cases]


def make_judge_node(engine: Engine) -> Any:
    """Return the node in which an engine judges one case."""
    graph, judge = engine.graph, engine.judge  # LangGraph finds a graph named here and draws it inside the node

    async def judge_case(state: EditState, runtime: Runtime[EditContext]) -> EditState:
        case = state["case"]
        with criterion_span(case.edit.id, case.rubric.criterion, case.target) as span:
            judged = await judge(graph, case_context(case, runtime.context))
            record_result(span, judged)
        return EditState(judged=[judged])

    return judge_case


def record_result(span: Span, judged: CaseResult) -> None:
    """Record the result of a case in the span of its criterion."""
    answer, failure = judged.given, judged.failure
    label, score = (answer.label, answer.score_100) if answer and not failure else (None, None)
    set_decision(span, judged.case.rubric.criterion, label, score, failure.reason if failure else None)


def _node(engine: str) -> str:
    return f"judge_by_{engine}"


def case_context(case: Case, context: EditContext) -> CaseContext:
    """Return the context of one case of an edit."""
    heading = Trace(
        edit_id=case.edit.id,
        criterion=case.rubric.criterion,
        protocol=case.rubric.protocol,
        mode=case.mode,
        judge=context.shared.judge,
        target=case.target,
        part=context.shared.part,
    )
    return CaseContext(context.shared, case, heading)


async def decide(state: EditState, runtime: Runtime[EditContext]) -> EditState:
    """Decide the outcome of every criterion from its cases."""
    context = runtime.context
    by_criterion: dict[str, list[CaseResult]] = {}
    for result in state.get("judged", []):
        by_criterion.setdefault(result.case.rubric.criterion, []).append(result)
    return EditState(outcomes=[decide_criterion(cases, context.min_confidence) for cases in by_criterion.values()])


def decide_criterion(cases: Sequence[CaseResult], min_confidence: float = 0.0) -> Outcome:
    """Return the outcome of one criterion: the answer of its case, or the worst answer of its targets."""
    cases = sorted(cases, key=lambda result: result.case.target or 0)
    shared: dict[str, Any] = {
        "criterion": cases[0].case.rubric.criterion,
        "usage": sum((sum_usage(list(result.trace.steps)) for result in cases), Usage()),
        "steps": sum(len(result.trace.steps) for result in cases),
        "served": _collect_served(cases),
    }
    open_cases = [result for result in cases if result.failure or result.given is None]
    decided = _find_deciding(cases)
    if open_cases and not _is_settled(decided):
        result = open_cases[0]
        failure = result.failure or Failure(Reason.NO_ANSWER, "the judge gave no answer")
        where = f"target {result.case.target + 1}: " if result.case.target is not None else ""
        return Unjudged(reason=failure.reason, detail=where + failure.detail, raw=failure.raw, **shared)
    assert decided is not None
    answer = decided.given
    assert answer is not None
    if decided.confidence is not None and decided.confidence < min_confidence:
        detail = f"{answer.text} with a confidence of {decided.confidence:.2f}, below {min_confidence:.2f}"
        return Unjudged(reason=Reason.LOW_CONFIDENCE, detail=detail, raw=answer.text, **shared)
    return Verdict(
        label=answer.label,
        score=answer.score,
        score_100=answer.score_100,
        values=answer.values,
        rationale=decided.trace.steps[-1].thought,
        confidence=decided.confidence,
        targets=tuple(map(_target_label, cases)) if len(cases) > 1 else (),
        **shared,
    )


def _collect_served(cases: Sequence[CaseResult]) -> tuple[Served, ...]:
    """Return what the provider reports about the models that answered, without repetitions."""
    reports = (
        step.served.model_copy(update={"judge": result.trace.judge})
        for result in cases
        for step in result.trace.steps
        if step.served is not None
    )
    return tuple(dict.fromkeys(reports))


def _find_deciding(cases: Sequence[CaseResult]) -> CaseResult | None:
    """Return the case that decides: the one with the worst label. Ties go to the highest confidence."""
    answered = [result for result in cases if result.given is not None and not result.failure]
    if not answered:
        return None
    rubric = answered[0].case.rubric
    if len(answered) == 1:
        return answered[0]
    if not isinstance(rubric.answer, LabelAnswer):
        return min(answered, key=_score)  # the first of equal ones
    worst = find_worst_label(rubric, [_target_label(result) for result in answered])
    alike = [result for result in answered if _target_label(result) == worst]
    return max(alike, key=lambda result: 1.0 if result.confidence is None else result.confidence)


def _score(result: CaseResult) -> float:
    """Return a target's score; infinity if it has no number."""
    assert result.given is not None
    return float("inf") if result.given.score_100 is None else result.given.score_100


def _is_settled(decided: CaseResult | None) -> bool:
    """Return True if unjudged targets cannot change the outcome, because another has the worst possible label."""
    if decided is None or decided.given is None or not isinstance(answer := decided.case.rubric.answer, LabelAnswer):
        return False
    return str(decided.given.label) == answer.worst([label.name for label in answer.labels])


def _target_label(result: CaseResult) -> str:
    """Return a target's label, or `unjudged`."""
    return UNJUDGED if result.failure or result.given is None else str(result.given.label)


EditGraph = CompiledStateGraph[EditState, EditContext, EditState, EditState]


def build_edit_graph() -> EditGraph:
    """Return the compiled graph of one edit."""
    graph = StateGraph(EditState, context_schema=EditContext)
    graph.add_node("prepare", prepare)
    graph.add_node("decide", decide)
    graph.add_edge(START, "prepare")
    graph.add_conditional_edges("prepare", fan_out, [_node(name) for name in ENGINES])
    for name, engine in ENGINES.items():
        graph.add_node(_node(name), make_judge_node(engine))
        graph.add_edge(_node(name), "decide")
    graph.add_edge("decide", END)
    return graph.compile(name="editloupe_edit")


EDIT_GRAPH = build_edit_graph()
