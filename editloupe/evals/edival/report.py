"""The report of a run of chains: the paper's tables, marginal curves, Pareto fronts, multi-turn against complex."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from editloupe.evals.edival.metrics import EdivalFigures, ModelFigures, TurnFigures
from editloupe.evals.edival.results import MULTI
from editloupe.evals.report.blocks import Block, Drawing, Grid, Heading, Paragraph, Points
from editloupe.evals.report.draw_figures import Draw
from editloupe.rubrics.edival.scoring import Rate, pareto
from editloupe.rubrics.edival.tasks import TYPES

NONE = "–"
Pick = Callable[[TurnFigures], float | Rate | None]
SHORT = {
    "subject_add": "add",
    "subject_remove": "remove",
    "subject_replace": "replace",
    "color_alter": "color",
    "material_alter": "material",
    "text_change": "text",
    "position_change": "position",
    "count_change": "count",
    "background_change": "background",
}
PAIRS = (("EdiVal-IF", "EdiVal-CC"), ("EdiVal-IF", "EdiVal-VQ"), ("EdiVal-CC", "EdiVal-VQ"))
_AXES: Mapping[str, Pick] = {
    "EdiVal-IF": lambda t: t.chain,
    "EdiVal-CC": lambda t: t.consistency,
    "EdiVal-VQ": lambda t: t.quality,
}
_RULES = {
    "complete": "Pictures count that have a result at every turn, as in the paper's tables.",
    "per_turn": "At each turn the pictures count that have a result at that turn and at all turns before it.",
}


def blocks(figures: EdivalFigures) -> list[Block]:
    """Tell a run in order: what was judged, the tables of every mode, fronts, and multi-turn against complex."""
    found: list[Block] = [Heading(f"EdiVal-Agent: {figures.run}", 1), *_standing(figures)]
    for mode in figures.modes:
        found += _mode_blocks(figures, mode)
    found += _against(figures)
    return found


def _standing(figures: EdivalFigures) -> Iterator[Block]:
    rows = tuple(
        (one.model, one.mode, str(one.pictures), str(one.counted), str(sum(t.marginal.unjudged for t in one.turns)))
        for one in figures.models
    )
    yield Paragraph(f"Judged by {figures.judge}. {_RULES[figures.missing]} What is unjudged counts neither way.")
    yield Grid(("model", "mode", "pictures", "counted", "unjudged turns"), rows)
    if figures.unjudged:
        listed = ", ".join(f"{count} {reason}" for reason, count in figures.unjudged.items())
        yield Paragraph(f"Unjudged units of all criteria: {listed}.", "warning")
    if figures.notes:
        yield Points(figures.notes)


def _mode_blocks(figures: EdivalFigures, mode: str) -> Iterator[Block]:
    models = figures.of(mode)
    what = "turn" if mode == MULTI else "instructions in one prompt"
    yield Heading(f"{mode}: by {what}", 2)
    yield Heading("Following, consistency, overall (Table 3)", 3)
    yield _overall(models)
    yield Heading(f"Success rates (Table {'16' if mode == MULTI else '19'})", 3)
    yield _by_turn(
        models, {"all so far": lambda t: t.chain, "tasks": lambda t: t.tasks, "marginal": lambda t: t.marginal}
    )
    yield Drawing(f"marginal-{mode}", f"Marginal success over turns, {mode}")
    yield Heading(f"By instruction type (Tables {'17 and 18' if mode == MULTI else '20 and 21'})", 3)
    for number in range(figures.turns):
        yield _types(models, number)
    yield Heading(f"Consistency (Table {'22' if mode == MULTI else '25'})", 3)
    yield from _consistency(models)
    if mode == MULTI and figures.square:
        for title, of_shape in (
            ("Square pictures (Table 23)", figures.square),
            ("Other pictures (Table 24)", figures.oblong),
        ):
            yield Heading(title, 3)
            yield from _consistency([one for one in of_shape if one.mode == mode])
    yield Heading(f"Visual quality (Tables 4 and {'26' if mode == MULTI else '27'})", 3)
    yield _by_turn(models, {"VQ": lambda t: t.quality, "|Δ|": lambda t: t.quality_change}, scale=1.0)
    yield _by_turn(models, {"p99": lambda t: t.p99, "p999": lambda t: t.p999})
    if len(models) > 1:
        yield Heading("Pareto fronts (Figures 10, 14 and 15)", 3)
        yield _fronts(models, figures.turns)
        for turn in range(1, figures.turns + 1):
            yield Drawing(f"pareto-{mode}-{turn}", f"Pareto fronts at turn {turn}, {mode}")


def _overall(models: Sequence[ModelFigures]) -> Grid:
    turns = range(len(models[0].turns))
    names = [f"{name} T{n + 1}" for name in ("IF", "CC", "O") for n in turns]
    rows = []
    for rank, one in enumerate(models, 1):
        picks: tuple[Pick, ...] = (lambda t: t.chain, lambda t: t.consistency, lambda t: t.overall)
        cells = [cell(pick(one.turns[n])) for pick in picks for n in turns]
        rows.append((one.model, *cells, cell(one.overall), str(rank) if one.last.overall is not None else NONE))
    note = "Rank by EdiVal-O at the last turn; the column before it is √(mean IF · mean CC) over the turns."
    return Grid(("model", *names, "O", "rank"), tuple(rows), note)


def _types(models: Sequence[ModelFigures], number: int) -> Grid:
    """Return one turn by type; the long names of types are said in a word each."""
    rows = tuple((one.model, *(cell(one.turns[number].types[kind]) for kind in TYPES)) for one in models)
    return Grid((f"T{number + 1}", *(SHORT[kind] for kind in TYPES)), rows)


def _consistency(models: Sequence[ModelFigures]) -> Iterator[Grid]:
    yield _by_turn(models, {"objects": lambda t: t.object_similarity, "background": lambda t: t.background_similarity})
    pixels: Mapping[str, Pick] = {"objects": lambda t: t.object_l1, "background": lambda t: t.background_l1}
    yield replace(_by_turn(models, pixels), note="Above by features, here by pixels: 1 − L1.")


def _by_turn(models: Sequence[ModelFigures], picks: Mapping[str, Pick], scale: float = 100.0) -> Grid:
    turns = range(len(models[0].turns)) if models else range(0)
    columns = tuple(f"{name} T{n + 1}" for name in picks for n in turns)
    rows = tuple((m.model, *(cell(pick(m.turns[n]), scale) for pick in picks.values() for n in turns)) for m in models)
    return Grid(("model", *columns), rows)


def _fronts(models: Sequence[ModelFigures], turns: int) -> Grid:
    rows = []
    for turn in range(1, turns + 1):
        for pair in PAIRS:
            front = pareto(points(models, turn, pair))
            rows.append((f"turn {turn}: {pair[0]} and {pair[1]}", ", ".join(front) or NONE))
    return Grid(("figures", "models on the front"), tuple(rows))


def points(
    models: Sequence[ModelFigures], turn: int, pair: tuple[str, str]
) -> dict[str, tuple[float | None, float | None]]:
    """Return two figures of every model at one turn."""
    by_model = {one.model: one.turns[turn - 1] for one in models}
    return {name: (_number(_AXES[pair[0]](t)), _number(_AXES[pair[1]](t))) for name, t in by_model.items()}


def _against(figures: EdivalFigures) -> Iterator[Block]:
    complex_modes = [mode for mode in figures.modes if mode != MULTI]
    multi = {one.model: one for one in figures.of(MULTI)}
    if not complex_modes or not multi:
        return
    found = {mode: {one.model: one for one in figures.of(mode)} for mode in complex_modes}
    names = [name for name in multi if any(name in by_model for by_model in found.values())]
    rows = []
    for name in names:
        levels = [cell(found[mode][name].last.chain) if name in found[mode] else NONE for mode in complex_modes]
        rows.append((name, cell(multi[name].last.chain), *levels))
    yield Heading("Multi-turn against complex (Tables 5 and 15)", 2)
    head = ("model", f"multi-turn T{figures.turns}", *(f"{mode} C{figures.turns}" for mode in complex_modes))
    yield Grid(head, tuple(rows), "Share of pictures on which every instruction was followed.")


def drawings(figures: EdivalFigures) -> dict[str, Draw]:
    """Return the report's figures by name; each is drawn when it is asked for."""
    found: dict[str, Draw] = {}
    for mode in figures.modes:
        models = figures.of(mode)
        found[f"marginal-{mode}"] = _curves(models)
        for turn in range(1, figures.turns + 1) if len(models) > 1 else ():
            found[f"pareto-{mode}-{turn}"] = _panels(models, turn, mode)
    return found


def _curves(models: Sequence[ModelFigures]) -> Draw:
    from editloupe.evals.edival.plots import marginal_curves

    return lambda: marginal_curves(models)


def _panels(models: Sequence[ModelFigures], turn: int, mode: str) -> Draw:
    from editloupe.evals.edival.plots import pareto_panels

    panels = {pair: points(models, turn, pair) for pair in PAIRS}
    kept = {
        pair: by_model for pair, by_model in panels.items() if any(None not in point for point in by_model.values())
    }
    return lambda: pareto_panels(kept or panels, f"Turn {turn}, {mode}")


def cell(value: float | Rate | None, scale: float = 100.0) -> str:
    """Return a figure as it stands in a table: two digits, a dash where there is none.

    >>> cell(0.7593), cell(None)
    ('75.93', '–')
    """
    number = _number(value)
    return NONE if number is None else f"{scale * number:.2f}"


def _number(value: float | Rate | None) -> float | None:
    return value.value if isinstance(value, Rate) else value
