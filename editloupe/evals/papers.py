"""Shim of a former import path: records of papers are in `editloupe.rubrics`, loaders in `editloupe.evals.manifests`."""

from editloupe.evals.manifests.layouts import load_benchmark, load_manifest, load_outputs
from editloupe.rubrics.paper import Benchmark, Paper, Scored
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
