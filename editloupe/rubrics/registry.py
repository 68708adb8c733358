"""The registry of papers and protocols.

It holds the bundled papers, papers of installed packages (entry points `editloupe.papers`) and papers registered by a program.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points

from editloupe._util.text import one_line
from editloupe.rubrics import (
    dlebench,
    editreward,
    editreward_bench,
    editscore_bench,
    edival,
    emuedit,
    gedit,
    imgedit,
    magicbrush,
    mmrb2,
    vcreward,
)
from editloupe.rubrics.editcompass import paper as editcompass
from editloupe.rubrics.kris import paper as kris
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.risebench import paper as risebench
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
    gedit.PAPER,
    imgedit.PAPER,
    editscore_bench.PAPER,
    editreward_bench.PAPER,
    mmrb2.PAPER,
    vcreward.PAPER,
    magicbrush.PAPER,
    emuedit.PAPER,
    kris.PAPER,
    risebench.PAPER,
)
"""The bundled papers."""
PROTOCOLS: tuple[Protocol, ...] = tuple(paper.protocol for paper in PAPERS)
"""The protocols of the bundled papers."""
DEFAULT = dlebench.PAPER.protocol
"""Protocol of a judge that is not given one. The rules of the embedded judge are made for it."""
DEFAULT_FOR_PAIRS = editreward.PAPER.protocol
"""Protocol of preference pairs if none is named."""
ENTRY_POINTS = "editloupe.papers"
OWN = "own"
"""Protocol name of user rubrics that do not belong to a paper."""

Note = Callable[[str], object]
"""Takes a sentence for the user."""
MOST_TYPES = 5
"""Largest number of unknown instruction types that are reported individually."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_registered: dict[str, Paper] = {}


class PaperLeftOut(UserWarning):
    """A warning that an installed paper cannot be used."""


def register(paper: Paper) -> None:
    """Add a paper and its protocol to this process, for judges, `load_benchmark`, `load_manifest` and reports.

    A paper of the same name that was registered before, or is installed, is replaced. If an error is raised, the registry
    is unchanged.

    Args:
        paper: The paper.

    Raises:
        UserError: If `paper` is not a `Paper`, if its name is invalid or that of a bundled paper, or if one of its rubrics
            names another protocol.
    """
    if not isinstance(paper, Paper):
        raise UserError(f"a paper must be an `editloupe.rubrics.Paper`, not {type(paper).__name__}")
    if fault := _find_fault(paper.protocol):
        raise UserError(fault)
    _registered[paper.name] = paper


@cache
def installed_papers() -> tuple[Paper, ...]:
    """Load the papers of installed packages. A paper that cannot be loaded is skipped with a warning."""
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
    """Return all papers: bundled ones first, then installed and registered ones."""
    return (*PAPERS, *_list_added().values())


def find_paper(name: str | None) -> Paper | None:
    """Return a paper by name, or None for user rubrics and papers that are not installed."""
    if name is None or name == OWN:
        return None
    bundled = next((paper for paper in PAPERS if paper.name == name), None)
    return bundled or _registered.get(name) or _list_added().get(name)


def protocols() -> tuple[Protocol, ...]:
    """Return the protocols of all papers, in the order of `papers`."""
    return tuple(paper.protocol for paper in papers())


def find_protocol(name: str | None) -> Protocol | None:
    """Return a protocol by name, or None for user rubrics and papers that are not installed."""
    paper = find_paper(name)
    return paper.protocol if paper else None


def get_protocol(name: str) -> Protocol:
    """Return a protocol by name; raise UserError if there is no protocol of this name."""
    if protocol := find_protocol(name):
        return protocol
    raise UserError(f'there is no protocol "{name}"; there are: {", ".join(p.name for p in protocols())}')


def make_type_reader(protocol: str | None, note: Note | None = None) -> Callable[[Edit], Edit]:
    """Return a function that spells an edit's instruction type as the protocol does.

    The function raises UserError if the protocol cannot handle the type.

    Args:
        protocol: Name of the protocol.
        note: Called with a sentence for each of the first few types that the protocol does not list but accepts.
    """
    rules = find_protocol(protocol)
    if rules is None:
        return lambda edit: edit
    noted: set[str] = set()

    def normalize_type(edit: Edit) -> Edit:
        edit = rules.normalize_type(edit)
        kind = edit.instruction_type
        own = bool(kind) and bool(rules.types) and rules.type_of is None and kind not in rules.types
        if note and own and kind not in noted and len(noted) < MOST_TYPES and rules.weighting == "types":
            noted.add(str(kind))
            note(f'"{kind}" is not a type of {rules.title}; it is counted as a separate type')
            if len(noted) == MOST_TYPES:
                note("further unknown types are not listed")
        return edit

    return normalize_type


def usual_repeats(name: str | None) -> int:
    """Return how many times a protocol's paper judges every edit.

    Args:
        name: Name of the protocol.

    Returns:
        `Protocol.repeats`, or 1 for user rubrics and unknown protocols.
    """
    protocol = find_protocol(name)
    return protocol.repeats if protocol else 1


def find_pair_rules(name: str | None = None) -> PairRules:
    """Return the pair rules of a protocol, or those of DEFAULT_FOR_PAIRS if it has none."""
    protocol = find_protocol(name)
    rules = (protocol.pairs if protocol else None) or DEFAULT_FOR_PAIRS.pairs
    assert rules is not None
    return rules


def list_pair_layouts() -> tuple[str, ...]:
    """Return the names of the papers whose published preference pairs can be read."""
    return tuple(paper.name for paper in papers() if paper.protocol.pairs and paper.protocol.pairs.rows)


def _list_added() -> dict[str, Paper]:
    installed = {}
    for paper in installed_papers():
        if fault := _find_fault(paper.protocol):
            warnings.warn(f"an installed paper is skipped: {fault}", PaperLeftOut, stacklevel=2)
        else:
            installed[paper.name] = paper
    return installed | _registered


def _find_fault(added: Protocol) -> str | None:
    if not _NAME.fullmatch(added.name):
        return f'"{added.name}" is not a valid name of a protocol; use lower-case letters, digits and dashes'
    if added.name == OWN or any(bundled.name == added.name for bundled in PROTOCOLS):
        return f'there is already a protocol "{added.name}"'
    other = next((rubric for rubric in added.rubrics if rubric.protocol != added.name), None)
    return f'the rubric {other.criterion} of {added.name} names the protocol "{other.protocol}"' if other else None
