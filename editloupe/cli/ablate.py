"""The command `editloupe ablate`, and its option `--vary`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from editloupe._util.text import for_json, format_command, number_of, verb
from editloupe.cli.batch import TOOL_MEMORY, BatchOptions, EditOptions, ManifestFile, protocol_of
from editloupe.cli.judge_options import TOOLS, JudgeOptions, split_assignment
from editloupe.cli.options import Hidden, Without, expand_options
from editloupe.cli.output import choose_format, format_option, render_blocks, tell
from editloupe.cli.report import Human, HumanMap, OtherHumanColumns, Resamples, read_label_files
from editloupe.evals.batch.progress import Forecast
from editloupe.evals.batch.stopping import INTERRUPTED
from editloupe.judge.settings import OF_THE_MACHINE
from editloupe.rubrics.registry import usual_repeats
from editloupe.tools.settings import setting_names
from editloupe.types import Usage, UserError

if TYPE_CHECKING:
    from editloupe.evals.ablation import Ablation, Combination
    from editloupe.evals.batch.batch import Ending

WIDTH = 120
"""Columns of the text."""
FORMATS = ("text", "md", "json", "csv", "latex")


@expand_options
def ablate(
    manifest: ManifestFile,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=V1,V2…",
            help="An option of the judge or a setting of its tools, and its values. Repeatable. "
            "The first values are the reference of the comparison.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run of all combinations. Run the same command again to continue.")],
    judge: JudgeOptions,
    *,
    which: EditOptions,
    human: Human = None,
    human_columns: OtherHumanColumns = None,
    meanings: HumanMap = None,
    format: Annotated[str | None, format_option(FORMATS, out=None)] = None,
    resamples: Resamples = None,
    options: Annotated[BatchOptions, Without("keep"), Hidden("as_json")],
) -> int:
    """Judge the same edits in every combination of some options, and compare agreement, scores, cost and time in one table.

    Identical replies, tool results and verdicts are shared. Write + between the items of a list, as in tools=a+b.

    Example: editloupe ablate edits.jsonl --vary tools=none,zoom_in_image,all --vary max-turns=4,8 --out runs/ablation
    """
    kind = choose_format("json" if options.as_json else format, None, FORMATS)
    which.check()
    files = read_label_files(human, human_columns, meanings)
    combinations = _combinations(manifest, read_vary(vary), out, judge, which, options)
    if options.dry_run:
        return _estimate(combinations, kind)
    from editloupe.evals.ablation import judge_combinations, measure_run

    if not any("judge" in combination.values for combination in combinations):
        judge.announce()
    judged = judge_combinations(combinations, files, quiet=options.quiet, signals=True, say=tell)
    ablation = measure_run(out, [combination for combination, _ in judged], files)
    sys.stdout.write(_render(ablation, kind))
    return _print_ending(ablation, [ending for _, ending in judged], out)


def _combinations(
    manifest: Path,
    values: dict[str, tuple[str, ...]],
    out: Path,
    judge: JudgeOptions,
    which: EditOptions,
    options: BatchOptions,
) -> list[Combination]:
    """Return every combination as a batch into one run. The first one's protocol spells the types of all edits."""
    from editloupe.evals.ablation import Combination, combinations_of
    from editloupe.evals.ablation.combinations import LOOKS

    each = combinations_of(values)
    judges = [which.with_protocol(vary_options(judge, combination)) for combination in each]
    protocols = dict.fromkeys(map(protocol_of, judges))
    if len(protocols) > 1:
        raise UserError(f"the combinations use {' and '.join(protocols)}, whose scores cannot be compared")
    edits = which.list_edits(manifest, judges[0]).edits
    shared = out / LOOKS if options.executor == "local" else None
    combinations = []
    for varied, combination in zip(judges, each, strict=True):
        open_judge = replace(varied, tool_memory=TOOL_MEMORY, shared_results=shared).open
        batch = options.batch(edits, out, open_judge, usual_repeats=usual_repeats(varied.protocol))
        combinations.append(Combination(combination, batch))
    return combinations


def _estimate(combinations: Sequence[Combination], kind: str) -> int:
    from editloupe.evals.ablation.combinations import estimate_combinations

    forecasts = estimate_combinations(combinations, tell)
    names = [combination.name for combination in combinations]
    if kind == "json":
        rows: list[dict[str, Any]] = [
            {"combination": name, "units": forecast.units, "usage": forecast.usage.model_dump(), "cost": forecast.cost}
            for name, forecast in zip(names, forecasts, strict=True)
        ]
        total = add_forecasts(forecasts)
        print(for_json({"combinations": rows, "units": total.units, "cost": total.cost}, 2))
        return 0
    for line in format_forecasts(names, forecasts, "combination"):
        print(line)
    tell("questions that several combinations share are counted once; shared single replies are not known beforehand")
    return 0


def add_forecasts(forecasts: Sequence[Forecast]) -> Forecast:
    """Return the sum of estimates; its cost is None if a cost that counts is unknown."""
    costs = [forecast.cost for forecast in forecasts if forecast.units]
    return Forecast(
        units=sum(forecast.units for forecast in forecasts),
        usage=sum((forecast.usage for forecast in forecasts), Usage()),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        measured=sum(forecast.measured for forecast in forecasts),
    )


def format_forecasts(names: Sequence[str], forecasts: Sequence[Forecast], noun: str) -> list[str]:
    """Return a line per estimate and one for their sum.

    Args:
        names: The name of each estimate.
        forecasts: The estimates.
        noun: What the estimates are about, in the singular.
    """
    total = add_forecasts(forecasts)
    basis = "from units judged already" if total.measured else "assumed, nothing judged yet"
    lines = [
        f"{name}: {number_of(forecast.units, 'unit')}, about {number_of(forecast.usage.requests, 'request')}, "
        f"{_format_price(forecast.cost)}"
        for name, forecast in zip(names, forecasts, strict=True)
    ]
    return [
        *lines,
        f"{number_of(len(names), noun)}: {number_of(total.units, 'unit')} to judge, "
        f"about {number_of(total.usage.requests, 'request')}, {_format_price(total.cost)} ({basis})",
    ]


def _format_price(cost: float | None) -> str:
    return "unknown price" if cost is None else f"about ${cost:.2f}"


def tell_stop(endings: Sequence[Ending | None], waiting: str = "") -> int | None:
    """Print the damage that was found, and why and how to continue if judging stopped early.

    Args:
        endings: How the batches ended; None for those that were not started.
        waiting: What was not started, if anything.

    Returns:
        The exit code if the user stopped it.
    """
    for sentence in dict.fromkeys(sentence for ending in endings if ending for sentence in ending.damage):
        tell(sentence)
    last = next((ending for ending in reversed(endings) if ending is not None), None)
    if last is None or last.complete:
        return None
    if last.stops_requested:
        again = format_command("editloupe", *sys.argv[1:])
        tell(f"stopped; nothing is lost{waiting and f', {waiting}'}. Continue with the same command: {again}")
        return INTERRUPTED
    if last.why:
        tell(f"stopped: {last.why}{waiting and f'; {waiting}'}. Continue with a higher cap, nothing is asked twice")
    return None


def _print_ending(ablation: Ablation, endings: Sequence[Ending | None], out: Path) -> int:
    """Print how it ended and what to do next; return the exit code."""
    count = sum(ending is None for ending in endings)
    waiting = f"{number_of(count, 'combination')} {verb(count, 'was', 'were')} not begun"
    if (code := tell_stop(endings, waiting)) is not None:
        return code
    for row in ablation.rows:
        if lost := sum(cell.unjudged for cell in row.criteria.values()):
            which = ("--configuration", row.configuration) if row.configuration else ()
            tell(f"{lost} unjudged in {row.name}: {format_command('editloupe', 'report', out, *which)}")
    return 0 if ablation.complete else 3


def _render(ablation: Ablation, kind: str) -> str:
    """Return the table in a format."""
    from editloupe.evals.ablation import ablation_blocks
    from editloupe.evals.ablation.tables import ablation_table, format_numbers
    from editloupe.evals.report.table_formats import all_to_latex, merge_intervals, table_to_dict, to_csv

    if kind == "json":
        tables = [table_to_dict(ablation_table(ablation))]
        return for_json({**ablation.model_dump(mode="json"), "tables": tables}, 2) + "\n"
    if kind == "csv":
        return to_csv(ablation_table(ablation))
    if kind == "latex":
        return all_to_latex(
            [format_numbers(merge_intervals(ablation_table(ablation, criterion))) for criterion in ablation.titles]
        )
    return render_blocks(tuple(ablation_blocks(ablation)), kind, None, WIDTH)


R = TypeVar("R")
UNCHANGED = "default"
"""The value that leaves an option as the rest of the command has it."""
TOOL_SETTINGS_BY_OPTION = ("offered", "enhancer", "detector", "device", "read_text", "overview")
"""Settings of the tools with an option of their own."""
NOT_VARIED = {
    "base-url": "where a model is served decides no answer",
    "timeout": "how long a reply is waited for decides no answer",
    "device": "where a model runs decides no answer",
    "detector-download": "it decides no answer",
    "header": "headers decide no answer",
    "protocol": "scores of different protocols do not compare",
    "criterion": "the table lists criteria separately anyway",
    "tool-set": "name the setting itself, as in --vary max_regions=3,5",
    "set": "name the setting itself, as in --vary max_repairs=1,3",
}
"""Options that cannot be varied, and why."""
LISTS = ("tools", "tells")
"""Options whose value is a list separated by commas; `--vary` has `+` between the items."""


def read_vary(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of every key, in order.

    Raises:
        UserError: If a key cannot be varied, or a key or a value is repeated.

    >>> read_vary(["tools=none,zoom_in_image+localize_differences", "max-turns=4,8"])
    {'tools': ('none', 'zoom_in_image+localize_differences'), 'max-turns': ('4', '8')}
    """
    values_by_key: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        # A JSON object has commas of its own.
        values = [value.strip() for value in rest.split(";" if ";" in rest else ",")]
        if not equals or not name.strip() or not all(values):
            raise UserError(f'"{text}" is not KEY=V1,V2…; write for instance --vary enhancer=none,fast')
        key = _find_key(name.strip())
        if key in values_by_key:
            raise UserError(f"--vary {key} is given twice; write all its values in one")
        if len(set(values)) < len(values):
            raise UserError(f"--vary {key} has a value twice")
        values_by_key[key] = tuple(values)
    return values_by_key


def vary_options(judge: JudgeOptions, values: Mapping[str, str]) -> JudgeOptions:
    """Return the options with these values. The options themselves parse the values, so they refuse what `batch` refuses."""
    arguments: list[str] = []
    names: set[str] = set()
    tool_set = list(judge.tools.tool_set or ())
    for key, value in values.items():
        if value == UNCHANGED and key != "setup":
            continue
        if key in _options():
            names.add(_options()[key].name)
            arguments += _arguments(key, value)
        else:
            names.add(key)
            tool_set.append(f"{key}={value.replace('+', ',')}")
    parsed: JudgeOptions = _command().main(arguments, prog_name="editloupe ablate", standalone_mode=False)
    judge = _replace_fields(judge, parsed, names)
    replaced = {*names, *(f"{TOOLS}{name}" for name in names)}
    set_values = [text for text in judge.set_values or () if split_assignment(text)[0] not in replaced]
    return replace(judge, set_values=set_values or None, tools=replace(judge.tools, tool_set=tool_set or None))


def _arguments(key: str, value: str) -> list[str]:
    """Return the words that set an option on the command line of `batch`."""
    option = _options()[key]
    if option.is_flag:
        on = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}.get(value.lower())
        if on is None:
            raise UserError(f'--vary {key} takes on and off, not "{value}"')
        return list(option.opts[:1] if on else option.secondary_opts[:1])
    if option.multiple:
        return [word for item in value.split("+") if item != "none" for word in (option.opts[0], item)]
    return [option.opts[0], value.replace("+", ",") if key in LISTS else value]


def _replace_fields(record: R, other: Any, names: set[str]) -> R:
    """Return a record with the named fields of another one, also in nested records."""
    changes = {}
    for field in fields(record):  # type: ignore[arg-type]
        own, new = getattr(record, field.name), getattr(other, field.name)
        if is_dataclass(own):
            changes[field.name] = _replace_fields(own, new, names)
        elif field.name in names:
            changes[field.name] = new
    return replace(record, **changes)  # type: ignore[type-var]


def _find_key(name: str) -> str:
    """Return a key as `read_vary` spells it; an unknown one raises with the nearest."""
    dashed = name.removeprefix("--").replace("_", "-")
    underscored = name.removeprefix(TOOLS).replace("-", "_")
    if dashed in NOT_VARIED:
        raise UserError(f"--vary {dashed} makes no sense: {NOT_VARIED[dashed]}")
    if dashed in _options():
        return dashed
    if underscored in _tool_settings():
        return underscored
    keys = [*_options(), *_tool_settings()]
    near = get_close_matches(dashed, keys, n=3, cutoff=0.6) or get_close_matches(underscored, keys, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(keys)}"
    raise UserError(f'--vary takes an option of batch that decides the answer, and "{name}" is not one; {hint}')


@cache
def _command() -> Any:
    """Return a command that has the options about a judge and returns them."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(_return_options)
    return typer.main.get_command(app)


@expand_options
def _return_options(judge: JudgeOptions) -> JudgeOptions:
    return judge


@cache
def _options() -> dict[str, Any]:
    """Return the options that can be varied, by their name without the dashes."""
    options = {max(option.opts, key=len).removeprefix("--"): option for option in _command().params}
    return {name: option for name, option in options.items() if name not in NOT_VARIED and name != "help"}


@cache
def _tool_settings() -> tuple[str, ...]:
    """Return the settings of the tools that can be varied and have no option of their own."""
    excluded = {*OF_THE_MACHINE, *TOOL_SETTINGS_BY_OPTION, "plugins"}
    return tuple(name for name in setting_names() if name not in excluded)
