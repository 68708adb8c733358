"""The command `editloupe traces`."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.files import atomic_text_file
from editloupe._util.text import for_csv, for_json, one_line
from editloupe.cli.output import Out, choose_format, choose_width, format_option, tell
from editloupe.cli.report import Human, HumanColumns, HumanMap, read_label_files
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.traces import FoundTraces, TraceHit

FORMATS = ("text", "json", "csv")
SHOWN = (
    "id",
    "model",
    "criterion",
    "configuration",
    "repeat",
    "label",
    "confidence",
    "human",
    "turns",
    "tools",
    "cost",
)
SOMETIMES = ("model", "repeat", "confidence", "human", "cost")
"""Columns that are left out of the printed list if no row has anything in them."""
SHORTENED_LAST = ("id", "label", "human")
LEFT_OUT_FIRST = ("tools", "turns", "cost")
"""Columns that a narrow terminal does not get, in this order, if those above would be cut too short otherwise."""
UNLIMITED = 10_000
"""Width of the list if it does not go to a terminal."""
NARROWEST_COLUMN, NARROWEST_LABEL, ILLEGIBLE = 8, 14, 3
PATIENCE = 1.0
"""Seconds after which a message says that an index is being built."""


def traces(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    where: Annotated[str, typer.Option("--where", help="The filter. Default: all verdicts.")] = "",
    stats: Annotated[bool, typer.Option("--stats", help="Print statistics of the matches instead of a list.")] = False,
    order: Annotated[
        str, typer.Option("--order", help="manifest, confident, unsure, apart (from people), turns, costly or slow.")
    ] = "manifest",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Show only the first N matches.")] = None,
    human: Human = None,
    columns: HumanColumns = None,
    meanings: HumanMap = None,
    format: Annotated[str | None, format_option(FORMATS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Out = None,
) -> None:
    """Search traces with a filter. docs/reference/filters.md describes the filter language.

    Fields: label, human, score, confidence, status, reason, criterion, model, turns, cost, any column of the manifest …

    Functions: tool("name"), failed("…"), cached("…"), said("words"), thought("…"), called("…"), observed("…"), replied("…").

    Operators: = != < <= > >= ~ (contains), in (…), is null, and, or, not. A comparison with an unknown value is false.

    Example: editloupe traces runs/gpt --where 'human != label and confidence > 0.9' --order confident

    Example: editloupe traces runs/gpt --where 'label = "Over Modification" and tool("zoom_in_image") = 0' --stats
    """
    kind = choose_format("json" if as_json else format, out, FORMATS)
    from editloupe.evals.traces import find_traces

    files = read_label_files(human, columns, meanings)
    result = find_traces(list(dict.fromkeys(runs)), where, human=files, order=order, progress=_Patience())
    if out is None:
        sys.stdout.writelines(_format_result(result, kind, stats, limit))
    else:
        with atomic_text_file(out) as file:
            file.writelines(_format_result(result, kind, stats, limit))
        tell(f"written to {out}")
    for note in (*result.notes, *result.standings()):
        tell(note)


def _format_result(result: FoundTraces, kind: str, stats: bool, limit: int | None) -> Iterable[str]:
    if stats:
        yield from _format_statistics(result, kind)
        return
    several = len(result.folders) > 1
    total = result.total
    if kind == "json":
        head = {"where": result.where, "total": total, "searched": result.searched}
        yield f'{for_json(head)[:-1]}, "traces": ['
        for number, hit in enumerate(_first(result, limit)):
            yield ("," if number else "") + "\n" + for_json(_hit_to_dict(hit))
        yield "\n]}\n"
        return
    columns = ("run", *SHOWN) if several else SHOWN
    names = _name_configurations(result.folders)
    if kind == "csv":
        yield _format_csv_line(columns)
        for hit in _first(result, limit):
            yield _format_csv_line([_build_cells(hit, names)[name] for name in columns])
        return
    rows = [[_format_cell(_build_cells(hit, names)[name]) for name in columns] for hit in _first(result, limit)]
    room = choose_width(None, UNLIMITED)
    natural = {
        columns[number]: max(len(columns[number]), *map(len, column))
        for number, column in enumerate(zip(*rows, strict=True))
        if room == UNLIMITED or _says_something(columns[number], column)
    }
    fitted = _fit_widths(natural, room)
    widths = list(fitted.values())
    for row in (columns, *rows) if rows else ():
        cells = [cell for name, cell in zip(columns, row, strict=True) if name in fitted]
        short = (
            cell if len(cell) <= width else f"{cell[: width - 1]}…" for cell, width in zip(cells, widths, strict=True)
        )
        yield "  ".join(cell.ljust(width) for cell, width in zip(short, widths, strict=True)).rstrip() + "\n"
    limited = f", of which {len(rows)} {'is' if len(rows) == 1 else 'are'} shown" if len(rows) < total else ""
    tell(f"{total} of {result.searched} verdicts fit{limited}")
    if left_out := [name for name in natural if name not in fitted]:
        tell(f"not printed on a terminal of {room} columns: {', '.join(left_out)}")


def _says_something(name: str, column: Sequence[str]) -> bool:
    """Return whether a column of the list is worth its width: models, repeats, people and cost may all be the same."""
    if name == "configuration":
        return len(set(column)) > 1
    return name not in SOMETIMES or any(cell not in ("-", "0", "0.0000") for cell in column)


def _fit_widths(natural: Mapping[str, int], room: int) -> dict[str, int]:
    """Return the widths of columns that fit into a line: some are left out, then the widest are shortened, labels last.

    >>> _fit_widths({"id": 10, "tools": 30, "turns": 5}, 40)
    {'id': 10, 'tools': 21, 'turns': 5}
    >>> _fit_widths({"criterion": 22, "label": 20, "tools": 20}, 32)
    {'criterion': 10, 'label': 20}
    >>> _fit_widths({"criterion": 22, "label": 20}, 18)
    {'criterion': 8, 'label': 8}
    """
    fitted = dict(natural)

    def excess() -> int:
        return sum(fitted.values()) + 2 * (len(fitted) - 1) - room

    least = {name: NARROWEST_LABEL if name in SHORTENED_LAST else NARROWEST_COLUMN for name in natural}
    for name in LEFT_OUT_FIRST:
        if sum(min(width, least[other]) + 2 for other, width in fitted.items()) - 2 > room:
            fitted.pop(name, None)
    for group in ([name for name in fitted if name not in SHORTENED_LAST], list(fitted), None):
        floor = dict.fromkeys(fitted, ILLEGIBLE) if group is None else least
        while excess() > 0 and (wide := [name for name in group or fitted if fitted[name] > floor[name]]):
            fitted[max(wide, key=lambda name: fitted[name])] -= 1
    return fitted


def _name_configurations(folders: Iterable[Path]) -> dict[tuple[Path, str | None], str]:
    """Return the short names of the runs' configurations, which `--configuration` takes."""
    from editloupe.evals.runs.store import Run

    names: dict[tuple[Path, str | None], str] = {}
    for folder in folders:
        with Run.open(folder) as run:
            names |= {(folder, own.name): own.short_name for own in run.configurations()}
    return names


def _first(result: FoundTraces, limit: int | None) -> Iterable[TraceHit]:
    from itertools import islice

    return islice(result, limit)


def _format_cell(cell: Any) -> str:
    return "-" if cell in (None, "") else one_line(str(cell))


def _build_cells(hit: TraceHit, names: Mapping[tuple[Path, str | None], str]) -> dict[str, Any]:
    """Return the cells of a row; None and an empty text mean unknown or missing."""
    tools = " ".join(f"{tool}×{calls}" if calls > 1 else tool for tool, calls in hit.tools.items())
    return {
        "run": hit.run,
        "id": hit.name,
        "model": hit.model,
        "criterion": hit.criterion,
        "configuration": names.get((hit.folder, hit.configuration), hit.configuration),
        "repeat": hit.repeat,
        "label": hit.label or f"unjudged ({hit.reason})",
        "confidence": None if hit.confidence is None else f"{hit.confidence:.2f}",
        "human": hit.human,
        "turns": hit.turns,
        "tools": tools,
        "cost": None if hit.cost is None else f"{hit.cost:.4f}",
    }


def _hit_to_dict(hit: TraceHit) -> dict[str, Any]:
    return {"id": hit.name, **hit.model_dump(mode="json", exclude={"answer", "human_place"})}


def _format_csv_line(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([for_csv(cell) for cell in cells])
    return line.getvalue()


def _format_statistics(result: FoundTraces, kind: str) -> Iterable[str]:
    from editloupe.evals.report.text_renderer import WIDTH, as_text
    from editloupe.evals.report.trace_blocks import statistics_blocks

    if kind == "csv":
        raise UserError("--stats comes as text or json")
    counted = result.statistics()
    if kind == "json":
        yield for_json({"where": result.where, "searched": result.searched, **counted.record()}, 2) + "\n"
        return
    yield as_text(statistics_blocks(counted, result.searched), choose_width(None, WIDTH))


class _Patience:
    """Prints once that an index is being built, if it takes a while."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told = False

    def __call__(self, done: int, whole: int) -> None:
        if not self._told and time.monotonic() - self._began > PATIENCE and whole - done > 2000:
            self._told = True
            tell(f"indexing {whole} verdicts, once; later searches only read what is new")
