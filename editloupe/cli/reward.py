"""The command `editloupe reward`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe._util.files import write_text
from editloupe._util.json_safe import dump_record
from editloupe._util.text import for_json, number_of, one_line, verb
from editloupe.cli.batch import TOOL_MEMORY, BatchOptions, Closing, judge_into_run
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import Without, check_choice, expand_options
from editloupe.cli.output import tell
from editloupe.cli.report import Resamples, Seed
from editloupe.evals.batch.batch import Ending
from editloupe.evals.manifests.datasets import read_manifest
from editloupe.evals.manifests.pairs import Pair, Way, load_pairs
from editloupe.evals.manifests.readers import READERS
from editloupe.evals.report.table_formats import FORMATS
from editloupe.evals.reward.candidates import find_candidate_sets
from editloupe.evals.reward.edit_rewards import check_scorable
from editloupe.evals.reward.pair_reports import (
    JudgeTable,
    build_table_lines,
    is_run,
    judge_by_scores,
    list_assumptions,
    pair_edits,
    report_pairs,
)
from editloupe.evals.reward.pairwise_ranking import build_model_pairs, rank_models
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.bradley_terry import Ranking
from editloupe.evals.stats.comparison.preference_results import Accuracy, PairReport
from editloupe.evals.stats.scores.paper_tables import AVERAGE, build_pair_table, count_judge_accuracy
from editloupe.evals.stats.scores.passport import Passport, build_run_passport
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table
from editloupe.rubrics.registry import (
    DEFAULT,
    DEFAULT_FOR_PAIRS,
    find_pair_rules,
    find_protocol,
    list_pair_layouts,
    usual_repeats,
)
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Edit, UserError

WHAT, RANKING, BEST = "What is asked for", "Ranking models", "The best of several"


@expand_options
def reward(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A .json or .jsonl file of preference pairs. With --table: runs and results. With --pairwise: also runs, or a "
            "manifest of several models. With --best-of: folders of candidates."
        ),
    ],
    judge: Annotated[JudgeOptions, Without("criteria", "seed")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="The run's folder. Run the same command again to continue. Default: a temporary run."),
    ] = None,
    pairwise: Annotated[
        bool,
        typer.Option(
            "--pairwise",
            help="Pairs: show both candidates in one question, in both orders. Runs and manifests: rank the models.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="FILE or NAME=FILE with a reward model's scores, used instead of a judge. Repeatable.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    table: Annotated[
        bool,
        typer.Option(
            "--table",
            help=f"Print the table of {DEFAULT_FOR_PAIRS.title} with one row per run or result file.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="With --table: also print the paper's rows.", hidden=True, rich_help_panel=WHAT
        ),
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(help="Format of a table of judges: text, latex, csv, md or json.", rich_help_panel=WHAT),
    ] = None,
    best_of: Annotated[
        bool, typer.Option("--best-of", help="Print the best candidate of each folder.", rich_help_panel=BEST)
    ] = False,
    source: Annotated[
        Path | None, typer.Option(help="With --best-of: the source of all candidates.", rich_help_panel=BEST)
    ] = None,
    instruction: Annotated[
        str | None, typer.Option(help="With --best-of: the instruction of all candidates.", rich_help_panel=BEST)
    ] = None,
    instruction_type: Annotated[
        str | None,
        typer.Option("--type", help="With --best-of: the instruction type.", hidden=True, rich_help_panel=BEST),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Task of all pairs that name none, such as ADD.", hidden=True, rich_help_panel=WHAT),
    ] = None,
    flags: Annotated[
        list[str] | None,
        typer.Option(
            help="Which metrics apply to pairs that do not say so, such as WA=false,IC=true. Repeatable.",
            hidden=True,
            rich_help_panel=WHAT,
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Read the pairs of a published set as they are: {', '.join(list_pair_layouts())}. --scores then also reads "
            "the results of the set's script.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    dimension: Annotated[
        list[str] | None,
        typer.Option(
            help="With --pairwise on models: rank by this criterion (or IA, VC, VQ). Default: overall. Repeatable.",
            hidden=True,
            rich_help_panel=RANKING,
        ),
    ] = None,
    configuration: Annotated[
        str | None,
        typer.Option(help="The configuration, if a run has several.", hidden=True, rich_help_panel=RANKING),
    ] = None,
    resamples: Resamples = None,
    seed: Seed = None,
    lines: Annotated[
        Path | None, typer.Option(help="Write one line of JSON per pair to this file.", hidden=True)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N pairs.", hidden=True)] = None,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Allow paths outside the file's folder.", hidden=True)
    ] = False,
    options: Annotated[BatchOptions, Without("limit")],
) -> int:
    """Measure how often a judge, or a reward model's scores, prefers the better of two candidates.

    Also: pick the best of several candidates (--best-of), rank editing models (--pairwise on a run), and print a table of
    several judges (--table).

    Example: editloupe reward reward_eval.json --judge openai:gpt-5.1 --out runs/pairs

    Example: editloupe reward candidates --best-of --source cup.png --instruction "Make the cup red" --judge openai:gpt-5.1
    """
    _check_exclusive(pairwise=pairwise, scores=bool(scores), table=table, best_of=best_of)
    if published and not table:
        raise UserError("--published goes with --table")
    if out is not None and (table or scores):
        raise UserError("--out stores what a judge answers; --table and --scores use no judge")
    if layout is not None:
        check_choice("--layout", layout, list_pair_layouts())
        if table or best_of:
            raise UserError("--layout goes with a file of pairs")
    kind = check_choice("--format", format or ("json" if options.as_json else "text"), ("text", *FORMATS))
    if format and not table and len(scores or ()) < 2:
        raise UserError("--format is for the table of several judges: --table, or --scores more than once")
    if table:
        _print_table(build_table_lines(paths), published, kind)
        return 0
    if best_of:
        asking = Asking.of(judge, DEFAULT.name)
        return _judge_best_of(paths, source, instruction, instruction_type, asking, out, options)
    if pairwise and all(map(is_run, paths)):
        if out is not None:
            raise UserError("--out stores what a judge answers; models of a run are ranked by its stored verdicts")
        tables = [read_run_table(path, judge.protocol, configuration) for path in paths]
        return _print_rankings(rank_models(tables, dimension or ()), options.as_json)
    if len(paths) > 1:
        raise UserError("one file of pairs at a time; --table takes several runs and results")
    if scores:
        reports = judge_by_score_files(paths[0], scores, limit, allow_outside, layout)
        if len(reports) > 1:
            rules = find_pair_rules(layout)
            lines_of_judges = [count_judge_accuracy(own.judge, own.results, rules, own.way) for own in reports]
            _print_table(JudgeTable(lines_of_judges, rules), False, kind)
        else:
            print_report(reports[0], options.as_json, lines)
        return 0 if all(report.overall.judged == report.overall.pairs for report in reports) else 3
    asking = Asking.of(judge, layout or DEFAULT_FOR_PAIRS.name)
    if pairwise and layout is None and _lists_edits(paths[0]):
        return _judge_models(paths[0], asking, dimension or (), out, limit, options, allow_outside)
    way: Way = "pairwise" if pairwise else "pointwise"
    defaults = PairDefaults(task, _read_flags(flags or ()))
    return judge_pairs(
        paths[0],
        asking,
        way,
        options,
        out=out,
        limit=limit,
        lines=lines,
        defaults=defaults,
        allow_outside=allow_outside,
        layout=layout,
    )


@dataclass(frozen=True)
class PairDefaults:
    """What holds for pairs whose fields do not say it: the task, and booleans of metrics."""

    task: str | None = None
    flags: Mapping[str, bool] = field(default_factory=dict)


def _read_flags(texts: Sequence[str]) -> dict[str, bool]:
    """Return booleans by name, from texts such as WA=false,IC=true."""
    values = {"true": True, "false": False}
    flags: dict[str, bool] = {}
    for text in ",".join(texts).split(",") if texts else ():
        name, _, value = text.partition("=")
        if value.strip().lower() not in values:
            raise UserError(f'--flags is NAME=true or NAME=false, such as WA=false, not "{text}"')
        flags[name.strip()] = values[value.strip().lower()]
    return flags


def _check_exclusive(**flags: bool) -> None:
    """Raise if two exclusive options are set."""
    names = [f"--{name.replace('_', '-')}" for name, is_set in flags.items() if is_set]
    if len(names) > 1:
        raise UserError(f"{' and '.join(names)} do not go together")


def _lists_edits(path: Path) -> bool:
    """True for a manifest of edits, False for a file of pairs."""
    if path.is_dir() or path.suffix.lower() in (".csv", ".parquet"):
        return True
    reader = READERS.get(path.suffix.lower())
    if reader is None or not path.is_file():
        return False
    first = next(iter(reader(path)), None)
    return first is not None and "edited" in first.values and "winner" not in first.values


def _judge_models(
    manifest: Path,
    asking: Asking,
    dimensions: Sequence[str],
    out: Path | None,
    limit: int | None,
    options: BatchOptions,
    allow_outside: bool,
) -> int:
    """Ask which of two models' outputs is better, for every two of them, in both orders, and rank the models."""
    if not asking.asks_both_at_once:
        raise UserError("this protocol has no question on two outputs; judge a run with `batch` and rank its models")
    dimension_names = tuple(find_pair_rules(asking.protocol).dimensions)
    unknown = [name for name in dimensions if name not in dimension_names]
    if unknown:
        raise UserError(f'--dimension is one of {", ".join(dimension_names)}, not "{unknown[0]}"')
    chosen = tuple(dict.fromkeys(dimensions)) or dimension_names
    pairs = build_model_pairs(read_manifest(manifest, allow_outside), chosen, manifest.stem)[:limit]

    def show(run: Run, ending: Ending) -> None:
        table = read_session_table(run, ending)
        try:
            rankings = rank_models([table], dimensions) if table else []
        except UserError as error:
            # The verdicts are stored all the same, and the summary is still to be printed.
            tell(str(error))
            rankings = []
        _print_rankings(rankings, options.as_json)

    edits = pair_edits(pairs, asking.protocol, "pairwise")
    return asking.judge_into_run(edits, out, options, Closing(show=show, report=("reward", "--pairwise")))


def _judge_best_of(
    paths: Sequence[Path],
    source: Path | None,
    instruction: str | None,
    task: str | None,
    asking: Asking,
    out: Path | None,
    options: BatchOptions,
) -> int:
    """Judge candidates and print the best of each choice: its path alone on stdout, the scores on stderr."""
    choices = find_candidate_sets(paths, source, instruction, task)

    def show(run: Run, ending: Ending) -> None:
        table = read_session_table(run, ending)
        best = [choice.best(table, asking.protocol) for choice in choices]
        if options.as_json:
            about = {"judge": asking.judge, "protocol": asking.protocol, "mode": asking.mode, "stopped": ending.why}
            print(for_json({**about, "choices": [choice_result.model_dump(mode="json") for choice_result in best]}, 2))
            return
        for choice_result in best:
            for candidate in choice_result.candidates:
                text = f"unjudged ({candidate.why})" if candidate.score is None else f"{candidate.score:.4f}"
                tell(f"{candidate.picture}: {text}")
            if choice_result.winner is None:
                tell(f"{choice_result.name}: no candidate could be judged, so there is no best one")
            else:
                print(one_line(choice_result.winner))

    edits = [edit for choice in choices for edit in choice.edits()]
    return asking.judge_into_run(edits, out, options, Closing(show=show))


def _print_table(judges: JudgeTable, published: bool, kind: str) -> None:
    lines, rules, passports = judges
    section = build_pair_table(lines, rules, published)
    section = replace(section, notes=(*section.notes, *(f"{name}: {own.line}" for name, own in passports.items())))
    if kind == "json":
        rows = [
            {
                "method": line.name,
                **{name: accuracy.share for name, accuracy in line.by_dimension.items()},
                AVERAGE: line.overall.share,
                **({"measures": dict(line.measures)} if line.measures else {}),
                "judged": line.overall.judged,
                "pairs": line.overall.pairs,
            }
            for line in lines
        ]
        records = {name: own.model_dump(mode="json") for name, own in passports.items()}
        table = {"title": section.title, "dimensions": dict(rules.titles), "rows": rows, "passports": records}
        print(for_json(table, 2))
    elif kind == "text":
        _print_section(section)
    else:
        print(FORMATS[kind](section), end="")


def _print_section(section: PrintedTable) -> None:
    print(section.title)
    table = Table(box=None, header_style="bold")
    for number, name in enumerate(section.columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in section.rows:
        table.add_row(*(Text("–" if cell is None else one_line(str(cell))) for cell in row))
    _open_wide_console().print(table)
    for note in section.notes:
        tell(note)


def _print_rankings(rankings: Sequence[Ranking], as_json: bool) -> int:
    if as_json:
        print(for_json({"rankings": [row.model_dump(mode="json") for row in rankings]}, 2))
        return 0
    for ranking in rankings:
        print(
            f"{ranking.dimension}: Bradley–Terry strengths from {ranking.comparisons} comparisons on "
            f"{ranking.sources} source pictures"
        )
        table = Table(box=None, header_style="bold")
        for name in ("rank", "model", "strength", "win rate", "wins", "losses", "ties"):
            table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
        for row in ranking.models:
            rank = "–" if row.rank is None else str(row.rank)
            counts = (f"{row.win_rate:.3f}", str(row.wins), str(row.losses), str(row.ties))
            table.add_row(rank, Text(one_line(row.model)), row.strength.format(), *counts)
        _open_wide_console().print(table)
        for note in ranking.notes:
            print(one_line(note))
    return 0


def _open_wide_console() -> Console:
    """Return a console that does not cut a table's cells if the output is not a terminal."""
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = max(200, console.width)
    return console


FILES = (".jsonl", ".json", ".csv", ".ndjson")


@dataclass(frozen=True)
class Asking:
    """The judge of a reward, with the protocol and the mode it will use."""

    options: JudgeOptions
    judge: str
    protocol: str
    mode: str

    @classmethod
    def of(cls, options: JudgeOptions, default: str = DEFAULT_FOR_PAIRS.name) -> Asking:
        """Open and close the judge that these options describe.

        Args:
            options: The options of the command line.
            default: The protocol, if neither the options nor their preset name one.

        Raises:
            UserError: The judge cannot be opened, or its protocol has no score.
        """
        if not options.rubrics:
            options = replace(options, protocol=options.protocol or options.preset().protocol or default)
        options = replace(options, tool_memory=TOOL_MEMORY)
        with options.open() as judge:
            check_scorable(judge)
            return cls(options, judge.spec, judge.protocol, judge.mode)

    @property
    def asks_both_at_once(self) -> bool:
        """Whether the protocol has questions that show both candidates."""
        protocol = find_protocol(self.protocol)
        return bool(protocol and protocol.pairs)

    def judge_into_run(self, edits: Sequence[Edit], out: Path | None, options: BatchOptions, closing: Closing) -> int:
        """Judge edits into a run, which is temporary if `out` is None, and return the exit code."""
        self.options.announce()
        if out is None and not options.dry_run:
            tell("no --out given: the run is a temporary one; --out RUN keeps verdicts and traces and can be continued")
        with _open_folder(out) as folder:
            batch = options.batch(lambda: edits, folder, self.options.open, usual_repeats=usual_repeats(self.protocol))
            return judge_into_run(batch, options, replace(closing, keeps_run=out is not None))


@contextmanager
def _open_folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        if out.suffix.lower() in FILES:
            raise UserError(f"--out is the run's folder, not a file; --lines {out} writes one line of JSON per pair")
        yield out
        return
    with TemporaryDirectory(prefix="editloupe-reward-") as temporary:
        yield Path(temporary) / "run"


def read_session_table(run: Run, ending: Ending) -> RunTable | None:
    """Return what a session's judge has judged in the run; None if it has judged nothing."""
    if any(
        configuration.name == ending.configuration and configuration.units for configuration in run.configurations()
    ):
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
    defaults: PairDefaults = PairDefaults(),
    allow_outside: bool = False,
    layout: str | None = None,
) -> int:
    """Judge a file of pairs and print how often the judge agrees with people."""
    if way == "pairwise" and not asking.asks_both_at_once:
        raise UserError(f"--pairwise goes with --protocol {layout or DEFAULT_FOR_PAIRS.name}")
    loaded = load_pairs(
        file, asking.protocol, way, allow_outside, task=defaults.task, flags=defaults.flags, layout=layout
    )
    pairs = list(itertools.islice(loaded, limit))
    if not pairs:
        raise UserError(f"{file.name} holds no pairs")
    for sentence in list_assumptions(pairs, asking.protocol) if way == "pointwise" else ():
        tell(sentence)

    def show(run: Run, ending: Ending) -> None:
        table = read_session_table(run, ending)
        report = report_pairs(pairs, table, way, asking.judge, asking.protocol, asking.mode)
        print_report(report, options.as_json, lines, ending.why, build_run_passport(table) if table else None)

    edits = pair_edits(pairs, asking.protocol, way)
    return asking.judge_into_run(edits, out, options, Closing(show=show, report=("reward", "--table")))


def judge_by_score_files(
    file: Path, scores: Sequence[str], limit: int | None, allow_outside: bool = False, layout: str | None = None
) -> list[PairReport]:
    """Compare the scores of reward models, each named as FILE or NAME=FILE, with the choices in a file of pairs."""
    pairs: list[Pair] = list(
        itertools.islice(load_pairs(file, layout, way=None, allow_outside=allow_outside, layout=layout), limit)
    )
    if not pairs:
        raise UserError(f"{file.name} holds no pairs")
    reports = []
    for text in scores:
        name, equals, path = text.partition("=")
        report, notes = judge_by_scores(pairs, Path(path if equals else text), name if equals else None)
        for sentence in notes:
            tell(sentence)
        reports.append(report)
    return reports


def print_report(
    report: PairReport,
    as_json: bool,
    lines: Path | None = None,
    stopped: str | None = None,
    passport: Passport | None = None,
) -> None:
    """Print a report on pairs, and write one line of JSON per pair to `lines`, if it is named."""
    if lines:
        write_text(lines, "".join(dump_record(result) + "\n" for result in report.results))
    if as_json:
        record = {"passport": passport.model_dump(mode="json")} if passport else {}
        print(for_json({**report_to_dict(report), **record, "stopped": stopped}, 2))
    else:
        show_report(report, Console(highlight=False))
        if passport:
            tell(passport.line)


def report_to_dict(report: PairReport) -> dict[str, object]:
    """Return a report as plain JSON, with the accuracies."""

    def count_record(accuracy: Accuracy) -> dict[str, object]:
        return {"accuracy": accuracy.share, **accuracy.model_dump()}

    return {
        **report.model_dump(mode="json", exclude={"overall", "by_dimension"}),
        "overall": count_record(report.overall),
        "by_dimension": {name: count_record(accuracy) for name, accuracy in report.by_dimension.items()},
    }


def show_report(report: PairReport, console: Console) -> None:
    """Print the accuracies as a table."""
    table = Table(box=None, header_style="bold")
    each = bool(report.layout) and report.way == "pairwise" and find_pair_rules(report.layout).orders == "each"
    for name in ("dimension", "accuracy", "right", "judged", "verdicts" if each else "pairs"):
        table.add_column(name, justify="left" if name == "dimension" else "right")
    for name, accuracy in (*report.by_dimension.items(), ("overall", report.overall)):
        share = "–" if accuracy.share is None else f"{accuracy.share:.4f}"
        table.add_row(Text(one_line(name)), share, str(accuracy.correct), str(accuracy.judged), str(accuracy.pairs))
    console.print(table)
    for title, value in report.measures.items():
        text = "–" if value is None else str(value) if isinstance(value, int) else f"{value:.4f}"
        console.print(Text(one_line(f"{title}: {text}")))
    if (
        report.way == "pairwise"
        and not each
        and not (report.layout and find_pair_rules(report.layout).orders == "once")
    ):
        console.print(
            f"the two orders contradict each other in {number_of(report.overall.inconsistent, 'pair')}, which "
            f"{verb(report.overall.inconsistent, 'counts', 'count')} as wrong"
        )
    for why in sorted({result.why for result in report.results if result.why})[:3]:
        tell(f"unjudged, for instance: {why}")
