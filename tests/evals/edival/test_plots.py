"""What the figures show, read from their axes; how they look was looked at."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes

from editloupe.evals.edival import plots
from editloupe.evals.edival.metrics import group_by_model
from editloupe.evals.edival.report import SHORT, select_last_turn
from editloupe.rubrics.edival.tasks import TYPES
from tests.evals.edival.test_tables import figures, score

MULTI = figures().of("multi")


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    found = next(one for one in axes.lines if one.get_label() == label)
    return list(np.asarray(found.get_xdata(), float)), list(np.asarray(found.get_ydata(), float))


def test_marginal_curves_have_a_line_a_model_with_a_colour_and_a_mark_of_its_own() -> None:
    axes = plots.draw_marginal_curves(MULTI).axes[0]
    x, y = line(axes, "torn")
    assert np.round(x) == pytest.approx([1, 2, 3])
    assert y == pytest.approx([50, 200 / 3, 100])
    assert len({(one.get_color(), one.get_marker()) for one in axes.lines}) == len(MULTI)


def test_luminance_goes_over_the_turns_with_the_middle_half_of_the_pictures() -> None:
    values = {"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8, "e": 0.9}
    scores = [
        score("keen", "multi", image, turn, True).model_copy(update={"p999": value + 0.02 * turn, "p999_base": value})
        for image, value in values.items()
        for turn in (1, 2, 3)
    ]
    (model,) = group_by_model(scores, 3, "complete")
    assert model.last.p999_quartiles == pytest.approx((0.66, 0.86))
    axes = plots.draw_luminance_curves([model]).axes[0]
    x, y = line(axes, "keen")
    assert x == pytest.approx([0, 1, 2, 3])
    assert y == pytest.approx([70, 72, 74, 76]), "the base picture first"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["base", "1", "2", "3"]
    whiskers = [list(np.asarray(one.get_ydata())) for one in axes.lines[1:]]
    assert whiskers[-1] == pytest.approx([66, 86])


def test_without_the_base_pictures_luminance_begins_at_turn_one() -> None:
    axes = plots.draw_luminance_curves(MULTI).axes[0]
    assert np.round(line(axes, "keen")[0]) == pytest.approx([1, 2, 3])


def test_success_by_type_has_a_panel_a_model_and_a_mark_a_turn() -> None:
    figure = plots.draw_types_by_turn(MULTI)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == ["keen", "torn", "idle"]
    assert [label.get_text() for label in shown[0].get_yticklabels()] == [SHORT[kind] for kind in TYPES]
    x, _ = line(shown[1], "turn 2")
    place = list(TYPES).index("subject_add")
    assert x[place] == pytest.approx(200 / 3)
    assert all(np.isnan(value) for number, value in enumerate(x) if number != place), "types that never came"


def test_multi_turn_and_complex_stand_in_one_row_a_model() -> None:
    axes = plots.draw_multi_against_complex({"keen": select_last_turn(figures())["keen"]}, 3).axes[0]
    assert line(axes, "multi-turn, turn 3") == ([50.0], [0.0])
    assert line(axes, "complex, 3 instructions") == ([50.0], [0.0])
    assert line(axes, "complex-keep, 3 instructions") == ([100.0], [0.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["keen"]


def test_points_of_a_pareto_panel_are_numbered_and_the_numbers_explained() -> None:
    points = {"a": (0.2, 0.9), "b": (0.8, 0.3), "c": (0.1, 0.1), "gone": (None, 0.5)}
    figure = plots.draw_pareto_panels({("EdiVal-IF", "EdiVal-CC"): points}, "Turn 3")
    axes = figure.axes[0]
    assert {text.get_text(): text.get_position() for text in axes.texts} == {
        "1": (0.2, 0.9),
        "2": (0.8, 0.3),
        "3": (0.1, 0.1),
    }
    same = plots.draw_pareto_panels({("EdiVal-IF", "EdiVal-CC"): {"a": (0.2, 0.9), "b": (0.2, 0.9)}}, "Turn 3").axes[0]
    assert [text.get_text() for text in same.texts] == ["1, 2"], "models at one point share a mark"
    front = axes.lines[0]
    assert list(zip(front.get_xdata(), front.get_ydata(), strict=True)) == [(0.2, 0.9), (0.8, 0.3)]
    (legend,) = figure.legends
    assert [text.get_text().split() for text in legend.get_texts()] == [
        ["1", "a"],
        ["2", "b"],
        ["3", "c"],
        ["4", "gone"],
    ]
