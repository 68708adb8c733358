"""`editloupe compare`: two judges, modes or prompts on the same edits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.options import tell
from editloupe.cli.report import Human, ProtocolName, Resamples, Seed, chosen_format, deliver
from editloupe.safe_text import for_json

FORMATS = ("text", "md", "json")


def compare(
    run_a: Annotated[Path, typer.Argument(help="The folder of the first run, A.")],
    run_b: Annotated[Path, typer.Argument(help="The folder of the second run, B.")],
    human: Human = None,
    format: Annotated[str | None, typer.Option("--format", help="text, md or json.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; else the terminal.")] = None,
    protocol: ProtocolName = None,
    resamples: Resamples = 2000,
    seed: Seed = 0,
) -> None:
    """Compare two runs on the edits both judged: paired difference, disagreements, and who is closer to people.

    Example: editloupe compare runs/gpt-tools runs/gpt-plain
    """
    kind = chosen_format(format, out, FORMATS)
    from editloupe.evals.analysis.bootstrap import Resampling
    from editloupe.evals.analysis.compare import compare as compared
    from editloupe.evals.analysis.run_rows import table_of
    from editloupe.evals.report.agreement_blocks import comparison_blocks
    from editloupe.evals.report.markdown import as_markdown
    from editloupe.evals.report.text import as_text

    a, b = table_of(run_a, protocol), table_of(run_b, protocol)
    for table in (a, b):
        for sentence in table.damage:
            tell(f"{table.name}: {sentence}")
    found = compared(a, b, human, Resampling(resamples, seed))
    if kind == "json":
        deliver(for_json(found.model_dump(mode="json"), 2) + "\n", out)
        return
    blocks = tuple(comparison_blocks(found, {name: a.title_of(name) for name in a.criteria}))
    deliver(as_markdown(blocks) if kind == "md" else as_text(blocks), out)
