"""The LangGraph state machines that judge an edit, and their contexts.

Public names are imported when they are first used, so that one graph does not load the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.graphs.context import LiveContext, LoopLimits, ObservationCache, SharedContext
    from editloupe.graphs.edit import EDIT_GRAPH, EditContext, EditState
    from editloupe.graphs.loop import LOOP, CaseContext, Failure, LoopState

__all__ = [
    "EDIT_GRAPH",
    "LOOP",
    "CaseContext",
    "EditContext",
    "EditState",
    "Failure",
    "LiveContext",
    "LoopLimits",
    "LoopState",
    "ObservationCache",
    "SharedContext",
]

__getattr__, __dir__ = lazy_names(__name__)
