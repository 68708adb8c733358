"""The command `editloupe agree`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.text import for_json
from editloupe.cli.output import Out, choose_format, deliver, format_option, render_blocks, tell
from editloupe.cli.report import (
    EveryConfiguration,
    Human,
    HumanColumns,
    HumanMap,
    ProtocolName,
    Resamples,
    Seed,
    read_label_files,
    save_figures,
)
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.labels.label_files import LabelFile
    from editloupe.evals.report.block_types import Block
    from editloupe.rubrics.tables import PrintedTable

FORMATS = ("text", "md", "json", "latex", "csv")


def agree(
    run: Annotated[Path, typer.Argument(help="A run folder; or a labelled manifest, for people among themselves.")],
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    format: Annotated[str | None, format_option(FORMATS)] = None,
    out: Out = None,
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
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write the figures to this folder, as PDF and PNG.")
    ] = None,
    protocol: ProtocolName = None,
    configuration: EveryConfiguration = None,
    resamples: Resamples = None,
    seed: Seed = None,
) -> None:
    """Measure agreement of a run with human labels, and among people: ρ, r, MAE, accuracy, κ, α with intervals.

    The row `score` compares whole edits: the protocol's formula over the verdicts and over the labels, or people's ratings of
    whole edits (labels on `score`, 0 to 100). A labelled manifest that was not judged gives the agreement among people.

    Example: editloupe agree runs/gpt --human ada.csv --human bo.csv --by model --figures figures

    Example: editloupe agree edits.jsonl --human ada.csv --human bo.csv --format latex
    """
    kind = choose_format(format, out, FORMATS)
    files = read_label_files(human, columns, meanings)
    if run.is_file():
        if replace_annotators or figures is not None or configuration is not None:
            raise UserError(
                f"{run} is a manifest without verdicts; --replace-annotators, --figures and --configuration need a run"
            )
        record, blocks, rows = _measure_people(run, files, protocol, by or ())
    else:
        record, blocks, rows = _measure_run(
            run, files, protocol, configuration, by or (), epsilon if replace_annotators else None, figures
        )
    if kind == "json":
        deliver(for_json(record, 2) + "\n", out)
    elif kind == "csv":
        deliver(_format_csv(rows), out)
    elif kind == "latex":
        from editloupe.evals.report.table_formats import all_to_latex

        deliver(all_to_latex(list(_list_tables(blocks))), out)
    else:
        deliver(render_blocks(blocks, kind, out), out)


Measured = tuple[dict[str, Any], "list[Block]", list[dict[str, Any]]]
"""A result for JSON, as blocks, and as rows."""


def _measure_people(manifest: Path, files: list[LabelFile], protocol: str | None, by: Sequence[str]) -> Measured:
    """Measure the agreement of people on a manifest that was not judged."""
    from editloupe.evals.labels.unjudged_run import load_manifest_labels, read_manifest_edits
    from editloupe.evals.report.comparison_blocks import manifest_blocks
    from editloupe.evals.stats.agreement.people import measure_people_agreement
    from editloupe.rubrics.registry import DEFAULT, get_protocol

    rules = get_protocol(protocol) if protocol else DEFAULT
    edits = read_manifest_edits(manifest)
    labels = load_manifest_labels(manifest, edits, protocol, files)
    agreement = measure_people_agreement(manifest.name, edits, labels, rules, by)
    titles = {criterion: rules.rubric(criterion).title for criterion in rules.criteria}
    record = agreement.model_dump(mode="json")
    return {**record["criteria"], **record}, list(manifest_blocks(agreement, titles)), agreement.rows()


def _measure_run(
    run: Path,
    files: list[LabelFile],
    protocol: str | None,
    configuration: str | None,
    by: Sequence[str],
    epsilon: float | None,
    figures: Path | None,
) -> Measured:
    """Measure the agreement of a run with people; `epsilon` is None if the replacement of annotators is not tested."""
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.block_types import Block, Heading
    from editloupe.evals.report.comparison_blocks import agreement_blocks
    from editloupe.evals.report.report_blocks import build_score_table
    from editloupe.evals.report.report_figures import Draw, build_agreement_figures
    from editloupe.evals.report.trust_blocks import replacement_blocks
    from editloupe.evals.stats.agreement.edit_scores import measure_score_agreement
    from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
    from editloupe.evals.stats.scores.run_table import read_run_tables
    from editloupe.evals.stats.trust.replace_annotators import run_annotator_tests as test_replacement

    records: dict[str, Any] = {}
    blocks, rows = list[Block](), list[dict[str, Any]]()
    drawings: dict[str, Draw] = {}
    tables = read_run_tables(run, protocol, configuration)
    for table in tables:
        for sentence in table.notes:
            tell(sentence)
        people = load_human_labels(table, files)
        agreement = measure_agreement(table, people, by=by)
        tested = None if epsilon is None else test_replacement(table, people, epsilon)
        record = agreement.model_dump(mode="json")
        score = measure_score_agreement(table, people) if people.given or people.adjudicated else None
        record["score"] = None if score is None else score.model_dump(mode="json")
        if tested is not None:
            record["replace_annotators"] = {name: result.model_dump(mode="json") for name, result in tested.items()}
        # Each criterion is also a key at the top level, so that `.instruction_following.spearman.value` works.
        records[table.name] = {**record["criteria"], **record}
        several = len(tables) > 1
        if several:
            blocks.append(Heading(table.name))
        blocks += agreement_blocks(agreement, table.titles)
        own_rows = [*agreement.rows(), *(score.rows() if score else ())]
        rows += [{"configuration": table.name, **row} for row in own_rows] if several else own_rows
        if score is not None:
            blocks.append(build_score_table(score))
        if tested is not None and epsilon is not None:
            blocks += replacement_blocks(tested, table.titles, epsilon)
        own = build_agreement_figures(agreement, score, table.titles)
        drawings |= {f"{table.name}/{name}" if several else name: draw for name, draw in own.items()}
    if figures is not None:
        save_figures(drawings, figures)
    return {"configurations": records} if len(tables) > 1 else next(iter(records.values())), blocks, rows


def _list_tables(blocks: Iterable[Block]) -> Iterator[PrintedTable]:
    """Yield the tables of some blocks, each titled by its first column."""
    from editloupe.rubrics.tables import PrintedTable

    for block in blocks:
        if isinstance(block, PrintedTable):
            yield block if block.title else replace(block, title=block.columns[0], columns=("", *block.columns[1:]))


def _format_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per measure, with the columns that some row has."""
    from editloupe.evals.report.table_formats import to_csv
    from editloupe.rubrics.tables import PrintedTable

    first = ("configuration", "criterion", "type", "by", "group", "measure", "value", "low", "high", "n")
    columns = [name for name in first if any(name in row for row in rows)]
    return to_csv(PrintedTable("", tuple(columns), tuple(tuple(row.get(name) for name in columns) for row in rows)))
