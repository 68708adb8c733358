"""A run whose judge is too kind, and what people say of all its edits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tests.evals.sample_runs import IF, VC, Line, make_run

TYPES = ("Change Color", "Change OCR", "Removal Object")


def kind_judge(
    folder: Path, edits: int = 120, models: tuple[str, ...] = ("x", "y"), seed: int = 4
) -> tuple[Path, list[dict[str, Any]]]:
    """Write a run of two criteria, and return it with people's labels of every edit."""
    random = np.random.default_rng(seed)
    lines, people = [], []
    for model in models:
        for number in range(edits):
            follows, consistent = (int(one) for one in random.integers(1, 5, 2))
            kind = int(random.random() < 0.4)
            lines.append(
                Line(
                    f"e{number}",
                    min(follows + kind, 4),
                    int(np.clip(consistent + random.integers(-1, 2), 1, 4)),
                    type=TYPES[min(number % 6, 2)],
                    source=f"s{number // 2}",
                    model=model,
                    confidence=float(0.95 - 0.5 * kind - 0.3 * random.random()),
                )
            )
            people.append({"edit_id": f"e{number}", "model": model, IF: follows, VC: consistent})
    return make_run(folder / "run", lines), people


def write_labels(path: Path, labels: Iterable[dict[str, Any]]) -> Path:
    """Write labels as a file of people's."""
    path.write_text("".join(f"{json.dumps(one)}\n" for one in labels), "utf-8")
    return path
