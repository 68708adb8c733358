"""The command `editloupe trust`."""

from __future__ import annotations

from typing import Annotated

from editloupe._util.text import for_json
from editloupe.cli.output import Out, RunFolder, choose_format, deliver, format_option, render_blocks, render_page, tell
from editloupe.cli.report import (
    ConfigurationName,
    Human,
    HumanColumns,
    HumanMap,
    ProtocolName,
    Queues,
    read_label_files,
)

FORMATS = ("text", "md", "html", "json")


def trust(
    run: RunFolder,
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    format: Annotated[str | None, format_option(FORMATS)] = None,
    out: Out = None,
    queue: Queues = None,
    protocol: ProtocolName = None,
    configuration: ConfigurationName = None,
) -> None:
    """Say in five sentences and a figure how far a run's scores can be trusted, from some labels by people.

    The sentences are on agreement with people and its ceiling, the bias and the corrected score, how many labels would halve
    the interval, what the judge gets wrong most, and what to do next. A terminal shows the figure's numbers as tables.

    Example: editloupe trust runs/gpt --human ada.csv --out trust.html
    """
    kind = choose_format(format, out, FORMATS)
    from editloupe.evals.labels.human import load_human_labels
    from editloupe.evals.report.report_figures import build_trust_figure
    from editloupe.evals.report.trust_blocks import describe_trust, trust_blocks
    from editloupe.evals.stats.scores.run_table import read_run_table
    from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
    from editloupe.evals.stats.trust.label_queue import find_queue
    from editloupe.evals.stats.trust.trust_summary import summarize_trust

    table, _ = split_off_reference(read_run_table(run, protocol, configuration))
    for sentence in table.notes:
        tell(sentence)
    people = load_human_labels(table, read_label_files(human, columns, meanings))
    summary = summarize_trust(table, people, find_queue(table, queue or ()))
    if kind == "json":
        sentences = describe_trust(summary, table.titles, str(run), configuration or "")
        deliver(for_json({"sentences": sentences, **summary.model_dump(mode="json")}, 2) + "\n", out)
        return
    blocks = tuple(trust_blocks(summary, table.titles, str(run), configuration or ""))
    if kind == "html":
        title = f"{summary.run} – how far to trust it"
        deliver(render_page(blocks, build_trust_figure(summary, table.titles), title), out)
    else:
        deliver(render_blocks(blocks, kind, out), out)
