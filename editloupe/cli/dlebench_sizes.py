"""`editloupe make sizes`: how large the targets of benchmarks are, also of those that have no boxes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import for_json, number_of, one_line
from editloupe.cli.dlebench_make import asker, progress, told
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.manifest import manifest_blocks, manifest_names
from editloupe.cli.options import one_of
from editloupe.cli.splice import Only, spliced
from editloupe.cli.telling import tell
from editloupe.evals.manifests.datasets import Naming
from editloupe.evals.papers import layouts
from editloupe.rubrics.registry import known_paper
from editloupe.types import UserError

ASKED = ("judge", "setup", "base_url", "max_output_tokens", "timeout")
LOOKING = ("detector", "detector_download", "device", "tool_set")
LIMITS = "Limits"


@spliced
def sizes(
    manifests: Annotated[
        list[Path], typer.Argument(help=".jsonl, .csv or .parquet files; several stand beside each other.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for targets, boxes, manifests with boxes and figures.")],
    *,
    judge: Annotated[JudgeOptions, Only(*ASKED, *LOOKING)],
    layout: Annotated[
        str, typer.Option(help=f"Whose names of fields: {' or '.join(layouts.sample_layouts())}.")
    ] = layouts.PLAIN,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first samples of each.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at once.", rich_help_panel=LIMITS)] = 8,
    max_cost: Annotated[
        float | None, typer.Option(min=0, help="US dollars for the whole folder.", rich_help_panel=LIMITS)
    ] = None,
    price: Annotated[
        str | None, typer.Option(help="INPUT,OUTPUT[,CACHED] in dollars a million tokens.", rich_help_panel=LIMITS)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would take.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Measure how much of their pictures targets take: a model names each target, the detector finds it, given boxes stay.

    Example: editloupe make sizes bench/manifest.jsonl other.jsonl --out sizes --judge openai:gpt-5.1
    """
    from editloupe.evals.batch.replies import KeptWhileUnderWay
    from editloupe.evals.making.costs import Ledger
    from editloupe.evals.making.dlebench_sizes import SizeFinder
    from editloupe.evals.making.output import FIGURES, save_figures
    from editloupe.evals.making.pipeline import locked
    from editloupe.evals.runs.prices import parse_price, price_of
    from editloupe.tools.grounding import GroundingDino

    paper = known_paper(one_of("--layout", layout, layouts.sample_layouts()))
    named = manifest_names(manifests)
    work = SizeFinder(out, concurrency=concurrency, limit=limit, tick=progress(quiet))
    lock = locked(out)
    try:
        naming: Naming | None = paper.fields if paper else None
        wanted: dict[Path, Naming | None] = dict.fromkeys(named, naming)
        missing = work.instructions(wanted)
        priced = parse_price(price) if price else price_of(judge.named) if judge.named else None
        if dry_run:
            return _forecast(missing, priced)
        work.kept = KeptWhileUnderWay(out)
        ledger = Ledger(out, max_cost)
        if missing:
            work.asker = asker(judge, 2, ledger, work.kept, priced, concurrency, "targets")
            if work.asker is None:
                raise UserError(
                    f"{number_of(len(missing), 'instruction')} without target boxes: name a model with --judge"
                )
        detector = GroundingDino(judge.chosen().tool_settings())
        problem = detector.unavailable()
        work.detector = None if problem else detector
        found = asyncio.run(work.run(wanted, named))
        drawn = save_figures(found, out / FIGURES)
    finally:
        lock.release()
    for tally in work.tallies:
        tell(one_line(told(tally)))
        if tally.stage == "boxes" and tally.waiting:
            tell(f"{number_of(tally.waiting, 'target')} not looked for, because the detector cannot be used: {problem}")
    tell(f"{number_of(drawn, 'figure')} in {out / FIGURES}; ${ledger.spent:.4f} spent")
    if as_json:
        print(for_json({"manifests": [one.model_dump(mode="json") for one in found]}, 2))
    else:
        from editloupe.evals.report.text import as_text

        sys.stdout.write(as_text(list(manifest_blocks(found)), 120))
    return 3 if any(tally.failed or (tally.waiting and tally.total) for tally in work.tallies) else 0


def _forecast(missing: list[str], priced: object) -> int:
    from editloupe.agent.usage import CHARACTERS_A_TOKEN
    from editloupe.evals.making.dlebench_metadata import prompts
    from editloupe.evals.making.dlebench_sizes import TOKENS_A_REPLY
    from editloupe.evals.runs.prices import Price
    from editloupe.types import Usage

    fixed = len(prompts()["targets"]["task"]) + len(prompts()["targets"]["system"])
    read = sum((fixed + len(text)) // CHARACTERS_A_TOKEN for text in missing)
    usage = Usage(requests=len(missing), input_tokens=read, output_tokens=TOKENS_A_REPLY * len(missing))
    cost = f"about ${priced.cost(usage):.2f}" if isinstance(priced, Price) else "price unknown"
    print(f"targets: {number_of(len(missing), 'request')}, about {read + usage.output_tokens} tokens, {cost}")
    return 0
