"""The command `editloupe export`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from editloupe._util.files import atomic_text_file
from editloupe._util.text import number_of, verb
from editloupe.cli.output import RunFolder, choose_format, format_option, tell
from editloupe.cli.report import HumanColumns, HumanMap, read_label_files
from editloupe.evals.runs.configurations import ALL, format_list, match_configurations
from editloupe.evals.runs.export import tables as exports
from editloupe.evals.runs.export.inspect_log import to_inspect
from editloupe.evals.runs.store import Run
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.labels.label_files import LabelFile

SUFFIXES = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet", ".eval": "inspect"}
FORMATS = ("jsonl", "csv", "parquet", "datasets", "inspect", "label-studio", "sft")


def export(
    run: RunFolder,
    format: Annotated[str | None, format_option(FORMATS)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Output file, or folder for datasets, label-studio and sft. Default for JSONL and CSV: standard output."
        ),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="With datasets or label-studio: include the pictures.")
    ] = False,
    configuration: Annotated[
        str | None,
        typer.Option(help="Only this configuration, such as gpt-5.1/tools. Default: all (inspect: the newest)."),
    ] = None,
    where: Annotated[
        str, typer.Option("--where", help="With --format sft: only verdicts that match this filter.")
    ] = "",
    human: Annotated[
        list[Path] | None,
        typer.Option(
            "--human", help="With --format sft: file of human labels, in addition to the run's own. Repeatable."
        ),
    ] = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
) -> None:
    """Export one row per unit: edit, instruction, model, criterion, judge, label, scores, rationale, people's label, tokens.

    The inspect format is an `.eval` log with all conversations and pictures, for `inspect view`. The label-studio format is a
    folder with tasks, the verdicts as predictions, and the labelling configuration of the rubrics.

    The sft format is a folder of conversations in chat format with their pictures and a data card, to train judges on.

    Example: editloupe export runs/gpt --format parquet --out verdicts.parquet

    Example: editloupe export runs/gpt --format sft --where 'label = human and repairs = 0' --out training
    """
    kind = choose_format(format, out, FORMATS, SUFFIXES)
    if images and kind not in ("datasets", "label-studio"):
        raise UserError("--images goes with --format datasets or label-studio")
    if (where or human) and kind != "sft":
        raise UserError("--where and --human go with --format sft")
    labels = read_label_files(human, columns, meanings)
    if out is None and kind not in exports.TEXT_FORMATS:
        raise UserError(f"--format {kind} needs --out")
    if kind == "inspect" and out is not None and out.suffix not in (".eval", ""):
        raise UserError(f"inspect view knows its logs by their names: call it {out.with_suffix('.eval').name}")
    with Run.open(run) as opened:
        if kind == "inspect" and out is not None:
            count = to_inspect(opened, out, configuration)
        elif kind == "label-studio" and out is not None:
            _write_label_studio(opened, out, images, configuration)
            return
        elif kind == "sft" and out is not None:
            _write_training_data(opened, out, where, labels, _find_configuration(opened, configuration))
            count = None
        else:
            count = _write_rows(opened, kind, out, images, _find_configuration(opened, configuration))
        damage = opened.damage.sentences()
    if out is not None and count is not None:
        tell(f"{number_of(count, 'row')} in {out}")
    for sentence in damage:
        tell(sentence)


def _write_label_studio(run: Run, folder: Path, images: bool, configuration: str | None) -> None:
    from editloupe.evals.labels.label_studio import to_label_studio

    written = to_label_studio(run, folder, _find_configuration(run, configuration), images)
    sets = written.configurations
    several = f" in {number_of(sets, 'set')} with a configuration each" if sets > 1 else ""
    tell(f"{number_of(written.tasks, 'task')}{several} in {folder}")
    if lost := written.without_pictures:
        tell(f"{number_of(lost, 'task')} {verb(lost, 'lacks', 'lack')} a picture: the run does not have it")
    if not images:
        tell(f"pictures are addresses of Label Studio's local files, with the root {run.folder.resolve().parent}")
    for sentence in run.damage.sentences():
        tell(sentence)


def _find_configuration(run: Run, text: str | None) -> str | None:
    """Return the name of the configuration that a text names; None for all."""
    if text in (None, ALL):
        return None
    configurations = run.configurations()
    fitting = match_configurations(configurations, str(text))
    if len(fitting) != 1:
        problem = "names several configurations" if fitting else "is not a configuration"
        raise UserError(f'"{text}" {problem} of {run.folder.name}; it has: {format_list(configurations)}')
    return fitting[0].name


def _write_rows(run: Run, kind: str, out: Path | None, images: bool, configuration: str | None) -> int:
    from editloupe.evals.traces.trace_search import search_run

    with search_run(run) as people:
        if write := exports.TEXT_FORMATS.get(kind):
            with nullcontext(sys.stdout) if out is None else atomic_text_file(out) as file:
                return write(run, file, configuration, people.consensus)
        assert out is not None  # checked before the run was opened
        if kind == "parquet":
            return exports.to_parquet(run, out, configuration, people.consensus)
        return exports.to_datasets(run, out, images, configuration, people.consensus)


def _write_training_data(
    run: Run, out: Path, where: str, human: Sequence[LabelFile], configuration: str | None
) -> None:
    from editloupe.evals.runs.export.sft import SftSelection, to_sft
    from editloupe.evals.traces.trace_search import search_run

    with search_run(run, where, human) as search:
        hits = (hit for hit in search.hits() if configuration in (None, hit.configuration))
        chosen = SftSelection(where, [file.path.name for file in human], search.count_all(), configuration)
        counts = to_sft(run, out, hits, chosen)
        notes = search.notes
    for note in notes:
        tell(note)
    tell(
        f"{number_of(counts.conversations, 'conversation')} of {number_of(counts.verdicts, 'verdict')} and "
        f"{number_of(counts.pictures, 'picture')} in {out}; its README.md is the data card"
    )
    left_out = Counter({"unjudged": counts.unjudged}) + counts.left_out
    if left_out:
        tell(f"left out: {', '.join(f'{count} {why}' for why, count in left_out.most_common())}")
