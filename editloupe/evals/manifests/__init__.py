"""Read edits as streams from manifests, benchmark folders and files of preference pairs.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.manifests.cases import NOTHING_EDITED, with_untouched
    from editloupe.evals.manifests.datasets import read_manifest
    from editloupe.evals.manifests.layouts import load_benchmark, load_manifest, load_outputs
    from editloupe.evals.manifests.pairs import Pair, load_pairs
    from editloupe.rubrics.paper import Benchmark, further_columns, make_edit, picture_in, read_json_list

__all__ = [
    "NOTHING_EDITED",
    "Benchmark",
    "Pair",
    "further_columns",
    "load_benchmark",
    "load_manifest",
    "load_outputs",
    "load_pairs",
    "make_edit",
    "picture_in",
    "read_json_list",
    "read_manifest",
    "with_untouched",
]

__getattr__, __dir__ = lazy_names(__name__)
