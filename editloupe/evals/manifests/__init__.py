"""Which edits: manifests, folders of benchmarks, and preference pairs, each streamed."""

from editloupe.evals.manifests.benchmark import Benchmark, further_columns, make_edit, picture_in, read_json_list
from editloupe.evals.manifests.datasets import read_manifest
from editloupe.evals.manifests.pairs import Pair, load_pairs
from editloupe.evals.manifests.untouched import NOTHING_EDITED, with_untouched

__all__ = [
    "NOTHING_EDITED",
    "Benchmark",
    "Pair",
    "further_columns",
    "load_pairs",
    "make_edit",
    "picture_in",
    "read_json_list",
    "read_manifest",
    "with_untouched",
]
