"""The engines that judge cases.

Each case names its engine, usually the loop. If the rubric has a first stage, the differences are listed before the loop starts.
A measured criterion is computed from the pictures of the case and sends no request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from editloupe._util.text import one_line
from editloupe.agent.prompts import EARLIER_FINDINGS, reword_observation
from editloupe.agent.replies.answers import ParsedAnswer
from editloupe.graphs.edival import EDIVAL_GRAPH, judge_by_objects
from editloupe.graphs.loop import LOOP, CaseContext, CaseResult, Failure, Graph, initial_state, prompt_texts
from editloupe.pictures.decode import Picture, open_mask
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.case import MEASURE, Case
from editloupe.rubrics.case_pictures import list_pictures, role_to_name
from editloupe.rubrics.model import MeasuredAnswer, ModeText, PreliminaryQuestion, Rubric, TextAnswer
from editloupe.tools.contract import ToolError
from editloupe.tools.measures import MEASURES, MeasureInputs
from editloupe.tools.registry import Toolbox
from editloupe.types import NOT_APPLICABLE, Observation, Reason, Sha, Step, ToolCall, Trace

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

    def fail(reason: Reason, detail: str) -> CaseResult:
        return CaseResult(case, context.heading, None, Failure(reason, detail))

    missing = [name for name in answer.texts if not str(case.edit.extra.get(name) or "").strip()]
    if missing:
        detail = f'edit {case.edit.id} has no text "{missing[0]}", which {answer.measure} compares with the picture'
        return fail(Reason.MISSING_INPUT, detail)
    texts = [str(case.edit.extra[name]).strip() for name in answer.texts]
    try:
        inputs = MeasureInputs(list(case.pictures), _open_pictures(context), texts)
        value = context.shared.toolbox.measures.measure(answer.measure, inputs)
    except ImageError as error:
        return fail(Reason.BAD_IMAGE, str(error))
    except ToolError as error:  # weights that are not here; the next run tries again
        return fail(Reason.MISSING_INPUT, str(error))
    except Exception as error:  # must not affect the criteria that a judge is asked
        return fail(Reason.INTERNAL, f"{answer.measure} failed: {type(error).__name__}: {one_line(str(error))}")
    measured = _to_answer(answer, value)
    call = ToolCall(id=answer.measure, name=answer.measure, parameters={"pictures": list(case.pictures)})
    text = f"{MEASURES[answer.measure].shows}: {measured.text}"
    observation = Observation(call_id=call.id, tool=call.name, text=text, data={answer.measure: value})
    step = Step(
        index=0,
        thought=f"Measured without a judge: {text}.",
        calls=(call,),
        observations=(observation,),
        answer=measured.text,
        seconds=time.perf_counter() - started,
    )
    trace = context.heading.model_copy(update={"steps": (step,), "seconds": step.seconds})
    return CaseResult(case, trace, measured, None)


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


TOOL = "localize_differences"


@dataclass(frozen=True)
class StageResult:
    """A case after its first stage. The differences are in its facts, and `steps` shows how they were found."""

    case: Case
    steps: tuple[Step, ...] = ()
    prompts: tuple[str, ...] = ()
    failure: Failure | None = None


async def run_first_stage(context: CaseContext, loop: Graph = LOOP) -> StageResult:
    """List the differences if the rubric has a first stage; otherwise return the case unchanged."""
    stage = context.case.rubric.stage
    if stage is None:
        return StageResult(context.case)
    by_tool = context.shared.differences == "tool"
    return await (_by_tool(context, stage) if by_tool else _by_model(context, stage, loop))


async def _by_model(context: CaseContext, stage: PreliminaryQuestion, loop: Graph) -> StageResult:
    """Ask the model for the differences. An unreadable list leaves the case unjudged."""
    case = make_stage_case(context.case, stage)
    asking = replace(context, case=case)
    start = await asyncio.to_thread(initial_state, asking)
    state = await loop.ainvoke(start, {"recursion_limit": context.shared.limits.recursion_limit}, context=asking)
    steps, prompts = tuple(state["steps"]), prompt_texts(start)
    if state["given"] is None:
        failure = state["failure"] or Failure(Reason.NO_ANSWER, "the judge listed nothing")
        return StageResult(context.case, steps, prompts, replace(failure, detail=f"{stage.title}: {failure.detail}"))
    return StageResult(_with_differences(context.case, stage, str(state["given"].values[stage.key])), steps, prompts)


async def _by_tool(context: CaseContext, stage: PreliminaryQuestion) -> StageResult:
    """Compare the stage's two pictures with the tool. Its crops are sent with the rubric's question."""
    first, second = stage.images[:2]
    shared = context.shared
    parameters = {"comparison_image_1": first, "comparison_image_2": second}
    call = ToolCall(id="stage_0", name=TOOL, parameters=parameters)
    plain = await shared.observations.observe(shared.toolbox, call, context.view(), shared.wire)
    observation = reword_observation(plain, context.case.rubric.wording)
    if observation.failed:
        return StageResult(context.case, failure=Failure(Reason.MISSING_INPUT, f"{stage.title}: {observation.text}"))
    step = Step(index=0, thought=stage.title, calls=(call,), observations=(observation,))
    crops = dict(zip(observation.captions, observation.pictures, strict=True))
    return StageResult(_with_differences(context.case, stage, observation.text, crops), (step,))


def make_stage_case(case: Case, stage: PreliminaryQuestion) -> Case:
    """Return the case for the question of the stage."""
    rubric = Rubric(
        protocol=case.rubric.protocol,
        criterion=case.rubric.criterion,
        variant=stage.key,
        title=stage.title,
        source=case.rubric.source,
        question=stage.question,
        notes=stage.notes,
        answer=TextAnswer(key=stage.key, shape=stage.shape),
        modes={"plain": ModeText(setting=stage.setting, images=stage.images)},
        tells=stage.tells,
        wording=case.rubric.wording,
    )
    pictures = {name: sha for name, sha in case.pictures.items() if name in stage.images}
    return case.model_copy(update={"rubric": rubric, "mode": "plain", "pictures": pictures})


def _with_differences(
    case: Case, stage: PreliminaryQuestion, text: str, crops: Mapping[str, Sha] | None = None
) -> Case:
    facts: dict[str, Any] = {**case.facts, EARLIER_FINDINGS: {stage.introduction.strip(): text.strip()}}
    return case.model_copy(update={"facts": facts, "pictures": {**case.pictures, **(crops or {})}})


@dataclass(frozen=True)
class Engine:
    """One way to judge a case."""

    graph: Graph | None
    """Graph that the engine runs; None if it needs none."""
    judge: Callable[[Any, CaseContext], Awaitable[CaseResult]]
    """Judges the context's case with the graph. A problem of the case is a Failure, not an exception."""


async def judge_by_loop(loop: Graph, context: CaseContext) -> CaseResult:
    """Judge a case by the loop, after its first stage if it has one."""
    case, started = context.case, time.perf_counter()
    staged = await run_first_stage(context, loop)
    if staged.failure:
        return CaseResult(case, _trace(context, staged, (), started), None, staged.failure)
    context = replace(context, case=staged.case)
    start = await asyncio.to_thread(initial_state, context)
    end = await loop.ainvoke(start, {"recursion_limit": context.shared.limits.recursion_limit}, context=context)
    staged = replace(staged, prompts=staged.prompts + prompt_texts(start))
    trace = _trace(context, staged, end["steps"], started)
    return CaseResult(case, trace, end["given"], end["failure"], end["confidence"])


def _trace(context: CaseContext, staged: StageResult, steps: Sequence[Step], started: float) -> Trace:
    """Return the trace of a case: the steps of its first stage, then its own."""
    offset, prompts = len(staged.steps), max(0, len(staged.prompts) - 2)
    following = [_renumber(step, offset, prompts) for step in steps] if offset else steps
    return context.heading.model_copy(
        update={
            "prompt": staged.prompts,
            "tools": tuple(tool.name for tool in context.tools),
            "notes": (
                *(tool_notes(context.shared.toolbox) if context.case.uses_tools else ()),
                *context.shared.chat.notes,
            ),
            "steps": (*staged.steps, *following),
            "seconds": time.perf_counter() - started,
        }
    )


def _renumber(step: Step, steps: int, prompts: int) -> Step:
    """Return a step renumbered to follow the steps and prompts of the first stage."""
    messages = tuple(
        message if message.prompt is None else message.model_copy(update={"prompt": message.prompt + prompts})
        for message in step.asked
    )
    return step.model_copy(update={"index": step.index + steps, "asked": messages})


def tool_notes(toolbox: Toolbox) -> tuple[str, ...]:
    """Return notes on tools that are not offered and on settings that were replaced, with the reasons."""
    return (*toolbox.notes, *(f"{name} is not offered: {why}" for name, why in toolbox.withheld.items()))


ENGINES: Mapping[str, Engine] = {
    "loop": Engine(LOOP, judge_by_loop),
    "objects": Engine(EDIVAL_GRAPH, judge_by_objects),
    MEASURE: Engine(None, judge_by_measure),
}
"""`loop`: think, use tools, answer. `objects`: check objects one by one with a detector and crops (EdiVal-Agent). `measure`:
compute a number from the pictures, without a judge."""
