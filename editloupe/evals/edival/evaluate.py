"""Evaluate: which pictures of a results folder are judged, who judges them, and what that will take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.usage import CHARACTERS_PER_TOKEN
from editloupe.evals.batch.progress import TOKENS_A_PICTURE, TOKENS_A_REPLY
from editloupe.evals.edival.files import ChainFile, read_folder
from editloupe.evals.edival.judge import EdivalJudge, Instruments, open_instruments
from editloupe.evals.edival.results import (
    Expected,
    Result,
    build_edits,
    find_model_results,
    find_results,
    list_expected,
)
from editloupe.graphs.edival import CRITERIA, FOLLOWING
from editloupe.judge.settings import JudgeSettings
from editloupe.rubrics.edival.pools import read_turn
from editloupe.rubrics.edival.questions import build_precheck, build_question
from editloupe.rubrics.edival.settings import EdivalSettings
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.models.features import FeatureSettings
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, UserError


@dataclass(frozen=True)
class Evaluation:
    """The pictures to judge and the chains they belong to."""

    chain_folder: Path
    chains: Sequence[ChainFile]
    results: Sequence[Result]

    def edits(self) -> Iterator[Edit]:
        """Yield the edits from the first on."""
        return build_edits(self.results, self.chains, self.chain_folder)

    def expected(self) -> list[Expected]:
        """Say how complete each model's results are."""
        return list_expected(self.results, self.chains)


def find_evaluation(
    chains: Path,
    results: Path | None,
    models: Sequence[str] = (),
    modes: Sequence[str] = (),
    by_model: Mapping[str, Path] | None = None,
) -> Evaluation:
    """Return what there is to judge, of these models and modes where some are named.

    `results` holds a folder a model; `by_model` names models whose folders lie elsewhere. A model may have only one.
    """
    known = read_folder(chains, ChainFile)
    found = find_results(results, known) if results is not None else []
    for model, folder in (by_model or {}).items():
        if any(result.model == model for result in found):
            raise UserError(f"{results} and {folder} both hold results of {model}; give one of them another name")
        found += find_model_results(model, folder, known)
    have = {"model": {result.model for result in found}, "mode": {result.mode for result in found}}
    for what, wanted in (("model", models), ("mode", modes)):
        for name in wanted:
            if name not in have[what]:
                raise UserError(
                    f'there are no results of the {what} "{name}"; there are: {", ".join(sorted(have[what]))}'
                )
    kept = [
        result for result in found if (not models or result.model in models) and (not modes or result.mode in modes)
    ]
    if not kept:
        listed = ", ".join(sorted({f"{result.model}/{result.mode}" for result in found}))
        raise UserError(f"no results are left to judge; there are: {listed}")
    return Evaluation(chains, known, kept)


@dataclass(frozen=True)
class OpenEdivalJudge:
    """Opens the judge of an evaluation, here or in a worker of a cluster: settings only, so that it can be sent there."""

    spec: str
    rules: EdivalSettings
    tools: ToolSettings
    features: FeatureSettings | None = None
    quality: str = "auto"
    base_url: str | None = None
    criteria: Sequence[str] = CRITERIA
    settings: JudgeSettings = field(default_factory=JudgeSettings)
    worded: Rubric | None = None
    """The rubric whose words questions are asked in, where they are not the usual ones."""

    def instruments(self) -> Instruments:
        """Return what looks at the pictures; what was asked for and cannot run here is the user's mistake."""
        return open_instruments(self.rules, self.tools, self.features, self.quality)

    def __call__(self, **hooks: Any) -> EdivalJudge:
        """Open the judge with the hooks of a batch."""
        return EdivalJudge(
            self.spec,
            self.instruments(),
            base_url=self.base_url,
            criteria=self.criteria,
            rules=self.rules,
            settings=self.settings,
            tools=self.tools,
            worded=self.worded,
            **hooks,
        )


def estimate_tokens(edit: Edit, criterion: str, description: Mapping[str, Any]) -> dict[str, float]:
    """Return assumed tokens of one unit: a question about a crop for every task that boxes do not settle.

    A pre-check is assumed for every task that may have one; those that the boxes turn down already have none.
    """
    if description["spec"] == RULES or criterion != FOLLOWING:
        return {"requests": 0.0}
    try:
        tasks = read_turn(edit).tasks
    except MissingInput:
        return {"requests": 0.0}
    checked = description.get("rules", {}).get("precheck", ())
    asked = [build_question(task) for task in tasks if not task.by_detector]
    confirmed = [build_precheck(task) for task in tasks if task.type in checked]
    pictures = len(asked) + 2 * len(confirmed)
    asked += confirmed
    texts = sum(len(rubric.model_dump_json()) for rubric in asked) / CHARACTERS_PER_TOKEN
    return {
        "requests": float(len(asked)),
        "input_tokens": texts + pictures * TOKENS_A_PICTURE,
        "output_tokens": float(len(asked) * TOKENS_A_REPLY),
    }
