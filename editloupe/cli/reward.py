"""`editloupe reward`: how often a judge puts the better of two candidates first."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import tell
from editloupe.cli.splice import Without, spliced
from editloupe.evals.manifests.pairs import load_pairs
from editloupe.evals.reward import Accuracy, PairReport, judge_pairs
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, known_protocol
from editloupe.safe_text import for_json, one_line
from editloupe.storable import record_json
from editloupe.types import UserError
from editloupe.whole_files import write_text


@spliced
def reward(
    pairs: Annotated[Path, typer.Argument(help="A .json or .jsonl file of preference pairs.")],
    given: Annotated[JudgeOptions, Without("criteria")],
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Both candidates in one question, in both orders.")
    ] = False,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests under way at one time.")] = 32,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first pairs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print accuracies and every pair as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write one line of JSON a pair into this file.")] = None,
) -> int:
    """Judge preference pairs and say how often the judge agrees with people.

    Example: editloupe reward reward_eval.json --judge openai:gpt-5.1 --pairwise
    """
    # Which criteria make up a reward is the protocol's to say, so none can be chosen.
    given = replace(given, protocol=None if given.rubrics else given.protocol or DEFAULT_FOR_PAIRS.name)
    with given.open() as judge:
        known = known_protocol(judge.protocol)
        if pairwise and not (known and known.pairs):
            raise UserError(f"--pairwise goes with --protocol {DEFAULT_FOR_PAIRS.name}")
        given.announce()
        read = list(itertools.islice(load_pairs(pairs, judge.protocol), limit))
        report = judge_pairs(read, judge, "pairwise" if pairwise else "pointwise", concurrency)
    if out:
        write_text(out, "".join(record_json(result) + "\n" for result in report.results))
    if as_json:
        print(for_json(as_record(report), 2))
    else:
        show(report, Console(highlight=False))
    return 0 if report.overall.judged == report.overall.pairs else 3


def as_record(report: PairReport) -> dict[str, object]:
    """Return a report as plain JSON, with the shares worked out."""

    def counted(found: Accuracy) -> dict[str, object]:
        return {"accuracy": found.share, **found.model_dump()}

    return {
        **report.model_dump(mode="json", exclude={"overall", "by_dimension"}),
        "overall": counted(report.overall),
        "by_dimension": {name: counted(found) for name, found in report.by_dimension.items()},
    }


def show(report: PairReport, console: Console) -> None:
    """Print the accuracies for a person."""
    table = Table(box=None, header_style="bold")
    for name in ("dimension", "accuracy", "right", "judged", "pairs"):
        table.add_column(name, justify="left" if name == "dimension" else "right")
    for name, found in (*report.by_dimension.items(), ("overall", report.overall)):
        share = "–" if found.share is None else f"{found.share:.4f}"
        table.add_row(Text(one_line(name)), share, str(found.correct), str(found.judged), str(found.pairs))
    console.print(table)
    if report.way == "pairwise":
        console.print(
            f"the two orders contradict each other in {report.overall.inconsistent} pairs, which count as wrong"
        )
    for why in sorted({result.why for result in report.results if result.why})[:3]:
        tell(f"unjudged, for instance: {why}")
