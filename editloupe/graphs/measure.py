"""The engine that computes a criterion from the pictures of a case. It sends no request."""

from __future__ import annotations

import time

from editloupe._util.text import one_line
from editloupe.agent.replies.answers import ParsedAnswer
from editloupe.graphs.loop import CaseContext, CaseResult, Failure
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.model import MeasuredAnswer
from editloupe.tools.contract import ToolError
from editloupe.tools.measures import MEASURES, MeasureInputs
from editloupe.types import NOT_APPLICABLE, Observation, Reason, Step, ToolCall


async def judge_by_measure(graph: None, context: CaseContext) -> CaseResult:
    """Compute the measure of a case in a worker thread. The trace has one step with the value."""
    answer = context.case.rubric.measured
    assert answer is not None
    measured = await context.shared.toolbox.run_in_worker(answer.measure, _measure, context, answer)
    if context.shared.watcher is not None and measured.trace.steps:
        context.shared.watcher.step(context.heading, measured.trace.steps[-1])
    return measured


def _measure(context: CaseContext, answer: MeasuredAnswer) -> CaseResult:
    case, started = context.case, time.perf_counter()
    missing = [name for name in answer.texts if not str(case.edit.extra.get(name) or "").strip()]
    if missing:
        detail = f'edit {case.edit.id} has no text "{missing[0]}", which {answer.measure} compares with the picture'
        return CaseResult(case, context.heading, None, Failure(Reason.MISSING_INPUT, detail))
    inputs = MeasureInputs(
        list(case.pictures),
        [context.shared.album[sha] for sha in case.pictures.values()],
        [str(case.edit.extra[name]).strip() for name in answer.texts],
    )
    try:
        value = context.shared.toolbox.measures.measure(answer.measure, inputs)
    except ImageError as error:
        return CaseResult(case, context.heading, None, Failure(Reason.BAD_IMAGE, str(error)))
    except ToolError as error:  # weights that are not here; the next run tries again
        return CaseResult(case, context.heading, None, Failure(Reason.MISSING_INPUT, str(error)))
    except Exception as error:  # must not affect the criteria that a judge is asked
        detail = f"{answer.measure} failed: {type(error).__name__}: {one_line(str(error))}"
        return CaseResult(case, context.heading, None, Failure(Reason.INTERNAL, detail))
    given = _to_answer(answer, value)
    call = ToolCall(id=answer.measure, name=answer.measure, parameters={"pictures": list(case.pictures)})
    text = f"{MEASURES[answer.measure].shows}: {given.text}"
    observation = Observation(call_id=call.id, tool=call.name, text=text, data={answer.measure: value})
    step = Step(
        index=0,
        thought=f"Measured without a judge: {text}.",
        calls=(call,),
        observations=(observation,),
        answer=given.text,
        seconds=time.perf_counter() - started,
    )
    trace = context.heading.model_copy(update={"steps": (step,), "seconds": step.seconds})
    return CaseResult(case, trace, given, None)


def _to_answer(answer: MeasuredAnswer, value: float | None) -> ParsedAnswer:
    if value is None:
        return ParsedAnswer(NOT_APPLICABLE, label=NOT_APPLICABLE, values={answer.measure: None})
    return ParsedAnswer(f"{value:.6g}", score=value, score_100=answer.score_100(value), values={answer.measure: value})
