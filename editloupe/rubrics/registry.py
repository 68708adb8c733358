"""All papers and their protocols: the bundled ones, those of installed packages, and those a program registers.

A package names its paper's record in the entry points `editloupe.papers`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points

from editloupe._util.text import one_line
from editloupe.rubrics import editreward, edival
from editloupe.rubrics.dlebench import paper as dlebench
from editloupe.rubrics.editcompass import paper as editcompass
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.vibe import paper as vibe
from editloupe.rubrics.wiseedit import paper as wiseedit
from editloupe.types import Edit, UserError

PAPERS: tuple[Paper, ...] = (
    dlebench.PAPER,
    wiseedit.PAPER,
    editcompass.PAPER,
    vibe.PAPER,
    editreward.PAPER,
    edival.PAPER,
)
"""The bundled ones."""
PROTOCOLS: tuple[Protocol, ...] = tuple(paper.protocol for paper in PAPERS)
"""The bundled ones."""
DEFAULT = dlebench.PAPER.protocol
"""What a judge follows that is told no protocol; the embedded judge's rules are made for it."""
DEFAULT_FOR_PAIRS = editreward.PAPER.protocol
"""What preference pairs are judged by where no protocol is named."""
ENTRY_POINTS = "editloupe.papers"
OWN = "own"
"""The name that rubric files without a paper are judged under."""

Note = Callable[[str], object]
"""Takes a sentence for the user."""
MOST_TYPES = 5
"""Types unknown to the protocol that are noted one by one."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_registered: dict[str, Paper] = {}


class PaperLeftOut(UserWarning):
    """An installed paper cannot be used."""


def register(paper: Paper) -> None:
    """Make a paper and its protocol known in this process: to judges, `load_benchmark`, `load_manifest` and reports.

    Registered again, the last record holds, also over an installed one. If an error is raised, nothing changes.

    Raises:
        UserError: The record is not a `Paper`, its name is a bundled paper's or not a name, or its rubrics name another
            protocol.
    """
    if not isinstance(paper, Paper):
        raise UserError(f"a paper is a record `editloupe.rubrics.Paper`, not {type(paper).__name__}")
    if fault := _find_fault(paper.protocol):
        raise UserError(fault)
    _registered[paper.name] = paper


@cache
def installed_papers() -> tuple[Paper, ...]:
    """Load the papers of installed packages, once; one that cannot be loaded is left out with a warning."""
    loaded: list[Paper] = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            paper = entry.load()
            if not isinstance(paper, Paper):
                raise TypeError(f"{entry.value} is not a paper")
            loaded.append(paper)
        except (Exception, SystemExit) as error:  # whatever another package's module raises
            why = one_line(f"{type(error).__name__}: {error}")
            warnings.warn(f"the paper {entry.name} cannot be loaded: {why}", PaperLeftOut, stacklevel=2)
    return tuple(loaded)


def papers() -> tuple[Paper, ...]:
    """Return all papers, the bundled ones first."""
    return (*PAPERS, *_list_added().values())


def find_paper(name: str | None) -> Paper | None:
    """Return a paper by the name of its protocol; None for rubrics without a paper and a paper no longer installed."""
    if name is None or name == OWN:
        return None
    bundled = next((paper for paper in PAPERS if paper.name == name), None)
    return bundled or _registered.get(name) or _list_added().get(name)


def protocols() -> tuple[Protocol, ...]:
    """Return all protocols, the bundled ones first."""
    return tuple(paper.protocol for paper in papers())


def find_protocol(name: str | None) -> Protocol | None:
    """Return a protocol by name; None for rubric files and for papers no longer installed."""
    paper = find_paper(name)
    return paper.protocol if paper else None


def get_protocol(name: str) -> Protocol:
    """Return a protocol by name; an unknown one is the user's mistake."""
    if known := find_protocol(name):
        return known
    raise UserError(f'there is no protocol "{name}"; there are: {", ".join(p.name for p in protocols())}')


def make_type_reader(protocol: str | None, note: Note | None = None) -> Callable[[Edit], Edit]:
    """Return what gives an edit its type as a protocol spells it; a type that the protocol cannot do with is a UserError.

    Where a protocol takes types of the user's own, `note` is told once of each of the first few.
    """
    known = find_protocol(protocol)
    if known is None:
        return lambda edit: edit
    told: set[str] = set()

    def typed(edit: Edit) -> Edit:
        edit = known.typed(edit)
        kind = edit.instruction_type
        own = bool(kind) and bool(known.types) and known.type_of is None and kind not in known.types
        if note and own and kind not in told and len(told) < MOST_TYPES and known.weighting == "types":
            told.add(str(kind))
            note(f'"{kind}" is no type of {known.title}; it is counted as a type of its own')
            if len(told) == MOST_TYPES:
                note("further types that it does not know are not listed")
        return edit

    return typed


def usual_repeats(name: str | None) -> int:
    """Return how often a protocol's paper has every edit judged; 1 for rubrics of the user's own."""
    known = find_protocol(name)
    return known.repeats if known else 1


def find_pair_rules(name: str | None = None) -> PairRules:
    """Return how a protocol judges pairs; one without rules for them goes by those of DEFAULT_FOR_PAIRS."""
    known = find_protocol(name)
    rules = (known.pairs if known else None) or DEFAULT_FOR_PAIRS.pairs
    assert rules is not None
    return rules


def _list_added() -> dict[str, Paper]:
    installed = {}
    for paper in installed_papers():
        if fault := _find_fault(paper.protocol):
            warnings.warn(f"an installed paper is left out: {fault}", PaperLeftOut, stacklevel=2)
        else:
            installed[paper.name] = paper
    return installed | _registered


def _find_fault(added: Protocol) -> str | None:
    if not _NAME.fullmatch(added.name):
        return f'"{added.name}" is no name of a protocol; write small letters, digits and dashes'
    if added.name == OWN or any(known.name == added.name for known in PROTOCOLS):
        return f'there is a protocol "{added.name}" already'
    other = next((rubric for rubric in added.rubrics if rubric.protocol != added.name), None)
    return f'{other.criterion} of {added.name} says it belongs to the protocol "{other.protocol}"' if other else None
