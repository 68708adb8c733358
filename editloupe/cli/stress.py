"""The command `editloupe stress`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from editloupe._util.text import for_json, format_command, number_of
from editloupe.cli.batch import TOOL_MEMORY, BatchOptions, EditOptions, ManifestFile, protocol_of
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import JUDGING, Without, check_choice, expand_options
from editloupe.cli.output import choose_format, choose_width, tell
from editloupe.evals.batch.stopping import INTERRUPTED
from editloupe.types import Mode, UserError

if TYPE_CHECKING:
    from editloupe.evals.ablation import Combination
    from editloupe.evals.batch.batch import Edits, Ending
    from editloupe.evals.stress.results import Stress
    from editloupe.evals.stress.variants import Role

WIDTH = 140
"""Columns of the text."""
FORMATS = ("text", "json", "md", "html")


@expand_options
def stress(
    manifest: ManifestFile,
    out: Annotated[Path, typer.Option(help="The run of all judges. Run the same command again to continue.")],
    judge: Annotated[JudgeOptions, Without("judge", "mode")],
    *,
    judges: Annotated[
        list[str] | None,
        typer.Option("--judge", metavar="SPEC", help="A judge to test. Repeatable.", rich_help_panel=JUDGING),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(help="Modes to test, separated by commas: tools,plain. Default: the protocol's default mode."),
    ] = None,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,…",
            help="Only these variants; text selects all that begin with text. Repeatable. Default: all.",
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CRITERION=ROLE",
            help="Role of a criterion: instruction, consistency or other. Repeatable.",
            hidden=True,
        ),
    ] = None,
    which: EditOptions,
    format: Annotated[
        str | None, typer.Option("--format", help="Format of the result: text, json, md or html.")
    ] = None,
    options: Annotated[BatchOptions, Without("keep", "replace", "only")],
) -> int:
    """Judge variants of edits whose right answer is known relative to the original, and count wrong answers.

    `--limit` counts originals, `--repeats` asks the originals several times. `--dry-run` estimates the cost.

    Example: editloupe stress edits.jsonl --judge openai:gpt-5.1 --limit 40 --mode tools,plain --out runs/stress
    """
    kind = choose_format("json" if options.as_json else format, None, FORMATS)
    which.check()
    from editloupe.evals.ablation.combinations import judge_combinations
    from editloupe.evals.stress.results import measure_stress
    from editloupe.evals.stress.variants import FOLDER, choose_variants, with_variants

    chosen = choose_variants([name.strip() for text in variants or () for name in text.split(",")])
    roles = _read_roles(role or ())
    each = _list_judges(judge, judges, mode, which)
    edits = which.list_edits(manifest, next(iter(each.values()))).edits
    repeats = options.repeats or 1

    def originals() -> Any:
        return islice(edits(), options.limit)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if options.dry_run else out / FOLDER
        changed = _combine(each, lambda: with_variants(edits(), chosen, folder, options.limit), out, options, 1)
        repeated = _combine(each, originals, out, options, repeats)
        if options.dry_run:
            return _estimate([changed, *([repeated] if repeats > 1 else [])], kind)
        _check_out(originals(), out)
        # The originals go first, so that the run's folder is a run before pictures are written into it.
        stopped = [end for _, end in judge_combinations(repeated, quiet=options.quiet, signals=True, say=tell)]
        judged = judge_combinations(changed, quiet=options.quiet, signals=True, say=tell) if _all_done(stopped) else []
    if not judged:
        return _print_ending(stopped, out, 0)
    keys = [(edit.id, edit.model) for edit in originals()]
    result = measure_stress(out, [item for item, _ in judged], keys, chosen, roles, repeats)
    sys.stdout.write(_RENDERERS[kind](result, out))
    unjudged = sum(
        sum(share.unjudged.values())
        for row in result.judges
        for variant in row.variants
        for share in variant.criteria.values()
    )
    return _print_ending([*stopped, *(ending for _, ending in judged)], out, unjudged)


def _read_roles(texts: Sequence[str]) -> Mapping[str, Role]:
    from editloupe.evals.stress.variants import ROLES, Role

    roles = dict(ROLES)
    for text in texts:
        criterion, equals, name = text.partition("=")
        if not (criterion and equals) or name not in list(Role):
            raise UserError(f'--role takes CRITERION=ROLE with the roles {", ".join(Role)}, not "{text}"')
        roles[criterion] = Role(name)
    return roles


def _list_judges(
    judge: JudgeOptions, specs: Sequence[str] | None, mode: str | None, which: EditOptions
) -> dict[tuple[str, str], JudgeOptions]:
    """Return the options of every judge and mode, by their names."""
    names: list[str | None] = list(dict.fromkeys(specs)) if specs else [None]
    modes: list[str | None] = [name.strip() for name in mode.split(",")] if mode else [None]
    each: dict[tuple[str, str], JudgeOptions] = {}
    for spec in names:
        for own in modes:
            if own is not None:
                check_choice("--mode", own, get_args(Mode))
            options = which.with_protocol(replace(judge, judge=spec, mode=own))
            opened = options.open()
            try:
                key = options.spec or "rules", str(opened.describe()["mode"])
            finally:
                opened.close()
            each[key] = options
    if len(protocols := dict.fromkeys(map(protocol_of, each.values()))) > 1:
        raise UserError(f"the judges use {' and '.join(protocols)}, whose answers cannot be compared")
    next(iter(each.values())).announce()
    return each


def _combine(
    each: Mapping[tuple[str, str], JudgeOptions], edits: Edits, out: Path, options: BatchOptions, repeats: int
) -> list[Combination]:
    from editloupe.evals.ablation.combinations import LOOKS, Combination

    shared = out / LOOKS if options.executor == "local" and not options.dry_run else None
    unlimited = replace(options, limit=None, repeats=repeats)
    return [
        Combination(
            {"judge": spec, "mode": mode},
            unlimited.batch(edits, out, replace(judge, tool_memory=TOOL_MEMORY, shared_results=shared).open),
        )
        for (spec, mode), judge in each.items()
    ]


def _check_out(originals: Any, out: Path) -> None:
    """Raise if the manifest has no edits, before any file is written."""
    if next(iter(originals), None) is None:
        raise UserError("the manifest holds no edits to judge")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file, not the folder of a run")


def _all_done(endings: Sequence[Ending | None]) -> bool:
    return all(
        ending is not None and (ending.complete or not ending.why) and not ending.stops_requested for ending in endings
    )


def _estimate(batches: Sequence[Sequence[Combination]], kind: str) -> int:
    """Print the units, requests and cost of all judges. Originals that are repeated are counted twice at most once."""
    from editloupe.evals.ablation.combinations import estimate_combinations

    rows: list[dict[str, Any]] = []
    for combinations in batches:
        for combination, forecast in zip(combinations, estimate_combinations(combinations, tell), strict=True):
            row = {"judge": combination.values["judge"], "mode": combination.values["mode"]}
            rows.append(row | {"units": forecast.units, "requests": forecast.usage.requests, "cost": forecast.cost})
    units, requests = (sum(row[name] for row in rows) for name in ("units", "requests"))
    costs = [row["cost"] for row in rows if row["units"]]
    total = None if None in costs else sum(costs)
    if kind == "json":
        print(for_json({"judges": rows, "units": units, "requests": requests, "cost": total}, 2))
        return 0
    for row in rows:
        price = "unknown price" if row["cost"] is None else f"about ${row['cost']:.2f}"
        print(f"{row['judge']} · {row['mode']}: {row['units']} units, about {row['requests']} requests, {price}")
    price = "unknown price" if total is None else f"about ${total:.2f}"
    print(f"{number_of(units, 'unit')} to judge, about {number_of(requests, 'request')}, {price}")
    return 0


def _print_ending(endings: Sequence[Ending | None], out: Path, unjudged: int) -> int:
    """Print how it ended and what to do next; return the exit code."""
    for sentence in dict.fromkeys(sentence for ending in endings if ending for sentence in ending.damage):
        tell(sentence)
    last = next((ending for ending in reversed(endings) if ending is not None), None)
    again = format_command("editloupe", *sys.argv[1:])
    if last is not None and last.stops_requested and not last.complete:
        tell(f"stopped; nothing is lost. Continue with the same command: {again}")
        return INTERRUPTED
    if last is not None and last.why and not last.complete:
        tell(f"stopped: {last.why}. Continue with a higher cap, nothing is asked twice")
    if unjudged:
        tell(f"{number_of(unjudged, 'comparison')} without an answer: {format_command('editloupe', 'report', out)}")
    complete = all(ending is not None and ending.complete for ending in endings)
    return 0 if complete and not unjudged else 3


def _text(result: Stress, out: Path) -> str:
    from editloupe.evals.report.text_renderer import as_text
    from editloupe.evals.stress.tables import stress_blocks

    return as_text(tuple(stress_blocks(result, str(out))), choose_width(None, WIDTH))


def _markdown(result: Stress, out: Path) -> str:
    from editloupe.evals.report.text_renderer import as_markdown
    from editloupe.evals.stress.tables import stress_blocks

    return as_markdown(tuple(stress_blocks(result, str(out))))


def _html(result: Stress, out: Path) -> str:
    from importlib.metadata import version

    from editloupe.evals.report.html_renderer import as_html
    from editloupe.evals.stress.tables import stress_blocks, stress_figure

    blocks = tuple(stress_blocks(result, str(out), figure=True))
    title = f"{result.run} – stress test"
    return as_html(blocks, stress_figure(result), title, f"Made by EditLoupe {version('editloupe')}.")


def _json(result: Stress, out: Path) -> str:
    return for_json(result.model_dump(mode="json"), 2) + "\n"


_RENDERERS: dict[str, Callable[[Any, Path], str]] = {"text": _text, "json": _json, "md": _markdown, "html": _html}
