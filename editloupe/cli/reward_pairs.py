"""What `editloupe reward` does with preference pairs: judge them into a run, hold numbers against them, print accuracies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe._util.files import write_text
from editloupe._util.json_safe import record_json
from editloupe._util.text import for_json, number_of, one_line, verb
from editloupe.cli.batch import TOOL_MEMORY, Closing, judge_into_run
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.output import tell
from editloupe.evals.batch.batch import Ending
from editloupe.evals.manifests.pairs import Pair, Way, load_pairs
from editloupe.evals.reward.edit_rewards import check_scorable
from editloupe.evals.reward.external_scores import judge_by_scores
from editloupe.evals.reward.pair_reports import assumptions, pair_edits, report_of_pairs
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.preference_results import Accuracy, PairReport
from editloupe.evals.stats.scores.run_table import Table as RunTable
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, known_protocol, usual_repeats
from editloupe.types import Edit, UserError

FILES = (".jsonl", ".json", ".csv", ".ndjson")


@dataclass(frozen=True)
class Asking:
    """The judge of a reward as it was asked for, and what is known of it before anything is judged."""

    given: JudgeOptions
    judge: str
    protocol: str
    mode: str

    @classmethod
    def of(cls, given: JudgeOptions, default: str = DEFAULT_FOR_PAIRS.name) -> Asking:
        """Open the judge that these options describe once, and refuse one that cannot judge its protocol.

        Args:
            given: The options of the command line.
            default: The protocol, if neither the options nor their set-up name one.
        """
        protocol = None if given.rubrics else given.protocol or given.chosen().protocol or default
        given = replace(given, protocol=given.protocol if given.rubrics else protocol, tool_memory=TOOL_MEMORY)
        with given.open() as judge:
            check_scorable(judge)
            return cls(given, judge.spec, judge.protocol, judge.mode)

    @property
    def asks_both_at_once(self) -> bool:
        """True where the protocol has questions that show both candidates."""
        known = known_protocol(self.protocol)
        return bool(known and known.pairs)

    def judge_into_run(self, edits: Sequence[Edit], out: Path | None, options: BatchOptions, closing: Closing) -> int:
        """Judge edits into a run, or into a temporary one where none is named, and return the exit code."""
        self.given.announce()
        if out is None and not options.dry_run:
            tell("no --out given: the run is a temporary one; --out RUN keeps verdicts and traces and can be continued")
        with _folder(out) as folder:
            batch = options.batch(lambda: edits, folder, self.given.open, usual_repeats=usual_repeats(self.protocol))
            return judge_into_run(batch, options, replace(closing, kept=out is not None))


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        if out.suffix.lower() in FILES:
            raise UserError(f"--out is the run's folder, not a file; --lines {out} writes one line of JSON a pair")
        yield out
        return
    with TemporaryDirectory(prefix="editloupe-reward-") as temporary:
        yield Path(temporary) / "run"


def judged(run: Run, ending: Ending) -> RunTable | None:
    """Return what a session's judge has judged in the run; None where that is nothing."""
    if any(one.name == ending.configuration and one.units for one in run.configurations()):
        return read_run_table(run, configuration=ending.configuration)
    return None


def judge_pairs(
    file: Path,
    asking: Asking,
    way: Way,
    options: BatchOptions,
    *,
    out: Path | None,
    limit: int | None,
    lines: Path | None,
) -> int:
    """Judge a file of pairs and print how often the judge agrees with people."""
    if way == "pairwise" and not asking.asks_both_at_once:
        raise UserError(f"--pairwise goes with --protocol {DEFAULT_FOR_PAIRS.name}")
    pairs = list(itertools.islice(load_pairs(file, asking.protocol, way), limit))
    if not pairs:
        raise UserError(f"{file.name} holds no pairs")
    for sentence in assumptions(pairs, asking.protocol) if way == "pointwise" else ():
        tell(sentence)

    def show(run: Run, ending: Ending) -> None:
        found = judged(run, ending)
        report = report_of_pairs(pairs, found, way, asking.judge, asking.protocol, asking.mode)
        print_report(report, options.as_json, lines, stopped=ending.why)

    edits = pair_edits(pairs, asking.protocol, way)
    return asking.judge_into_run(edits, out, options, Closing(show=show, report=("reward", "--table")))


def reports_of_scores(file: Path, scores: Sequence[str], limit: int | None) -> list[PairReport]:
    """Hold the numbers of reward models, each given as FILE or NAME=FILE, against a file of pairs."""
    pairs: list[Pair] = list(itertools.islice(load_pairs(file, way=None), limit))
    if not pairs:
        raise UserError(f"{file.name} holds no pairs")
    reports = []
    for said in scores:
        name, equals, path = said.partition("=")
        report, notes = judge_by_scores(pairs, Path(path if equals else said), name if equals else None)
        for sentence in notes:
            tell(sentence)
        reports.append(report)
    return reports


def print_report(report: PairReport, as_json: bool, lines: Path | None = None, stopped: str | None = None) -> None:
    """Print a report on pairs, and write its pairs into a file where one is named."""
    if lines:
        write_text(lines, "".join(record_json(result) + "\n" for result in report.results))
    if as_json:
        print(for_json({**as_record(report), "stopped": stopped}, 2))
    else:
        show_report(report, Console(highlight=False))


def as_record(report: PairReport) -> dict[str, object]:
    """Return a report as plain JSON, with the shares worked out."""

    def counted(found: Accuracy) -> dict[str, object]:
        return {"accuracy": found.share, **found.model_dump()}

    return {
        **report.model_dump(mode="json", exclude={"overall", "by_dimension"}),
        "overall": counted(report.overall),
        "by_dimension": {name: counted(found) for name, found in report.by_dimension.items()},
    }


def show_report(report: PairReport, console: Console) -> None:
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
            f"the two orders contradict each other in {number_of(report.overall.inconsistent, 'pair')}, which "
            f"{verb(report.overall.inconsistent, 'counts', 'count')} as wrong"
        )
    for why in sorted({result.why for result in report.results if result.why})[:3]:
        tell(f"unjudged, for instance: {why}")
