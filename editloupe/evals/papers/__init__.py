"""The papers' own benchmarks: how each is laid out on disk, and the tables each prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.papers.tables import Scored, Section, paper_tables

__all__ = [
    "Scored",
    "Section",
    "paper_tables",
]

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("Scored", "Section", "paper_tables"), "tables"),
    },
)
