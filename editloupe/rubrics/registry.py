"""All protocols: the bundled ones in one list, those of installed packages, and those a program registers."""

from __future__ import annotations

import re
import warnings

from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.editreward import EDITREWARD_COMPASS
from editloupe.rubrics.edival import EDIVAL
from editloupe.rubrics.installed import PaperLeftOut, installed_papers
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.vibe import VIBE
from editloupe.rubrics.wiseedit import WISEEDIT
from editloupe.types import UserError

PROTOCOLS: tuple[Protocol, ...] = (DLEBENCH, WISEEDIT, VIBE, EDIT_COMPASS, EDITREWARD_COMPASS, EDIVAL)
"""The bundled ones."""
DEFAULT = DLEBENCH
"""What a judge follows that is told no protocol; the embedded judge's rules are made for it."""
DEFAULT_FOR_PAIRS = EDITREWARD_COMPASS
"""What preference pairs are judged by where no protocol is named."""
OWN = "own"
"""The name that rubric files without a paper are judged under."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_registered: dict[str, Protocol] = {}


def register(added: Protocol) -> None:
    """Make a protocol known by its name in this process; the last one of a name holds.

    A name that is taken or is no name, and rubrics that say another protocol, raise UserError and change nothing.
    """
    if fault := _fault(added):
        raise UserError(fault)
    _registered[added.name] = added


def protocols() -> tuple[Protocol, ...]:
    """Return all protocols, the bundled ones first."""
    return (*PROTOCOLS, *_added().values())


def known_protocol(name: str | None) -> Protocol | None:
    """Return a protocol by name; None where there is none, as for rubric files and for papers no longer installed."""
    if name is None or name == OWN:
        return None
    bundled = next((known for known in PROTOCOLS if known.name == name), None)
    return bundled or _registered.get(name) or _added().get(name)


def protocol(name: str) -> Protocol:
    """Return a protocol by name; an unknown one is the user's mistake."""
    if known := known_protocol(name):
        return known
    raise UserError(f'there is no protocol "{name}"; there are: {", ".join(p.name for p in protocols())}')


def usual_repeats(name: str | None) -> int:
    """Return how often a protocol's paper has every edit judged; 1 for rubrics of the user's own."""
    known = known_protocol(name)
    return known.repeats if known else 1


def pair_rules(name: str | None = None) -> PairRules:
    """Return how a protocol judges pairs; one without rules for them goes by those of DEFAULT_FOR_PAIRS."""
    known = known_protocol(name)
    rules = (known.pairs if known else None) or DEFAULT_FOR_PAIRS.pairs
    assert rules is not None
    return rules


def _added() -> dict[str, Protocol]:
    found = {}
    for paper in installed_papers():
        if fault := _fault(paper.protocol):
            warnings.warn(f"an installed paper is left out: {fault}", PaperLeftOut, stacklevel=2)
        else:
            found[paper.protocol.name] = paper.protocol
    return found | _registered


def _fault(added: Protocol) -> str | None:
    if not _NAME.fullmatch(added.name):
        return f'"{added.name}" is no name of a protocol; write small letters, digits and dashes'
    if added.name == OWN or any(known.name == added.name for known in PROTOCOLS):
        return f'there is a protocol "{added.name}" already'
    other = next((rubric for rubric in added.rubrics if rubric.protocol != added.name), None)
    return f'{other.criterion} of {added.name} says it belongs to the protocol "{other.protocol}"' if other else None
