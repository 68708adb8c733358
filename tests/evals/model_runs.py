"""Runs with outputs of several editing models on the same cases, with pictures, for tests of what compares models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table
from editloupe.pictures.decode import Album
from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.model import LabelAnswer
from editloupe.rubrics.registry import OWN
from editloupe.types import Edit, Judgement, Reason, Unjudged, Verdict
from tests.evals.sample_runs import IF, LABELS, VC

Scores = tuple[int | None, int | None]
"""Instruction Following and Visual Consistency, 1 to 4; None for unjudged."""


def model_run(
    folder: Path,
    models: Mapping[str | None, Sequence[Scores | None]],
    copies: Mapping[str, Sequence[int]] | None = None,
    types: Sequence[str] = ("Change Color",),
    per_source: int = 1,
    judge: str = "openai:gpt-5.1",
    seed: int = 0,
    hints: Mapping[str, str] | None = None,
) -> Path:
    """Write a run that holds every model's outputs for cases 0, 1, 2 …; None where a model has no output.

    The cases of all runs in one parent folder are the same. `copies` names the cases for which a model returned its source;
    another `seed` draws other pictures; `hints` has a hint for all outputs of a model.
    """
    files = folder.parent / "pictures"
    files.mkdir(parents=True, exist_ok=True)
    filings = []
    with Run.write(folder) as run:
        for model, given in models.items():
            for number, scores in enumerate(given):
                if scores is None:
                    continue
                source = _picture(files / f"source-{number // per_source}.png", 1000 + number // per_source)
                edited = files / f"{model}-{number}-{seed}.png"
                if copies and number in copies.get(str(model), ()):
                    edited.write_bytes(source.read_bytes())
                else:
                    _picture(edited, sum(map(ord, f"{model}")) * 10_000 + number * 10 + seed)
                edit = Edit(
                    id=f"e{number}",
                    source=source,
                    edited=edited,
                    instruction=f"Paint cup {number} red",
                    instruction_type=types[number % len(types)],
                    model=model,
                    hint=(hints or {}).get(str(model)),
                )
                outcomes = tuple(_outcome(name, score) for name, score in zip((IF, VC), scores, strict=True))
                whole = Judgement(edit=edit, protocol="dlebench", mode="tools", judge=judge, verdicts=outcomes)
                filings.append(JudgementRecord(whole, 0, Album()))
        run.save_all(filings)
    return folder


def with_own_criterion(folder: Path) -> RunTable:
    """Read a run as if Visual Consistency were the user's own criterion instead of the protocol's."""
    table = read_run_table(folder)
    rubric = {**DLEBENCH.rubric(VC).model_dump(mode="json"), "protocol": OWN}
    return replace(table, about={"configurations": [{"protocol": "dlebench", "rubrics": {VC: rubric}}]})


def _picture(path: Path, seed: int) -> Path:
    if not path.exists():
        Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
    return path


def _outcome(criterion: str, score: int | None) -> Verdict | Unjudged:
    if score is None:
        return Unjudged(criterion=criterion, reason=Reason.UNREADABLE, detail="No label was found.")
    answer = DLEBENCH.rubric(criterion).answer
    assert isinstance(answer, LabelAnswer)
    label = LABELS[criterion][score - 1]
    return Verdict(
        criterion=criterion,
        label=label,
        score=answer.score(label),
        score_100=answer.score_100(label),
        rationale="Seen.",
    )
