"""Selection of the pictures to evaluate, the opener of their judge, and token estimates."""

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
from editloupe.rubrics.edival.rules import EdivalSettings
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.models.features import FeatureSettings
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, UserError


@dataclass(frozen=True)
class Evaluation:
    """The pictures to judge and their chains.

    Args:
        chain_folder: Folder of the chains' files.
        chains: The chains.
        results: The pictures of all models.
    """

    chain_folder: Path
    chains: Sequence[ChainFile]
    results: Sequence[Result]

    def edits(self) -> Iterator[Edit]:
        """Yield the edits to judge."""
        return build_edits(self.results, self.chains, self.chain_folder)

    def expected(self) -> list[Expected]:
        """Return how complete the results of each model and mode are."""
        return list_expected(self.results, self.chains)


def find_evaluation(
    chains: Path,
    results: Path | None,
    models: Sequence[str] = (),
    modes: Sequence[str] = (),
    by_model: Mapping[str, Path] | None = None,
) -> Evaluation:
    """Find the pictures to judge.

    Args:
        chains: Folder of the chains' files.
        results: Folder with one sub-folder per model, or None.
        models: Names of models to judge; all if empty.
        modes: Modes to judge; all if empty.
        by_model: Further folders of results, by model.

    Returns:
        The pictures and their chains.

    Raises:
        UserError: If a folder is invalid, a model has two folders, or no pictures are left.
    """
    files = read_folder(chains, ChainFile)
    found = find_results(results, files) if results is not None else []
    for model, folder in (by_model or {}).items():
        if any(result.model == model for result in found):
            raise UserError(f"{results} and {folder} both have results of {model}; rename one of them")
        found += find_model_results(model, folder, files)
    have = {"model": {result.model for result in found}, "mode": {result.mode for result in found}}
    for what, wanted in (("model", models), ("mode", modes)):
        for name in wanted:
            if name not in have[what]:
                raise UserError(
                    f'there are no results of the {what} "{name}"; there are: {", ".join(sorted(have[what]))}'
                )
    selected = [
        result for result in found if (not models or result.model in models) and (not modes or result.mode in modes)
    ]
    if not selected:
        listed = ", ".join(sorted({f"{result.model}/{result.mode}" for result in found}))
        raise UserError(f"no results are left to judge; there are: {listed}")
    return Evaluation(chains, files, selected)


@dataclass(frozen=True)
class OpenEdivalJudge:
    """Opens the judge of an evaluation. It holds settings only, so that it can be sent to a worker of a cluster."""

    spec: str
    rules: EdivalSettings
    tools: ToolSettings
    features: FeatureSettings | None = None
    quality: str = "auto"
    base_url: str | None = None
    criteria: Sequence[str] = CRITERIA
    settings: JudgeSettings = field(default_factory=JudgeSettings)
    worded: Rubric | None = None
    """A reworded rubric whose texts replace those of the questions; None for the usual texts."""

    def instruments(self) -> Instruments:
        """Open the instruments; raise UserError if one that is required cannot run here."""
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
    """Estimate the tokens of one unit: one question about a crop per task that boxes do not decide.

    A pre-check is counted for every task that may have one, although tasks that the boxes reject have none.
    """
    if description["spec"] == RULES or criterion != FOLLOWING:
        return {"requests": 0.0}
    try:
        tasks = read_turn(edit).tasks
    except MissingInput:
        return {"requests": 0.0}
    checked = description.get("rules", {}).get("precheck", ())
    questions = [build_question(task) for task in tasks if not task.by_detector]
    prechecks = [build_precheck(task) for task in tasks if task.type in checked]
    pictures = len(questions) * (2 if description.get("rules", {}).get("crops") == "both" else 1) + 2 * len(prechecks)
    questions += prechecks
    texts = sum(len(rubric.model_dump_json()) for rubric in questions) / CHARACTERS_PER_TOKEN
    return {
        "requests": float(len(questions)),
        "input_tokens": texts + pictures * TOKENS_A_PICTURE,
        "output_tokens": float(len(questions) * TOKENS_A_REPLY),
    }
