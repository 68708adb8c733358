"""The commands of `editloupe edival`: decompose, instruct, import, evaluate, report, compare and baselines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from editloupe._util.text import format_command, number_of, one_line
from editloupe.agent.asker import Asker
from editloupe.agent.open_model import open_chat
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import format_specs
from editloupe.agent.transport.attachments import wire_limits
from editloupe.cli.batch import BatchOptions, Closing, judge_into_run
from editloupe.cli.edival_report import WITHOUT_TOOLS, baselines, compare, report
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import LOOKING, Default, Only, Visible, check_choice, expand_options
from editloupe.cli.output import Quiet, build_progress, split_assignments, tell
from editloupe.evals.batch.work_items import ItemTally, TemporaryReplies
from editloupe.evals.edival.decompose import Decomposer
from editloupe.evals.edival.files import SceneFile, list_pictures, read_folder
from editloupe.evals.edival.instruct import LISTS, Instructor
from editloupe.evals.edival.judge import OpenEdivalJudge, estimate_tokens, find_evaluation
from editloupe.evals.edival.metrics import PROTOCOL
from editloupe.graphs.edival import CRITERIA, FOLLOWING
from editloupe.judge.settings import Setup, build_protocol
from editloupe.pictures.encode import LONG_SIDE
from editloupe.rubrics.edival.rules import EdivalSettings, load_published, load_settings
from editloupe.rubrics.edival.tasks import FORMS, TYPES
from editloupe.rubrics.model import Rubric
from editloupe.tools.models.detectors import WholePictureFinder
from editloupe.tools.models.features import DINO_V3, FeatureSettings
from editloupe.types import UserError

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="YAML file with thresholds and rules that replace the published ones, or paper (its own matching).",
    ),
]
LOCAL_MODELS = ("detector", "detector_download", "device")
JudgeOfCrops = Annotated[
    JudgeOptions,
    Only(*WITHOUT_TOOLS, "criteria", "tool_set", *LOCAL_MODELS),
    Visible(*LOCAL_MODELS),
]
"""The model sees crops and has no tools, so options about protocols, modes and calls do not apply."""


@expand_options
def evaluate(
    chains: Annotated[Path, typer.Argument(help="Folder written by `instruct`.")],
    results: Annotated[
        Path | None,
        typer.Argument(help="Pictures as MODEL/MODE/IMAGE/TURN.png. MODE is multi, complex or complex-NAME."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The run's folder. Run the same command again to continue.")],
    judge: JudgeOfCrops,
    of_models: Annotated[
        list[str] | None,
        typer.Option("--results", help="MODEL=FOLDER with a model's pictures as MODE/IMAGE/TURN.png. Repeatable."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Only this editing model. Repeatable.")] = None,
    mode: Annotated[list[str] | None, typer.Option("--mode", help="Only this mode. Repeatable.")] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Folder or hub id of a DINO model, or none. Default: DINOv3 ViT-B/16.", rich_help_panel=LOOKING
        ),
    ] = None,
    quality: Annotated[
        str, typer.Option(help="auto (HPSv3 if EDITLOUPE_HPSV3_PYTHON is set), hpsv3 or none.", rich_help_panel=LOOKING)
    ] = "auto",
    settings: SettingsFile = None,
    options: Annotated[BatchOptions, Default(concurrency=8)],
) -> int:
    """Judge results by objects, turn by turn, into a resumable run.

    Several models can share a run, at once or one after another. Nothing is judged twice.

    Example: editloupe edival evaluate chains results --out runs/edival --judge openai:qwen2.5-vl-7b --base-url http://localhost:8000/v1
    """
    by_model = _parse_folders(of_models or ())
    if results is None and not by_model:
        raise UserError("there is nothing to judge: name a folder of results, or use --results MODEL=FOLDER")
    spec = judge.spec or RULES
    if spec == RULES:
        tell("no LMM given with --judge: color, material, text and background changes will be left unjudged")
    chosen = judge.preset()
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
        worded=_reword_rubric(chosen, judge.rubrics or ()),
    )
    open_judge.instruments()  # report unusable ones before anything is read or written
    evaluation = find_evaluation(chains, results, model or (), mode or (), by_model)
    picture_counts = [f"{row.model}/{row.mode}: {row.there} of {row.expected}" for row in evaluation.expected()]
    closing = Closing(
        ("edival", "report"),
        {"pictures": picture_counts, "setup": chosen.name},
        [f"pictures: {'; '.join(picture_counts)}"],
    )
    return judge_into_run(options.batch(evaluation.edits, out, open_judge, assume=estimate_tokens), options, closing)


def rules_of(chosen: Setup, file: Path | None) -> EdivalSettings:
    """Return the rules of a preset, changed where a settings file differs from the published rules."""
    usual, changed = load_published().model_dump(), load_settings(file).model_dump()
    rules = chosen.rule_settings()
    preset_rules = rules if isinstance(rules, EdivalSettings) else load_published()
    return preset_rules.with_changes({name: value for name, value in changed.items() if value != usual.get(name)})


def _reword_rubric(chosen: Setup, files: Sequence[Path]) -> Rubric:
    """Return the rubric as the preset and the user's files word it.

    Criteria of the user's own are refused: chains do not score them.
    """
    protocol = build_protocol(chosen, PROTOCOL, files, chosen.judge_settings())
    if protocol.beside:
        raise UserError(
            f"chains are asked no criteria of your own, such as {protocol.beside[0]}; --rubric takes other words"
        )
    return protocol.rubric(FOLLOWING)


def _parse_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Parse MODEL=FOLDER. A model may be named once."""
    folders: dict[str, Path] = {}
    for name, folder in split_assignments(texts, "--results takes MODEL=FOLDER, such as kontext=outputs/kontext"):
        if "/" in name:
            raise UserError(f'"{name}" cannot be the name of a model: it holds a slash')
        if name in folders:
            raise UserError(f"--results names {name} twice")
        folders[name] = Path(folder)
    return folders


ASKING = ("judge", "setup", "set_values", "base_url", "max_output_tokens", "timeout")
"""Options of a model that is asked without rubrics, modes and tools."""

MOST_PROBLEMS = 20
"""Problems that are printed one by one."""
app = typer.Typer(
    help="EdiVal-Agent: chains of edits judged by objects, with checks a detector can make.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Concurrency = Annotated[int, typer.Option(min=1, help="Concurrent requests.")]


@app.command()
@expand_options
def decompose(
    images: Annotated[list[Path], typer.Argument(help="Pictures or folders of pictures.")],
    out: Annotated[Path, typer.Option(help="Output folder: a JSON file and a picture with boxes per input.")],
    judge: Annotated[JudgeOptions, Only(*ASKING, *LOCAL_MODELS, "tool_set"), Visible(*LOCAL_MODELS)],
    settings: SettingsFile = None,
    concurrency: Concurrency = 8,
    quiet: Quiet = False,
) -> int:
    """List the objects of pictures and keep those the detector finds. Run the same command again to continue.

    Example: editloupe edival decompose photos --out objects --judge openai:gpt-5.1
    """
    rules = rules_of(judge.preset(), settings)
    tools = judge.preset().tool_settings()
    finder = WholePictureFinder(tools, rules.lowest_threshold)
    if problem := finder.unavailable():
        raise UserError(f"the detector cannot be used: {problem}")
    replies = TemporaryReplies(out)
    spec, asker = _open_asker(judge, replies)
    worker = Decomposer(asker, spec, finder, tools.detector, rules, out, replies)
    pictures = list_pictures(images)
    return _print_ending(asyncio.run(worker.all(pictures, concurrency, build_progress(quiet))), out)


@app.command()
@expand_options
def instruct(
    objects: Annotated[Path, typer.Argument(help="Folder written by `decompose`.")],
    out: Annotated[Path, typer.Option(help="Output folder: one chain per picture.")],
    *,
    proposals: Annotated[
        str,
        typer.Option(
            help="lmm (the judge proposes objects and attributes) or lists (drawn from word lists, no model)."
        ),
    ] = "lmm",
    judge: Annotated[JudgeOptions, Only(*ASKING)],
    turns: Annotated[int | None, typer.Option(min=1, help="Instructions per chain; the paper has 3.")] = None,
    types: Annotated[str | None, typer.Option(help="Types in order, separated by commas. Default: random.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choices.")] = 0,
    wording: Annotated[
        str, typer.Option(help="ours, or paper (the published templates and connectors, word for word).")
    ] = "ours",
    settings: SettingsFile = None,
    concurrency: Concurrency = 8,
    quiet: Quiet = False,
) -> int:
    """Make chains of instructions, and their single-prompt forms with four connectors.

    Example: editloupe edival instruct objects --out chains --judge openai:gpt-5.1 --seed 7
    """
    if proposals not in ("lmm", LISTS):
        raise UserError(f'--proposals is lmm or lists, not "{proposals}"')
    form = cast(Any, check_choice("--wording", wording, FORMS))
    type_names = tuple(part.strip() for part in types.split(",")) if types else ()
    for name in type_names:
        if name not in TYPES:
            raise UserError(f'"{name}" is not an instruction type; choose from: {", ".join(TYPES)}')
    rules = rules_of(judge.preset(), settings).with_changes({"max_turns": turns} if turns else {})
    replies = TemporaryReplies(out)
    spec, asker = (LISTS, None) if proposals == LISTS else _open_asker(judge, replies)
    worker = Instructor(rules, objects, out, seed, asker, spec, cast(Any, type_names), replies, form)
    scenes = read_folder(objects, SceneFile)
    return _print_ending(asyncio.run(worker.all(scenes, concurrency, build_progress(quiet))), out)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The published table of instructions and object pools (CSV or JSONL).")],
    images: Annotated[
        Path, typer.Option(help="Folder or zip file of the photographs, INDEX_input_raw.jpg or INDEX.png.")
    ],
    out: Annotated[Path, typer.Option(help="Output folder: one chain per picture.")],
) -> int:
    """Import the published chains, their instructions and object pools, for `edival evaluate`.

    Rows that cannot be read are reported with their line and left out. Run the same command again to continue.

    Example: editloupe edival import oai_instruction_generation_output.csv --images input_images_resize_512.zip --out chains
    """
    from editloupe.evals.edival.import_chains import import_chains

    imported = import_chains(file, images, out)
    for sentence in imported.left_out[:MOST_PROBLEMS]:
        tell(sentence)
    if len(imported.left_out) > MOST_PROBLEMS:
        tell(f"and {len(imported.left_out) - MOST_PROBLEMS} more of this kind")
    if not imported.made and not imported.held:
        raise UserError(f"{file.name} holds no chain that can be used")
    existing = f", {imported.held} held before" if imported.held else ""
    print(one_line(f"{number_of(imported.made, 'chain')} made{existing}, {len(imported.left_out)} left out; in {out}"))
    tell(f"next: {format_command('editloupe', 'edival', 'evaluate', out)} RESULTS --out RUN --judge …")
    return 3 if imported.left_out else 0


for later in (evaluate, report, compare, baselines):
    app.command()(later)


def _open_asker(judge: JudgeOptions, replies: TemporaryReplies) -> tuple[str, Asker]:
    spec = judge.spec or RULES
    if spec == RULES:
        raise UserError(f"this needs a model that sees pictures: name one with --judge {format_specs(' or ')}")
    chat = open_chat(spec, judge.base_url, judge.settings(), replies)
    return spec, Asker(chat, spec, wire=wire_limits(LONG_SIDE, chat.profile))


def _print_ending(tally: ItemTally, out: Path) -> int:
    print(f"{tally.made} made, {tally.held} held before, {len(tally.failed)} failed; in {one_line(str(out))}")
    for name, why in sorted(tally.failed.items()):
        tell(f"{name}: {why}")
    return 3 if tally.failed else 0
