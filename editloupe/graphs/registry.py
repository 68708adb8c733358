"""All engines that judge a case, in one list; a case names its own."""

from __future__ import annotations

from collections.abc import Mapping

from editloupe.graphs.by_loop import by_loop
from editloupe.graphs.edival_single import by_objects
from editloupe.graphs.engine import Engine
from editloupe.types import UserError

ENGINES: Mapping[str, Engine] = {
    "loop": by_loop,
    "objects": by_objects,
}
"""Think, look with tools, answer; and objects checked one by one with a detector and crops (EdiVal-Agent)."""


def engine(name: str) -> Engine:
    """Return an engine by name; a protocol that names an unknown one is told in one sentence."""
    if found := ENGINES.get(name):
        return found
    raise UserError(f'no graph called "{name}" judges cases; there are: {", ".join(ENGINES)}')
