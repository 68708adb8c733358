"""The report of EdiVal-Agent runs, with the paper's tables and figures, and the correlation of two settings (Table 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, ModuleType

import numpy as np

from editloupe.evals.edival.files import MODES, MULTI
from editloupe.evals.edival.metrics import EdivalFigures, ModelFigures, TurnFigures
from editloupe.evals.report.block_types import Block, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.report_figures import Draw
from editloupe.evals.report.table_formats import NONE
from editloupe.evals.stats.agreement.coefficients import pearson, spearman
from editloupe.rubrics.edival import Alpha, Rate, find_pareto_front
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.rubrics.tables import Cell, PrintedTable
from editloupe.types import Record, UserError

Pick = Callable[[TurnFigures], float | Rate | None]
NO_LATENCY: Mapping[str, float] = MappingProxyType({})
LEAST_CONSISTENCY, LEAST_QUALITY = 90.0, 6.0
"""Thresholds of Figure 1."""
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


def build_tables(figures: EdivalFigures, latency: Mapping[str, float] = NO_LATENCY) -> list[PrintedTable]:
    """Return all tables of the judged results.

    Args:
        figures: The measures.
        latency: Seconds per picture, by model; a column of Table 3 if it is not empty.
    """
    by_mode = [table for mode in figures.modes for table in build_mode_tables(figures, mode, latency)]
    counts = [build_type_table(figures)] if figures.types else []
    return [*counts, *by_mode, *build_tables_across_modes(figures)]


def build_type_table(figures: EdivalFigures) -> PrintedTable:
    """Return the number of instructions by type and turn (Table 2)."""
    columns = ("type", *(f"T{turn}" for turn in range(1, figures.turns + 1)), "total")
    rows: tuple[tuple[Cell, ...], ...] = tuple((kind, *counts, sum(counts)) for kind, counts in figures.types.items())
    return PrintedTable("Table 2: instructions by type and turn", columns, rows, numbers=("2",))


def choose_tables(tables: Sequence[PrintedTable], wanted: Sequence[str]) -> list[PrintedTable]:
    """Return the tables with some numbers, or all tables if no number is named.

    Raises:
        UserError: If there is no table with one of the numbers.
    """
    numbers = sorted({number for table in tables for number in table.numbers}, key=int)
    for number in wanted:
        if number not in numbers:
            raise UserError(f'the run has no Table "{number}"; it has {", ".join(numbers)}')
    return [table for table in tables if not wanted or set(table.numbers) & set(wanted)]


def build_mode_tables(
    figures: EdivalFigures, mode: str, latency: Mapping[str, float] = NO_LATENCY
) -> Iterator[PrintedTable]:
    """Yield the tables of one mode. Modes that are not in the paper have tables without numbers."""
    models, multi = figures.of(mode), mode == MULTI

    def table(ours: str, theirs: str, title: str, columns: Sequence[str], rows: _Rows, *notes: str) -> PrintedTable:
        """Build a table with its numbers in multi-turn mode (`ours`) or for a single prompt (`theirs`)."""
        numbers = tuple((ours if multi else theirs if mode == "complex" else "").split())
        head = f"Table{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)}: " if numbers else ""
        return PrintedTable(f"{head}{title}, {mode}", tuple(columns), tuple(rows), notes, numbers=numbers)

    yield table("3", "", "following, consistency and overall", *_overall(models, figures.alpha, latency))
    yield table("", "", "Figure 1: consistency and quality above its thresholds", *_thresholds(models))
    rates: Mapping[str, Pick] = {
        "all so far": lambda t: t.chain,
        "tasks": lambda t: t.tasks,
        "marginal": lambda t: t.marginal,
    }
    yield replace(table("16", "19", "success rates", *_by_turn(models, rates)), figure=f"marginal-{mode}")
    for number in range(figures.turns):
        by_type = table("17 18", "20 21", f"success by instruction type, T{number + 1}", *_types(models, number))
        yield replace(by_type, figure=f"types-{mode}" if number == figures.turns - 1 else "")
    features: Mapping[str, Pick] = {
        "objects": lambda t: t.object_similarity,
        "background": lambda t: t.background_similarity,
    }
    pixels: Mapping[str, Pick] = {"objects": lambda t: t.object_l1, "background": lambda t: t.background_l1}
    shapes = [("22", "25", "consistency", models)]
    if multi and figures.square:
        shapes.append(("23", "", "consistency of square pictures", _in_mode(figures.square, mode)))
        shapes.append(("24", "", "consistency of other pictures", _in_mode(figures.oblong, mode)))
    for ours, theirs, title, of_shape in shapes:
        yield table(ours, theirs, f"{title} by features", *_by_turn(of_shape, features))
        yield table(ours, theirs, f"{title} by pixels (1 − L1)", *_by_turn(of_shape, pixels))
    quality: Mapping[str, Pick] = {"VQ": lambda t: t.quality, "|Δ|": lambda t: t.quality_change}
    yield table("4", "", "visual quality and its distance from the base pictures", *_by_turn(models, quality, 1.0))
    measured: Mapping[str, Pick] = {"p999": lambda t: t.p999, "p99": lambda t: t.p99}
    columns, rows = _by_turn(models, {"VQ": lambda t: t.quality}, 1.0)
    more, luminance = _by_turn(models, measured)
    joined = [(*left, *right[1:]) for left, right in zip(rows, luminance, strict=True)]
    looks = table("26", "27", "visual quality and luminance quantiles", (*columns, *more[1:]), joined)
    yield replace(looks, figure=f"luminance-{mode}")


_Rows = Sequence[tuple[Cell, ...]]


def _in_mode(models: Sequence[ModelFigures], mode: str) -> tuple[ModelFigures, ...]:
    return tuple(model for model in models if model.mode == mode)


def _thresholds(models: Sequence[ModelFigures]) -> tuple[tuple[str, ...], _Rows]:
    """Return whether CC and VQ of every turn reach the thresholds of Figure 1."""
    picks: Mapping[str, Callable[[TurnFigures], bool | None]] = {
        f"CC ≥ {LEAST_CONSISTENCY:g}": lambda t: _reaches(to_percent(t.consistency), LEAST_CONSISTENCY),
        f"VQ ≥ {LEAST_QUALITY:g}": lambda t: _reaches(t.quality, LEAST_QUALITY),
    }
    columns = [f"{name} T{turn.turn}" for name in picks for turn in models[0].turns]
    rows = []
    for model in models:
        cells = (pick(turn) for pick in picks.values() for turn in model.turns)
        rows.append((model.model, *(None if cell is None else "yes" if cell else "no" for cell in cells)))
    return ("model", *columns), rows


def _reaches(value: float | None, least: float) -> bool | None:
    return None if value is None else value >= least


def _overall(
    models: Sequence[ModelFigures], alpha: Alpha, latency: Mapping[str, float]
) -> tuple[tuple[str, ...], _Rows, str]:
    turns = range(len(models[0].turns))
    names = [f"{name} T{n + 1}" for name in ("IF", "CC", "O") for n in turns]
    picks: tuple[Pick, ...] = (lambda t: t.following, lambda t: t.consistency, lambda t: t.overall)
    rows: list[tuple[Cell, ...]] = []
    ends = [model.last.overall for model in models]
    for model in models:
        cells = [to_percent(pick(model.turns[n])) for pick in picks for n in turns]
        rank = ends.index(model.last.overall) + 1 if model.last.overall is not None else None
        seconds = (latency.get(model.model),) if latency else ()
        rows.append(
            (model.model, *seconds, *cells, to_percent(model.overall), rank, model.last.chain.judged, model.expected)
        )
    note = (
        "Rank by EdiVal-O at the last turn; equal scores share a rank. O without a turn is √(mean IF · mean CC) over the turns. "
        "Judged: chains with a known outcome at the last turn. Expected: base pictures of the run."
    )
    if alpha == "types":
        note += " IF is the mean over instruction types (Section O.4), not the share of all pictures."
    return ("model", *(("latency, s",) if latency else ()), *names, "O", "rank", "judged", "expected"), rows, note


def _types(models: Sequence[ModelFigures], number: int) -> tuple[tuple[str, ...], _Rows]:
    """Return columns and rows of success by type at one turn, with short names of types."""
    rows = [(model.model, *(to_percent(model.turns[number].types[kind]) for kind in TYPES)) for model in models]
    return (f"T{number + 1}", *(SHORT[kind] for kind in TYPES)), rows


def _by_turn(
    models: Sequence[ModelFigures], picks: Mapping[str, Pick], scale: float = 100.0
) -> tuple[tuple[str, ...], _Rows]:
    turns = range(len(models[0].turns)) if models else range(0)
    columns = [f"{name} T{n + 1}" for name in picks for n in turns]
    rows = [
        (model.model, *(to_percent(pick(model.turns[n]), scale) for pick in picks.values() for n in turns))
        for model in models
    ]
    return ("model", *columns), rows


def build_tables_across_modes(figures: EdivalFigures) -> list[PrintedTable]:
    """Return tables that compare the last turn of multi-turn editing with a single prompt, per connector."""
    last = select_last_turn(figures)
    complex_modes = [mode for mode in figures.modes if mode != MULTI]
    if not complex_modes:
        return []
    notes = ("Share of pictures on which every instruction was followed.",)
    names = [name for name, by_mode in last.items() if set(by_mode) - {MULTI}]
    columns = ("model", *(f"{mode} C{figures.turns}" for mode in complex_modes))
    rows = [(name, *(last[name].get(mode) for mode in complex_modes)) for name in names]
    title = "Table 5: one prompt with all instructions, by connector"
    tables = [PrintedTable(title, columns, tuple(rows), notes, numbers=("5",))]
    both = [name for name in names if MULTI in last[name]]
    if both:
        head = (columns[0], f"multi-turn T{figures.turns}", *columns[1:])
        against = [(name, last[name][MULTI], *(last[name].get(mode) for mode in complex_modes)) for name in both]
        title = "Table 15: multi-turn against complex"
        figure = "multi-against-complex"
        tables.append(PrintedTable(title, head, tuple(against), notes, numbers=("15",), figure=figure))
    return tables


def select_last_turn(figures: EdivalFigures) -> dict[str, dict[str, float | None]]:
    """Return EdiVal-IF of the last turn in percent, by model and mode, in the order of the models' first table."""
    rates: dict[str, dict[str, float | None]] = {}
    for mode in MODES:
        for model in figures.of(mode):
            rates.setdefault(model.model, {})[mode] = to_percent(model.last.chain)
    return rates


def to_percent(value: float | Rate | None, scale: float = 100.0) -> float | None:
    """Return a share in percent, or None if it is None.

    >>> to_percent(Rate(successes=3, judged=4)), to_percent(None)
    (75.0, None)
    """
    number = value.value if isinstance(value, Rate) else value
    return None if number is None else scale * number


METRICS: Mapping[str, Callable[[TurnFigures], float | None]] = {
    "IF, tasks of the turn": lambda t: t.tasks.value,
    "IF, all turns so far": lambda t: t.chain.value,
    "CC": lambda t: t.consistency,
    "CC by pixels": lambda t: t.consistency_l1,
    "O": lambda t: t.overall,
    "VQ": lambda t: t.quality,
}
"""The paper's Table 6 correlates the first measure for LMM, threshold, filter and detector, and CC for features."""


class Correlation(Record):
    """The correlation of a measure between two settings."""

    metric: str
    points: int
    pearson: float | None
    spearman: float | None
    why: str | None = None
    """Why there is no correlation; None if there is one."""


class SettingsComparison(Record):
    """Two runs of the same results under different settings."""

    a: str
    b: str
    mode: str
    differs: tuple[str, ...]
    """Settings that differ, as `name: a → b`."""
    correlations: tuple[Correlation, ...]


def compare_settings(
    a: EdivalFigures, b: EdivalFigures, settings: tuple[Mapping[str, object], Mapping[str, object]], mode: str
) -> SettingsComparison:
    """Correlate two runs over the models and turns that both have.

    Args:
        a: Figures of the first run.
        b: Figures of the second run.
        settings: Settings of both runs, to list the differences.
        mode: Mode to compare.

    Raises:
        UserError: If the runs have no model in common in this mode.
    """
    ours, theirs = ({model.model: model for model in figures.of(mode)} for figures in (a, b))
    common = [name for name in ours if name in theirs]
    if not common:
        raise UserError(f'{a.run} and {b.run} have no model in common in mode "{mode}"')
    pairs = [pair for name in common for pair in zip(ours[name].turns, theirs[name].turns, strict=False)]
    return SettingsComparison(
        a=a.run,
        b=b.run,
        mode=mode,
        differs=tuple(list_differences(*settings)),
        correlations=tuple(_correlation(metric, pick, pairs) for metric, pick in METRICS.items()),
    )


def _correlation(
    metric: str, pick: Callable[[TurnFigures], float | None], pairs: Sequence[tuple[TurnFigures, TurnFigures]]
) -> Correlation:
    values = ((pick(ours), pick(theirs)) for ours, theirs in pairs)
    points = [(x, y) for x, y in values if x is not None and y is not None]
    return correlate(metric, [x for x, _ in points], [y for _, y in points])


def correlate(metric: str, x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Return Pearson's and Spearman's correlation of paired values."""
    left, right = np.asarray(x, float), np.asarray(y, float)
    (r, why), (rho, _) = pearson(left, right), spearman(left, right)
    return Correlation(metric=metric, points=len(left), pearson=r, spearman=rho, why=why)


def list_differences(a: Mapping[str, object], b: Mapping[str, object], within: str = "") -> list[str]:
    """List the settings that differ between two descriptions.

    >>> list_differences({"rules": {"threshold": 0.35}}, {"rules": {"threshold": 0.4}})
    ['rules.threshold: 0.35 → 0.4']
    """
    differences = []
    for name in sorted({*a, *b}):
        left, right = a.get(name), b.get(name)
        if left == right:
            continue
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            differences += list_differences(left, right, f"{within}{name}.")
        elif name not in ("first_used", "name", "questions", "versions"):
            differences.append(f"{within}{name}: {left} → {right}")
    return differences


def build_comparison_table(comparison: SettingsComparison) -> PrintedTable:
    """Return the correlations as a table."""
    rows = tuple(
        (item.metric, item.points, _cell(item.pearson), _cell(item.spearman), item.why or "")
        for item in comparison.correlations
    )
    columns = ("figure", "points", "Pearson", "Spearman", "why there is none")
    return PrintedTable(f"Table 6: {comparison.a} against {comparison.b}, {comparison.mode}", columns, rows)


def build_comparison_blocks(comparison: SettingsComparison) -> list[Block]:
    """Return the blocks of a report of a comparison."""
    differs = "; ".join(comparison.differs) or "no setting"
    return [
        Heading(f"{comparison.a} against {comparison.b}", 1),
        Paragraph(f"Differing: {differs}. One point for every model and turn that both have ({comparison.mode})."),
        replace(build_comparison_table(comparison), title="", columns=("figure", "points", "Pearson", "Spearman", "")),
    ]


def _cell(value: float | None) -> str:
    return NONE if value is None else f"{value:.4f}"


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
    step = "turn" if mode == MULTI else "instructions in one prompt"
    yield Heading(f"{mode}: by {step}", 2)
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
