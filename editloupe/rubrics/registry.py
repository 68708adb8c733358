"""All protocols, in one list."""

from __future__ import annotations

from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.protocol import Protocol
from editloupe.types import UserError

PROTOCOLS: tuple[Protocol, ...] = (DLEBENCH,)


def protocol(name: str) -> Protocol:
    """Return a protocol by name; an unknown one is the user's mistake."""
    for known in PROTOCOLS:
        if known.name == name:
            return known
    raise UserError(f'there is no protocol "{name}"; there are: {", ".join(p.name for p in PROTOCOLS)}')
