"""The graphs as LangGraph's own development server loads them (`langgraph dev`, see langgraph.json).

`judge` takes plain JSON: paths, an instruction, a judge spec. Its node runs the edit graph, whose cases run the loop, so that the
server's view of a run shows every node of both.
"""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from editloupe.graphs.edit import EDIT_GRAPH
from editloupe.graphs.edival import EDIVAL_GRAPH
from editloupe.graphs.loop import LOOP
from editloupe.judge import Judge
from editloupe.types import Edit, Mode


class Asked(TypedDict, total=False):
    """What is to be judged, and by whom."""

    edit: dict[str, Any]
    """The fields of an edit, as on a line of a manifest."""
    judge: str
    base_url: str
    protocol: str
    mode: Mode
    judgement: dict[str, Any]


async def judge(state: Asked) -> Asked:
    """Judge the edit."""
    opened = Judge(
        state.get("judge"),
        protocol=state.get("protocol", "dlebench"),
        mode=state.get("mode"),
        base_url=state.get("base_url"),
    )
    judgement = await opened.ajudge(Edit.model_validate(state["edit"]))
    return Asked(judgement=judgement.model_dump(mode="json"))


def build_app() -> CompiledStateGraph[Asked, None, Asked, Asked]:
    """Return the graph that judges an edit given as JSON."""
    graph = StateGraph(Asked)
    graph.add_node("judge", judge)
    graph.add_edge(START, "judge")
    graph.add_edge("judge", END)
    return graph.compile(name="editloupe_judge")


judge_graph = build_app()

__all__ = ["EDIT_GRAPH", "EDIVAL_GRAPH", "LOOP", "judge_graph"]
