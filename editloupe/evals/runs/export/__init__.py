"""Write the units of a run as tables, `datasets` folders, Inspect logs and training data.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.runs.export.inspect_log import to_inspect
    from editloupe.evals.runs.export.sft import to_sft
    from editloupe.evals.runs.export.tables import to_csv, to_datasets, to_jsonl, to_parquet

__all__ = ["to_csv", "to_datasets", "to_inspect", "to_jsonl", "to_parquet", "to_sft"]

__getattr__, __dir__ = lazy_names(__name__)
