"""What an engine is: a graph, or several, that take one case from its pictures to its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from editloupe.agent.answers import Given
from editloupe.graphs.loop import Failure, Session
from editloupe.rubrics.case import Case
from editloupe.types import Trace


@dataclass(frozen=True)
class Judged:
    """One case, judged: its trace and how it ended."""

    case: Case
    trace: Trace
    given: Given | None
    failure: Failure | None
    confidence: float | None = None


Engine = Callable[[Session], Awaitable[Judged]]
"""Judges the case of a session; whatever goes wrong with it is a Failure, not an exception."""
