"""All engines that judge a case, in one list; a case names its own."""

from __future__ import annotations

from collections.abc import Mapping

from editloupe.graphs.by_loop import by_loop
from editloupe.graphs.edival import EDIVAL_GRAPH
from editloupe.graphs.edival_single import by_objects
from editloupe.graphs.engine import Engine
from editloupe.graphs.loop import LOOP

ENGINES: Mapping[str, Engine] = {
    "loop": Engine(LOOP, by_loop),
    "objects": Engine(EDIVAL_GRAPH, by_objects),
}
"""Think, look with tools, answer; and objects checked one by one with a detector and crops (EdiVal-Agent)."""
