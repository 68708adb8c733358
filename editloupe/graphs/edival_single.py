"""A single edit judged by EdiVal-Agent's rules inside the graph of any edit: the same looks, the same rules, one criterion."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from editloupe.agent.answers import Given
from editloupe.graphs.edival import FOLLOWING, Bench
from editloupe.graphs.edival_looks import Eye
from editloupe.graphs.engine import Graph, Judged
from editloupe.graphs.loop import Failure, Session
from editloupe.rubrics.edival.settings import published
from editloupe.rubrics.edival.turn import KEY, Turn
from editloupe.tools.finders import Finder, WholePictureFinder
from editloupe.tools.registry import Toolbox
from editloupe.types import Verdict

_FINDERS: WeakKeyDictionary[Toolbox, Finder] = WeakKeyDictionary()
_LOCK = threading.Lock()


def finder_of(toolbox: Toolbox) -> Finder:
    """Return the detector of a toolbox as the rules need it; its weights are loaded once a toolbox."""
    with _LOCK:
        if toolbox not in _FINDERS:
            _FINDERS[toolbox] = WholePictureFinder(toolbox.settings, published().lowest_threshold)
        return _FINDERS[toolbox]


async def by_objects(objects: Graph, session: Session) -> Judged:
    """Judge a case whose facts name its tasks, by objects."""
    case, heading = session.case, session.heading
    eye = Eye(finder_of(session.toolbox), published(), None, None, session.memory, session.album)
    bench = Bench(
        chat=session.chat,
        judge=heading.judge,
        eye=eye,
        toolbox=session.toolbox,
        criteria=(FOLLOWING,),
        wire=session.wire,
        limits=session.limits,
        watcher=session.watcher,
        repeat=session.repeat,
        budget=session.budget,
    )
    turn = Turn.model_validate(case.facts[KEY])
    end = await objects.ainvoke({"edit": case.edit, "turn": turn}, {"recursion_limit": 12}, context=bench)
    (outcome,) = end["outcomes"]
    trace = next(iter(end.get("traces", ())), heading)
    if isinstance(outcome, Verdict):
        label = str(outcome.label)
        given = Given(label, label, outcome.score, outcome.score_100, outcome.values, outcome.rationale)
        return Judged(case, trace, given, None)
    return Judged(case, trace, None, Failure(outcome.reason, outcome.detail, outcome.raw))
