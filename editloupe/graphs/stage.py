"""The stage before a rubric's own question: differences are listed first, by the model itself or by the tool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from editloupe.agent.prompts import EARLIER_FINDINGS
from editloupe.agent.tool_words import in_words
from editloupe.graphs.loop import LOOP, CaseContext, Failure, Graph, LoopState, opening
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import ModeText, Rubric, Stage, TextAnswer
from editloupe.types import Reason, Sha, Step, ToolCall

TOOL = "localize_differences"


@dataclass(frozen=True)
class Staged:
    """A case after its first stage: what was found is among its facts, how it was found is in the steps."""

    case: Case
    steps: tuple[Step, ...] = ()
    prompts: tuple[str, ...] = ()
    failure: Failure | None = None


async def first_stage(context: CaseContext, loop: Graph = LOOP) -> Staged:
    """Have the differences listed where the rubric wants that; other cases are returned as they are."""
    stage = context.case.rubric.stage
    if stage is None:
        return Staged(context.case)
    by_tool = context.shared.differences == "tool"
    return await (_by_tool(context, stage) if by_tool else _by_model(context, stage, loop))


async def _by_model(context: CaseContext, stage: Stage, loop: Graph) -> Staged:
    """Ask the model; an unreadable list leaves the case unjudged, like any unreadable answer."""
    case = stage_case(context.case, stage)
    asking = replace(context, case=case)
    start = await asyncio.to_thread(opening, asking)
    state = await loop.ainvoke(start, {"recursion_limit": context.shared.limits.recursion_limit}, context=asking)
    steps, prompts = tuple(state["steps"]), texts_of(start)
    if state["given"] is None:
        failure = state["failure"] or Failure(Reason.NO_ANSWER, "the judge listed nothing")
        return Staged(context.case, steps, prompts, replace(failure, detail=f"{stage.title}: {failure.detail}"))
    return Staged(_with_differences(context.case, stage, str(state["given"].values[stage.key])), steps, prompts)


async def _by_tool(context: CaseContext, stage: Stage) -> Staged:
    """Compare the stage's two pictures with the tool; its crops are shown with the rubric's question."""
    first, second = stage.images[:2]
    shared = context.shared
    parameters = {"comparison_image_1": first, "comparison_image_2": second}
    call = ToolCall(id="stage_0", name=TOOL, parameters=parameters)
    seen = await shared.observations.observe(shared.toolbox, call, context.view(), shared.wire)
    seen = in_words(seen, context.case.rubric.wording)
    if seen.failed:
        return Staged(context.case, failure=Failure(Reason.MISSING_INPUT, f"{stage.title}: {seen.text}"))
    step = Step(index=0, thought=stage.title, calls=(call,), observations=(seen,))
    shown = dict(zip(seen.captions, seen.pictures, strict=True))
    return Staged(_with_differences(context.case, stage, seen.text, shown), (step,))


def stage_case(case: Case, stage: Stage) -> Case:
    """Return the case of the stage's own question."""
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


def _with_differences(case: Case, stage: Stage, text: str, shown: Mapping[str, Sha] | None = None) -> Case:
    facts: dict[str, Any] = {**case.facts, EARLIER_FINDINGS: {stage.introduction.strip(): text.strip()}}
    return case.model_copy(update={"facts": facts, "pictures": {**case.pictures, **(shown or {})}})


def texts_of(state: LoopState) -> tuple[str, ...]:
    """Return the texts of a conversation's messages, without their pictures."""
    texts = []
    for message in state["messages"]:
        content = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
        texts.append("\n".join(str(b["text"]) for b in content if isinstance(b, dict) and b.get("type") == "text"))
    return tuple(texts)
