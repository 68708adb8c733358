"""The graphs for LangGraph's development server (`langgraph dev`, see langgraph.json).

`judge` takes plain JSON: paths, an instruction, a judge spec. Its node runs the edit graph, whose cases run the loop. The server
draws both inside it and shows every node with its state: the loop's `current` step and its finished `steps` hold thought, calls
and observations. `edit`, `loop` and the graphs of single papers need live objects and can only be viewed.

A run on a thread starts from its own input only, never from the input or output of an earlier run.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import ValidationError
from typing_extensions import TypedDict  # pydantic makes no schema of typing's own before Python 3.12

from editloupe.graphs.edit import EDIT_GRAPH
from editloupe.graphs.loop import LOOP
from editloupe.judge import Judge
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, Judgement, Mode, UserError

# Every field is an EphemeralValue, which LangGraph clears when a thread gets its next input. The default channel keeps its value
# for the life of a thread, so that a run could use the mode, or return the judgement, of the run before it.


class JudgeInput(TypedDict, total=False):
    """The edit to judge, and the judge."""

    edit: Annotated[Edit, EphemeralValue]
    """The fields of an edit, as in a line of a manifest."""
    judge: Annotated[str, EphemeralValue]
    """A spec such as `openai:gpt-5.1`. Default: EDITLOUPE_JUDGE, else `rules`."""
    base_url: Annotated[str, EphemeralValue]
    protocol: Annotated[str, EphemeralValue]
    mode: Annotated[Mode, EphemeralValue]
    criteria: Annotated[list[str], EphemeralValue]


class JudgeOutput(TypedDict, total=False):
    """The judgement, or one sentence about a mistake in the input; the other field is None."""

    judgement: Annotated[Judgement | None, EphemeralValue]
    error: Annotated[str | None, EphemeralValue]


class JudgeState(JudgeInput, JudgeOutput, total=False):
    """The fields of input and output."""


def make_judge_node(graph: Any) -> Any:
    """Return the node that judges. LangGraph finds the edit graph named in it and draws it inside the node."""

    async def judge(state: JudgeInput) -> dict[str, Any]:
        return await _judge(state, graph)

    return judge


async def _judge(state: JudgeInput, graph: Any) -> dict[str, Any]:
    """Judge the edit. A mistake in the input is returned as a sentence, not raised as a server error."""
    try:
        if state.get("edit") is None:
            raise UserError("there is no edit: give source, edited and instruction as `edit`")
        edit = Edit.model_validate(state["edit"])
        opened = await asyncio.to_thread(_open_judge, state)
        try:
            judgement = await opened.ajudge(edit, strict=True, graph=graph)
        finally:
            await opened.aclose()
    except ValidationError as error:
        problem = describe_validation_error(error, record="")
        return {"judgement": None, "error": f"this is not an edit: {problem}"}
    except UserError as error:
        return {"judgement": None, "error": str(error)}
    return {"judgement": judgement.model_dump(mode="json"), "error": None}


def _open_judge(state: JudgeInput) -> Judge:
    return Judge(
        state.get("judge"),
        protocol=state.get("protocol"),
        mode=state.get("mode"),
        base_url=state.get("base_url"),
        criteria=state.get("criteria"),
    )


def build_app(
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[JudgeState, None, JudgeInput, JudgeOutput]:
    """Build the graph that judges an edit given as JSON.

    Args:
        checkpointer: Stores the states of threads. The development server provides its own.
    """
    graph = StateGraph(JudgeState, input_schema=JudgeInput, output_schema=JudgeOutput)
    graph.add_node("judge", make_judge_node(EDIT_GRAPH))
    graph.add_edge(START, "judge")
    graph.add_edge("judge", END)
    return graph.compile(checkpointer, name="editloupe_judge")


judge_graph = build_app()

__all__ = ["EDIT_GRAPH", "LOOP", "judge_graph"]
