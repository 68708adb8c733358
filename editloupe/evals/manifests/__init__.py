"""Which edits: manifests, benchmarks as their authors lay them out, and preference pairs, each streamed."""

from editloupe.evals.manifests.datasets import load_manifest
from editloupe.evals.manifests.layouts import load_benchmark
from editloupe.evals.manifests.pairs import Pair, load_pairs

__all__ = ["Pair", "load_benchmark", "load_manifest", "load_pairs"]
