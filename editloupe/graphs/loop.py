"""The loop judges one case: think → (act → observe → think)*, with repair and insist.

A graph step costs about a millisecond of the event loop, so the node that reads the last reply also concludes the case.

The state holds messages with references to pictures, never pixels. Live objects (the model, the tools, the album) come with the
runtime's context.
"""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict  # pydantic makes no schema of typing's own before Python 3.12

from editloupe._util.text import number_of
from editloupe.agent.chat_interface import ChatRequest, Reply
from editloupe.agent.messages import (
    announce_picture,
    build_correction,
    build_observations,
    describe_pictures,
    reasoning_of,
    record_messages,
    text_block,
    text_of,
)
from editloupe.agent.prompts import (
    build_functions,
    build_system_text,
    build_task_text,
    format_final_answer,
    reword_observation,
)
from editloupe.agent.replies.answers import (
    LONGEST_REPLY,
    MOST_CALLS,
    ParsedAnswer,
    build_answer_schema,
    describe_unknown_tool,
    parse_reply,
)
from editloupe.agent.replies.finish_reasons import IncompleteReply, find_incomplete
from editloupe.agent.transport.errors import ModelFailed
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.graphs.context import LiveContext, SharedContext
from editloupe.rubrics.case import Case
from editloupe.rubrics.wording import fill_in
from editloupe.tools.contract import Frame, Tool, View
from editloupe.types import Observation, Reason, Step, ToolCall, Trace, Usage

Graph = CompiledStateGraph[Any, Any, Any, Any]
CALLS_A_TURN = 12
"""The largest number of tool calls per turn. Further calls are not run, and the model gets a message."""


@dataclass(frozen=True)
class CaseContext(LiveContext):
    """The context of one run of the loop."""

    shared: SharedContext
    case: Case
    heading: Trace
    """The head of the trace; it tells a watcher to which case the steps belong."""

    def view(self) -> View:
        """Return what the tools may look at, with coordinates as this model counts them."""
        frames = {}
        for name, sha in self.case.pictures.items():
            picture = self.shared.album[sha]
            frames[name] = Frame(picture.size, picture.wire(self.shared.wire).size, self.shared.chat.profile.per_mille)
        offered = self.shared.toolbox.settings.pictures
        pictures = {name: sha for name, sha in self.case.pictures.items() if offered is None or name in offered}
        return View(self.shared.album, pictures, self.case.edit.instruction, frames, self.shared.toolbox.memory)

    @cached_property
    def tools(self) -> list[Tool]:
        """The tools that this case may use, the same on every turn."""
        return self.shared.toolbox.tools_for(self.case.edit.instruction) if self.case.uses_tools else []

    @cached_property
    def functions(self) -> list[dict[str, Any]]:
        """The tools as function descriptions."""
        per_mille, words = self.shared.chat.profile.per_mille, self.case.rubric.wording
        return build_functions(self.tools, self.view(), per_mille, words) if self.tools else []

    @cached_property
    def tool_names(self) -> list[str]:
        """The names of the functions that the model may call."""
        return [str(function["function"]["name"]) for function in self.functions]

    def schema(self) -> dict[str, Any] | None:
        """Return the schema of replies if the provider supports one and the case uses no tools."""
        structured = self.shared.chat.profile.structured_output and not self.case.uses_tools
        return (
            build_answer_schema(self.case.rubric.answer, not self.shared.chat.profile.reasons) if structured else None
        )


@dataclass(frozen=True)
class Failure:
    """Why a case ended without an answer."""

    reason: Reason
    detail: str
    raw: str = ""


@dataclass(frozen=True)
class CaseResult:
    """The trace of a case, and its answer or failure."""

    case: Case
    trace: Trace
    given: ParsedAnswer | None
    failure: Failure | None
    confidence: float | None = None


class LoopState(TypedDict, total=False):
    """The state of the loop."""

    messages: Annotated[list[AnyMessage], operator.add]
    steps: Annotated[list[Step], operator.add]
    current: Step | None
    """The current turn."""
    turns: int
    repairs: int
    insisted: bool
    given: ParsedAnswer | None
    failure: Failure | None
    otherwise: Failure | None
    """The failure with which the case ends if the last reply is the final one."""
    confidence: float | None
    dropped: bool
    """Whether the last reply is left out of the conversation, because it is empty or too long."""


def initial_state(context: CaseContext) -> LoopState:
    """Return the first state of the loop: the rubric's text, the announced pictures and the edit's texts."""
    case, profile = context.case, context.shared.chat.profile
    schemas = context.functions
    blocks: list[str | dict[str, Any]] = [
        block
        for name, sha in case.pictures.items()
        for block in announce_picture(name, sha, context.shared.album, context.shared.wire, case.rubric.wording)
    ]
    if task := build_task_text(case, profile.per_mille, bool(schemas)):
        blocks.append(text_block(task))
    structured = context.schema() is not None
    system = build_system_text(
        case.rubric,
        case.mode,
        schemas,
        profile.native_tools,
        structured,
        structured and not profile.reasons,
        context.shared.toolbox.not_offered,
    )
    return LoopState(
        messages=[SystemMessage(system), HumanMessage(blocks)],
        steps=[],
        current=None,
        turns=0,
        repairs=0,
        insisted=False,
        given=None,
        failure=None,
        otherwise=None,
        confidence=None,
    )


def prompt_texts(state: LoopState) -> tuple[str, ...]:
    """Return the texts of a conversation's messages, without their pictures."""
    texts = []
    for message in state["messages"]:
        content = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
        texts.append("\n".join(str(b["text"]) for b in content if isinstance(b, dict) and b.get("type") == "text"))
    return tuple(texts)


async def think(state: LoopState, runtime: Runtime[CaseContext]) -> LoopState:
    """Ask the model and read its reply. Conclude the case if nothing follows."""
    context = runtime.context
    update = await _ask(state, context)
    following = LoopState({**state, **update})
    return _conclude(following, context, update) if _next_node(following, context) == END else update


async def _ask(state: LoopState, context: CaseContext) -> LoopState:
    shared = context.shared
    may_call = not state["insisted"]
    schemas = context.functions
    native = schemas if shared.chat.profile.native_tools else []
    request = ChatRequest(
        state["messages"],
        native,
        context.case,
        shared.album,
        shared.wire,
        shared.repeat,
        shared.budget,
        schema=context.schema(),
        may_call=may_call,
    )
    index = state["turns"]
    try:
        reply = await shared.chat.reply(request)
    except ModelFailed as error:
        step = Step(index=index, problem=str(error), usage=error.usage, attempts=error.attempts)
        return LoopState(failure=Failure(error.reason, str(error)), current=step, turns=index + 1)
    except OverBudget as error:
        step = Step(index=index, problem=str(error), attempts=0)
        return LoopState(failure=Failure(Reason.BUDGET, str(error)), current=step, turns=index + 1)
    return _read_reply(reply, state, context, context.tool_names if may_call else [])


def _read_reply(reply: Reply, state: LoopState, context: CaseContext, tools: list[str]) -> LoopState:
    message, declined = reply.message, reply.facts.refusal
    text = text_of(message)
    cut = find_incomplete(reply.facts.finish)
    reading = parse_reply(
        text,
        context.case.rubric.answer,
        native_calls=message.tool_calls,
        broken_calls=message.invalid_tool_calls,
        tools=tools,
        unfinished=cut.problem if cut else None,
    )
    answer = None if declined else reading.answer
    empty = not text.strip() and not message.tool_calls and not message.invalid_tool_calls
    problem = None if declined else _why_empty(reply.facts.finish) if empty and not cut else reading.problem
    # A reply that is too long to read is not sent back to the model either.
    too_long = len(text) > LONGEST_REPLY or len(message.tool_calls) + len(message.invalid_tool_calls) > MOST_CALLS
    new_messages = _since_last_request(state)
    step = Step(
        index=state["turns"],
        thought=reading.thought or reasoning_of(message),
        calls=reading.calls,
        answer=answer.text if answer else None,
        problem=problem,
        raw=text,
        sent=describe_pictures(new_messages, context.shared.album, context.shared.wire),
        usage=reply.usage,
        seconds=reply.seconds,
        waited=reply.waited,
        asked=record_messages(new_messages),
        reply_key=reply.key,
        attempts=reply.attempts,
        served=reply.facts.served,
    )
    return LoopState(
        messages=[] if empty or too_long else [message],
        dropped=empty or too_long,
        current=step,
        turns=state["turns"] + 1,
        given=answer,
        failure=Failure(declined.reason, declined.detail, text) if declined else None,
        otherwise=_make_failure(
            problem,
            cut,
            text,
            replies=state["turns"] + 1,
            spent=state["insisted"] and (empty or reading.called),
            empty=empty,
        ),
        confidence=reply.facts.confidence,
    )


Onwards = Literal["act", "repair", "insist", "__end__"]


async def after_thinking(state: LoopState, runtime: Runtime[CaseContext]) -> Onwards:
    """Route after a reply. Async only because LangGraph runs sync routers in a worker thread."""
    return _next_node(state, runtime.context)


def _next_node(state: LoopState, context: CaseContext) -> Onwards:
    """Choose the next node: end after an answer or a failure, run the calls, or request a repair."""
    current = state["current"]
    if state["given"] or state["failure"] or state["insisted"] or current is None:
        return "__end__"
    if current.calls:
        return "act"
    if state["repairs"] >= context.shared.limits.max_repairs:
        return "__end__"
    return "insist" if _turns_used(state, context) else "repair"


async def act(state: LoopState, runtime: Runtime[CaseContext]) -> LoopState:
    """Run the tool calls of this turn concurrently, in worker threads."""
    context, current = runtime.context, state["current"]
    assert current is not None
    view = context.view()
    carried_out = [_observation(context, view, call, number) for number, call in enumerate(current.calls)]
    observations = tuple(await asyncio.gather(*carried_out))
    return LoopState(current=current.model_copy(update={"observations": observations}))


async def observe(state: LoopState, runtime: Runtime[CaseContext]) -> LoopState:
    """Send the observations and their pictures back to the model."""
    context, current = runtime.context, state["current"]
    assert current is not None
    reply, words = _last_reply(state["messages"]), context.case.rubric.wording
    messages = build_observations(reply, current.observations, context.shared.album, context.shared.wire, words)
    return _finish_turn(current, context, LoopState(messages=messages))


async def after_observing(state: LoopState, runtime: Runtime[CaseContext]) -> Literal["think", "insist"]:
    """Think again if turns are left; otherwise insist on an answer."""
    return "insist" if _turns_used(state, runtime.context) else "think"


async def repair(state: LoopState, runtime: Runtime[CaseContext]) -> LoopState:
    """Tell the model what was wrong with its reply."""
    current = state["current"]
    assert current is not None
    words = runtime.context.case.rubric.wording
    problem = fill_in(words.repair, problem=current.problem)
    last = state["messages"][-1]
    reply = last if isinstance(last, AIMessage) else None
    update = LoopState(messages=build_correction(reply, problem, words), repairs=state["repairs"] + 1)
    return _finish_turn(state["current"], runtime.context, update)


async def insist(state: LoopState, runtime: Runtime[CaseContext]) -> LoopState:
    """Request the final answer without tools, because the turns are used up."""
    context = runtime.context
    last = state["messages"][-1]
    rubric = context.case.rubric
    sentence = fill_in(rubric.wording.insist, form=format_final_answer(rubric.answer, rubric.wording))
    reply = last if isinstance(last, AIMessage) else None
    messages = build_correction(reply, sentence, rubric.wording)
    return _finish_turn(state["current"], context, LoopState(messages=messages, insisted=True))


def _conclude(state: LoopState, context: CaseContext, update: LoopState) -> LoopState:
    """Return the update that ends the case with its answer, or with the reason why there is none."""
    update["failure"] = state["failure"] or (None if state["given"] else state["otherwise"])
    return _finish_turn(state["current"], context, update)


def _make_failure(
    problem: str | None, cut: IncompleteReply | None, text: str, *, replies: int, spent: bool, empty: bool
) -> Failure:
    """Return the failure if this reply is the last: truncated, no answer, or an unreadable one.

    `problem` is addressed to the judge. The failure describes what happened for a reader and quotes the problem.
    """
    if cut:
        return Failure(cut.reason, cut.detail, text)
    if spent:
        return Failure(Reason.NO_ANSWER, "the judge used up its turns without giving an answer", text)
    count = number_of(replies, "reply", "replies")
    if empty:
        return Failure(Reason.NO_ANSWER, f"no answer in {count}; the last one was empty")
    problem = f"; problem with the last one: “{problem}”" if problem else ""
    return Failure(Reason.UNREADABLE, f"no readable answer in {count}{problem}", text)


async def _observation(context: CaseContext, view: View, call: ToolCall, number: int) -> Observation:
    words = context.case.rubric.wording
    if number >= CALLS_A_TURN:
        text = fill_in(words.too_many_calls, most=CALLS_A_TURN)
        return Observation(call_id=call.id, tool=call.name, text=text, failed=True)
    if call.name not in context.tool_names:
        text = describe_unknown_tool(call.name, context.tool_names)
        return Observation(call_id=call.id, tool=call.name, text=text, failed=True)
    observation = await context.shared.observations.observe(context.shared.toolbox, call, view, context.shared.wire)
    return reword_observation(observation, words)


def _finish_turn(current: Step | None, context: CaseContext, update: LoopState) -> LoopState:
    """Return the update with the current turn moved to the finished steps."""
    if current is not None:
        update["steps"], update["current"] = [current], None
        if context.shared.watcher:
            context.shared.watcher.step(context.heading, current)
    return update


def _turns_used(state: LoopState, context: CaseContext) -> bool:
    return state["turns"] >= context.shared.limits.max_turns


def _last_reply(messages: list[AnyMessage]) -> AIMessage:
    return next(m for m in reversed(messages) if isinstance(m, AIMessage))


def _since_last_request(state: LoopState) -> list[AnyMessage]:
    """Return the messages since the last request: the last reply, if it is sent back, and everything after it."""
    messages = state["messages"]
    if state.get("dropped"):
        return messages[-1:]  # after a reply that is not sent back there is only the correction
    return messages[max((i for i, m in enumerate(messages) if isinstance(m, AIMessage)), default=0) :]


def _why_empty(finish: str) -> str:
    return f"Your reply was empty (finish reason: {finish})." if finish else "Your reply was empty."


def build_loop(
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[LoopState, CaseContext, LoopState, LoopState]:
    """Return the compiled loop. With a checkpointer, it can be resumed from any of its states."""
    graph = StateGraph(LoopState, context_schema=CaseContext)
    for name, node in (
        ("think", think),
        ("act", act),
        ("observe", observe),
        ("repair", repair),
        ("insist", insist),
    ):
        graph.add_node(name, node)
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", after_thinking)
    graph.add_edge("act", "observe")
    graph.add_conditional_edges("observe", after_observing)
    graph.add_edge("repair", "think")
    graph.add_edge("insist", "think")
    return graph.compile(checkpointer, name="editloupe_loop")


LOOP = build_loop()


def sum_usage(steps: list[Step]) -> Usage:
    """Return the total usage of several steps."""
    return sum((step.usage for step in steps), Usage())
