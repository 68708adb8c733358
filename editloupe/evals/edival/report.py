"""The report of EdiVal-Agent runs, with the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType

from editloupe.evals.edival.files import MULTI
from editloupe.evals.edival.metrics import EdivalFigures, ModelFigures, TurnFigures
from editloupe.evals.edival.tables import (
    NO_LATENCY,
    build_mode_tables,
    build_tables_across_modes,
    build_type_table,
    select_last_turn,
)
from editloupe.evals.report.block_types import Block, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.report_figures import Draw
from editloupe.evals.report.table_formats import NONE
from editloupe.rubrics.edival import find_pareto_front
from editloupe.rubrics.tables import PrintedTable

PAIRS = (("EdiVal-IF", "EdiVal-CC"), ("EdiVal-IF", "EdiVal-VQ"), ("EdiVal-CC", "EdiVal-VQ"))
_RULES = {
    "complete": "Pictures count that have a result at every turn, as in the paper's tables.",
    "per_turn": "At each turn the pictures count that have a result at that turn and at all turns before it.",
}


def build_blocks(figures: EdivalFigures, latency: Mapping[str, float] = NO_LATENCY) -> list[Block]:
    """Return the blocks of the report: coverage, the tables of every mode, and multi-turn against complex.

    Args:
        figures: The measures.
        latency: Seconds per picture, by model.
    """
    blocks: list[Block] = [Heading(f"EdiVal-Agent: {figures.run}", 1), *_coverage_blocks(figures)]
    if figures.types:
        blocks += _table_blocks([build_type_table(figures)])
    for mode in figures.modes:
        blocks += _mode_blocks(figures, mode, latency)
    if across := build_tables_across_modes(figures):
        blocks += [Heading("Multi-turn against complex", 2), *_table_blocks(across)]
    return blocks


def _table_blocks(tables: Iterable[PrintedTable]) -> Iterator[Block]:
    for table in tables:
        yield Heading(table.title, 3)
        yield table
        if table.figure:
            yield Drawing(table.figure, _caption(table.figure))


def _coverage_blocks(figures: EdivalFigures) -> Iterator[Block]:
    rows = tuple(
        (model.model, model.mode, *map(str, (model.expected, model.pictures, model.counted, *_count_unjudged(model))))
        for model in figures.models
    )
    yield Paragraph(
        f"Judged by {figures.judge}. {_RULES[figures.missing]} A chain with a failure has failed; one without, but with an "
        "unjudged turn, counts neither way."
    )
    columns = ("model", "mode", "expected", "with results", "counted", "unjudged turns", "unknown chains")
    yield PrintedTable("", columns, rows)
    if any(len({model.counted for model in figures.of(mode)}) > 1 for mode in figures.modes):
        yield Paragraph("The models are counted on different numbers of pictures.", "warning")
    if figures.unjudged:
        counts = ", ".join(f"{count} {reason}" for reason, count in figures.unjudged.items())
        yield Paragraph(f"Unjudged units of all criteria: {counts}.", "warning")
    if figures.not_applicable:
        counts = ", ".join(f"{count} of {name.replace('_', ' ')}" for name, count in figures.not_applicable.items())
        yield Paragraph(f"Not applicable, so complete and left out of means: {counts}.")
    if figures.notes:
        yield Points(figures.notes)


def _count_unjudged(model: ModelFigures) -> tuple[int, int]:
    return sum(turn.marginal.unjudged for turn in model.turns), model.last.chain.unjudged


def _mode_blocks(figures: EdivalFigures, mode: str, latency: Mapping[str, float]) -> Iterator[Block]:
    models = figures.of(mode)
    what = "turn" if mode == MULTI else "instructions in one prompt"
    yield Heading(f"{mode}: by {what}", 2)
    yield from _table_blocks(build_mode_tables(figures, mode, latency))
    if len(models) > 1:
        yield Heading("Pareto fronts (Figures 10, 14 and 15)", 3)
        yield _build_front_table(models, figures.turns)
        for turn in range(1, figures.turns + 1):
            yield Drawing(f"pareto-{mode}-{turn}", _caption(f"pareto-{mode}-{turn}"))


def _caption(name: str) -> str:
    kind, _, rest = name.partition("-")
    return {
        "marginal": f"Marginal success over turns, {rest} (Figure {'5' if rest == MULTI else '25'})",
        "types": f"Success by instruction type, turn by turn, {rest} (Figure 6)",
        "luminance": f"99.9 % quantile of luminance over turns, {rest} (Figure 26)",
        "multi": "Every instruction followed: turn by turn, or in one prompt (Figure 9)",
        "pareto": f"Pareto fronts at turn {rest.rpartition('-')[2]}, {rest.rpartition('-')[0]}",
    }[kind]


def _build_front_table(models: Sequence[ModelFigures], turns: int) -> PrintedTable:
    rows = []
    for turn in range(1, turns + 1):
        for pair in PAIRS:
            front = find_pareto_front(list_points(models, turn, pair))
            rows.append((f"turn {turn}: {pair[0]} and {pair[1]}", ", ".join(front) or NONE))
    return PrintedTable("", ("figures", "models on the front"), tuple(rows))


def list_points(
    models: Sequence[ModelFigures], turn: int, pair: tuple[str, str]
) -> dict[str, tuple[float | None, float | None]]:
    """Return a pair of measures of every model at one turn."""
    by_model = {model.model: _axes(model.turns[turn - 1]) for model in models}
    return {name: (axes[pair[0]], axes[pair[1]]) for name, axes in by_model.items()}


def _axes(turn: TurnFigures) -> Mapping[str, float | None]:
    return {"EdiVal-IF": turn.following, "EdiVal-CC": turn.consistency, "EdiVal-VQ": turn.quality}


def build_figures(figures: EdivalFigures) -> dict[str, Draw]:
    """Return functions that draw the report's figures, by name."""
    drawings: dict[str, Draw] = {}
    for mode in figures.modes:
        drawings |= dict(_mode_figures(figures.of(mode), mode, figures.turns))
    last = {
        name: by_mode for name, by_mode in select_last_turn(figures).items() if MULTI in by_mode and len(by_mode) > 1
    }
    if last:
        drawings["multi-against-complex"] = lambda: _plots().draw_multi_against_complex(last, figures.turns)
    return drawings


def _mode_figures(models: Sequence[ModelFigures], mode: str, turns: int) -> Iterator[tuple[str, Draw]]:
    yield f"marginal-{mode}", lambda: _plots().draw_marginal_curves(models)
    if mode == MULTI:
        yield f"types-{mode}", lambda: _plots().draw_types_by_turn(models)
    if any(turn.p999 is not None for model in models for turn in model.turns):
        yield f"luminance-{mode}", lambda: _plots().draw_luminance_curves(models)
    for turn in range(1, turns + 1) if len(models) > 1 else ():
        yield f"pareto-{mode}-{turn}", _panels(models, turn, mode)


def _panels(models: Sequence[ModelFigures], turn: int, mode: str) -> Draw:
    panels = {pair: list_points(models, turn, pair) for pair in PAIRS}
    complete = {
        pair: by_model for pair, by_model in panels.items() if any(None not in point for point in by_model.values())
    }
    return lambda: _plots().draw_pareto_panels(complete or panels, f"Turn {turn}, {mode}")


def _plots() -> ModuleType:
    """Import the drawing functions only if needed, because matplotlib is slow to load."""
    from editloupe.evals.edival import plots

    return plots
