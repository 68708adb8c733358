"""The engine that computes a criterion from the pictures of a case. It sends no request."""

from __future__ import annotations

import time

import numpy as np

from editloupe._util.text import one_line
from editloupe.agent.replies.answers import ParsedAnswer
from editloupe.graphs.loop import CaseContext, CaseResult, Failure
from editloupe.pictures.decode import Picture, open_mask
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.case_pictures import list_pictures, role_to_name
from editloupe.rubrics.model import MeasuredAnswer
from editloupe.tools.contract import ToolError
from editloupe.tools.measures import MEASURES, MeasureInputs
from editloupe.types import NOT_APPLICABLE, Observation, Reason, Step, ToolCall

MASK = "mask"
"""Role of the pictures that say where the edit was to be made."""


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
    texts = [str(case.edit.extra[name]).strip() for name in answer.texts]
    try:
        inputs = MeasureInputs(list(case.pictures), _open_pictures(context), texts)
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


def _open_pictures(context: CaseContext) -> list[Picture]:
    """Return the pictures of the case. Masks become black and white, because pictures of an album have no transparency."""
    case, album = context.case, context.shared.album
    masks = iter(list_pictures(case.edit, MASK))
    return [
        album.add(np.repeat(np.asarray(open_mask(next(masks)))[..., None], 3, axis=2))
        if name.startswith(role_to_name(MASK))
        else album[sha]
        for name, sha in case.pictures.items()
    ]


def _to_answer(answer: MeasuredAnswer, value: float | None) -> ParsedAnswer:
    if value is None:
        return ParsedAnswer(NOT_APPLICABLE, label=NOT_APPLICABLE, values={answer.measure: None})
    return ParsedAnswer(f"{value:.6g}", score=value, score_100=answer.score_100(value), values={answer.measure: value})
