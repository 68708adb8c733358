"""`editloupe agree`: how well a run's verdicts agree with people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import for_json
from editloupe.cli.output import chosen_format, deliver, tell, width_for
from editloupe.cli.report import Human, ProtocolName, Resamples, Seed

FORMATS = ("text", "json")


def agree(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    human: Human = None,
    format: Annotated[str | None, typer.Option("--format", help="text or json.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; else the terminal.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            help="A field of the manifest, or several with commas, to tell agreement by: model, instruction_type …",
        ),
    ] = None,
    replace_annotators: Annotated[
        bool,
        typer.Option(
            "--replace-annotators",
            help="Also test whether the judge may stand in for annotators; needs three of them.",
        ),
    ] = False,
    epsilon: Annotated[
        float,
        typer.Option(
            "--epsilon",
            help="How much worse than an annotator the judge may be in that test: 0.2 for experts, 0.1 for crowds.",
        ),
    ] = 0.2,
    protocol: ProtocolName = None,
    configuration: Annotated[
        str | None,
        typer.Option(
            "--configuration", help="Which judge's verdicts, where a run holds several: its name, spec or mode."
        ),
    ] = None,
    resamples: Resamples = 2000,
    seed: Seed = 0,
) -> None:
    """Compare a run's verdicts with people's labels, and people among themselves: ρ, r, MAE, accuracy, κ, α with intervals.

    Example: editloupe agree runs/gpt --human ada.csv --human bo.csv --by model
    """
    kind = chosen_format(format, out, FORMATS)
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.comparison_blocks import agreement_blocks
    from editloupe.evals.report.text_renderer import WIDTH, as_text
    from editloupe.evals.report.trust_blocks import replacement_blocks
    from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
    from editloupe.evals.stats.bootstrap import Resampling
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.trust.replace_annotators import run_annotator_tests as test_replacement

    table = read_run_table(run, protocol, configuration)
    for sentence in table.damage:
        tell(sentence)
    people = load_human_labels(table, human)
    found = measure_agreement(table, people, Resampling(resamples, seed), by=by or ())
    tested = test_replacement(table, people, epsilon) if replace_annotators else None
    if kind == "json":
        whole = found.model_dump(mode="json")
        if tested is not None:
            whole["replace_annotators"] = {name: one.model_dump(mode="json") for name, one in tested.items()}
        # Each criterion also stands at the top, so that `.instruction_following.spearman.value` is a whole path.
        deliver(for_json({**whole["criteria"], **whole}, 2) + "\n", out)
        return
    blocks = list(agreement_blocks(found, table.titles))
    if tested is not None:
        blocks += replacement_blocks(tested, table.titles, epsilon)
    deliver(as_text(tuple(blocks), width_for(out, WIDTH)), out)
