from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from editloupe.evals.stats.scores import score_matrix as arithmetic
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.scores.score_matrix import Aggregation, aggregate, compute_group_weights
from editloupe.rubrics.registry import DEFAULT, PAPERS
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run

PUBLISHED = {
    "Change Material": (84, 74.01),
    "Change Color": (699, 66.99),
    "Change OCR": (455, 66.54),
    "Change Shape": (23, 68.84),
    "Removal Object": (577, 73.76),
    "Replace Object": (47, 64.86),
    "Change Count": (24, 43.87),
}
"""DLEBench, counts of the types and the final scores of Gemini-3-Pro."""


def spread(points: int, edits: int) -> list[int]:
    """Scores from 1 to 4 of so many edits whose (score − 1) add up to `points`."""
    whole, part = divmod(points, 3)
    return ([4] * whole + ([part + 1] if part else []) + [1] * edits)[:edits]


def labels_for(count: int, final: float) -> tuple[list[int | None], list[int | None]]:
    """Labels whose type score rounds to the published one; where no full set gives it, a few verdicts are unjudged."""
    for judged in range(count, 0, -1):
        for points in range(3 * judged + 1):
            rest = round((2 * final / 100 - points / (3 * judged)) * 3 * count)
            if 0 <= rest <= 3 * count:
                reached = (rest / (3 * count) + points / (3 * judged)) * 50
                if round(reached, 2) == final:
                    unjudged = [None] * (count - judged)
                    return [*spread(rest, count)], [*spread(points, judged), *unjudged]
    raise AssertionError(f"no labels give {final}")


def published() -> Iterator[Line]:
    for kind, (count, final) in PUBLISHED.items():
        follows, consistent = labels_for(count, final)
        if kind == "Change Material":
            follows, consistent = [*spread(151, 84)], [*spread(222, 84)]
        for number, (one, two) in enumerate(zip(follows, consistent, strict=True)):
            yield Line(f"{kind}-{number}", one, two, type=kind)


@pytest.fixture(scope="module")
def gemini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("published") / "run", published())


@pytest.mark.long
def test_the_published_scores_of_dlebench_follow_from_the_labels(gemini: Path) -> None:
    found = compute_scores(gemini)
    material = found.by_type["Change Material"]
    assert material.criteria[IF].value == pytest.approx(59.92, abs=0.005)
    assert material.criteria[VC].value == pytest.approx(88.10, abs=0.005)
    for kind, (count, final) in PUBLISHED.items():
        assert found.by_type[kind].value == pytest.approx(final, abs=0.00501), kind
        assert found.by_type[kind].n == count
    assert found.overall.value == pytest.approx(65.55, abs=0.005)
    assert list(found.by_type) == list(PUBLISHED)
    assert found.missing_types == ()


def test_the_published_type_scores_average_to_the_published_overall() -> None:
    finals = np.array([final for _, final in PUBLISHED.values()])
    sums = np.stack([finals, finals], -1)
    worked = aggregate(
        sums, np.ones_like(sums), np.ones_like(sums), arithmetic.find_aggregation(DEFAULT.name), (IF, VC)
    )
    assert round(float(worked.overall), 2) == 65.55
    one = aggregate(np.array([[59.92, 88.10]]), np.ones((1, 2)), np.ones((1, 2)), arithmetic.PLAIN, (IF, VC))
    assert float(one.finals[0]) == pytest.approx(74.01, abs=1e-9)


def test_a_small_run_worked_by_hand(tmp_path: Path) -> None:
    lines = [
        Line("a", 4, 4, type="Change Color"),
        Line("b", 1, 3, type="Change Color"),
        Line("c", 2, 4, type="Change OCR"),
    ]
    found = compute_scores(make_run(tmp_path / "run", lines))
    colour, text = found.by_type["Change Color"], found.by_type["Change OCR"]
    assert colour.criteria[IF].value == pytest.approx(50)
    assert colour.criteria[VC].value == pytest.approx((100 + 200 / 3) / 2)
    assert colour.value == pytest.approx((50 + 250 / 3) / 2)
    assert text.value == pytest.approx((100 / 3 + 100) / 2)
    assert found.overall.value == pytest.approx(((50 + 250 / 3) / 2 + 200 / 3) / 2)
    assert found.by_criterion[IF].value == pytest.approx((50 + 100 / 3) / 2)
    assert (found.overall.n, found.overall.judged, found.overall.unjudged) == (3, 6, 0)
    assert "Change Material" in found.missing_types
    assert any("over 2 types; not in this run: Change Material" in note for note in found.notes)


def test_unjudged_units_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [Line("a", 4, 4), Line("b", None, 4), Line("c", 2, None), Line("d", None, None)]
    found = compute_scores(make_run(tmp_path / "run", lines))
    assert found.by_criterion[IF].value == pytest.approx((100 + 100 / 3) / 2)
    assert found.by_criterion[VC].value == pytest.approx(100)
    assert (found.by_criterion[IF].n, found.by_criterion[IF].judged, found.by_criterion[IF].unjudged) == (2, 2, 2)
    assert found.overall.n == 3
    assert found.coverage.units == 8
    assert (found.coverage.judged, found.coverage.unjudged) == (4, 4)
    assert found.coverage.share == 0.5
    assert found.coverage.reasons == {"unreadable_answer": 4}
    assert found.coverage.by_criterion == {IF: {"judged": 2, "unjudged": 2}, VC: {"judged": 2, "unjudged": 2}}


def test_the_pessimistic_bound_counts_them_as_worst_and_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("a", 4, 4), Line("b", None, 4)])
    plain, worst = compute_scores(run), compute_scores(run, unjudged="worst")
    assert plain.overall.value == pytest.approx(100)
    assert worst.overall.value == pytest.approx((50 + 100) / 2)
    assert worst.overall.unjudged == 1
    assert worst.unjudged_rule == "worst"
    assert worst.notes[0] == "Pessimistic bound: each of the 1 unjudged verdicts counts as the worst answer."
    assert not any("Pessimistic" in note for note in plain.notes)
    assert plain.bounds is not None
    assert (plain.bounds.worst, plain.bounds.best) == (pytest.approx(75), pytest.approx(100))


def test_a_type_without_a_verdict_on_one_criterion_has_no_score(tmp_path: Path) -> None:
    lines = [Line("a", 4, None), Line("b", 2, 2, type="Change OCR")]
    found = compute_scores(make_run(tmp_path / "run", lines))
    assert found.by_type["Change Color"].value is None
    assert found.by_type["Change Color"].why == "no verdict on visual_consistency"
    assert found.overall.value == pytest.approx(100 / 3)
    assert "Without a score, so not part of the overall: Change Color." in found.notes


def test_a_run_with_nothing_judged_has_no_score_and_no_nan(tmp_path: Path) -> None:
    found = compute_scores(make_run(tmp_path / "run", [Line("a", None, None)]))
    assert found.overall.value is None
    assert found.overall.why
    assert "NaN" not in found.model_dump_json()


def test_one_edit_has_a_score_and_no_interval(tmp_path: Path) -> None:
    found = compute_scores(make_run(tmp_path / "run", [Line("a", 3, 4)]))
    assert found.overall.value == pytest.approx((200 / 3 + 100) / 2)
    assert (found.overall.low, found.overall.high, found.overall.n) == (None, None, 1)
    assert found.overall.why == "no interval: 1 source picture, at least 5 are needed"


def test_types_with_one_edit_each_do_not_pretend_to_a_narrow_interval(tmp_path: Path) -> None:
    lines = [Line(kind, 1 + number % 4, 4, type=kind) for number, kind in enumerate(PUBLISHED)]
    found = compute_scores(make_run(tmp_path / "run", lines))
    assert found.overall.value is not None
    assert found.overall.low is not None
    assert found.overall.high is not None
    assert found.overall.high - found.overall.low > 30
    assert {score.format(1)[-10:] for score in found.by_type.values()} == {"[1 source]"}


def test_without_types_the_overall_is_over_all_edits_and_says_so(tmp_path: Path) -> None:
    found = compute_scores(make_run(tmp_path / "run", [Line("a", 4, 4, type=None), Line("b", 1, 1, type=None)]))
    assert found.overall.value == pytest.approx(50)
    assert found.by_type == {}
    assert "No edit has an instruction type" in found.notes[0]


def test_edits_without_a_type_among_typed_ones_are_shown_apart(tmp_path: Path) -> None:
    found = compute_scores(make_run(tmp_path / "run", [Line("a", 4, 4), Line("b", 1, 1, type=None)]))
    assert found.overall.value == pytest.approx(100)
    assert found.by_type["(no type)"].value == pytest.approx(0)
    assert "1 edit has no instruction type and is not part of the overall score." in found.notes


def test_a_criterion_that_was_not_asked_is_no_part_of_the_score(tmp_path: Path) -> None:
    found = compute_scores(make_run(tmp_path / "run", [Line("a", 4, ""), Line("b", 3, "")]))
    assert found.overall.value == pytest.approx((100 + 200 / 3) / 2)
    assert list(found.by_criterion) == [IF]
    assert any("Not asked in this run" in note and VC in note for note in found.notes)


def test_scores_by_model_and_by_any_other_field(tmp_path: Path) -> None:
    lines = [
        Line("a", 4, 4, model="x", extra={"style": "photo", "light": 3}),
        Line("b", 1, 1, model="y", extra={"style": "paint"}),
        Line("c", 1, 4, model="y", extra={"style": "photo"}),
    ]
    found = compute_scores(make_run(tmp_path / "run", lines), by=("model", "style", "light", "absent"))
    assert {name: score.value for name, score in found.by["model"].items()} == {"x": 100, "y": pytest.approx(25)}
    assert {name: score.value for name, score in found.by["style"].items()} == {
        "x · photo": 100,
        "y · photo": pytest.approx(50),
        "y · paint": 0,
    }
    assert set(found.by["light"]) == {"x · 3", "y · (no light)"}
    assert "absent" not in found.by
    assert found.by["model"]["y"].judged == 4


def test_a_score_is_the_mean_of_the_repeats_means_even_if_one_lacks_a_verdict(tmp_path: Path) -> None:
    lines = [Line("a", (4, 4, 1), (4, 4, 4)), Line("b", (2, None, 2), (4, 4, 4))]
    found = compute_scores(make_run(tmp_path / "run", lines))
    assert found.by_criterion[IF].value == pytest.approx(np.mean([(100 + 100 / 3) / 2, 100, (100 / 3) / 2]))
    by_hand = [((100 + 100 / 3) / 2 + 100) / 2, (100 + 100) / 2, ((0 + 100 / 3) / 2 + 100) / 2]
    assert found.repeats is not None
    assert found.repeats.values == pytest.approx(by_hand)
    assert found.repeats.mean == found.overall.value == pytest.approx(np.mean(by_hand))
    assert found.repeats.sd == pytest.approx(np.std(by_hand, ddof=1))
    assert found.coverage.unjudged == 1
    assert "A score is the mean of its repeats' means; 1 edit lacks a score in one or more." in found.notes


def test_intervals_hold_the_value_and_are_the_same_every_time(tmp_path: Path) -> None:
    lines = [
        Line(str(number), 1 + number % 4, 2 + number // 3 % 3, type=list(PUBLISHED)[number % 3]) for number in range(36)
    ]
    run = make_run(tmp_path / "run", lines)
    one, two = compute_scores(run), compute_scores(run)
    assert one == two
    for score in (one.overall, *one.by_type.values(), *one.by_criterion.values()):
        assert score.low is not None
        assert score.high is not None
        assert score.value is not None
        assert score.low < score.value < score.high
        assert score.sources == score.n


@pytest.mark.long
def test_edits_that_share_a_source_widen_the_interval(tmp_path: Path) -> None:
    lines = [
        Line(f"{source}-{number}", 4 if source % 2 else 1, 4, source=str(source))
        for source in range(10)
        for number in range(8)
    ]
    shared = compute_scores(make_run(tmp_path / "run", lines)).overall
    apart = compute_scores(make_run(tmp_path / "apart", [replace(line, source=line.id) for line in lines])).overall
    assert (shared.value, shared.n, shared.sources, apart.sources) == (apart.value, 80, 10, 80)
    assert (shared.high or 0) - (shared.low or 0) > 2 * ((apart.high or 0) - (apart.low or 0)) > 0


def test_the_source_is_known_by_its_content_not_by_its_path(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("a"), Line("b", source="shared"), Line("c", source="shared")], pictures=True)
    rows = read_run_table(run).rows
    assert rows[1].source == rows[2].source == rows[1].pictures["source"][0]
    assert rows[0].source != rows[1].source


def test_levels_are_averaged_before_the_overall_as_in_vibe() -> None:
    groups = ["AD", "RM", "PC", "LC"]
    how = Aggregation("", levels=(("AD", "RM"), ("PC",), ("LC",)))
    weights = compute_group_weights(groups, [True] * 4, how)
    finals = np.array([[84.83 + 1], [84.83 - 1], [65.46], [45.17]])
    assert round(float(aggregate(finals, np.ones((4, 1)), np.ones((4, 1)), how, ("s",), weights).overall), 2) == 65.15


def test_a_protocol_may_score_whole_edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    geometric = replace(DEFAULT, edit_score=lambda edit, given: (given[IF] * given[VC]) ** 0.5)
    paper = replace(PAPERS[0], protocol=geometric)
    monkeypatch.setattr("editloupe.rubrics.registry.PAPERS", (paper,))
    run = make_run(tmp_path / "run", [Line("a", 4, 4), Line("b", 1, 4), Line("c", 4, None)])
    found = compute_scores(run)
    assert found.overall.value == pytest.approx(50)
    assert found.overall.criteria[IF].value == pytest.approx(200 / 3)
    assert compute_scores(run, unjudged="worst").overall.value == pytest.approx(100 / 3)


def test_an_empty_run_or_another_protocol_is_one_sentence(tmp_path: Path) -> None:
    make_run(tmp_path / "empty", [])
    with pytest.raises(UserError, match="holds no verdicts yet"):
        compute_scores(tmp_path / "empty")
    with pytest.raises(UserError, match="holds no verdicts of vibe; it has dlebench"):
        compute_scores(make_run(tmp_path / "run", [Line("a")]), protocol="vibe")


def test_rows_are_plain_records(tmp_path: Path) -> None:
    rows = compute_scores(make_run(tmp_path / "run", [Line("a", 4, 2, model="m")])).rows()
    assert {"group": "type", "name": "Change Color", "criterion": IF, "value": 100.0}.items() <= rows[4].items()
    assert [row["group"] for row in rows] == ["overall"] * 3 + ["type"] * 3 + ["model"] * 3
