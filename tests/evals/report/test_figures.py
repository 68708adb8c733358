"""What the figures show, read from their axes; how they look was looked at."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from editloupe.evals.report import build_leaderboard, build_report, figures
from editloupe.evals.report.figures.agreement import MEASURES
from editloupe.evals.report.figures.style import CSS_COLOURS, INK, MUTED, SURFACE, TOKENS, answer_styles
from editloupe.evals.report.html_renderer import score_level
from editloupe.evals.report.report_figures import build_figures
from editloupe.evals.stats.agreement.judge_vs_human import Ceiling, Confusion, Measures
from editloupe.evals.stats.intervals import Estimate, missing_estimate
from editloupe.evals.stats.scores.distribution import compute_area_trend, count_answers
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.trust_summary import JudgeAgreement
from tests.evals.sample_runs import IF, LABELS, VC, Line, make_run


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


def test_scores_per_type_stand_in_the_order_of_the_table_with_the_overall_last(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1 + n % 4, 2 + n % 3, type=("Change Color", "Change OCR")[n % 2]) for n in range(16)]
    run = make_run(tmp_path / "run", lines)
    axes = figures.score_per_type({"run": compute_scores(run)}, {IF: "Instruction Following"}).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Change Color", "Change OCR", "overall"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["Instruction Following", VC, "score"]
    values = axes.containers[2].lines[0].get_xdata()
    found = compute_scores(run)
    expected = [found.by_type["Change Color"].value, found.by_type["Change OCR"].value, found.overall.value]
    assert np.asarray(values) == pytest.approx(expected)


def test_several_runs_are_told_apart_by_colour_and_by_mark(run: Path) -> None:
    found = compute_scores(run)
    axes = figures.score_per_type({"one": found, "two": found}).axes[0]
    lines = [container.lines[0] for container in axes.containers]
    assert len({line.get_color() for line in lines}) == 2
    assert len({line.get_marker() for line in lines}) == 2


def test_the_distribution_shows_counts_and_what_is_unjudged(run: Path) -> None:
    table = read_run_table(run)
    one = count_answers(table, IF)
    assert one.answers[-1] == "unjudged"
    assert sum(map(sum, one.counts.values())) == 16
    assert sum(line[-1] for line in one.counts.values()) == 1
    figure = figures.label_distribution({"Instruction Following": one})
    bars = figure.axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(200)
    assert [bar for bar in bars if bar.get_hatch() == "////" and bar.get_width() > 0]
    assert any(text.endswith(" 4") for text in texts(figure))


def test_the_labels_have_the_studios_colours_and_a_grey_print_keeps_their_order_by_meter_and_marker() -> None:
    styles = answer_styles(4)
    assert [style.colour for style in styles] == [TOKENS[f"level-{number}"] for number in (1, 2, 3, 4)]
    assert [len(style.meter) for style in styles] == [1, 2, 3, 4]
    assert len({style.marker for style in styles}) == 4
    for count in (2, 3):
        levels = [1 + styles.index(style) for style in answer_styles(count)]
        assert levels == [score_level(100 * place / (count - 1)) for place in range(count)], "as in the studio"


def test_more_than_four_answers_go_from_the_worst_colour_to_the_best_without_repeating_one() -> None:
    colours = [style.colour for style in answer_styles(10)]
    assert (colours[0], colours[-1], len(set(colours))) == (TOKENS["level-1"], TOKENS["level-4"], 10)
    assert CSS_COLOURS[colours[1]] == "color-mix(in srgb, var(--level-2) 33%, var(--level-1))"


def test_scores_by_area_are_sorted_with_a_sliding_mean_of_ten_and_r(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).permutation(np.arange(2, 32))
    lines = [
        Line(f"e{n}", 1 + int(size) * 4 // 34, 4, boxes=((0, 0, int(size), int(size)),)) for n, size in enumerate(sizes)
    ]
    trend = compute_area_trend(read_run_table(make_run(tmp_path / "run", lines)), IF)
    assert trend is not None
    assert trend.unit == "pixels"
    assert list(trend.areas) == sorted(trend.areas)
    assert len(trend.sliding) == 21
    assert trend.sliding[0] == pytest.approx(np.mean(trend.scores[:10]))
    assert trend.sliding[-1] == pytest.approx(np.mean(trend.scores[-10:]))
    assert trend.r == pytest.approx(np.corrcoef(np.log(trend.areas), trend.scores)[0, 1])
    assert trend.p is not None
    assert trend.p < 1e-6
    logs = np.convolve(np.log(trend.areas), np.ones(10) / 10, "valid")
    assert trend.window_r == pytest.approx(np.corrcoef(logs, trend.sliding)[0, 1])
    assert trend.window_r > trend.r, "means vary less than edits"
    axes = figures.score_by_area({"IF": trend}).axes[0]
    assert axes.get_xscale() == "log"
    assert axes.get_title(loc="left") == f"IF: r = {trend.r:.2f}, p < 0.001"
    assert [group.score.n for group in trend.groups] == [5] * 6
    assert trend.groups[0].score.value == pytest.approx(np.mean(trend.scores[:5]))
    assert trend.groups[2].area == pytest.approx(np.exp(np.log(trend.areas[10:15]).mean()))
    (means,) = [line for line in axes.lines if line.get_label() == "mean of a tenth, interval"]
    assert list(np.asarray(means.get_ydata())) == [group.score.value for group in trend.groups]


def test_area_is_a_share_of_the_picture_where_the_run_kept_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("a", boxes=((0, 0, 12, 8), (20, 20, 32, 28)))], pictures=True)
    trend = compute_area_trend(read_run_table(run), IF)
    assert trend is not None
    assert trend.areas == (pytest.approx(2 * 12 * 8 / (120 * 80) * 100),)
    assert (trend.unit, trend.r, trend.window_r, trend.sliding) == ("percent of the picture", None, None, ())
    assert compute_area_trend(read_run_table(make_run(tmp_path / "none", [Line("a")])), IF) is None


@pytest.mark.long
def test_target_sizes_have_a_panel_a_model_with_its_own_r_and_windows(tmp_path: Path) -> None:
    """Model a does better on larger targets, model b worse; both together would hide that."""
    lines = []
    for n in range(24):
        size = n + 2
        for model, score in (("a", 1 + n * 4 // 24), ("b", 4 - n * 4 // 24)):
            boxes = ((0, 0, size, 2 * size), (50, 0, 51, 1)) if n == 0 else ((0, 0, size, 2 * size),)
            lines.append(Line(f"{model}{n}", score, 4, model=model, boxes=boxes, source="one"))
    trend = compute_area_trend(read_run_table(make_run(tmp_path / "run", lines, pictures=True)), IF)
    assert trend is not None
    assert list(trend.models) == ["a", "b"]
    a, b = trend.models["a"], trend.models["b"]
    areas = [(2 * 2 * 2 + 1) if n == 0 else 2 * (n + 2) ** 2 for n in range(24)]
    shares = np.array(areas) / (120 * 80) * 100
    scores_100 = np.array([(n * 4 // 24) / 3 * 100 for n in range(24)])
    assert a.r == pytest.approx(np.corrcoef(np.log(shares), scores_100)[0, 1])
    assert b.r == pytest.approx(-a.r)
    assert (a.n, len(a.sliding)) == (24, 15)
    assert a.sliding[0] == pytest.approx(scores_100[:10].mean())
    assert a.middles[0] == pytest.approx(np.exp(np.log(shares[:10]).mean()))
    assert a.sides[:2] == (pytest.approx((2 / 1.2, 4 / 0.8)), pytest.approx((1 / 1.2, 1 / 0.8))), "a point a target"
    assert "sides" not in trend.model_dump()["models"]["a"], "the picture holds the points, the JSON the numbers"
    figure = figures.target_sizes(trend, "Instruction Following", LABELS[IF])
    above, below = figure.axes[0], figure.axes[1]
    assert above.get_title(loc="left") == f"a\nr = {a.r:.2f}, p < 0.001, n = 24"
    assert np.asarray(above.lines[-1].get_ydata()) == pytest.approx([group.score.value for group in a.groups])
    assert (below.get_xscale(), below.get_yscale()) == ("log", "log")
    offsets = np.concatenate([np.asarray(points.get_offsets()) for points in below.collections])
    assert sorted(map(tuple, offsets.round(6))) == sorted(map(tuple, np.array(a.sides).round(6)))
    shades = [matplotlib.colors.to_hex(points.get_facecolor()[0]) for points in below.collections]  # type: ignore[index]
    assert shades == [style.colour for style in answer_styles(4)], "a colour a label"
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == list(LABELS[IF])


def test_a_model_with_fewer_than_ten_edits_has_points_and_no_mean(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1 + n % 4, 4, boxes=((0, 0, n + 2, 5),)) for n in range(5)]
    trend = compute_area_trend(read_run_table(make_run(tmp_path / "run", lines)), IF)
    assert trend is not None
    figure = figures.target_sizes(trend, "IF")
    assert "fewer than 10 edits" in texts(figure)
    assert figure.axes[1].get_xlabel() == "width, pixels"
    assert figure.legends[0].get_texts()[0].get_text() == "0 to 17", "labels that are not known"


def test_types_by_model_shows_every_score_as_a_number_and_what_has_none_as_a_dash() -> None:
    by_model = {
        "a": {"Change Color": 59.92, "overall": 48.97},
        "b": {"Change Color": None, "Change OCR": 7.0, "overall": 7.0},
    }
    figure = figures.types_by_model({"Instruction Following": by_model, "Visual Consistency": by_model})
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["Change Color", "Change OCR", "overall"]
    assert [text.get_text() for text in axes.texts] == ["59.9", "–", "49.0", "–", "7.0", "7.0"]
    inks = {text.get_text(): text.get_color() for text in axes.texts}
    assert (inks["7.0"], inks["59.9"], inks["–"]) == (INK, INK, MUTED)


def test_several_judges_stand_against_people_by_three_measures_with_the_best_filled() -> None:
    def measures(rho: float | None, mae: float) -> Measures:
        none = missing_estimate("nothing")
        at = Estimate(value=rho, low=rho - 0.1, high=rho + 0.1, n=9) if rho is not None else none
        far = Estimate(value=mae, low=mae / 2, high=mae * 2, n=9)
        return Measures.model_construct(n=9, spearman=at, pearson=at, mae=far)

    judges = {"oracle, gemini": measures(0.9, 0.1), "plain, gpt": measures(0.5, 0.8), "plain, odd": measures(None, 1.5)}
    ceiling = Estimate(value=0.95, n=9)
    reach = Ceiling.model_construct(spearman=ceiling, pearson=ceiling, mae=Estimate(value=0.05, n=9))
    figure = figures.judges_against_people({"IF": judges, "VC": judges}, {"IF": reach})
    assert len(figure.axes) == 6
    rho, _, mae = figure.axes[:3]
    assert texts(figure).count("not defined") == 4
    marks = {float(np.asarray(one.get_xdata())[0]): one for one in rho.lines if one.get_marker() == "o"}
    assert set(marks) == {0.9, 0.5}
    assert marks[0.9].get_markerfacecolor() != SURFACE == marks[0.5].get_markerfacecolor()
    filled = [one for one in mae.lines if one.get_marker() == "o" and one.get_markerfacecolor() != SURFACE]
    assert [list(np.asarray(one.get_xdata())) for one in filled] == [[0.1]], "of errors the smallest is the best"
    assert [0.95, 0.95] in [list(np.asarray(line.get_xdata())) for line in rho.lines]
    assert [axes.get_xlabel() for axes in figure.axes[3:]] == list(MEASURES.values())


def test_a_constant_score_has_no_r_and_says_why(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 4, boxes=((0, 0, n + 1, 5),)) for n in range(5)]
    trend = compute_area_trend(read_run_table(make_run(tmp_path / "run", lines)), IF)
    assert trend is not None
    assert (trend.r, trend.why) == (None, "the judge gave the same score to all 5 edits")


def test_the_confusion_matrix_shows_every_count() -> None:
    matrix = Confusion(labels=("bad", "good"), counts=((3, 1), (0, 7)))
    assert sorted(texts(figures.confusion_matrix({"x": matrix}))) == ["0", "1", "3", "7"]


def test_agreement_shows_intervals_the_ceiling_and_what_is_not_defined() -> None:
    one = Estimate(value=0.5, low=0.2, high=0.7, n=9)
    ceiling = Estimate(value=0.8, low=0.7, high=0.9, n=9)
    figure = figures.whiskers({"IF": [("a", one), ("b", missing_estimate("none"))]}, "ρ", {"IF": ceiling})
    assert texts(figure) == ["not defined"]
    drawn = [list(np.asarray(line.get_xdata())) for line in figure.axes[0].lines]
    assert [0.2, 0.7] in drawn
    assert [0.8, 0.8] in drawn


def test_a_negative_agreement_without_an_interval_is_inside_the_axes() -> None:
    negative = Estimate(value=-0.6, n=4)
    agreement = [JudgeAgreement(criterion="IF", n=4, spearman=negative)]
    for figure in (figures.whiskers({"IF": [("a", negative)]}, "ρ"), figures.trust_overview(agreement, (), {})):
        assert figure.axes[0].get_xlim()[0] < -0.6


def test_the_leaderboard_has_the_best_on_top() -> None:
    entries = {"low": Estimate(value=20, n=3), "high": Estimate(value=70, n=3), "none": missing_estimate("nothing")}
    axes = figures.leaderboard(entries).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["high", "low", "none"]
    apart = figures.leaderboard(entries, {"low": "oracle", "high": "tools"}).axes[0]
    assert [label.get_text() for label in apart.get_yticklabels()] == ["low", "high", "none"]
    assert [
        line.get_ydata()[0] for line in apart.lines if len(set(line.get_ydata())) == 1 and line.get_marker() == "None"
    ] == [1.5, 0.5]


@pytest.mark.long
def test_a_name_with_dollars_is_no_formula_and_settings_of_the_user_stay(run: Path) -> None:
    before = dict(matplotlib.rcParams)
    figure = figures.leaderboard(compute_scores(run).by["model"])
    assert figures.as_png(figure).startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.long
def test_the_same_figure_is_the_same_file_and_pdf_and_png_can_be_saved(run: Path, tmp_path: Path) -> None:
    found = compute_scores(run)
    one, two = (figures.as_svg(figures.score_per_type({"run": found})) for _ in range(2))
    assert one == two
    assert (
        figures.save(figures.score_per_type({"run": found}), tmp_path / "x" / "f.pdf").read_bytes().startswith(b"%PDF")
    )


def test_a_report_of_several_models_draws_them_side_by_side_and_one_of_one_does_not(tmp_path: Path) -> None:
    def lines(*models: str) -> list[Line]:
        return [
            Line(
                f"{model}{n}",
                1 + (n + place) % 4,
                4,
                model=model,
                type=("Change Color", "Change OCR")[n % 2],
                boxes=((0, 0, n + 2, 9),),
            )
            for place, model in enumerate(models)
            for n in range(12)
        ]

    several = build_report(make_run(tmp_path / "several", lines("a", "b")))
    drawn = build_figures(several)
    assert {"types_by_model", f"target_sizes_{IF}", f"target_sizes_{VC}", "models"} <= set(drawn)
    assert not {"score_by_area", "score_per_type"} & set(drawn), "two models are never one cloud of points"
    shown = drawn["types_by_model"]().axes
    assert [axes.get_title(loc="left") for axes in shown] == ["Instruction Following", "Visual Consistency", "Score"]
    color = several.parts["b"].by_type["Change Color"].criteria[IF].value
    assert color is not None
    assert f"{color:.1f}" in [text.get_text() for text in shown[0].texts]
    one = build_figures(build_report(make_run(tmp_path / "one", lines("a"))))
    assert {"score_by_area", "score_per_type", f"target_sizes_{IF}"} <= set(one)
    assert "types_by_model" not in one


def test_a_leaderboard_of_judges_draws_their_agreement_in_one_figure(tmp_path: Path) -> None:
    def labelled(shift: int) -> list[Line]:
        return [Line(f"e{n}", 1 + (n + shift * (n % 3 == 0)) % 4, 4, human={IF: LABELS[IF][n % 4]}) for n in range(12)]

    runs = {mode: make_run(tmp_path / mode, labelled(shift), mode=mode) for mode, shift in (("tools", 0), ("plain", 2))}
    board = build_leaderboard([build_report(run) for run in runs.values()])
    axes = build_figures(board)["agreement_by_run"]().axes
    assert [label.get_text() for label in axes[0].get_yticklabels()] == [
        "openai:gpt-5.1, tools",
        "openai:gpt-5.1, plain",
    ]
    best = [one for one in axes[0].lines if one.get_marker() == "o" and one.get_markerfacecolor() != SURFACE]
    assert [list(np.asarray(one.get_ydata())) for one in best] == [[1]], "the judge that says what people say"
