"""EditReward-Compass's own results, to stand beside those of other judges."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from editloupe.rubrics.yaml_files import bundled_yaml


def published() -> Mapping[str, tuple[float | None, ...]]:
    """Return the paper's Table 5: IA, VC, VQ and AVG by method."""
    rows = bundled_yaml(files(__package__) / "published.yaml")
    return {str(method): tuple(row) for method, row in rows.items()}
