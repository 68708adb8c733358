"""`editloupe edival evaluate`: judge results by objects, turn by turn, into a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from editloupe.agent.spec_names import RULES
from editloupe.cli.batch import Closing, judge_into_run
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.judge_options import JudgeOptions, ModelOptions
from editloupe.cli.option_groups import Default, Only, spliced
from editloupe.cli.options import LOOKING
from editloupe.cli.output import tell
from editloupe.evals.edival.evaluate import OpenEdivalJudge, assumed, find_evaluation
from editloupe.evals.edival.scores_of_runs import PROTOCOL
from editloupe.graphs.edival import CRITERIA, FOLLOWING
from editloupe.judge.settings import Setup, reworded_protocol
from editloupe.rubrics.edival.settings import EdivalSettings, load_settings, published
from editloupe.rubrics.model import Rubric
from editloupe.tools.models.features import DINO_V3, FeatureSettings
from editloupe.types import UserError

SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="YAML with thresholds and rules to use instead of the published ones.")
]
JudgeOfCrops = Annotated[
    JudgeOptions,
    Only(
        "judge",
        "setup",
        "base_url",
        "criteria",
        "rubrics",
        "max_repairs",
        "structured",
        "written_reasoning",
        "temperature",
        "max_output_tokens",
        "long_side",
        "timeout",
        "detector",
        "detector_download",
        "device",
        "tool_set",
        *(field.name for field in fields(ModelOptions)),
    ),
]
"""The model is shown crops and has no tools: what is about protocols, modes and calls has no meaning here."""


@spliced
def evaluate(
    chains: Annotated[Path, typer.Argument(help="The folder `instruct` wrote.")],
    results: Annotated[
        Path | None,
        typer.Argument(help="Pictures as MODEL/MODE/IMAGE/TURN.png; MODE is multi, complex or complex-NAME."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again continues it.")],
    judge: JudgeOfCrops,
    of_models: Annotated[
        list[str] | None,
        typer.Option(
            "--results", help="MODEL=FOLDER with one model's pictures as MODE/IMAGE/TURN.png; may be given again."
        ),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Only this editing model; may be given again.")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option("--mode", help="Only this mode; may be given again.")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Folder or hub id of a DINO model, or none; else DINOv3 ViT-B/16.", rich_help_panel=LOOKING),
    ] = None,
    quality: Annotated[
        str, typer.Option(help="auto (HPSv3 where installed), hpsv3 or none.", rich_help_panel=LOOKING)
    ] = "auto",
    settings: SettingsFile = None,
    options: Annotated[BatchOptions, Default(concurrency=8)],
) -> int:
    """Judge results by objects, turn by turn, into a run that can be continued, traced and reported.

    Several models share one run, at once or one after another; what is judged already is not judged again.

    Example: editloupe edival evaluate chains results --out runs/edival --judge openai:qwen2.5-vl-7b --base-url http://localhost:8000/v1
    """
    by_model = _folders_by_model(of_models or ())
    if results is None and not by_model:
        raise UserError(
            "there is nothing to judge: name a folder of results, or one a model with --results MODEL=FOLDER"
        )
    spec = judge.named or RULES
    if spec == RULES:
        tell("no LMM given with --judge: color, material, text and background changes will be left unjudged")
    chosen = judge.chosen()
    tools = chosen.tool_settings()
    open_judge = OpenEdivalJudge(
        spec,
        rules=rules_of(chosen, settings),
        tools=tools,
        features=None
        if features == "none"
        else FeatureSettings(features or DINO_V3, tools.detector_download, tools.device, tools.precision),
        quality=quality,
        base_url=judge.base_url,
        criteria=tuple(judge.criteria or CRITERIA),
        settings=chosen.judge_settings(),
        worded=_worded(judge.rubrics or ()),
    )
    open_judge.instruments()  # one that cannot be used is told before anything is read or written
    wanted = find_evaluation(chains, results, model or (), mode or (), by_model)
    there = [f"{one.model}/{one.mode}: {one.there} of {one.expected}" for one in wanted.expected()]
    closing = Closing(
        ("edival", "report"), {"pictures": there, "setup": chosen.name}, [f"pictures: {'; '.join(there)}"]
    )
    return judge_into_run(options.batch(wanted.edits, out, open_judge, assume=assumed), options, closing)


def rules_of(chosen: Setup, file: Path | None) -> EdivalSettings:
    """Return the rules of a set-up, with what a settings file changes in the published ones in their place."""
    usual, given = published().model_dump(), load_settings(file).model_dump()
    rules = chosen.rule_settings()
    named = rules if isinstance(rules, EdivalSettings) else published()
    return named.but({name: value for name, value in given.items() if value != usual[name]})


def _worded(files: Sequence[Path]) -> Rubric | None:
    """Return the rubric in the words of the user's files; a criterion of one's own has no place in a chain's arithmetic."""
    if not files:
        return None
    found = reworded_protocol(PROTOCOL, files)
    if found.beside:
        raise UserError(
            f"chains are asked no criteria of your own, such as {found.beside[0]}; --rubric takes other words"
        )
    return found.rubric(FOLLOWING)


def _folders_by_model(given: Sequence[str]) -> dict[str, Path]:
    """Read MODEL=FOLDER; a model may be named once."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, folder = (part.strip() for part in text.partition("="))
        if not (name and equals and folder):
            raise UserError(f'"{text}" is not MODEL=FOLDER; write for instance --results kontext=outputs/kontext')
        if "/" in name:
            raise UserError(f'"{name}" cannot be the name of a model: it holds a slash')
        if name in found:
            raise UserError(f"--results names {name} twice")
        found[name] = Path(folder)
    return found
