"""`editloupe edival report` and `compare`: a run in the paper's tables, and two settings side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from editloupe.cli.options import tell
from editloupe.safe_text import for_json
from editloupe.types import Record, UserError
from editloupe.whole_files import write_text

if TYPE_CHECKING:
    from editloupe.evals.edival.metrics import EdivalFigures
    from editloupe.evals.report.blocks import Block
    from editloupe.rubrics.edival.scoring import Missing

MissingRule = Annotated[
    str, typer.Option("--missing", help="complete: pictures with all turns (the paper); per_turn: as far as they got.")
]
Format = Annotated[str | None, typer.Option("--format", help="text, md, html or json; else by the suffix of --out.")]
Out = Annotated[Path | None, typer.Option(help="The file to write; else the terminal.")]


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
    drawings_by_name = drawings(found)
    if figures:
        from editloupe.evals.report.figures import save

        for name, draw in drawings_by_name.items():
            save(draw(), figures / f"{name}.svg")
    _write(found, blocks(found), format, out, drawings_by_name)


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


def _write(
    found: Record, blocks: list[Block], format: str | None, out: Path | None, drawings_by_name: dict[str, Any]
) -> None:
    suffixes = {".html": "html", ".md": "md", ".json": "json", ".txt": "text"}
    kind = format or (suffixes.get(out.suffix.lower(), "text") if out else "text")
    if kind == "json":
        text = for_json(found.model_dump(mode="json"), 2) + "\n"
    elif kind == "md":
        from editloupe.evals.report.markdown import as_markdown

        text = as_markdown(blocks)
    elif kind == "html":
        from editloupe.evals.report.html import as_html

        text = as_html(blocks, drawings_by_name, "EdiVal-Agent", "Made by EditLoupe, `editloupe edival`.")
    elif kind == "text":
        from editloupe.evals.report.text import as_text

        text = as_text(blocks, 160)
    else:
        raise UserError(f'--format is text, md, html or json, not "{kind}"')
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    tell(f"written to {out}")
