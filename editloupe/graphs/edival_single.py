"""A single edit judged by EdiVal-Agent's rules inside the graph of any edit: the same rules, one criterion."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from editloupe.agent.answers import Given
from editloupe.graphs.edival import EDIVAL_GRAPH, FOLLOWING
from editloupe.graphs.edival_context import EdivalContext
from editloupe.graphs.loop import CaseContext, Failure
from editloupe.rubrics.edival.settings import published
from editloupe.rubrics.edival.turn import KEY, Turn
from editloupe.tools.finders import Finder, WholePictureFinder
from editloupe.tools.registry import Toolbox
from editloupe.types import Trace, Verdict

_FINDERS: WeakKeyDictionary[Toolbox, Finder] = WeakKeyDictionary()
_LOCK = threading.Lock()


def finder_of(toolbox: Toolbox) -> Finder:
    """Return the detector of a toolbox as the rules need it; its weights are loaded once a toolbox."""
    with _LOCK:
        if toolbox not in _FINDERS:
            _FINDERS[toolbox] = WholePictureFinder(toolbox.settings, published().lowest_threshold)
        return _FINDERS[toolbox]


async def by_objects(context: CaseContext) -> tuple[Trace, Given | None, Failure | None]:
    """Judge a case whose facts name its tasks; return its trace and how it ended."""
    case, shared = context.case, context.shared
    objects = EdivalContext(shared, finder_of(shared.toolbox), published(), (FOLLOWING,))
    turn = Turn.model_validate(case.facts[KEY])
    end = await EDIVAL_GRAPH.ainvoke({"edit": case.edit, "turn": turn}, {"recursion_limit": 12}, context=objects)
    (outcome,) = end["outcomes"]
    trace = next(iter(end.get("traces", ())), context.heading)
    if isinstance(outcome, Verdict):
        label = str(outcome.label)
        given = Given(label, label, outcome.score, outcome.score_100, outcome.values, outcome.rationale)
        return trace, given, None
    return trace, None, Failure(outcome.reason, outcome.detail, outcome.raw)
