"""Papers on runs: manifests and benchmarks by layout, and the tables papers print; what a paper's record is made of.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.papers.layouts import load_benchmark, load_manifest, load_outputs
    from editloupe.rubrics.benchmark import Benchmark
    from editloupe.rubrics.paper import Paper, Scored
    from editloupe.rubrics.registry import papers, register
    from editloupe.rubrics.tables import TOTAL, Average, Column, Layout, Mean, PrintedTable, Section

__all__ = [
    "TOTAL",
    "Average",
    "Benchmark",
    "Column",
    "Layout",
    "Mean",
    "Paper",
    "PrintedTable",
    "Scored",
    "Section",
    "load_benchmark",
    "load_manifest",
    "load_outputs",
    "papers",
    "register",
]

__getattr__, __dir__ = lazy_names(__name__)
