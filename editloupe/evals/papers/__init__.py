"""The papers: one record each, with its protocol, the layout of its benchmark and its tables."""

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
