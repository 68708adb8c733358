"""What the figures show, read from their axes; how they look was looked at."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from editloupe.evals.analysis.agreement import Confusion
from editloupe.evals.analysis.bootstrap import Resampling
from editloupe.evals.analysis.distribution import area_trend, distribution
from editloupe.evals.analysis.estimate import Estimate, missing
from editloupe.evals.analysis.run_rows import table_of
from editloupe.evals.analysis.scores import scores
from editloupe.evals.report import figures
from tests.evals.sample_runs import IF, VC, Line, make_run

QUICK = Resampling(100)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        Line(
            f"e{n}",
            None if n == 5 else 1 + n % 4,
            2 + n % 3,
            type=("Change Color", "Change OCR")[n % 2],
            model=f"m${n % 2}$",
        )
        for n in range(16)
    ]
    return make_run(tmp_path / "run", lines)


def test_scores_per_type_stand_in_the_order_of_the_table_with_the_overall_last(run: Path) -> None:
    axes = figures.score_per_type({"run": scores(run, how=QUICK)}, {IF: "Instruction Following"}).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Change Color", "Change OCR", "overall"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["Instruction Following", VC, "score"]
    values = axes.containers[2].lines[0].get_xdata()
    found = scores(run, how=QUICK)
    expected = [found.by_type["Change Color"].value, found.by_type["Change OCR"].value, found.overall.value]
    assert np.asarray(values) == pytest.approx(expected)


def test_several_runs_are_told_apart_by_colour_and_by_mark(run: Path) -> None:
    found = scores(run, how=QUICK)
    axes = figures.score_per_type({"one": found, "two": found}).axes[0]
    lines = [container.lines[0] for container in axes.containers]
    assert len({line.get_color() for line in lines}) == 2
    assert len({line.get_marker() for line in lines}) == 2


def test_the_distribution_shows_counts_and_what_is_unjudged(run: Path) -> None:
    table = table_of(run)
    one = distribution(table, IF)
    assert one.answers[-1] == "unjudged"
    assert sum(map(sum, one.counts.values())) == 16
    assert sum(line[-1] for line in one.counts.values()) == 1
    figure = figures.label_distribution({"Instruction Following": one})
    bars = figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(200)
    assert [bar for bar in bars if bar.get_hatch() == "////" and bar.get_width() > 0]
    assert "4" in texts(figure)


def test_answers_from_worst_to_best_get_lighter_so_that_a_grey_print_keeps_their_order() -> None:
    from editloupe.evals.report.figures.style import ordinal

    grey = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b, _ in ordinal(5)]
    assert grey == sorted(grey)
    assert min(np.diff(grey)) > 0.1


def test_scores_by_area_are_sorted_with_a_sliding_mean_of_ten_and_r(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).permutation(np.arange(2, 32))
    lines = [
        Line(f"e{n}", 1 + int(size) * 4 // 34, 4, boxes=((0, 0, int(size), int(size)),)) for n, size in enumerate(sizes)
    ]
    trend = area_trend(table_of(make_run(tmp_path / "run", lines)), IF)
    assert trend is not None
    assert trend.unit == "pixels"
    assert list(trend.areas) == sorted(trend.areas)
    assert len(trend.sliding) == 21
    assert trend.sliding[0] == pytest.approx(np.mean(trend.scores[:10]))
    assert trend.sliding[-1] == pytest.approx(np.mean(trend.scores[-10:]))
    assert trend.r == pytest.approx(np.corrcoef(np.log(trend.areas), trend.scores)[0, 1])
    assert trend.p is not None
    assert trend.p < 1e-6
    axes = figures.score_by_area({"IF": trend}).axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_title(loc="left") == f"IF: r = {trend.r:.2f}, p < 0.001"


def test_area_is_a_share_of_the_picture_where_the_run_kept_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("a", boxes=((0, 0, 12, 8), (20, 20, 32, 28)))], pictures=True)
    trend = area_trend(table_of(run), IF)
    assert trend is not None
    assert trend.areas == (pytest.approx(2 * 12 * 8 / (120 * 80) * 100),)
    assert (trend.unit, trend.r, trend.sliding) == ("percent of the picture", None, ())
    assert area_trend(table_of(make_run(tmp_path / "none", [Line("a")])), IF) is None


def test_a_constant_score_has_no_r_and_says_why(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 4, boxes=((0, 0, n + 1, 5),)) for n in range(5)]
    trend = area_trend(table_of(make_run(tmp_path / "run", lines)), IF)
    assert trend is not None
    assert (trend.r, trend.why) == (None, "the judge gave the same score to all 5 edits")


def test_the_confusion_matrix_shows_every_count() -> None:
    matrix = Confusion(labels=("bad", "good"), counts=((3, 1), (0, 7)))
    assert sorted(texts(figures.confusion_matrix({"x": matrix}))) == ["0", "1", "3", "7"]


def test_agreement_shows_intervals_the_ceiling_and_what_is_not_defined() -> None:
    one = Estimate(value=0.5, low=0.2, high=0.7, n=9)
    ceiling = Estimate(value=0.8, low=0.7, high=0.9, n=9)
    figure = figures.whiskers({"IF": [("a", one), ("b", missing("none"))]}, "ρ", {"IF": ceiling})
    assert texts(figure) == ["not defined"]
    drawn = [list(np.asarray(line.get_xdata())) for line in figure.axes[0].lines]
    assert [0.2, 0.7] in drawn
    assert [0.8, 0.8] in drawn


def test_the_leaderboard_has_the_best_on_top() -> None:
    entries = {"low": Estimate(value=20, n=3), "high": Estimate(value=70, n=3), "none": missing("nothing")}
    axes = figures.leaderboard(entries).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["high", "low", "none"]


def test_a_name_with_dollars_is_no_formula_and_settings_of_the_user_stay(run: Path) -> None:
    before = dict(matplotlib.rcParams)
    figure = figures.leaderboard(scores(run, how=QUICK).by["model"])
    assert figures.as_png(figure).startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.long
def test_the_same_figure_is_the_same_file_and_pdf_and_png_can_be_saved(run: Path, tmp_path: Path) -> None:
    found = scores(run, how=QUICK)
    one, two = (figures.as_svg(figures.score_per_type({"run": found})) for _ in range(2))
    assert one == two
    assert (
        figures.save(figures.score_per_type({"run": found}), tmp_path / "x" / "f.pdf").read_bytes().startswith(b"%PDF")
    )
