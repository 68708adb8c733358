"""What an engine is: a graph, and the way one case is taken through it to its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from editloupe.agent.answers import Given
from editloupe.graphs.loop import CaseContext, Failure
from editloupe.rubrics.case import Case
from editloupe.types import Trace

Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True)
class Judged:
    """One case, judged: its trace and how it ended."""

    case: Case
    trace: Trace
    given: Given | None
    failure: Failure | None
    confidence: float | None = None


@dataclass(frozen=True)
class Engine:
    """One way to judge a case."""

    graph: Graph
    judge: Callable[[Graph, CaseContext], Awaitable[Judged]]
    """Takes the context's case through the graph; whatever goes wrong with the case is a Failure, not an exception."""
