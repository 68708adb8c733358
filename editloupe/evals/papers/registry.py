"""All papers: the bundled ones in one list, those of installed packages, and those a program registers."""

from __future__ import annotations

from editloupe.evals.papers import dlebench, editcompass, editreward, edival, vibe, wiseedit
from editloupe.evals.papers.paper import Paper
from editloupe.rubrics import registry as protocols
from editloupe.rubrics.installed import installed_papers
from editloupe.types import UserError

PAPERS: tuple[Paper, ...] = (
    dlebench.PAPER,
    wiseedit.PAPER,
    editcompass.PAPER,
    vibe.PAPER,
    editreward.PAPER,
    edival.PAPER,
)
"""The bundled ones."""

_registered: dict[str, Paper] = {}


def register(paper: Paper) -> None:
    """Make a paper and its protocol known in this process: to judges, `load_benchmark`, `load_manifest` and reports.

    Registered again, the last one holds, also over an installed one. A bundled paper's name raises UserError and changes nothing.
    """
    if not isinstance(paper, Paper):
        raise UserError(f"a paper is a record `Paper` of editloupe.evals.papers, not {type(paper).__name__}")
    protocols.register(paper.protocol)
    _registered[paper.name] = paper


def papers() -> tuple[Paper, ...]:
    """Return all papers, the bundled ones first."""
    installed = [paper for paper in installed_papers() if isinstance(paper, Paper)]
    added = {paper.name: paper for paper in (*installed, *_registered.values())}
    return (*PAPERS, *(paper for paper in added.values() if protocols.known_protocol(paper.name) is paper.protocol))


def known_paper(name: str) -> Paper | None:
    """Return a paper by the name of its protocol; None for rubrics without a paper and a paper no longer installed."""
    bundled = next((paper for paper in PAPERS if paper.name == name), None)
    return bundled or next((paper for paper in papers() if paper.name == name), None)
