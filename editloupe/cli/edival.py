"""`editloupe edival`: decompose pictures, make chains of instructions, evaluate results, report and compare settings."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from editloupe.cli import options as o
from editloupe.safe_text import command, for_json, one_line, trace_command
from editloupe.types import Record, UserError
from editloupe.whole_files import write_text

if TYPE_CHECKING:
    from editloupe.evals.edival.asking import Asker
    from editloupe.evals.edival.kept_replies import KeptWhileUnderWay
    from editloupe.evals.edival.metrics import EdivalFigures
    from editloupe.evals.edival.picture_queue import Tally
    from editloupe.evals.report.blocks import Block
    from editloupe.rubrics.edival.scoring import Missing

app = typer.Typer(
    help="EdiVal-Agent: chains of edits judged by objects, with checks a detector can make.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="YAML with thresholds and rules to use instead of the published ones.")
]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests under way at once.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
FeatureModel = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="Folder or hub id of a DINO model, or none; else DINOv3 ViT-B/16.",
        rich_help_panel=o.LOOKING,
    ),
]
MissingRule = Annotated[
    str, typer.Option("--missing", help="complete: pictures with all turns (the paper); per_turn: as far as they got.")
]
Format = Annotated[str | None, typer.Option("--format", help="text, md, html or json; else by the suffix of --out.")]
Out = Annotated[Path | None, typer.Option(help="The file to write; else the terminal.")]


@app.command()
def decompose(
    images: Annotated[list[Path], typer.Argument(help="Pictures, or folders of them.")],
    out: Annotated[Path, typer.Option(help="The folder for one JSON and one picture with boxes each.")],
    judge_spec: o.JudgeSpec = None,
    base_url: o.BaseUrl = None,
    detector: o.DetectorChoice = None,
    detector_download: o.DetectorDownload = False,
    device: o.Device = None,
    settings: SettingsFile = None,
    max_output_tokens: o.MaxOutputTokens = None,
    timeout: o.Timeout = 90.0,
    concurrency: Concurrency = 8,
    quiet: Quiet = False,
) -> int:
    """List the objects of pictures and keep those the detector finds; the same command again does what is missing.

    Example: editloupe edival decompose photos --out objects --judge openai:gpt-5.1
    """
    from editloupe.evals.edival.decompose import Decomposer
    from editloupe.evals.edival.files import pictures_in
    from editloupe.evals.edival.kept_replies import KeptWhileUnderWay
    from editloupe.rubrics.edival.settings import load_settings
    from editloupe.tools.finders import WholePictureFinder

    rules = load_settings(settings)
    tools = _tools(detector, detector_download, device)
    finder = WholePictureFinder(tools, rules.lowest_threshold)
    if problem := finder.unavailable():
        raise UserError(f"the detector cannot be used: {problem}")
    kept = KeptWhileUnderWay(out)
    spec, asker = _asker(judge_spec, base_url, timeout, max_output_tokens, kept)
    worker = Decomposer(asker, spec, finder, tools.detector, rules, out, kept)
    pictures = pictures_in(images)
    return _ended(asyncio.run(worker.all(pictures, concurrency, _tick(len(pictures), quiet))), out)


@app.command()
def instruct(
    objects: Annotated[Path, typer.Argument(help="The folder `decompose` wrote.")],
    out: Annotated[Path, typer.Option(help="The folder for one chain a picture.")],
    proposals: Annotated[
        str,
        typer.Option(help="lmm: the judge proposes what chance leaves open; lists: drawn from word lists, no model."),
    ] = "lmm",
    judge_spec: o.JudgeSpec = None,
    base_url: o.BaseUrl = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Instructions a chain; the paper has 3.")] = None,
    types: Annotated[str | None, typer.Option(help="Types in order, with commas, instead of chance.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same choices.")] = 0,
    settings: SettingsFile = None,
    max_output_tokens: o.MaxOutputTokens = None,
    timeout: o.Timeout = 90.0,
    concurrency: Concurrency = 8,
    quiet: Quiet = False,
) -> int:
    """Make chains of instructions, and their single-prompt forms with four connectors.

    Example: editloupe edival instruct objects --out chains --judge openai:gpt-5.1 --seed 7
    """
    from editloupe.evals.edival.files import SceneFile, read_folder
    from editloupe.evals.edival.instruct import LISTS, Instructor
    from editloupe.evals.edival.kept_replies import KeptWhileUnderWay
    from editloupe.rubrics.edival.settings import load_settings
    from editloupe.rubrics.edival.tasks import TYPES

    if proposals not in ("lmm", LISTS):
        raise UserError(f'--proposals is lmm or lists, not "{proposals}"')
    wanted = tuple(part.strip() for part in types.split(",")) if types else ()
    for name in wanted:
        if name not in TYPES:
            raise UserError(f'"{name}" is no instruction type; there are: {", ".join(TYPES)}')
    rules = load_settings(settings).but({"max_turns": turns} if turns else {})
    kept = KeptWhileUnderWay(out)
    spec, asker = (
        (LISTS, None) if proposals == LISTS else _asker(judge_spec, base_url, timeout, max_output_tokens, kept)
    )
    worker = Instructor(rules, objects, out, seed, asker, spec, cast(Any, wanted), kept)
    scenes = read_folder(objects, SceneFile)
    return _ended(asyncio.run(worker.all(scenes, concurrency, _tick(len(scenes), quiet))), out)


@app.command()
def evaluate(
    chains: Annotated[Path, typer.Argument(help="The folder `instruct` wrote.")],
    results: Annotated[Path, typer.Argument(help="Pictures as MODEL/MODE/IMAGE/TURN.png; MODE is multi or complex.")],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again continues it.")],
    judge_spec: o.JudgeSpec = None,
    base_url: o.BaseUrl = None,
    criterion: o.Criteria = None,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Only this editing model; may be given again.")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option("--mode", help="Only this mode; may be given again.")] = None,
    detector: o.DetectorChoice = None,
    detector_download: o.DetectorDownload = False,
    features: FeatureModel = None,
    quality: Annotated[
        str, typer.Option(help="auto (HPSv3 where installed), hpsv3 or none.", rich_help_panel=o.LOOKING)
    ] = "auto",
    device: o.Device = None,
    settings: SettingsFile = None,
    max_repairs: o.MaxRepairs = 2,
    temperature: o.Temperature = None,
    max_output_tokens: o.MaxOutputTokens = None,
    timeout: o.Timeout = 90.0,
    concurrency: Concurrency = 8,
    max_cost: Annotated[float | None, typer.Option(min=0, help="US dollars for the whole run.")] = None,
    retry_unjudged: Annotated[bool, typer.Option("--retry-unjudged", help="Ask anew what was left unjudged.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on where the first pictures all fail in the same way.")
    ] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> int:
    """Judge results by objects, turn by turn, into a run that can be continued, traced and reported.

    Example: editloupe edival evaluate chains results --out runs/edival --judge openai:qwen2.5-vl-7b --base-url http://localhost:8000/v1
    """
    from editloupe.evals.batch.traffic import Limits
    from editloupe.evals.edival.evaluate import Evaluation
    from editloupe.evals.edival.evaluate import evaluate as judge_results
    from editloupe.evals.edival.judge import open_instruments
    from editloupe.evals.runs import summary
    from editloupe.evals.runs.store import Run
    from editloupe.graphs.edival import CRITERIA
    from editloupe.judge import JudgeSettings
    from editloupe.rubrics.edival.settings import load_settings
    from editloupe.tools.features import DINO_V3, FeatureSettings

    spec = judge_spec or os.environ.get("EDITLOUPE_JUDGE") or "rules"
    if spec == "rules":
        o.tell("no LMM given with --judge: color, material, text and background changes will be left unjudged")
    rules = load_settings(settings)
    tools = _tools(detector, detector_download, device)
    wanted_features = None
    if features != "none":
        wanted_features = FeatureSettings(features or DINO_V3, tools.detector_download, tools.device, tools.precision)
    done = judge_results(
        Evaluation(
            chains=chains,
            results=results,
            out=out,
            judge=spec,
            base_url=base_url,
            instruments=open_instruments(rules, tools, wanted_features, quality),
            rules=rules,
            criteria=tuple(criterion or CRITERIA),
            models=tuple(model or ()),
            modes=tuple(mode or ()),
            settings=JudgeSettings(
                max_repairs=max_repairs, temperature=temperature, max_output_tokens=max_output_tokens, timeout=timeout
            ),
            limits=Limits(concurrency=concurrency, max_cost=max_cost),
            retry_unjudged=retry_unjudged,
            keep_going=keep_going,
        ),
        quiet=quiet,
        signals=True,
    )
    tally = done.ending.tally
    with Run.open(out) as run:
        left = summary.unjudged(run)
    there = [f"{one.model}/{one.mode}: {one.there} of {one.expected}" for one in done.there]
    if as_json:
        facts = {"judged": tally.judged, "held": tally.held, "unjudged": dict(tally.unjudged), "missing": tally.missing}
        print(for_json({**facts, "pictures": there, "stopped": done.ending.why}, 2))
    else:
        print(f"{tally.judged} judged, {sum(tally.unjudged.values())} unjudged, {tally.held} held before")
        print("pictures: " + one_line("; ".join(there)))
    for reason, (count, example) in left.items():
        o.tell(f"{count} unjudged ({reason}), for instance: {trace_command(out, example)}")
    o.tell(f"next: {command('editloupe', 'edival', 'report', out)}")
    return done.ending.exit_code(bool(left))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run that `edival evaluate` made.")],
    format: Format = None,
    out: Out = None,
    missing: MissingRule = "complete",
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write every figure into this folder, as SVG.")
    ] = None,
) -> None:
    """Tell a run in the paper's tables, with marginal curves, Pareto fronts, and multi-turn against complex.

    Example: editloupe edival report runs/edival --format html --out edival.html
    """
    from editloupe.evals.edival.report import blocks, drawings

    found = _figures(run, missing)
    drawn = drawings(found)
    if figures:
        from editloupe.evals.report.figures import save

        for name, draw in drawn.items():
            save(draw(), figures / f"{name}.svg")
    _write(found, blocks(found), format, out, drawn)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="A run.")],
    b: Annotated[Path, typer.Argument(help="The same results judged with other settings.")],
    mode: Annotated[str, typer.Option(help="multi, complex, complex-ordered…")] = "multi",
    format: Format = None,
    out: Out = None,
    missing: MissingRule = "complete",
) -> None:
    """Correlate what two settings say of the same results, over models and turns.

    Example: editloupe edival compare runs/default runs/threshold-04
    """
    from editloupe.evals.edival import compare as comparing
    from editloupe.evals.runs.store import Run

    settings = []
    for folder in (a, b):
        with Run.open(folder) as opened:
            known = opened.about()["configurations"]
        if not known:
            raise UserError(
                f"{folder} does not say with which settings it was judged: its run.json is missing or damaged"
            )
        settings.append(known[-1])
    found = comparing.compare(_figures(a, missing), _figures(b, missing), (settings[0], settings[1]), mode)
    _write(found, comparing.blocks(found), format, out, {})


def _figures(run: Path, missing: str) -> EdivalFigures:
    from editloupe.evals.edival.metrics import figures_of
    from editloupe.rubrics.edival.scoring import Missing

    if missing not in get_args(Missing):
        raise UserError(f'--missing is one of {", ".join(get_args(Missing))}, not "{missing}"')
    return figures_of(run, cast("Missing", missing))


def _write(found: Record, blocks: list[Block], format: str | None, out: Path | None, drawn: dict[str, Any]) -> None:
    suffixes = {".html": "html", ".md": "md", ".json": "json", ".txt": "text"}
    kind = format or (suffixes.get(out.suffix.lower(), "text") if out else "text")
    if kind == "json":
        text = for_json(found.model_dump(mode="json"), 2) + "\n"
    elif kind == "md":
        from editloupe.evals.report.markdown import as_markdown

        text = as_markdown(blocks)
    elif kind == "html":
        from editloupe.evals.report.html import as_html

        text = as_html(blocks, drawn, "EdiVal-Agent", "Made by EditLoupe, `editloupe edival`.")
    elif kind == "text":
        from editloupe.evals.report.text import as_text

        text = as_text(blocks, 160)
    else:
        raise UserError(f'--format is text, md, html or json, not "{kind}"')
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    o.tell(f"written to {out}")


def _asker(
    judge_spec: str | None, base_url: str | None, timeout: float, longest: int | None, kept: KeptWhileUnderWay
) -> tuple[str, Asker]:
    from editloupe.agent.models import ModelSettings, open_chat
    from editloupe.evals.edival.asking import Asker
    from editloupe.images import WireLimits

    spec = judge_spec or os.environ.get("EDITLOUPE_JUDGE") or ""
    if spec in ("", "rules"):
        raise UserError("this needs a model that sees pictures: name one with --judge openai:NAME or google_genai:NAME")
    chat = open_chat(spec, base_url, ModelSettings(timeout=timeout, max_output_tokens=longest), kept)
    return spec, Asker(chat, WireLimits(max_bytes=chat.profile.max_image_bytes))


def _tools(detector: str | None, download: bool, device: str | None) -> Any:
    from dataclasses import replace

    from editloupe.tools.settings import ToolSettings

    given = {"detector": detector, "device": device, "detector_download": download or None}
    return replace(ToolSettings.from_environment(), **cast(Any, {k: v for k, v in given.items() if v is not None}))


def _tick(total: int, quiet: bool) -> Any:
    def tick(tally: Tally) -> None:
        if not quiet and sys.stderr.isatty():
            done = len(tally.made) + len(tally.held) + len(tally.failed)
            print(
                f"\r{done} of {total}, {len(tally.failed)} failed", end="\n" if done == total else "", file=sys.stderr
            )

    return tick


def _ended(tally: Tally, out: Path) -> int:
    print(f"{len(tally.made)} made, {len(tally.held)} held before, {len(tally.failed)} failed; in {one_line(str(out))}")
    for name, why in sorted(tally.failed.items()):
        o.tell(f"{name}: {why}")
    return 3 if tally.failed else 0
