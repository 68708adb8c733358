"""Runs of several editing models judged by the metrics of preference pairs, with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.pictures.decode import Album
from editloupe.types import Box, Edit, Judgement, Verdict

Scores = Mapping[str, float]
"""Criteria and scores, 1 to 5."""


def compass_run(
    folder: Path,
    models: Mapping[str, Sequence[Scores]],
    judge: str = "openai:gpt-5.1",
    why: str = "Seen.",
    boxes: tuple[Box, ...] = (),
) -> Path:
    """Write a run in which every model has an output for cases 0, 1, 2 …; runs in one parent folder share their pictures.

    `x#1` and `x#2` are different outputs of the model x.
    """
    files = folder.parent / "pictures"
    files.mkdir(parents=True, exist_ok=True)
    filings = []
    with Run.write(folder) as run:
        for output, cases in models.items():
            model, _, sample = output.partition("#")
            for number, scores in enumerate(cases):
                edit = Edit(
                    id=f"e{number}{sample and '-'}{sample}",
                    source=_picture(files / f"source-{number}.png", 1000 + number),
                    edited=_picture(files / f"{output}-{number}.png", sum(map(ord, output)) * 100 + number),
                    instruction=f"Move cup {number} to the left",
                    instruction_type="Move",
                    hint="The cup is white.",
                    target_boxes=boxes,
                    model=model,
                )
                verdicts = tuple(
                    Verdict(criterion=name, score=score, score_100=(score - 1) * 25, rationale=f"{why} {name} {model}")
                    for name, score in scores.items()
                )
                whole = Judgement(edit=edit, protocol="edit-compass", mode="plain", judge=judge, verdicts=verdicts)
                filings.append(JudgementRecord(whole, 0, Album()))
        run.save_all(filings)
    return folder


def all_metrics(following: float, regions: float, identity: float, quality: float) -> Scores:
    """Return the scores of an edit that is asked everything but world knowledge."""
    return {
        "instruction_following": following,
        "unedited_region_consistency": regions,
        "identity_consistency": identity,
        "visual_quality": quality,
    }


def _picture(path: Path, seed: int) -> Path:
    if not path.exists():
        pixels = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((160, 120), Image.Resampling.NEAREST).save(path)
    return path
