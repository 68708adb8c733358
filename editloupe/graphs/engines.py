"""The engines that judge a case; a case names its own.

The engine of most cases is the loop: differences are listed first if the rubric asks for that, then the loop judges.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from editloupe.graphs.edival import EDIVAL_GRAPH
from editloupe.graphs.edival_single import by_objects
from editloupe.graphs.loop import LOOP, CaseContext, Graph, Judged, opening
from editloupe.graphs.stage import Staged, first_stage, texts_of
from editloupe.tools.registry import Toolbox
from editloupe.types import Step, Trace


@dataclass(frozen=True)
class Engine:
    """One way to judge a case."""

    graph: Graph
    judge: Callable[[Graph, CaseContext], Awaitable[Judged]]
    """Takes the context's case through the graph; whatever goes wrong with the case is a Failure, not an exception."""


async def by_loop(loop: Graph, context: CaseContext) -> Judged:
    """Judge a case by the loop, after its first stage where it has one."""
    case, started = context.case, time.perf_counter()
    staged = await first_stage(context, loop)
    if staged.failure:
        return Judged(case, _trace(context, staged, (), started), None, staged.failure)
    context = replace(context, case=staged.case)
    start = await asyncio.to_thread(opening, context)
    end = await loop.ainvoke(start, {"recursion_limit": context.shared.limits.recursion_limit}, context=context)
    staged = replace(staged, prompts=staged.prompts + texts_of(start))
    trace = _trace(context, staged, end["steps"], started)
    return Judged(case, trace, end["given"], end["failure"], end["confidence"])


def _trace(context: CaseContext, staged: Staged, steps: Sequence[Step], started: float) -> Trace:
    """Return the whole story of a case: the stage before it, where it has one, then its own steps."""
    offset, prompts = len(staged.steps), max(0, len(staged.prompts) - 2)
    following = [_behind(step, offset, prompts) for step in steps] if offset else steps
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


def _behind(step: Step, steps: int, prompts: int) -> Step:
    """Return a step of the case's own conversation, counted behind the steps and prompts of the stage before."""
    asked = tuple(
        one if one.prompt is None else one.model_copy(update={"prompt": one.prompt + prompts}) for one in step.asked
    )
    return step.model_copy(update={"index": step.index + steps, "asked": asked})


def tool_notes(toolbox: Toolbox) -> tuple[str, ...]:
    """Say which tools are not offered and why, and which settings fell back to something else."""
    return (*toolbox.notes, *(f"{name} is not offered: {why}" for name, why in toolbox.withheld.items()))


ENGINES: Mapping[str, Engine] = {
    "loop": Engine(LOOP, by_loop),
    "objects": Engine(EDIVAL_GRAPH, by_objects),
}
"""Think, look with tools, answer; and objects checked one by one with a detector and crops (EdiVal-Agent)."""
