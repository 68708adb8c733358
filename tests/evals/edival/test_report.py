"""Reports and comparisons: the paper's tables from known scores, and its published correlations reproduced."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.edival.metrics import EdivalFigures, group_by_model
from editloupe.evals.edival.report import (
    SHORT,
    build_blocks,
    build_comparison_blocks,
    build_figures,
    compare_settings,
    correlate,
    list_points,
)
from editloupe.evals.report.block_types import Drawing, Heading
from editloupe.evals.report.figures import as_svg
from editloupe.evals.report.html_renderer import as_html
from editloupe.evals.report.table_formats import cell_text
from editloupe.evals.report.text_renderer import as_markdown, as_text
from editloupe.rubrics.edival import TurnScore
from editloupe.rubrics.edival.tasks import TYPES
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import UserError

# Table 8, task success of Seedream 4.0, Nano Banana, GPT-Image-1 and FLUX.1-Kontext-max at turns 1 to 3.
DEFAULT = (75.93, 75.58, 76.11, 70.70, 72.59, 68.24, 73.12, 74.44, 72.74, 69.49, 69.11, 70.43)
AT_03 = (73.45, 74.87, 74.87, 69.94, 71.64, 67.49, 71.43, 74.06, 72.18, 68.17, 68.36, 68.93)
AT_04 = (73.98, 73.45, 74.51, 68.81, 69.57, 64.46, 70.11, 72.56, 71.24, 66.29, 67.23, 67.42)
UNFILTERED = (75.93, 75.22, 76.11, 70.70, 72.59, 68.24, 72.93, 74.44, 73.12, 69.49, 69.11, 70.43)
# Tables 10 and 11, EdiVal-CC of the same.
DINO_V2 = (89.455, 84.185, 81.120, 90.82, 86.90, 85.07, 76.36, 72.555, 69.845, 91.53, 87.535, 84.46)
DINO_V3 = (92.51, 88.03, 85.86, 93.91, 90.48, 89.48, 81.00, 77.78, 75.50, 93.93, 90.90, 88.40)


@pytest.mark.parametrize(
    ("default", "swapped", "pearson", "spearman"),
    [
        (DEFAULT, AT_04, 0.9817, 0.9860),
        (DEFAULT, AT_03, 0.9772, 0.9457),
        (DEFAULT, UNFILTERED, 0.9982, 0.9930),
        (DINO_V3, DINO_V2, 0.9987, 1.0000),
    ],
    ids=["threshold 0.4", "threshold 0.3", "no filter", "DINOv2 for DINOv3"],
)
def test_the_correlations_of_table_6_follow_from_the_figures_behind_them(
    default: tuple[float, ...], swapped: tuple[float, ...], pearson: float, spearman: float
) -> None:
    found = correlate("IF", default, swapped)
    assert found.points == 12
    assert found.pearson == pytest.approx(pearson, abs=5e-5)
    assert found.spearman == pytest.approx(spearman, abs=5e-5)


def scores(model: str, mode: str, good: float, alike: float, seed: int = 0, images: int = 20) -> list[TurnScore]:
    chance = random.Random(f"{model}{mode}{seed}")
    found = []
    for image in range(images):
        for turn in (1, 2, 3):
            number = 1 if mode == "multi" else turn
            found.append(
                TurnScore(
                    model=model,
                    mode=mode,
                    image=str(image),
                    turn=turn,
                    types=tuple(TYPES[(image + n) % 9] for n in range(number)),
                    follows=tuple(chance.random() < good for _ in range(number)),
                    object_similarity=alike,
                    background_similarity=alike if image % 2 else None,
                    object_l1=alike / 2,
                    background_l1=alike / 2,
                    quality=10 * (1 - alike),
                    quality_base=4.0,
                    p99=0.8,
                    p999=0.9,
                    square=bool(image % 2),
                )
            )
    return found


def figures(*sets: list[TurnScore], name: str = "run", **more: Any) -> EdivalFigures:
    every = [score for own in sets for score in own]
    return EdivalFigures(
        run=name,
        judge="openai:gpt-4.1",
        missing="complete",
        turns=3,
        models=group_by_model(every, 3, "complete"),
        unjudged=more.pop("unjudged", {}),
        **more,
    )


ALL = figures(
    scores("keen", "multi", 0.9, 0.6),
    scores("calm", "multi", 0.4, 0.95),
    scores("poor", "multi", 0.3, 0.5),
    scores("keen", "complex", 0.7, 0.6),
    scores("keen", "complex-ordered", 0.2, 0.6),
    unjudged={"no_answer": 2},
)


def cells(table: PrintedTable) -> list[tuple[str, ...]]:
    """Return the rows as a reader sees them."""
    return [tuple(map(cell_text, row)) for row in table.rows]


def grid(heading: str, told: list[Any] | None = None) -> PrintedTable:
    """The first table under a heading."""
    told = told or build_blocks(ALL)
    place = next(n for n, block in enumerate(told) if isinstance(block, Heading) and heading in block.text)
    return next(block for block in told[place:] if isinstance(block, PrintedTable))


def test_models_stand_in_the_order_of_their_overall_score_at_the_last_turn() -> None:
    table = grid("Table 3")
    assert table.columns == (
        "model",
        *(f"{name} T{n}" for name in ("IF", "CC", "O") for n in (1, 2, 3)),
        "O",
        "rank",
        "judged",
        "expected",
    )
    by_last = [float(row[9]) for row in cells(table)]
    assert by_last == sorted(by_last, reverse=True)
    assert [row[-3:] for row in cells(table)] == [("1", "20", "20"), ("2", "20", "20"), ("2", "20", "20")]
    assert {row[0]: row[4] for row in cells(table)} == {"keen": "60.00", "calm": "95.00", "poor": "50.00"}


def test_every_type_has_its_column_and_a_type_that_never_came_a_dash() -> None:
    one = figures([s for s in scores("m", "multi", 1.0, 1.0) if s.types != ("count_change",)])
    told = build_blocks(one)
    grids = [b for b in told if isinstance(b, PrintedTable)]
    by_type = next(g for g in grids if g.columns[0] == "T1")
    assert by_type.columns[1:] == tuple(SHORT[kind] for kind in TYPES)
    (row,) = cells(by_type)
    assert row[by_type.columns.index("count")] == "–"
    assert row[by_type.columns.index("background")] == "100.00"


def test_fronts_name_the_models_no_other_beats() -> None:
    found = dict(cells(grid("Pareto")))
    front = found["turn 1: EdiVal-IF and EdiVal-CC"]
    assert set(front.split(", ")) == {"keen", "calm"}
    multi = ALL.of("multi")
    assert list_points(multi, 1, ("EdiVal-IF", "EdiVal-CC"))["calm"][1] == pytest.approx(0.95)


def test_multi_turn_stands_beside_every_complex_form() -> None:
    table = grid("Table 15")
    assert table.columns == ("model", "multi-turn T3", "complex C3", "complex-ordered C3")
    assert [row[0] for row in table.rows] == ["keen"]
    assert not any(
        "against" in b.text for b in build_blocks(figures(scores("a", "multi", 1, 1))) if isinstance(b, Heading)
    )


def test_what_is_unjudged_and_the_rule_for_missing_pictures_are_said() -> None:
    text = as_text(build_blocks(ALL), 160)
    assert "2 no_answer" in text
    assert "result at every turn" in text


@pytest.mark.long
def test_the_report_comes_as_text_markdown_and_a_page_with_its_figures_inside() -> None:
    told, drawn = build_blocks(ALL), build_figures(ALL)
    assert set(drawn) == {
        "marginal-multi",
        "marginal-complex",
        "marginal-complex-ordered",
        "types-multi",
        "luminance-multi",
        "luminance-complex",
        "luminance-complex-ordered",
        "multi-against-complex",
        *(f"pareto-multi-{n}" for n in (1, 2, 3)),
    }
    named = {block.name for block in told if isinstance(block, Drawing)}
    assert set(drawn) <= named, "a figure nobody shows"
    assert "| model |" in as_markdown(told)
    page = as_html(told, drawn, "title", "made")
    assert page.count('class="chart-svg"') == len(drawn)
    assert "<table>" in page


@pytest.mark.long
def test_curves_and_fronts_are_drawn_even_with_gaps() -> None:
    gaps = figures(
        [s.model_copy(update={"follows": (None,), "quality": None}) for s in scores("a", "multi", 1, 1)],
        scores("b", "multi", 1, 1),
    )
    for draw in build_figures(gaps).values():
        assert as_svg(draw()).startswith(b"<?xml")


def test_two_settings_are_compared_over_the_models_and_turns_both_have() -> None:
    a = figures(
        *(scores(m, "multi", g, c) for m, g, c in (("x", 0.9, 0.9), ("y", 0.5, 0.7), ("z", 0.1, 0.6))), name="a"
    )
    b = figures(
        *(scores(m, "multi", g, c) for m, g, c in (("x", 0.8, 0.8), ("y", 0.5, 0.6), ("w", 0.1, 0.6))), name="b"
    )
    found = compare_settings(a, b, ({"rules": {"threshold": 0.35}}, {"rules": {"threshold": 0.4}}), "multi")
    by_metric = {one.metric: one for one in found.correlations}
    assert by_metric["IF, tasks of the turn"].points == 6
    assert by_metric["CC"].pearson == pytest.approx(1)
    assert found.differs == ("rules.threshold: 0.35 → 0.4",)
    assert "threshold" in as_text(build_comparison_blocks(found))


def test_runs_without_a_common_model_cannot_be_compared() -> None:
    a, b = (figures(scores(name, "multi", 1, 1), name=name) for name in "ab")
    with pytest.raises(UserError, match="no model in common"):
        compare_settings(a, b, ({}, {}), "multi")


def test_figures_that_never_vary_have_no_correlation_and_say_so() -> None:
    found = correlate("CC", [1.0, 1.0, 1.0], [0.1, 0.2, 0.3])
    assert found.pearson is None
    assert found.why


def test_a_folder_that_holds_no_chains_is_the_users_mistake(tmp_path: Path) -> None:
    from editloupe.evals.edival.metrics import compute_figures
    from editloupe.evals.runs.store import Run

    with Run.write(tmp_path / "run"):
        pass
    with pytest.raises(UserError, match="has no chains"):
        compute_figures(tmp_path / "run")
