"""The command `editloupe agree`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import for_json
from editloupe.cli.output import choose_format, choose_width, deliver, tell
from editloupe.cli.report import EveryConfiguration, Human, ProtocolName, Resamples, Seed

FORMATS = ("text", "json")


def agree(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    human: Human = None,
    format: Annotated[str | None, typer.Option("--format", help="text or json.")] = None,
    out: Annotated[Path | None, typer.Option(help="Output file. Default: standard output.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            help="Manifest column to group agreement by, or several separated by commas: model, instruction_type… Repeatable.",
        ),
    ] = None,
    replace_annotators: Annotated[
        bool,
        typer.Option(
            "--replace-annotators",
            help="Also test whether the judge can replace annotators; needs at least three.",
        ),
    ] = False,
    epsilon: Annotated[
        float,
        typer.Option(
            "--epsilon",
            help="Tolerance of that test: 0.2 for experts, 0.1 for crowds.",
        ),
    ] = 0.2,
    protocol: ProtocolName = None,
    configuration: EveryConfiguration = None,
    resamples: Resamples = None,
    seed: Seed = None,
) -> None:
    """Measure agreement of a run with human labels, and among people: ρ, r, MAE, accuracy, κ, α with intervals.

    Example: editloupe agree runs/gpt --human ada.csv --human bo.csv --by model
    """
    kind = choose_format(format, out, FORMATS)
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.block_types import Block, Heading
    from editloupe.evals.report.comparison_blocks import agreement_blocks
    from editloupe.evals.report.text_renderer import WIDTH, as_text
    from editloupe.evals.report.trust_blocks import replacement_blocks
    from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
    from editloupe.evals.stats.scores.run_table import read_run_tables
    from editloupe.evals.stats.trust.replace_annotators import run_annotator_tests as test_replacement

    records, blocks = {}, list[Block]()
    tables = read_run_tables(run, protocol, configuration)
    for table in tables:
        for sentence in table.notes:
            tell(sentence)
        people = load_human_labels(table, human)
        agreement = measure_agreement(table, people, by=by or ())
        tested = test_replacement(table, people, epsilon) if replace_annotators else None
        record = agreement.model_dump(mode="json")
        if tested is not None:
            record["replace_annotators"] = {name: result.model_dump(mode="json") for name, result in tested.items()}
        # Each criterion is also a key at the top level, so that `.instruction_following.spearman.value` works.
        records[table.name] = {**record["criteria"], **record}
        if len(tables) > 1:
            blocks.append(Heading(table.name))
        blocks += agreement_blocks(agreement, table.titles)
        if tested is not None:
            blocks += replacement_blocks(tested, table.titles, epsilon)
    if kind == "json":
        result = {"configurations": records} if len(tables) > 1 else next(iter(records.values()))
        deliver(for_json(result, 2) + "\n", out)
        return
    deliver(as_text(tuple(blocks), choose_width(out, WIDTH)), out)
