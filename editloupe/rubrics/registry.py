"""All protocols, in one list."""

from __future__ import annotations

from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.editreward import EDITREWARD_COMPASS
from editloupe.rubrics.edival import EDIVAL
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.vibe import VIBE
from editloupe.rubrics.wiseedit import WISEEDIT
from editloupe.types import UserError

PROTOCOLS: tuple[Protocol, ...] = (DLEBENCH, WISEEDIT, VIBE, EDIT_COMPASS, EDITREWARD_COMPASS, EDIVAL)


def protocol(name: str) -> Protocol:
    """Return a protocol by name; an unknown one is the user's mistake."""
    for known in PROTOCOLS:
        if known.name == name:
            return known
    raise UserError(f'there is no protocol "{name}"; there are: {", ".join(p.name for p in PROTOCOLS)}')


def usual_repeats(name: str | None) -> int:
    """Return how often a protocol's paper has every edit judged; 1 for rubrics of the user's own."""
    return next((known.repeats for known in PROTOCOLS if known.name == name), 1)
