"""The papers: one record each, with its protocol, the layout of its benchmark and its tables.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.manifests.benchmark import Benchmark
    from editloupe.evals.papers.layout import TOTAL, Average, Column, Layout, Mean
    from editloupe.evals.papers.layouts import load_benchmark, load_manifest, load_outputs
    from editloupe.evals.papers.paper import Paper, Scored, Section
    from editloupe.evals.papers.registry import papers, register

__all__ = [
    "TOTAL",
    "Average",
    "Benchmark",
    "Column",
    "Layout",
    "Mean",
    "Paper",
    "Scored",
    "Section",
    "load_benchmark",
    "load_manifest",
    "load_outputs",
    "papers",
    "register",
]

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("TOTAL", "Average", "Column", "Layout", "Mean"), "layout"),
        **dict.fromkeys(("Benchmark", "load_benchmark", "load_manifest", "load_outputs"), "layouts"),
        **dict.fromkeys(("Paper", "Scored", "Section"), "paper"),
        **dict.fromkeys(("papers", "register"), "registry"),
    },
)
