"""The command `editloupe stress`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.console import Console
from rich.progress import track

from editloupe._util.text import for_json, format_command, number_of
from editloupe.agent.spec_names import RULES
from editloupe.cli.ablate import add_forecasts, format_forecasts, tell_stop
from editloupe.cli.batch import TOOL_MEMORY, BatchOptions, EditOptions, ManifestFile, protocol_of
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import JUDGING, Without, check_choice, expand_options
from editloupe.cli.output import choose_format, format_option, render_blocks, render_page, split_assignments, tell
from editloupe.evals.manifests.layouts import PLAIN
from editloupe.evals.manifests.pairs import holds_pairs, load_pairs
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, find_pair_rules, find_protocol, list_pair_layouts
from editloupe.types import Edit, Mode, UserError

if TYPE_CHECKING:
    from editloupe.evals.ablation.combinations import Combination, JudgedCombination
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
    format: Annotated[str | None, format_option(FORMATS, out=None)] = None,
    options: Annotated[BatchOptions, Without("keep", "replace", "only")],
) -> int:
    """Judge variants of edits whose right answer is known relative to the original, and count wrong answers.

    `--limit` counts originals, `--repeats` asks the originals several times. `--dry-run` estimates the cost. The result is
    written to standard output.

    Example: editloupe stress edits.jsonl --judge openai:gpt-5.1 --limit 40 --mode tools,plain --out runs/stress

    Example: editloupe stress edits.jsonl --judge openai:gpt-5.1 --limit 40 --out runs/stress --format html > stress.html
    """
    kind = choose_format("json" if options.as_json else format, None, FORMATS)
    if out.suffix in (".html", ".json", ".md", ".txt"):
        raise UserError(f"--out is the folder of the run; write the result with --format {kind} > {out.name}")
    from editloupe.evals.stress.variants import FOLDER, Role, choose_variants, with_variants

    pairs = which.layout in list_pair_layouts() or (which.layout == PLAIN and holds_pairs(manifest))
    chosen = choose_variants([name.strip() for text in variants or () for name in text.split(",")], pairs)
    roles = _read_roles(role or ())
    if pairs:
        judge = _with_pair_protocol(judge, which)
        rules = find_pair_rules(judge.protocol)
        roles = {**roles, **dict.fromkeys(rules.dimensions.values(), Role.PAIR)}
    else:
        which.check()
    each = _list_judges(judge, judges, mode, which)
    first = next(iter(each.values()))
    edits = _list_pairs(manifest, which, judge.protocol) if pairs else which.list_edits(manifest, first).edits
    repeats = options.repeats or 1

    def originals() -> Any:
        return islice(edits(), options.limit)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if options.dry_run else out / FOLDER

        def list_all(with_originals: bool = True) -> Any:
            return with_variants(edits(), chosen, folder, options.limit, with_originals)

        repeated = _combine(each, originals, out, options, repeats)
        changed = _combine(each, list_all, out, options, 1)
        only_variants = _combine(each, lambda: list_all(False), out, options, 1)
        if options.dry_run:
            return _estimate(repeated, only_variants, kind)
        _check_out(originals(), out)
        # The originals go first, so that the run's folder is a run before pictures are written into it.
        endings = [ending for _, ending in _judge(repeated, options)]
        if not _all_done(endings):
            return _print_ending(endings, out, 0)
        keys = [(edit.id, edit.model) for edit in originals()]
        _draw(list_all(False), len(keys) * len(chosen), options.quiet)
        if any(ending and ending.spending.usage.requests for ending in endings):
            tell(f"variants of {number_of(len(keys), 'edit')}: {_format_estimate(only_variants)}")
        judged = _judge(changed, options)
    from editloupe.evals.stress.results import measure_stress

    result = measure_stress(out, [item for item, _ in judged], keys, chosen, roles, repeats)
    sys.stdout.write(_render(result, kind, out))
    unjudged = sum(
        sum(share.unjudged.values())
        for row in result.judges
        for variant in row.variants
        for share in variant.criteria.values()
    )
    return _print_ending([*endings, *(ending for _, ending in judged)], out, unjudged)


def _judge(combinations: Sequence[Combination], options: BatchOptions) -> list[tuple[JudgedCombination, Ending | None]]:
    from editloupe.evals.ablation.combinations import judge_combinations

    return judge_combinations(combinations, quiet=options.quiet, signals=True, say=tell)


def _draw(edits: Iterable[Edit], count: int, quiet: bool) -> None:
    """Write the pictures of all variants, so that judging does not wait for them."""
    console = Console(stderr=True)
    bar = track(
        edits,
        "drawing variants",
        total=count,
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    for _ in bar:
        pass


def _with_pair_protocol(judge: JudgeOptions, which: EditOptions) -> JudgeOptions:
    """Return the options with a protocol that asks about two candidates.

    Raises:
        UserError: If the protocol that is named does not.
    """
    default = DEFAULT_FOR_PAIRS.name if which.layout == PLAIN else which.layout
    name = None if judge.rubrics else judge.protocol or judge.preset().protocol or default
    protocol = find_protocol(name)
    if protocol is None or protocol.pairs is None:
        raise UserError(
            f"the file holds pairs, and {name or 'the rubric file'} has no question on two candidates; "
            f"--protocol {DEFAULT_FOR_PAIRS.name} has"
        )
    return replace(judge, protocol=protocol.name)


def _list_pairs(file: Path, which: EditOptions, protocol: str | None) -> Edits:
    """Return both candidates of every pair as one edit, in the order of the file if it has one."""
    layout = None if which.layout == PLAIN else which.layout
    return lambda: (
        pair.ordered(pair.first == "winner")
        for pair in load_pairs(file, protocol, "pairwise", which.allow_outside, layout=layout)
    )


def _read_roles(texts: Sequence[str]) -> Mapping[str, Role]:
    from editloupe.evals.stress.variants import ROLES, Role

    roles = split_assignments(texts, "--role takes CRITERION=ROLE, such as style=other")
    return {**ROLES, **{criterion: Role(check_choice("--role", name, list(Role))) for criterion, name in roles}}


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
            # The embedded judge has no server, so that it can be compared with a judge that has one.
            url = None if spec == RULES and len(names) > 1 else judge.base_url
            options = which.with_protocol(replace(judge, judge=spec, mode=own, base_url=url))
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


def _all_done(endings: Iterable[Ending | None]) -> bool:
    return all(
        ending is not None and (ending.complete or not ending.why) and not ending.stops_requested for ending in endings
    )


def _estimate(repeated: Sequence[Combination], variants: Sequence[Combination], kind: str) -> int:
    """Print the units, requests and cost of all judges."""
    from editloupe.evals.ablation.combinations import estimate_combinations

    names, forecasts = [item.name for item in repeated], []
    for first, second in zip(*(estimate_combinations(batch, tell) for batch in (repeated, variants)), strict=True):
        forecasts.append(add_forecasts([first, second]))
    if kind == "json":
        rows = [
            {
                **item.values,
                "units": forecast.units,
                "requests": forecast.usage.requests,
                "cost": forecast.cost,
            }
            for item, forecast in zip(repeated, forecasts, strict=True)
        ]
        total = add_forecasts(forecasts)
        facts = {"units": total.units, "requests": total.usage.requests, "cost": total.cost}
        print(for_json({"judges": rows, **facts}, 2))
        return 0
    for line in format_forecasts(names, forecasts, "judge"):
        print(line)
    return 0


def _format_estimate(combinations: Sequence[Combination]) -> str:
    """Return the sum of the estimates in one line."""
    from editloupe.evals.ablation.combinations import estimate_combinations

    return format_forecasts([item.name for item in combinations], estimate_combinations(combinations), "judge")[-1]


def _print_ending(endings: Sequence[Ending | None], out: Path, unjudged: int) -> int:
    """Print how it ended and what to do next; return the exit code."""
    if (code := tell_stop(endings)) is not None:
        return code
    if unjudged:
        tell(f"{number_of(unjudged, 'comparison')} without an answer: {format_command('editloupe', 'report', out)}")
    complete = all(ending is not None and ending.complete for ending in endings)
    return 0 if complete and not unjudged else 3


def _render(result: Stress, kind: str, run: Path) -> str:
    """Return the result in a format."""
    from editloupe.evals.stress.results import stress_blocks, stress_figure

    if kind == "json":
        return for_json(result.model_dump(mode="json"), 2) + "\n"
    blocks = tuple(stress_blocks(result, str(run), figure=kind == "html"))
    if kind == "html":
        return render_page(blocks, stress_figure(result), f"{result.run} – stress test")
    return render_blocks(blocks, kind, None, WIDTH)
