"""The commands `editloupe make dlebench` and `make sizes`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import for_json, format_command, number_of, one_line, verb
from editloupe.cli.batch import DryRun
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.manifest import SampleLayout, manifest_blocks, manifest_names
from editloupe.cli.options import Only, Visible, check_choice, expand_options
from editloupe.cli.output import AsJson, Quiet, build_progress, tell
from editloupe.evals.manifests import layouts
from editloupe.evals.manifests.columns import find_samples
from editloupe.rubrics.registry import find_paper
from editloupe.types import Usage, UserError

if TYPE_CHECKING:
    from editloupe.agent.asker import Asker
    from editloupe.evals.batch.work_items import ItemTally
    from editloupe.evals.runs.prices import Price
    from editloupe.making.folder import Ledger, MakingFolder, MakingSettings
    from editloupe.making.pipeline import Pipeline, StageForecast
    from editloupe.making.references import ReferenceMaker

ASKED = ("judge", "setup", "base_url", "max_output_tokens", "timeout")
LOOKING = ("detector", "detector_download", "device", "tool_set")
EDITING, LIMITS = "Who edits", "Limits"
PEOPLE, DETECTOR = "people", "detector"
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="Concurrent requests.", rich_help_panel=LIMITS)]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", min=0, help="Limit for the whole folder, in US dollars.", rich_help_panel=LIMITS),
]

JudgePrice = Annotated[
    str | None,
    typer.Option(
        "--price",
        help="Price of the judge: INPUT,OUTPUT[,CACHED] in US dollars per million tokens.",
        rich_help_panel=LIMITS,
    ),
]


@expand_options
def dlebench(
    questions: Annotated[
        Path,
        typer.Argument(
            help="Questions with picture, options and answer (.jsonl, .json, .csv, .tsv, .parquet), or the folder of V*-Bench."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the benchmark. Run the same command again to continue.")],
    *,
    judge: Annotated[JudgeOptions, Only(*ASKED, *LOOKING), Visible(*ASKED, *LOOKING)],
    boxes: Annotated[
        str,
        typer.Option(help="people (confirm the detector's boxes in the studio) or detector (use them as they are)."),
    ] = PEOPLE,
    editor: Annotated[
        str | None,
        typer.Option(
            help="Image model, such as openai:gpt-image-1 or google_genai:gemini-3-pro-image, or a folder of hand-edited crops.",
            rich_help_panel=EDITING,
        ),
    ] = None,
    editor_url: Annotated[
        str | None,
        typer.Option(help="A server that is compatible with the editor's provider.", rich_help_panel=EDITING),
    ] = None,
    editor_price: Annotated[
        float | None, typer.Option(min=0, help="US dollars per picture.", rich_help_panel=EDITING)
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder of the pictures. Default: the folder of the question set.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Name of the question set in the data card.")] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the pictures, if the rows do not name it.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of `make dlebench`, such as ocr_operation=alter_text or reviewers=2. Repeatable.",
        ),
    ] = None,
    again: Annotated[
        list[str] | None,
        typer.Option(help="Try again what was left out of metadata, boxes or references. Repeatable."),
    ] = None,
    unreviewed: Annotated[
        bool,
        typer.Option("--unreviewed", help="Also write samples without a review to the manifest, marked as such."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N questions.")] = None,
    concurrency: Concurrency = 8,
    max_cost: MaxCost = None,
    price: JudgePrice = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> int:
    """Make small-object edit samples with references from questions about pictures. Run the same command again to continue.

    Questions become metadata (a model), boxes (the data, a detector, people in the studio), references (an image editor) and,
    once people have reviewed them, a manifest and a data card.

    Example: editloupe make dlebench questions.jsonl --out bench --judge openai:gpt-5.1 --editor openai:gpt-image-1
    """
    from editloupe.making.folder import Ledger, MakingFolder, update_settings
    from editloupe.making.pipeline import AGAIN, Pipeline, lock_folder
    from editloupe.making.questions import name_question_set

    if boxes not in (PEOPLE, DETECTOR):
        raise UserError(f'--boxes is {PEOPLE} or {DETECTOR}, not "{boxes}"')
    if unknown := [name for name in again or () if name not in AGAIN]:
        raise UserError(f'--again is one of {", ".join(AGAIN)}, not "{unknown[0]}"')
    if not questions.exists():
        raise UserError(f"no question set was found at {questions}")
    chosen = update_settings(out, settings or (), name_question_set(questions), source, licence)
    about = chosen.about(name_question_set(questions))
    folder = MakingFolder(out, create=True)
    lock = lock_folder(out)
    try:
        ledger = Ledger(out, max_cost)
        work = Pipeline(
            folder,
            ledger,
            concurrency=concurrency,
            limit=limit,
            again=frozenset(again or ()),
            tick=build_progress(quiet),
        )
        work.read(questions, about.source, about.licence, pictures)
        priced = _price(judge, price)
        if dry_run:
            from editloupe.making.dlebench_metadata import build_task, draw_option

            expected = work.forecast(
                priced, editor_price, lambda one: build_task(one, chosen, draw_option(one, chosen))
            )
            return _print_forecast(expected, ledger, as_json)
        _open_models(work, judge, chosen, boxes, _editor(folder, ledger, editor, editor_url, editor_price), priced)
        try:
            asyncio.run(work.run())
        finally:
            _write_results(folder, ledger, unreviewed)
    finally:
        lock.release()
    return _print_ending(work, folder, ledger, unreviewed, as_json)


def _open_models(
    work: Pipeline,
    judge: JudgeOptions,
    chosen: MakingSettings,
    boxes: str,
    references: ReferenceMaker | None,
    priced: Price | None,
) -> None:
    """Open the models for metadata, boxes and references."""
    from editloupe.evals.batch.work_items import TemporaryReplies
    from editloupe.making.dlebench_metadata import MetadataMaker
    from editloupe.tools.detect import build_detector

    work.kept = TemporaryReplies(work.folder.path)
    work.references = references
    work.asker = open_asker(judge, chosen.repairs, work.ledger, work.kept, priced, work.concurrency, "metadata")
    if work.asker is not None:
        work.maker = MetadataMaker(work.asker, chosen)
    looking = judge.preset().tool_settings()
    detector = build_detector(looking)
    problem = detector.unavailable()
    if problem is None:
        work.detector, work.detector_name = detector, f"detector {looking.detector}"
        work.trust_detector = boxes == DETECTOR
    elif boxes == DETECTOR:
        raise UserError(f"the detector cannot be used: {problem}")


def open_asker(
    judge: JudgeOptions,
    repairs: int,
    ledger: Ledger,
    replies: object,
    priced: Price | None,
    concurrency: int,
    stage: str,
) -> Asker | None:
    """Return the model that writes metadata, with its requests counted and limited; None if no judge is named."""
    from editloupe.agent.asker import Asker
    from editloupe.agent.open_model import open_chat
    from editloupe.agent.spec_names import RULES
    from editloupe.agent.specs import format_specs
    from editloupe.evals.batch.traffic import Limits, Spending, TrafficControl
    from editloupe.evals.batch.work_items import current_work

    spec = judge.spec
    if spec is None:
        return None
    if spec == RULES:
        raise UserError(f"this needs a model that reads and writes: name one with --judge {format_specs(' or ')}")
    limits = Limits(concurrency=concurrency, max_cost=ledger.cap)
    spending = Spending(limits, priced, Usage(requests=ledger.requests), ledger.spent)

    def record_cost(judge: str, usage: Usage, cost: float | None) -> None:
        under_way = current_work()
        ledger.pay(under_way.edit_id if under_way else "", stage, judge or str(spec), usage, cost)

    traffic = TrafficControl(limits, spending, record_cost)
    chat = open_chat(spec, judge.base_url, judge.settings(), replies, traffic)  # type: ignore[arg-type]
    return Asker(chat, spec, repairs)


def _price(judge: JudgeOptions, price: str | None) -> Price | None:
    from editloupe.evals.runs.prices import parse_price, price_of

    return parse_price(price) if price else price_of(judge.spec) if judge.spec else None


def _editor(
    folder: MakingFolder, ledger: Ledger, editor: str | None, url: str | None, price: float | None
) -> ReferenceMaker | None:
    """Return the maker of references: an image model, or a folder of hand-edited crops."""
    from editloupe.evals.runs.prices import price_of
    from editloupe.making.references import HandFolder, ReferenceMaker, open_editor

    if editor is None:
        return None
    if Path(editor).is_dir():
        return ReferenceMaker(folder, ledger, by_hand=HandFolder(Path(editor)))
    if ":" not in editor:
        raise UserError(f"{editor} is neither a folder nor an image model such as openai:gpt-image-1")
    by_tokens = price_of(editor)
    if ledger.cap is not None and price is None and by_tokens is None:
        raise UserError(f"--max-cost needs a price, and that of {editor} is unknown; give --editor-price")
    return ReferenceMaker(folder, ledger, open_editor(editor, url), price=price, token_price=by_tokens)


def _write_results(folder: MakingFolder, ledger: Ledger, unreviewed: bool) -> None:
    from editloupe.evals.manifests.stats import manifest_stats
    from editloupe.making.export import FIGURES, MANIFEST, save_figures, write_card, write_manifest

    folder.refresh()
    count = write_manifest(folder, unreviewed)
    write_card(folder, ledger, unreviewed)
    if count:
        save_figures([manifest_stats(folder.path / MANIFEST)], folder.path / FIGURES)


def _print_forecast(forecasts: list[StageForecast], ledger: Ledger, as_json: bool) -> int:
    if as_json:
        facts = [
            {
                "stage": forecast.stage,
                "samples": forecast.samples,
                "usage": forecast.usage.model_dump(),
                "dollars": forecast.dollars,
            }
            for forecast in forecasts
        ]
        print(for_json({"stages": facts, "spent": ledger.spent}, 2))
        return 0
    for forecast in forecasts:
        cost = "price unknown" if forecast.dollars is None else f"about ${forecast.dollars:.2f}"
        tokens = forecast.usage.input_tokens + forecast.usage.output_tokens
        print(
            f"{forecast.stage}: {number_of(forecast.samples, 'request')}"
            + (f", about {tokens} tokens" if tokens else "")
            + f", {cost}"
        )
    print(f"spent so far: ${ledger.spent:.4f}" + (f"; the cap is ${ledger.cap:g}" if ledger.cap is not None else ""))
    return 0


def _print_ending(work: Pipeline, folder: MakingFolder, ledger: Ledger, unreviewed: bool, as_json: bool) -> int:
    from editloupe.making.export import MANIFEST, manifest_rows
    from editloupe.making.references import CROPS, TODO_LIST

    steps, count = folder.steps(), sum(1 for _ in manifest_rows(folder, unreviewed))
    failed = sum(len(tally.failed) for tally in work.tallies)
    if as_json:
        facts = {tally.stage: vars(tally) for tally in work.tallies}
        print(
            for_json({"stages": facts, "samples": dict(steps), "manifest": count, "dollars": round(ledger.spent, 6)}, 2)
        )
        return 3 if failed else 0
    for tally in work.tallies:
        print(one_line(format_tally(tally)))
        failing = {name: why for name, why in tally.failed.items() if why != tally.stopped}
        for name, why in sorted({**tally.left_out, **failing}.items())[:20]:
            tell(f"{tally.stage}, {name}: {why}")
        if tally.stopped:
            samples = number_of(len(tally.failed) - len(failing), "sample")
            tell(f"{tally.stage}: {tally.stopped}: {samples} left; a larger --max-cost goes on from here")
        if tally.note:
            tell(tally.note)
    print(f"{number_of(count, 'sample')} in {one_line(str(folder.path / MANIFEST))}; ${ledger.spent:.4f} spent")
    if again := sum(why != tally.stopped for tally in work.tallies for why in tally.failed.values()):
        tell(f"{number_of(again, 'sample')} failed; the same command tries again")
    workers = {"metadata": work.maker, "reference": work.references, "regenerate": work.references}
    for step, sentence in _NEXT.items():
        if steps[step] and workers.get(step) is None:
            count = steps[step]
            words = {"samples": number_of(count, "sample"), "questions": number_of(count, "question")}
            words |= {"wait": verb(count, "waits", "wait"), "are": verb(count, "is", "are")}
            words |= {"references": number_of(count, "reference")}
            tell(sentence.format(**words, studio=format_command("editloupe", "studio", folder.path)))
    by_hand, crops = work.references.by_hand if work.references else None, work.tallies[-1].waiting
    if by_hand is not None and crops:
        crops_folder = one_line(str(folder.path / CROPS))
        tell(
            f"{number_of(crops, 'crop')} {verb(crops, 'waits', 'wait')} in {crops_folder} to be edited; see {TODO_LIST} there: "
            f"put edited ones under the same names into {one_line(str(by_hand.path))}"
        )
    return 3 if failed else 0


_NEXT = {
    "metadata": "{questions} {wait} for a model: name one with --judge",
    "boxes": "{samples} {wait} for boxes: {studio}",
    "confirm boxes": "{samples} {wait} for people to confirm boxes: {studio}",
    "reference": "{samples} {wait} for references: name an image model or a folder with --editor",
    "regenerate": "{references} {are} to be made again: name an image model or a folder with --editor",
    "review": "{samples} {wait} for review: {studio}",
    "disputed": "{samples} {are} disputed and {wait} for one more reviewer: {studio}",
}


def format_tally(tally: ItemTally) -> str:
    """Return what became of a stage's samples, in a line."""
    parts = [f"{tally.made} made", f"{tally.held} held before"]
    parts += [
        f"{count} {word}" for count, word in ((tally.waiting, "waiting"), (len(tally.left_out), "left out")) if count
    ]
    return f"{tally.stage}: {', '.join(parts)}" + (f", {len(tally.failed)} failed" if tally.failed else "")


@expand_options
def sizes(
    manifests: Annotated[
        list[Path], typer.Argument(help=".jsonl, .csv or .parquet files. Several are compared side by side.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for targets, boxes, manifests with boxes, and figures.")],
    *,
    judge: Annotated[JudgeOptions, Only(*ASKED, *LOOKING), Visible(*ASKED, *LOOKING)],
    layout: SampleLayout = layouts.PLAIN,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N samples of each manifest.")] = None,
    concurrency: Concurrency = 8,
    max_cost: MaxCost = None,
    price: JudgePrice = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:
    """Measure the area of targets: a model names each target and the detector finds it. Existing boxes are kept.

    Example: editloupe make sizes bench/manifest.jsonl other.jsonl --out sizes --judge openai:gpt-5.1
    """
    from editloupe.evals.batch.work_items import TemporaryReplies
    from editloupe.evals.runs.prices import parse_price, price_of
    from editloupe.making.dlebench_sizes import SizeFinder
    from editloupe.making.export import FIGURES, save_figures
    from editloupe.making.folder import Ledger
    from editloupe.making.pipeline import lock_folder
    from editloupe.tools.detect import build_detector

    paper = find_paper(check_choice("--layout", layout, layouts.sample_layouts()))
    names = manifest_names(manifests)
    work = SizeFinder(out, concurrency=concurrency, limit=limit, tick=build_progress(quiet))
    lock = lock_folder(out)
    try:
        samples_of = {path: find_samples(path, paper, {}) for path in names}
        names = {samples_of[path][0]: name for path, name in names.items()}
        samples = dict(samples_of.values())
        missing = work.instructions(samples)
        priced = parse_price(price) if price else price_of(judge.spec) if judge.spec else None
        if dry_run:
            return _print_size_forecast(missing, priced)
        work.kept = TemporaryReplies(out)
        ledger = Ledger(out, max_cost)
        if missing:
            work.asker = open_asker(judge, 2, ledger, work.kept, priced, concurrency, "targets")
            if work.asker is None:
                raise UserError(
                    f"{number_of(len(missing), 'instruction')} without target boxes: name a model with --judge"
                )
        detector = build_detector(judge.preset().tool_settings())
        problem = detector.unavailable()
        work.detector = None if problem else detector
        statistics = asyncio.run(work.run(samples, names))
        figures = save_figures(statistics, out / FIGURES)
    finally:
        lock.release()
    for tally in work.tallies:
        tell(one_line(format_tally(tally)))
        if tally.stage == "boxes" and tally.waiting:
            tell(f"{number_of(tally.waiting, 'target')} not looked for, because the detector cannot be used: {problem}")
    tell(f"{number_of(figures, 'figure')} in {out / FIGURES}; ${ledger.spent:.4f} spent")
    if as_json:
        print(for_json({"manifests": [row.model_dump(mode="json") for row in statistics]}, 2))
    else:
        from editloupe.evals.report.text_renderer import as_text

        sys.stdout.write(as_text(list(manifest_blocks(statistics)), 120))
    return 3 if any(tally.failed or (tally.waiting and tally.total) for tally in work.tallies) else 0


def _print_size_forecast(missing: list[str], priced: object) -> int:
    from editloupe.agent.transport.usage import CHARACTERS_PER_TOKEN
    from editloupe.evals.runs.prices import Price
    from editloupe.making.dlebench_metadata import load_prompts
    from editloupe.making.dlebench_sizes import TOKENS_A_REPLY
    from editloupe.types import Usage

    fixed = len(load_prompts()["targets"]["task"]) + len(load_prompts()["targets"]["system"])
    read = sum((fixed + len(text)) // CHARACTERS_PER_TOKEN for text in missing)
    usage = Usage(requests=len(missing), input_tokens=read, output_tokens=TOKENS_A_REPLY * len(missing))
    cost = f"about ${priced.cost(usage):.2f}" if isinstance(priced, Price) else "price unknown"
    print(f"targets: {number_of(len(missing), 'request')}, about {read + usage.output_tokens} tokens, {cost}")
    return 0
