"""Store edits, units, traces, replies and pictures of a run on disk, with one writer and many readers.

Public names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.evals.runs.damage import RunDamaged
    from editloupe.evals.runs.prices import Price, price_of
    from editloupe.evals.runs.store import Run
    from editloupe.evals.runs.unit_rows import Unit

__all__ = ["Price", "Run", "RunDamaged", "Unit", "price_of"]

__getattr__, __dir__ = lazy_names(__name__)
