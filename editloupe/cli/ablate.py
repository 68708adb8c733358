"""`editloupe ablate`: the same edits judged in every combination of some options, and one table of what each makes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.text import command, for_json, number_of, verb
from editloupe.cli.batch import TOOL_MEMORY
from editloupe.cli.batch_options import BatchOptions
from editloupe.cli.edit_options import EditOptions, ManifestFile, protocol_of
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.option_groups import Without, spliced
from editloupe.cli.output import chosen_format, tell, width_for
from editloupe.cli.report import Human, Resamples
from editloupe.cli.vary import read_vary, varied
from editloupe.evals.batch.stopping import INTERRUPTED
from editloupe.rubrics.registry import usual_repeats
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.ablation import Ablation, Combination
    from editloupe.evals.batch.batch import Ending

WIDTH = 120
"""Columns of the text."""
FORMATS = ("text", "md", "json", "csv", "latex")


@spliced
def ablate(
    manifest: ManifestFile,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=V1,V2…",
            help="An option about the judge or a setting of its tools, and its values; may be given again. "
            "The first value of each makes the row that the others are compared with.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run that holds all combinations; the same command continues it.")],
    judge: JudgeOptions,
    *,
    which: EditOptions,
    human: Human = None,
    format: Annotated[
        str | None, typer.Option("--format", help="text, md, json, csv or latex: how the table is printed.")
    ] = None,
    resamples: Resamples = 2000,
    options: Annotated[BatchOptions, Without("keep")],
) -> int:
    """Judge edits in every combination of some options, and print agreement, scores, cost, time and looks of each in one table.

    Replies, looks and verdicts that are the same are shared. A value that is a set has + between its parts.

    Example: editloupe ablate edits.jsonl --vary tools=none,zoom_in_image,all --vary max-turns=4,8 --out runs/ablation
    """
    kind = chosen_format("json" if options.as_json else format, None, FORMATS)
    which.check()
    made = _combinations(manifest, read_vary(vary), out, judge, which, options)
    if options.dry_run:
        return _estimate(made, kind)
    from editloupe.evals.ablation import judge_combinations, measure_run
    from editloupe.evals.stats.bootstrap import Resampling

    if not any("judge" in one.values for one in made):
        judge.announce()
    judged = judge_combinations(made, human, quiet=options.quiet, signals=True, say=tell)
    found = measure_run(out, [one for one, _ in judged], human, Resampling(resamples))
    sys.stdout.write(_RENDERERS[kind](found))
    return _ended(found, [ending for _, ending in judged], out)


def _combinations(
    manifest: Path,
    values: dict[str, tuple[str, ...]],
    out: Path,
    judge: JudgeOptions,
    which: EditOptions,
    options: BatchOptions,
) -> list[Combination]:
    """Return every combination as a batch into the one run; the first one's protocol spells the types of all edits."""
    from editloupe.evals.ablation import Combination, combinations_of
    from editloupe.evals.ablation.combinations import LOOKS

    each = combinations_of(values)
    judges = [which.judged_by(varied(judge, one)) for one in each]
    protocols = dict.fromkeys(map(protocol_of, judges))
    if len(protocols) > 1:
        raise UserError(f"the combinations ask by {' and '.join(protocols)}, whose scores do not compare")
    edits = which.listed(manifest, judges[0]).edits
    shared = out / LOOKS if options.executor == "local" else None
    made = []
    for own, one in zip(judges, each, strict=True):
        opened = replace(own, tool_memory=TOOL_MEMORY, shared_results=shared).open
        batch = options.batch(edits, out, opened, usual_repeats=usual_repeats(own.protocol))
        made.append(Combination(one, batch))
    return made


def _estimate(made: Sequence[Combination], kind: str) -> int:
    from editloupe.evals.ablation.combinations import estimate_combinations

    found = estimate_combinations(made, tell)
    units, requests = sum(one.units for one in found), sum(one.usage.requests for one in found)
    costs = [one.cost for one in found if one.units]
    cost = None if None in costs else sum(one for one in costs if one is not None)
    if kind == "json":
        rows: list[dict[str, Any]] = [
            {"combination": one.name, "units": told.units, "usage": told.usage.model_dump(), "cost": told.cost}
            for one, told in zip(made, found, strict=True)
        ]
        print(for_json({"combinations": rows, "units": units, "cost": cost}, 2))
        return 0
    for one, told in zip(made, found, strict=True):
        price = "unknown price" if told.cost is None else f"about ${told.cost:.2f}"
        print(f"{one.name}: {told.units} units, about {told.usage.requests} requests, {price}")
    whole = "unknown price" if cost is None else f"about ${cost:.2f}"
    measured = any(one.measured for one in found)
    basis = "from units judged already" if measured else "assumed, nothing judged yet"
    both = f"{number_of(len(made), 'combination')}: {number_of(units, 'unit')}"
    print(f"{both} to judge, about {number_of(requests, 'request')}, {whole} ({basis})")
    tell(
        "questions that several combinations ask are counted once; single replies that they share are not known before"
    )
    return 0


def _ended(found: Ablation, endings: Sequence[Ending | None], out: Path) -> int:
    """Say how it ended and what to do next; return the exit code."""
    last = next((ending for ending in reversed(endings) if ending is not None), None)
    waiting = sum(ending is None for ending in endings)
    left = f"{number_of(waiting, 'combination')} {verb(waiting, 'was', 'were')} not begun"
    again = command("editloupe", *sys.argv[1:])
    for sentence in dict.fromkeys(sentence for ending in endings if ending for sentence in ending.damage):
        tell(sentence)
    if last is not None and last.stops_requested and not last.complete:
        tell(f"stopped; nothing is lost, {left}. Continue with the same command: {again}")
        return INTERRUPTED
    if last is not None and last.why and not last.complete:
        tell(f"stopped: {last.why}; {left}. Continue with a higher cap, nothing is asked twice")
    for row in found.rows:
        if lost := sum(cell.unjudged for cell in row.criteria.values()):
            which = ("--configuration", row.configuration) if row.configuration else ()
            tell(f"{lost} unjudged in {row.name}: {command('editloupe', 'report', out, *which)}")
    return 0 if found.complete else 3


def _text(found: Ablation) -> str:
    from editloupe.evals.ablation import ablation_blocks
    from editloupe.evals.report.text import as_text

    return as_text(tuple(ablation_blocks(found)), width_for(None, WIDTH))


def _markdown(found: Ablation) -> str:
    from editloupe.evals.ablation import ablation_blocks
    from editloupe.evals.report.markdown import as_markdown

    return as_markdown(tuple(ablation_blocks(found)))


def _json(found: Ablation) -> str:
    from editloupe.evals.ablation import ablation_table
    from editloupe.evals.report.table_formats import as_facts

    return for_json({**found.model_dump(mode="json"), "tables": [as_facts(ablation_table(found))]}, 2) + "\n"


def _csv(found: Ablation) -> str:
    from editloupe.evals.ablation import ablation_table
    from editloupe.evals.report.table_formats import to_csv

    return to_csv(ablation_table(found))


def _latex(found: Ablation) -> str:
    from editloupe.evals.ablation.tables import ablation_table, for_readers
    from editloupe.evals.report.table_formats import all_to_latex, merge_intervals

    return all_to_latex([for_readers(merge_intervals(ablation_table(found, criterion))) for criterion in found.titles])


_RENDERERS: dict[str, Callable[[Ablation], str]] = {
    "text": _text,
    "md": _markdown,
    "json": _json,
    "csv": _csv,
    "latex": _latex,
}
