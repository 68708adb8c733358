"""`editloupe edival`: decompose pictures, make chains of instructions, evaluate results, report and compare settings."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from editloupe._util.text import command, number_of, one_line
from editloupe.agent.asking import Asker
from editloupe.agent.open_model import open_chat
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import forms
from editloupe.agent.transport.attachments import wire_limits
from editloupe.cli.edival_baselines import baselines
from editloupe.cli.edival_evaluate import SettingsFile, evaluate, rules_of
from editloupe.cli.edival_report import compare, report
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.option_groups import Only, spliced
from editloupe.cli.options import one_of
from editloupe.cli.output import tell
from editloupe.evals.batch.work_items import ItemTally, KeptWhileUnderWay
from editloupe.evals.edival.decompose import Decomposer
from editloupe.evals.edival.files import SceneFile, pictures_in, read_folder
from editloupe.evals.edival.instruct import LISTS, Instructor
from editloupe.pictures.encode import LONG_SIDE
from editloupe.rubrics.edival.tasks import FORMS, TYPES
from editloupe.tools.models.detectors import WholePictureFinder
from editloupe.types import UserError

ASKING = ("judge", "setup", "base_url", "max_output_tokens", "timeout")
"""What says how a model is asked about one picture without rubrics, modes and tools."""

MOST_TOLD = 20
"""Problems that are told one by one."""
app = typer.Typer(
    help="EdiVal-Agent: chains of edits judged by objects, with checks a detector can make.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Concurrency = Annotated[int, typer.Option(min=1, help="Requests under way at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


@app.command()
@spliced
def decompose(
    images: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The folder for one JSON and one picture with boxes each.")],
    judge: Annotated[JudgeOptions, Only(*ASKING, "detector", "detector_download", "device", "tool_set")],
    settings: SettingsFile = None,
    concurrency: Concurrency = 8,
    quiet: Quiet = False,
) -> int:
    """List the objects of pictures and keep those the detector finds; the same command again does what is missing.

    Example: editloupe edival decompose photos --out objects --judge openai:gpt-5.1
    """
    rules = rules_of(judge.chosen(), settings)
    tools = judge.chosen().tool_settings()
    finder = WholePictureFinder(tools, rules.lowest_threshold)
    if problem := finder.unavailable():
        raise UserError(f"the detector cannot be used: {problem}")
    kept = KeptWhileUnderWay(out)
    spec, asker = _asker(judge, kept)
    worker = Decomposer(asker, spec, finder, tools.detector, rules, out, kept)
    pictures = pictures_in(images)
    return _ended(asyncio.run(worker.all(pictures, concurrency, _tick(quiet))), out)


@app.command()
@spliced
def instruct(
    objects: Annotated[Path, typer.Argument(help="The folder `decompose` wrote.")],
    out: Annotated[Path, typer.Option(help="The folder for one chain a picture.")],
    *,
    proposals: Annotated[
        str,
        typer.Option(help="lmm: the judge proposes what chance leaves open; lists: drawn from word lists, no model."),
    ] = "lmm",
    judge: Annotated[JudgeOptions, Only(*ASKING)],
    turns: Annotated[int | None, typer.Option(min=1, help="Instructions a chain; the paper has 3.")] = None,
    types: Annotated[str | None, typer.Option(help="Types in order, with commas, instead of chance.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same choices.")] = 0,
    wording: Annotated[
        str, typer.Option(help="ours, or paper: the published templates and connectors, word for word.")
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
    form = cast(Any, one_of("--wording", wording, FORMS))
    wanted = tuple(part.strip() for part in types.split(",")) if types else ()
    for name in wanted:
        if name not in TYPES:
            raise UserError(f'"{name}" is no instruction type; there are: {", ".join(TYPES)}')
    rules = rules_of(judge.chosen(), settings).but({"max_turns": turns} if turns else {})
    kept = KeptWhileUnderWay(out)
    spec, asker = (LISTS, None) if proposals == LISTS else _asker(judge, kept)
    worker = Instructor(rules, objects, out, seed, asker, spec, cast(Any, wanted), kept, form)
    scenes = read_folder(objects, SceneFile)
    return _ended(asyncio.run(worker.all(scenes, concurrency, _tick(quiet))), out)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The released table of instructions and object pools: CSV or JSONL.")],
    images: Annotated[
        Path, typer.Option(help="The photographs, INDEX_input_raw.jpg or INDEX.png: a folder or a zip file.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for one chain a picture.")],
) -> int:
    """Read released chains, their instructions and object pools as they are, for `edival evaluate`.

    The same command again does what is missing. Rows that cannot be read are told with their line and left out.

    Example: editloupe edival import oai_instruction_generation_output.csv --images input_images_resize_512.zip --out chains
    """
    from editloupe.evals.edival.import_chains import import_chains

    found = import_chains(file, images, out)
    for sentence in found.left_out[:MOST_TOLD]:
        tell(sentence)
    if len(found.left_out) > MOST_TOLD:
        tell(f"and {len(found.left_out) - MOST_TOLD} more of this kind")
    if not found.made and not found.held:
        raise UserError(f"{file.name} holds no chain that can be used")
    kept = f", {found.held} held before" if found.held else ""
    print(one_line(f"{number_of(found.made, 'chain')} made{kept}, {len(found.left_out)} left out; in {out}"))
    tell(f"next: {command('editloupe', 'edival', 'evaluate', out)} RESULTS --out RUN --judge …")
    return 3 if found.left_out else 0


for later in (evaluate, report, compare, baselines):
    app.command()(later)


def _asker(judge: JudgeOptions, kept: KeptWhileUnderWay) -> tuple[str, Asker]:
    spec = judge.named or RULES
    if spec == RULES:
        raise UserError(f"this needs a model that sees pictures: name one with --judge {forms(' or ')}")
    chat = open_chat(spec, judge.base_url, judge.settings(), kept)
    return spec, Asker(chat, spec, wire=wire_limits(LONG_SIDE, chat.profile))


def _tick(quiet: bool) -> Callable[[ItemTally], None]:
    def tick(tally: ItemTally) -> None:
        if not quiet and sys.stderr.isatty():
            ends = "\n" if tally.done == tally.total else ""
            print(f"\r{tally.done} of {tally.total}, {len(tally.failed)} failed", end=ends, file=sys.stderr)

    return tick


def _ended(tally: ItemTally, out: Path) -> int:
    print(f"{tally.made} made, {tally.held} held before, {len(tally.failed)} failed; in {one_line(str(out))}")
    for name, why in sorted(tally.failed.items()):
        tell(f"{name}: {why}")
    return 3 if tally.failed else 0
