"""The commands of `editloupe manifest`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.text import for_json, number_of
from editloupe.cli.options import check_choice
from editloupe.cli.output import AsJson, choose_width, tell
from editloupe.evals.manifests import layouts
from editloupe.rubrics.registry import DEFAULT, find_paper
from editloupe.rubrics.registry import get_protocol as find_protocol

if TYPE_CHECKING:
    from editloupe.evals.manifests.stats import ManifestStats
    from editloupe.evals.report.block_types import Block
    from editloupe.types import Edit

app = typer.Typer(
    help="Count a manifest's edits by type and size, and write drawn boxes into it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

SampleLayout = Annotated[
    str, typer.Option("--layout", help=f"Manifest field naming: {' or '.join(layouts.sample_layouts())}.")
]


@app.callback()
def group() -> None:
    """Inspect manifests."""


@app.command()
def stats(
    manifests: Annotated[
        list[Path],
        typer.Argument(help=".jsonl, .csv or .parquet files, or folders. Several are compared side by side."),
    ],
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Folder for figures, as PNG and SVG.")] = None,
    layout: SampleLayout = layouts.PLAIN,
    protocol: Annotated[
        str | None,
        typer.Option(help=f"Protocol whose type names are used. Default: the layout's, or {DEFAULT.name}."),
    ] = None,
    allow_outside: Annotated[bool, typer.Option(help="Allow paths outside a manifest's folder.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN,…", help="Columns that hold an edit's fields under other names. Repeatable."
        ),
    ] = None,
) -> None:
    """Count samples by instruction type and target size, for one manifest or several side by side.

    Edited pictures are not needed. Only the headers of the source pictures are read.

    Example: editloupe manifest stats small-objects.jsonl other-benchmark.jsonl --out figures
    """
    from editloupe.evals.manifests.columns import find_samples, parse_columns
    from editloupe.evals.manifests.datasets import make_name_checker
    from editloupe.evals.manifests.stats import manifest_stats
    from editloupe.rubrics.registry import make_type_reader

    paper = find_paper(check_choice("--layout", layout, layouts.sample_layouts()))
    # Use the type names that a report of these edits has.
    judged_by = find_protocol(protocol or (paper.name if paper else DEFAULT.name))
    read_type = make_type_reader(judged_by.name)
    statistics = []
    for path, name in manifest_names(manifests).items():
        file, naming = find_samples(path, paper, parse_columns(columns or ()))
        typing, notes = read_type, list[str]()
        if layout == layouts.PLAIN:
            check_names = make_name_checker(judged_by.criteria, notes.append)
            typing = partial(_read_and_check, read_type, check_names)
        statistics.append(manifest_stats(file, naming, allow_outside, name, typing, judged_by.families))
        for note in notes:
            tell(f"{name}: {note}")
    if out is not None:
        from editloupe.making.export import save_figures

        tell(f"{number_of(save_figures(statistics, out), 'figure')} in {out}")
    if as_json:
        print(for_json({"manifests": [row.model_dump(mode="json") for row in statistics]}, 2))
        return
    from editloupe.evals.report.text_renderer import as_text

    sys.stdout.write(as_text(list(manifest_blocks(statistics)), choose_width(None, 120)))


def _read_and_check(read_type: Callable[[Edit], Edit], check_names: Callable[[Edit], Edit], edit: Edit) -> Edit:
    return read_type(check_names(edit))


@app.command()
def boxes(
    manifest: Annotated[Path, typer.Argument(help="A .jsonl, .csv or .parquet manifest.")],
    out: Annotated[Path, typer.Option(help="The new manifest (JSONL), in the same folder.")],
    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="Label file of the studio. Default: NAME.labels.jsonl next to the manifest. Repeatable.",
        ),
    ] = None,
    annotator: Annotated[str | None, typer.Option(help="Take only this annotator's boxes.")] = None,
) -> None:
    """Write target boxes that people drew in the studio into a copy of a manifest.

    All lines of a sample (same source, instruction and previous boxes) get them. If annotators drew different boxes for a
    sample, its lines are unchanged.

    Example: editloupe manifest boxes edits.jsonl --labels runs/gpt/labels.jsonl --out edits-boxes.jsonl
    """
    from editloupe.evals.labels.drawn_boxes import write_drawn_boxes

    counts = write_drawn_boxes(manifest, out, labels or (), annotator)
    for note in counts.notes:
        tell(note)
    for ids, problem in (
        (counts.disputed, "keeps its boxes, because annotators drew different ones; choose with --annotator"),
        (counts.unknown, "has boxes in a label file and is not in the manifest"),
    ):
        if ids:
            some = f"{', '.join(ids[:3])}{' …' if len(ids) > 3 else ''}"
            tell(f"{number_of(len(ids), 'sample')} ({some}): {problem}")
    tell(f"{counts.changed} of {number_of(counts.lines, 'line')} with drawn boxes in {out}")


def manifest_names(manifests: Sequence[Path]) -> dict[Path, str]:
    """Return a name per manifest: the file's stem, with its folder if two share a stem."""
    paths = list(dict.fromkeys(manifests))
    stems = [path.stem for path in paths]
    return {
        path: path.stem if stems.count(path.stem) == 1 else f"{path.resolve().parent.name}/{path.stem}"
        for path in paths
    }


def manifest_blocks(statistics: Sequence[ManifestStats]) -> Iterator[Block]:
    """Yield the counts as tables with one column per manifest."""
    from editloupe.evals.manifests.stats import QUANTILES
    from editloupe.evals.report.block_types import Heading, Paragraph, Points
    from editloupe.evals.report.figures.manifests import format_interval
    from editloupe.rubrics.tables import PrintedTable

    names = [manifest.name for manifest in statistics]
    counts_by_manifest = [
        f"{manifest.name}: {number_of(manifest.samples, 'sample')} in {number_of(manifest.rows, 'row')}{_models(manifest)}"
        for manifest in statistics
    ]
    yield Paragraph(". ".join(counts_by_manifest) + ".")
    if notes := tuple(f"{manifest.name}: {note}" for manifest in statistics for note in manifest.notes):
        yield Points(notes)
    yield Heading("Samples by instruction type", 3)
    kinds = list(dict.fromkeys(kind for manifest in statistics for kind in manifest.types))
    families = list(dict.fromkeys(family for manifest in statistics for family in manifest.families))
    for family in families or [""]:
        counts = [manifest.families.get(family, {}) if family else manifest.types for manifest in statistics]
        own = [kind for kind in kinds if any(kind in by_name for by_name in counts)]
        rows = [(kind, *(str(by_name.get(kind, 0)) for by_name in counts)) for kind in own]
        total = [("all of them", *(str(sum(by_name.values())) for by_name in counts))] if family else []
        yield PrintedTable("", (f"{family} type".strip(), *names), (*rows, *total))
    yield Heading("Samples by number of targets", 3)
    several = sorted({count for manifest in statistics for count in manifest.targets})
    yield PrintedTable(
        "",
        ("targets", *names),
        tuple((str(n), *(str(manifest.targets.get(n, 0)) for manifest in statistics)) for n in several),
    )
    measured = [manifest for manifest in statistics if manifest.measured]
    if not measured:
        return
    yield Heading("Area of the targets, % of the picture", 3)
    names = [manifest.name for manifest in measured]
    rows = [(name, *(f"{manifest.area[name]:.3g}" for manifest in measured)) for name in QUANTILES]
    rows += [
        (f"samples up to {at} %", *(f"{100 * manifest.below[at]:.1f} %" for manifest in measured))
        for at in measured[0].below
    ]
    yield PrintedTable("", ("", *names), tuple(rows))
    parts = sorted(
        {(part.above, part) for manifest in measured for part in manifest.intervals}, key=lambda pair: pair[0]
    )
    edges = list(dict.fromkeys(format_interval(part) for _, part in parts))
    by_name = [{format_interval(part): part.samples for part in manifest.intervals} for manifest in measured]
    yield PrintedTable(
        "", ("area, %", *names), tuple((edge, *(str(own.get(edge, 0)) for own in by_name)) for edge in edges)
    )
    yield Heading("Targets, pixels", 3)
    sides = [(side, name) for side in measured[0].sides for name in QUANTILES]
    lines = tuple(
        (f"{side}, {name}", *(f"{manifest.sides[side][name]:.0f}" for manifest in measured)) for side, name in sides
    )
    yield PrintedTable("", ("", *names), lines)


def _models(manifest: ManifestStats) -> str:
    return f", of {len(manifest.models)} models" if len(manifest.models) > 1 else ""
