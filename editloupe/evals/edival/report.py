"""The report of runs of chains: the paper's tables, its curves, Pareto fronts, multi-turn against complex."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType

from editloupe.evals.edival.metrics import EdivalFigures, ModelFigures, TurnFigures
from editloupe.evals.edival.results import MULTI
from editloupe.evals.edival.tables import build_mode_tables, build_tables_across_modes, select_last_turn
from editloupe.evals.report.block_types import Block, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.figures.report_figures import Draw
from editloupe.evals.report.table_formats import NONE
from editloupe.rubrics.edival.scoring import find_pareto_front
from editloupe.rubrics.tables import PrintedTable

PAIRS = (("EdiVal-IF", "EdiVal-CC"), ("EdiVal-IF", "EdiVal-VQ"), ("EdiVal-CC", "EdiVal-VQ"))
_RULES = {
    "complete": "Pictures count that have a result at every turn, as in the paper's tables.",
    "per_turn": "At each turn the pictures count that have a result at that turn and at all turns before it.",
}


def build_blocks(figures: EdivalFigures) -> list[Block]:
    """Tell runs in order: what was judged, the tables of every mode, fronts, and multi-turn against complex."""
    found: list[Block] = [Heading(f"EdiVal-Agent: {figures.run}", 1), *_standing(figures)]
    for mode in figures.modes:
        found += _mode_blocks(figures, mode)
    if across := build_tables_across_modes(figures):
        found += [Heading("Multi-turn against complex", 2), *_printed(across)]
    return found


def _printed(tables: Iterable[PrintedTable]) -> Iterator[Block]:
    for one in tables:
        yield Heading(one.title, 3)
        yield one
        if one.figure:
            yield Drawing(one.figure, _caption(one.figure))


def _standing(figures: EdivalFigures) -> Iterator[Block]:
    rows = tuple(
        (one.model, one.mode, *map(str, (one.expected, one.pictures, one.counted, *_unjudged(one))))
        for one in figures.models
    )
    yield Paragraph(
        f"Judged by {figures.judge}. {_RULES[figures.missing]} A chain with a failure has failed; one without, but with an "
        "unjudged turn, counts neither way."
    )
    columns = ("model", "mode", "expected", "with results", "counted", "unjudged turns", "unknown chains")
    yield PrintedTable("", columns, rows)
    if any(len({one.counted for one in figures.of(mode)}) > 1 for mode in figures.modes):
        yield Paragraph("The models are counted on different numbers of pictures.", "warning")
    if figures.unjudged:
        listed = ", ".join(f"{count} {reason}" for reason, count in figures.unjudged.items())
        yield Paragraph(f"Unjudged units of all criteria: {listed}.", "warning")
    if figures.notes:
        yield Points(figures.notes)


def _unjudged(one: ModelFigures) -> tuple[int, int]:
    return sum(turn.marginal.unjudged for turn in one.turns), one.last.chain.unjudged


def _mode_blocks(figures: EdivalFigures, mode: str) -> Iterator[Block]:
    models = figures.of(mode)
    what = "turn" if mode == MULTI else "instructions in one prompt"
    yield Heading(f"{mode}: by {what}", 2)
    yield from _printed(build_mode_tables(figures, mode))
    if len(models) > 1:
        yield Heading("Pareto fronts (Figures 10, 14 and 15)", 3)
        yield _fronts(models, figures.turns)
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


def _fronts(models: Sequence[ModelFigures], turns: int) -> PrintedTable:
    rows = []
    for turn in range(1, turns + 1):
        for pair in PAIRS:
            front = find_pareto_front(list_points(models, turn, pair))
            rows.append((f"turn {turn}: {pair[0]} and {pair[1]}", ", ".join(front) or NONE))
    return PrintedTable("", ("figures", "models on the front"), tuple(rows))


def list_points(
    models: Sequence[ModelFigures], turn: int, pair: tuple[str, str]
) -> dict[str, tuple[float | None, float | None]]:
    """Return two figures of every model at one turn."""
    by_model = {one.model: _axes(one.turns[turn - 1]) for one in models}
    return {name: (axes[pair[0]], axes[pair[1]]) for name, axes in by_model.items()}


def _axes(turn: TurnFigures) -> Mapping[str, float | None]:
    return {"EdiVal-IF": turn.chain.value, "EdiVal-CC": turn.consistency, "EdiVal-VQ": turn.quality}


def build_figures(figures: EdivalFigures) -> dict[str, Draw]:
    """Return the report's figures by name; each is drawn when it is asked for."""
    found: dict[str, Draw] = {}
    for mode in figures.modes:
        found |= dict(_of_mode(figures.of(mode), mode, figures.turns))
    last = {
        name: by_mode for name, by_mode in select_last_turn(figures).items() if MULTI in by_mode and len(by_mode) > 1
    }
    if last:
        found["multi-against-complex"] = lambda: _plots().draw_multi_against_complex(last, figures.turns)
    return found


def _of_mode(models: Sequence[ModelFigures], mode: str, turns: int) -> Iterator[tuple[str, Draw]]:
    yield f"marginal-{mode}", lambda: _plots().draw_marginal_curves(models)
    if mode == MULTI:
        yield f"types-{mode}", lambda: _plots().draw_types_by_turn(models)
    if any(turn.p999 is not None for one in models for turn in one.turns):
        yield f"luminance-{mode}", lambda: _plots().draw_luminance_curves(models)
    for turn in range(1, turns + 1) if len(models) > 1 else ():
        yield f"pareto-{mode}-{turn}", _panels(models, turn, mode)


def _panels(models: Sequence[ModelFigures], turn: int, mode: str) -> Draw:
    panels = {pair: list_points(models, turn, pair) for pair in PAIRS}
    kept = {
        pair: by_model for pair, by_model in panels.items() if any(None not in point for point in by_model.values())
    }
    return lambda: _plots().draw_pareto_panels(kept or panels, f"Turn {turn}, {mode}")


def _plots() -> ModuleType:
    """Import what draws; it is heavy, and a report in the terminal has no figures."""
    from editloupe.evals.edival import plots

    return plots
