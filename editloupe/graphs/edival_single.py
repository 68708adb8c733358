"""A single edit judged by EdiVal-Agent's rules inside the graph of any edit: the same rules, one criterion."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from editloupe.agent.replies.answers import Given
from editloupe.graphs.edival import FOLLOWING
from editloupe.graphs.edival_context import EdivalContext
from editloupe.graphs.loop import CaseContext, Failure, Graph, Judged
from editloupe.rubrics.edival.settings import EdivalSettings, published
from editloupe.rubrics.edival.turn import KEY, Turn
from editloupe.tools.models.finders import Finder, WholePictureFinder
from editloupe.tools.registry import Toolbox
from editloupe.types import Verdict

_FINDERS: WeakKeyDictionary[Toolbox, Finder] = WeakKeyDictionary()
_LOCK = threading.Lock()


def finder_of(toolbox: Toolbox, rules: EdivalSettings) -> Finder:
    """Return the detector of a toolbox as the rules need it; its weights are loaded once a toolbox, which has one judge."""
    with _LOCK:
        if toolbox not in _FINDERS:
            _FINDERS[toolbox] = WholePictureFinder(toolbox.settings, rules.lowest_threshold)
        return _FINDERS[toolbox]


async def by_objects(objects: Graph, context: CaseContext) -> Judged:
    """Judge a case whose facts name its tasks, by objects."""
    case, shared = context.case, context.shared
    rules = shared.rules if isinstance(shared.rules, EdivalSettings) else published()
    detecting = EdivalContext(shared, finder_of(shared.toolbox, rules), rules, (FOLLOWING,), worded=case.rubric)
    turn = Turn.model_validate(case.facts[KEY])
    end = await objects.ainvoke({"edit": case.edit, "turn": turn}, {"recursion_limit": 12}, context=detecting)
    (outcome,) = end["outcomes"]
    trace = next(iter(end.get("traces", ())), context.heading)
    if isinstance(outcome, Verdict):
        label = str(outcome.label)
        given = Given(label, label, outcome.score, outcome.score_100, outcome.values, outcome.rationale)
        return Judged(case, trace, given, None)
    return Judged(case, trace, None, Failure(outcome.reason, outcome.detail, outcome.raw))
