"""Continue a stored trace from one of its steps, with or without changes to that step.

The steps before it are replayed into LangGraph checkpoints, and one checkpoint is forked. Stored steps are not asked or looked
at again. Only forks use a checkpointer: in a batch it would cost more than the graph itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite
from typing import Any, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import StateSnapshot
from pydantic import Field

from editloupe._util.text import number_of
from editloupe.agent.messages import build_correction, change_reply, change_reply_text, rebuild_reply
from editloupe.agent.prompts import format_final_answer
from editloupe.agent.replies.answers import ParsedAnswer, parse_reply
from editloupe.graphs.edit import EditContext, case_context, record_result
from editloupe.graphs.engines import judge_by_loop
from editloupe.graphs.loop import LOOP, CaseContext, CaseResult, Failure, Graph, LoopState, build_loop
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.wording import fill_in
from editloupe.telemetry.spans import criterion_span
from editloupe.types import Edit, Observation, Reason, Record, Sha, Step, ToolCall, UserError

NO_RESULT = "No result: this call was not carried out."
"""The text that replaces a dropped observation, because providers refuse a call without an answer."""


class StepChange(Record):
    """Changes to one step. Calls and their pictures are counted from 1."""

    thought: str | None = None
    dropped: tuple[int, ...] = ()
    """Calls whose observations are dropped."""
    again: tuple[int, ...] = ()
    """Calls that run again, with the fork's tool settings."""
    boxes: Mapping[int, tuple[float, float, float, float]] = Field(default_factory=dict)
    """Calls that run again with another box, in the judge's coordinates."""
    pictures: Mapping[str, Sha] = Field(default_factory=dict)
    """Pictures that replace those of observations, by `CALL` or `CALL.PICTURE`."""

    def __bool__(self) -> bool:
        return self != StepChange()

    def describe(self) -> Iterator[str]:
        """Yield each change in a few words."""
        if self.thought is not None:
            yield "another thought"
        yield from (f"observation {call} dropped" for call in self.dropped)
        yield from (f"call {call} carried out again" for call in self.again)
        for call, box in self.boxes.items():
            yield f"call {call} with the box {', '.join(f'{number:g}' for number in box)}"
        yield from (f"another picture of observation {position}" for position in self.pictures)

    def check(self, step: Step, number: int) -> None:
        """Raise UserError if the step has no such call, picture or box."""
        positions = [split_place(position) for position in self.pictures]
        for call in (*self.dropped, *self.again, *self.boxes, *(call for call, _ in positions)):
            if not 1 <= call <= len(step.calls):
                have = number_of(len(step.calls), "call") if step.calls else "no calls"
                raise UserError(f"step {number} has {have}, so there is no observation {call}")
        self._check_once([call for call, _ in positions])
        for call, picture in positions:
            observation = find_observation(step, step.calls[call - 1])
            if (count := len(observation.pictures) if observation else 0) < picture:
                have = number_of(count, "picture") if count else "no picture"
                raise UserError(f"observation {call} of step {number} has {have}, so there is no {picture}")
        for call, box in self.boxes.items():
            if not all(map(isfinite, box)):
                raise UserError(f"the box of call {call} must be four finite numbers")
            if find_box_parameter(step.calls[call - 1]) is None:
                raise UserError(f"call {call} of step {number}, {step.calls[call - 1].name}, has no box")

    def _check_once(self, pictured: Iterable[int]) -> None:
        """Raise UserError if two changes of one call exclude each other."""
        ways = {
            "dropped": {*self.dropped},
            "made with another box": {*self.boxes},
            "carried out again": {*self.again},
            "shown with another picture": {*pictured},
        }
        for (first_change, first), (second_change, second) in combinations(ways.items(), 2):
            if {first_change, second_change} == {"made with another box", "carried out again"}:
                continue  # a call with another box runs again anyway
            for call in sorted(first & second):
                raise UserError(f"observation {call} cannot be {first_change} and {second_change} in one fork")

    def change_calls(self, step: Step) -> tuple[ToolCall, ...]:
        """Return the step's calls with their new boxes."""
        return tuple(self._call(call, number) for number, call in enumerate(step.calls, 1))

    def _call(self, call: ToolCall, number: int) -> ToolCall:
        name = find_box_parameter(call)
        if number not in self.boxes or name is None:
            return call
        box = [int(value) if value == int(value) else value for value in self.boxes[number]]
        return call.model_copy(update={"parameters": {**call.parameters, name: box}})

    def must_run(self, number: int) -> bool:
        """Return True if a call has to run again."""
        return number in self.boxes or number in self.again

    def apply(self, call: ToolCall, number: int, observation: Observation | None) -> Observation:
        """Return the changed observation of a call."""
        if observation is None or number in self.dropped:
            return Observation(call_id=call.id, tool=call.name, text=NO_RESULT, failed=True)
        pictures = list(observation.pictures)
        for position, sha in self.pictures.items():
            of, picture = split_place(position)
            if of == number:
                pictures[picture - 1] = sha
        return observation.model_copy(update={"pictures": tuple(pictures)})


def split_place(position: str) -> tuple[int, int]:
    """Return the numbers of a call and of its picture.

    >>> split_place("2"), split_place("2.3")
    ((2, 1), (2, 3))
    """
    call, _, picture = position.partition(".")
    try:
        numbers = int(call), int(picture or 1)
    except ValueError:
        numbers = 0, 0
    if min(numbers) < 1:
        raise UserError(
            f'"{position}" does not name a picture of an observation; write 2 for observation 2, or 2.3 for its third picture'
        )
    return numbers


def find_observation(step: Step, call: ToolCall) -> Observation | None:
    """Return the observation of a call, if there is one."""
    return next((observation for observation in step.observations if observation.call_id == call.id), None)


def find_box_parameter(call: ToolCall) -> str | None:
    """Return the name of the parameter that holds a call's box."""

    def is_box(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and len(value) == 4 and all(isinstance(v, (int, float)) for v in value)

    return next((name for name, value in call.parameters.items() if is_box(value)), None)


THREAD: RunnableConfig = {"configurable": {"thread_id": "fork"}}
_STOPS = ["think", "insist"]
_IN_THE_STATE = (Step, ParsedAnswer, Failure, Reason)
"""Our records in checkpoints; all other values are LangChain's own."""


@dataclass(frozen=True)
class StoredStep:
    """A step of the parent trace, with the model's original message if the run stored it."""

    step: Step
    message: AIMessage | None = None


@dataclass(frozen=True)
class ForkPlan:
    """The step from which a fork continues, and the changes to it."""

    kept: Sequence[StoredStep]
    """All steps of the parent."""
    step: int
    """Counted from 1. A changed step keeps its changes, and the judge continues after it. An unchanged step is asked again."""
    change: StepChange = StepChange()

    def __post_init__(self) -> None:
        if not 1 <= self.step <= len(self.kept):
            count = number_of(len(self.kept), "step")
            raise UserError(f"the trace has {count}, counted from 1; there is no step {self.step}")
        self.change.check(self.kept[self.step - 1].step, self.step)


async def fork_edit(context: EditContext, edit: Edit, rubric: Rubric, target: int | None, plan: ForkPlan) -> CaseResult:
    """Judge one criterion of an edit, or one of its targets, from a step of its stored trace on."""
    cases = await asyncio.to_thread(context.protocol.make_cases, edit, rubric, context.mode, context.shared.album)
    case = next((case for case in cases if case.target == target), None)
    if case is None:
        raise UserError(
            f"{context.mode} mode does not judge the targets as the trace does; fork the trace in its own mode"
        )
    if case.engine != "loop":
        manner = "measured" if rubric.measured else "judged by objects"
        raise UserError(f"{rubric.criterion} is {manner}, so it has no steps to fork")
    with criterion_span(edit.id, rubric.criterion, target) as span:
        judged = await fork_case(case_context(case, context), plan)
        record_result(span, judged)
    return judged


async def fork_case(context: CaseContext, plan: ForkPlan) -> CaseResult:
    """Judge a case from a step of its stored trace on."""
    forked = ForkedLoop(plan)
    if context.case.rubric.stage is not None and context.shared.differences == "tool":
        forked.keep_stage(context)
    return await judge_by_loop(cast(Any, forked), context)


class ForkedLoop:
    """Replaces the loop in a fork: replays conversations before the fork and runs those after it."""

    def __init__(self, plan: ForkPlan) -> None:
        self._plan = plan
        self._done = 0
        """Steps of the parent that are done."""

    def keep_stage(self, context: CaseContext) -> None:
        """Take the tool's list of differences, made before the judge was asked, from the trace."""
        first = self._plan.kept[0].step
        if self._plan.step == 1:
            raise UserError("step 1 is the tool's list of differences, made before the judge was asked; fork at step 2")
        for call, observation in zip(first.calls, first.observations, strict=False):
            context.shared.observations.keep(call, context.view(), observation)
        self._done = 1

    async def ainvoke(self, start: LoopState, config: RunnableConfig, *, context: CaseContext) -> dict[str, Any]:
        """Run one conversation from its first state to its end."""
        steps, at = self._plan.kept[self._done :], self._plan.step - 1 - self._done
        if at < 0:
            return await LOOP.ainvoke(start, config, context=context)
        ends = next((index for index, stored in enumerate(steps) if stored.step.answer is not None), len(steps))
        if ends < at:  # the first of two questions, answered before the fork
            self._done += ends + 1
            return _replay_conversation(start, steps[: ends + 1], context)
        self._done = len(self._plan.kept)
        return await self._from(steps[:at], steps[at], start, config, context)

    async def _from(
        self,
        before: Sequence[StoredStep],
        at: StoredStep,
        start: LoopState,
        config: RunnableConfig,
        context: CaseContext,
    ) -> dict[str, Any]:
        graph = build_loop(InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=_IN_THE_STATE)))
        silent = replace(context, shared=replace(context.shared, watcher=None))
        await graph.aupdate_state(THREAD, start, as_node="__start__")
        for stored in before:
            await _replay_step(graph, stored, silent)
        fork = (await _snapshot(graph, len(before))).config
        if change := self._plan.change:
            values, node = await _change_step(at, len(before), change, context)
            fork = await graph.aupdate_state(fork, values, as_node=node)
        return await graph.ainvoke(None, {**fork, **config}, context=context)


async def _replay_step(graph: Graph, stored: StoredStep, context: CaseContext) -> None:
    """Append one stored step to the conversation with the loop's own nodes."""
    snapshot = await graph.aget_state(THREAD)
    if snapshot.next == ("insist",):
        await graph.ainvoke(None, THREAD, context=context, interrupt_before=["think"])
    turns = int(snapshot.values["turns"])
    message, step = _message(stored, context), stored.step.model_copy(update={"index": turns})
    if step.calls:
        values = LoopState(messages=[message], current=step, turns=turns + 1)
        await graph.aupdate_state(THREAD, values, as_node="act")
        await graph.ainvoke(None, THREAD, context=context, interrupt_before=_STOPS)
    else:
        reply = message if step.raw.strip() else None
        values, node = _reject_reply(reply, step, turns, int(snapshot.values["repairs"]), context)
        await graph.aupdate_state(THREAD, values, as_node=node)


def _reject_reply(
    message: AIMessage | None, step: Step, turns: int, repairs: int, context: CaseContext
) -> tuple[LoopState, str]:
    """Return the state after a reply that could not be used, and the node that handles it."""
    rubric, used_up = context.case.rubric, turns + 1 >= context.shared.limits.max_turns
    if used_up:
        sentence = fill_in(rubric.wording.insist, form=format_final_answer(rubric.answer, rubric.wording))
    else:
        sentence = fill_in(rubric.wording.repair, problem=step.problem)
    messages = [*([message] if message else []), *build_correction(message, sentence, rubric.wording)]
    values = LoopState(messages=messages, steps=[step], current=None, turns=turns + 1)
    if used_up:
        return LoopState(**values, insisted=True), "insist"
    return LoopState(**values, repairs=repairs + 1), "repair"


async def _snapshot(graph: Graph, turns: int) -> StateSnapshot:
    """Return the checkpoint after this number of turns, just before the judge is asked again."""
    async for snapshot in graph.aget_state_history(THREAD):
        if snapshot.values.get("turns") == turns and snapshot.next in (("think",), ("insist",)):
            return snapshot
    raise UserError(f"the trace cannot be replayed up to step {turns + 1}: the steps before it do not lead there")


async def _change_step(
    stored: StoredStep, turns: int, change: StepChange, context: CaseContext
) -> tuple[LoopState, str]:
    """Return the changed step, and the node after which the loop continues."""
    step, calls, shared = stored.step, change.change_calls(stored.step), context.shared
    message, raw = _message(stored, context), step.raw
    if change.thought is not None or change.boxes:
        message = change_reply(message, step, change.thought, calls)
        raw = change_reply_text(step, change.thought, calls)
    thought = step.thought if change.thought is None else change.thought
    observations = []
    for number, call in enumerate(calls, 1):
        observation = find_observation(step, call)
        if change.must_run(number):
            observation = await shared.observations.observe(shared.toolbox, call, context.view(), shared.wire)
        observations.append(change.apply(call, number, observation))
    values = {"index": turns, "thought": thought, "calls": calls, "observations": tuple(observations), "answer": None}
    changed = step.model_copy(update={**values, "raw": raw})
    if calls:
        return LoopState(messages=[message], current=changed, turns=turns + 1), "act"
    problem = parse_reply(raw, context.case.rubric.answer).problem
    return _reject_reply(message, changed.model_copy(update={"problem": problem}), turns, 0, context)


def _message(stored: StoredStep, context: CaseContext) -> AIMessage:
    """Return the model's own message, or an equivalent one in the form that this judge accepts."""
    native = context.shared.chat.profile.native_tools and bool(context.functions)
    if stored.message is not None and (native or not stored.message.tool_calls):
        return stored.message
    return rebuild_reply(stored.step, native)


def _replay_conversation(start: LoopState, steps: Sequence[StoredStep], context: CaseContext) -> dict[str, Any]:
    """Return the final state of a conversation before the fork."""
    answer = parse_reply(steps[-1].step.raw, context.case.rubric.answer).answer
    if answer is None:
        raise UserError(
            "the answer to the first question of this trace can no longer be read, so it cannot be continued"
        )
    own = [stored.step.model_copy(update={"index": index}) for index, stored in enumerate(steps)]
    return {**start, "steps": own, "turns": len(own), "given": answer, "failure": None, "confidence": None}
