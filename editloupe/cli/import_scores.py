"""The command `editloupe import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import number_of, verb
from editloupe.cli.output import tell


def import_command(
    scores: Annotated[
        Path, typer.Argument(help="A JSONL, CSV or Parquet file of scores, or results of the benchmark's own script.")
    ],
    judge: Annotated[str, typer.Option("--judge", help="Name of the judge that gave the scores.")],
    protocol: Annotated[
        str, typer.Option("--protocol", help="Protocol whose criteria were scored; own for any other criteria.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The run: a new folder, or one with imported verdicts.")],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="FIELD=COLUMN,…",
            help="Columns that hold the edit's fields and the criteria under other names: id=uid,quality=score. Repeatable.",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale",
            metavar="LOW..HIGH",
            help="Range of the numbers in the file, mapped to the criterion's scale. Default: the criterion's own.",
        ),
    ] = None,
    rubric: Annotated[
        list[Path] | None, typer.Option("--rubric", help="Rubric file with criteria of your own. Repeatable.")
    ] = None,
) -> None:
    """Import verdicts that were made elsewhere into a run, so that report, agree and compare can use them.

    A row is an edit with a column per criterion, or one verdict with the columns criterion and score or label. Pictures and
    instructions are optional. There are no traces. Importing a file again adds nothing.

    Example: editloupe import scores.csv --judge mine --protocol own --scale 0..10 --columns id=uid,quality=score --out runs/mine
    """
    from editloupe.evals.labels.import_scores import Scale, import_scores
    from editloupe.evals.manifests.columns import parse_columns

    done = import_scores(
        scores,
        out,
        judge,
        protocol,
        parse_columns(columns or ()),
        Scale.parse(scale) if scale else None,
        rubric or (),
    )
    sentence = f"{number_of(done.verdicts, 'verdict')} of {number_of(done.rows, 'row')} in {out}"
    if done.unjudged:
        sentence += f"; {number_of(done.unjudged, 'cell')} without a score {verb(done.unjudged, 'is', 'are')} unjudged"
    if done.known:
        sentence += f"; {done.known} were there already"
    if done.numbered:
        sentence += f"; {number_of(done.numbered, 'row')} without an id {verb(done.numbered, 'is', 'are')} numbered"
        sentence += " (--columns id=COLUMN names the column)"
    tell(sentence)
