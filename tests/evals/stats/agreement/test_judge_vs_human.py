import json
from pathlib import Path

import krippendorff
import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
from editloupe.types import UserError
from tests.evals.sample_runs import IF, IF_LABELS, VC, Line, make_run


def names(*scores: int | None) -> list[str]:
    return ["" if score is None else IF_LABELS[score - 1] for score in scores]


def run_with(tmp_path: Path, scores: list[int | None], people: list[tuple[int | None, ...]], **options: object) -> Path:
    pairs = enumerate(zip(scores, people, strict=True))
    lines = [Line(f"e{n}", score, "", human={IF: names(*given)} if given else {}) for n, (score, given) in pairs]
    return make_run(tmp_path / "run", lines, **options)  # type: ignore[arg-type]


@pytest.fixture
def sample() -> tuple[list[int], list[tuple[int, int, int]]]:
    random = np.random.default_rng(4)
    truth = random.integers(1, 5, 40)

    def noisy(share: float) -> np.ndarray:
        return np.where(random.random(40) < share, random.integers(1, 5, 40), truth)

    judge, *people = noisy(0.4), noisy(0.1), noisy(0.2), noisy(0.3)
    return judge.tolist(), list(zip(*(one.tolist() for one in people), strict=True))


def test_every_measure_equals_the_libraries(
    tmp_path: Path, sample: tuple[list[int], list[tuple[int, int, int]]]
) -> None:
    judge, people = sample
    found = measure_agreement(run_with(tmp_path, judge, people)).criteria[IF]  # type: ignore[arg-type]
    ratings = np.array(people, float)
    x, y, median = np.array(judge, float), ratings.mean(1), np.median(ratings, axis=1)
    expected = {
        "spearman": stats.spearmanr(x, y).statistic,
        "pearson": stats.pearsonr(x, y).statistic,
        "mae": np.abs(x - y).mean(),
        "mae_100": np.abs(x - y).mean() / 3 * 100,
        "accuracy": (x == median).mean(),
        "kappa": cohen_kappa_score(x, median),
        "kappa_quadratic": cohen_kappa_score(x, median, weights="quadratic", labels=[1, 2, 3, 4]),
        "krippendorff_alpha": krippendorff.alpha(ratings.T, level_of_measurement="ordinal"),
        "krippendorff_alpha_annotators": krippendorff.alpha(ratings.T, level_of_measurement="ordinal"),
        "krippendorff_alpha_with_judge": krippendorff.alpha(np.vstack([ratings.T, x]), level_of_measurement="ordinal"),
    }
    for name, value in expected.items():
        one = getattr(found, name)
        assert one.value == pytest.approx(value, abs=1e-9), name
        assert one.n == 40
        assert one.low <= one.value <= one.high, name
        assert one.low < one.high, name
    assert found.raters == "annotators"


def test_the_ceiling_is_each_annotator_against_the_others(
    tmp_path: Path, sample: tuple[list[int], list[tuple[int, int, int]]]
) -> None:
    judge, people = sample
    ceiling = measure_agreement(run_with(tmp_path, judge, people)).criteria[IF].ceiling  # type: ignore[arg-type]
    ratings = np.array(people, float)
    others = [np.delete(ratings, one, 1) for one in range(3)]
    assert ceiling is not None
    assert ceiling.annotators == 3
    rho = np.mean([stats.spearmanr(ratings[:, one], others[one].mean(1)).statistic for one in range(3)])
    assert ceiling.spearman.value == pytest.approx(rho, abs=1e-9)
    away = np.mean([np.abs(ratings[:, one] - others[one].mean(1)).mean() for one in range(3)])
    assert ceiling.mae.value == pytest.approx(away, abs=1e-9)
    stricter = np.mean([(ratings[:, one] == others[one].min(1)).mean() for one in range(3)])
    assert ceiling.accuracy.value == pytest.approx(stricter, abs=1e-9)


def test_the_confusion_matrix_counts_people_in_rows(tmp_path: Path) -> None:
    found = measure_agreement(run_with(tmp_path, [4, 4, 1, 2], [(1,), (4,), (1,), (3,)])).criteria[IF]
    assert found.confusion is not None
    assert found.confusion.labels == IF_LABELS
    assert found.confusion.counts == ((1, 0, 0, 1), (0, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 1))
    assert sum(map(sum, found.confusion.counts)) == found.n


def test_two_annotators_who_differ_count_as_the_stricter_label(tmp_path: Path) -> None:
    found = measure_agreement(run_with(tmp_path, [2, 3, 4], [(2, 4), (3, 3), (4, 1)])).criteria[IF]
    assert found.accuracy.value == pytest.approx(2 / 3)
    assert found.mae.value == pytest.approx((1 + 0 + 1.5) / 3)


def test_with_one_annotator_alpha_is_between_that_one_and_the_judge_and_says_so(tmp_path: Path) -> None:
    judge, people = [1, 2, 3, 4, 4, 2], [1, 2, 4, 4, 3, 2]
    found = measure_agreement(run_with(tmp_path, judge, [(p,) for p in people])).criteria[IF]  # type: ignore[arg-type]
    expected = krippendorff.alpha(np.array([people, judge], float), level_of_measurement="ordinal")
    assert found.krippendorff_alpha.value == pytest.approx(expected, abs=1e-9)
    assert found.raters == "annotator and judge"
    assert found.krippendorff_alpha_annotators.value is None
    assert found.krippendorff_alpha_annotators.why == "there is only one annotator"
    assert found.ceiling is None


def test_an_annotator_who_skipped_half_is_used_where_there_is_a_label(tmp_path: Path) -> None:
    people = [(1, 1), (2, None), (4, 3), (4, None), (3, 3), (1, None)]
    found = measure_agreement(run_with(tmp_path, [1, 2, 4, 3, 3, 1], people))  # type: ignore[arg-type]
    ratings = np.array([[np.nan if s is None else s for s in pair] for pair in people], float)
    one = found.criteria[IF]
    assert found.annotators == {"annotator 1": 6, "annotator 2": 3}
    assert one.n == 6
    alpha = one.krippendorff_alpha_annotators
    assert alpha.value == pytest.approx(krippendorff.alpha(ratings.T, level_of_measurement="ordinal"), abs=1e-9)
    assert alpha.n == 3
    assert one.mae.value == pytest.approx(np.abs(np.array([1, 2, 4, 3, 3, 1]) - np.nanmean(ratings, 1)).mean())


def test_unjudged_edits_are_left_out_and_counted(tmp_path: Path) -> None:
    found = measure_agreement(run_with(tmp_path, [1, None, 4, 3], [(1,), (1,), (4,), ()])).criteria[IF]
    assert (found.n, found.left_out) == (2, 1)
    assert found.mae.value == 0
    assert found.spearman.value is None
    assert found.spearman.why == "a correlation needs at least 3 edits with both scores, there are 2"


def test_constant_labels_give_sentences_and_never_nan(tmp_path: Path) -> None:
    found = measure_agreement(run_with(tmp_path, [4] * 6, [(4, 4)] * 6))
    one = found.criteria[IF]
    assert one.spearman.why == "the judge gave the same score to all 6 edits"
    assert one.kappa.why == "both gave one and the same label to all 6 edits"
    assert one.krippendorff_alpha.why == "every rating of the 6 edits is the same"
    assert one.accuracy.value == 1
    assert "NaN" not in json.dumps(found.model_dump(mode="json"))


def test_one_edit_has_a_difference_but_no_interval(tmp_path: Path) -> None:
    one = measure_agreement(run_with(tmp_path, [3], [(1,)])).criteria[IF]
    assert one.mae.value == 2
    assert (one.mae.low, one.mae.n) == (None, 1)
    assert one.mae.why == "no interval: 1 source picture, at least 5 are needed"
    assert one.pearson.value is None


def test_no_human_labels_is_said_and_not_an_error(tmp_path: Path) -> None:
    found = measure_agreement(run_with(tmp_path, [3, 4], [(), ()]))
    assert found.annotators == {}
    assert found.criteria[IF].n == 0
    assert found.criteria[IF].mae.why == "no edit has both a verdict and a human label"
    assert "No human labels" in found.notes[0]


def test_types_are_told_apart_in_the_protocols_order(tmp_path: Path) -> None:
    lines = [
        Line("a", 4, type="Change OCR", human={IF: "4"}),
        Line("b", 1, type="Change Color", human={IF: "4"}),
        Line("c", 2, type="Change Color", human={IF: "2"}),
    ]
    whole = measure_agreement(make_run(tmp_path / "run", lines)).criteria[IF]
    assert list(whole.by_type) == ["Change Color", "Change OCR"]
    assert whole.by_type["Change Color"].mae.value == pytest.approx(1.5)
    assert whole.by_type["Change OCR"].mae.value == 0
    assert whole.mae.value == pytest.approx(1)


def test_repeats_enter_as_their_mean_and_their_lower_median(tmp_path: Path) -> None:
    lines = [Line("a", (4, 1, 4), "", human={IF: "4"}), Line("b", (2, 3, None), "", human={IF: "2"})]
    one = measure_agreement(make_run(tmp_path / "run", lines)).criteria[IF]
    assert one.mae.value == pytest.approx((1 + 0.5) / 2)
    assert one.accuracy.value == 1


def test_the_interval_of_a_share_is_by_source(tmp_path: Path) -> None:
    lines = [
        Line(f"{s}-{n}", 4 if s % 2 else 1, "", source=str(s), human={IF: "4"}) for s in range(6) for n in range(5)
    ]
    accuracy = measure_agreement(make_run(tmp_path / "run", lines)).criteria[IF].accuracy
    # All edits of a source agree: thirty edits are worth six, and the t quantile has five degrees of freedom.
    worth, square = 0.25 / (0.25 / 5), stats.t.ppf(0.975, 5) ** 2
    reach = np.sqrt(square * (0.25 / worth + square / (4 * worth**2))) / (1 + square / worth)
    assert (accuracy.value, accuracy.sources) == (0.5, 6)
    assert (accuracy.low, accuracy.high) == pytest.approx((0.5 - reach, 0.5 + reach))


def test_a_run_of_the_rules_says_what_it_is(tmp_path: Path) -> None:
    found = measure_agreement(run_with(tmp_path, [1, 2], [(1,), (2,)], judge="rules"))
    assert "rule-based baseline" in found.notes[0]


def test_rows_are_plain_records(tmp_path: Path) -> None:
    lines = [Line("a", 4, 4, human={IF: "4"}), Line("b", 1, 3, human={IF: "4"})]
    rows = measure_agreement(make_run(tmp_path / "run", lines)).rows()
    wanted = {"criterion": IF, "type": "all", "measure": "mae", "value": 1.5, "n": 2}
    assert any(wanted.items() <= row.items() for row in rows)
    assert {row["criterion"] for row in rows} == {IF, VC}


def test_people_among_themselves_overall_by_type_and_two_by_two(tmp_path: Path) -> None:
    given = [(4, 4, 3), (1, 1, 1), (2, 3, None), (None, None, 4)]
    kinds = ("Change Color", "Change Color", "Change OCR", "Change OCR")
    lines = [
        Line(f"e{n}", 4, "", type=kind, human={IF: names(*one)})
        for n, (one, kind) in enumerate(zip(given, kinds, strict=True))
    ]
    people = measure_agreement(make_run(tmp_path / "run", lines)).criteria[IF].people
    assert people is not None
    assert (people.n, people.raters) == (3, 3)
    assert people.exact.value == pytest.approx((1 + 3 + 0) / 7)
    ratings = np.array([[np.nan if v is None else v for v in one] for one in given]).T
    assert people.krippendorff_alpha.value == pytest.approx(
        krippendorff.alpha(reliability_data=ratings, level_of_measurement="ordinal")
    )
    assert {name: (one.n, one.exact.value) for name, one in people.by_type.items()} == {
        "Change Color": (2, pytest.approx(4 / 6)),
        "Change OCR": (1, 0),
    }
    assert {one.names: (one.n, one.exact.value) for one in people.pairs} == {
        ("annotator 1", "annotator 2"): (3, pytest.approx(2 / 3)),
        ("annotator 1", "annotator 3"): (2, 0.5),
        ("annotator 2", "annotator 3"): (2, 0.5),
    }


def test_one_annotator_has_nobody_to_agree_with(tmp_path: Path) -> None:
    assert measure_agreement(run_with(tmp_path, [1, 2], [(1,), (2,)])).criteria[IF].people is None


def test_agreement_is_told_by_editing_model_and_by_other_fields(tmp_path: Path) -> None:
    lines = [
        Line(f"e{n}", n, "", model=model, type=kind, human={IF: str(n if model == "good" else 5 - n)})
        for model in ("good", "bad")
        for n, kind in ((1, "Change OCR"), (2, "Change Color"), (4, "Change OCR"))
    ]
    found = measure_agreement(make_run(tmp_path / "run", lines), by=["instruction_type", "model,instruction_type"])
    assert found.models == ("good", "bad")
    assert {model: one[IF].spearman.value for model, one in found.by["model"].items()} == pytest.approx(
        {"good": 1, "bad": -1}
    )
    assert found.by["instruction_type"]["Change OCR"][IF].n == 4
    crossed = found.by["model,instruction_type"]
    assert {value: (one[IF].n, one[IF].mae.value) for value, one in crossed.items()} == {
        "good · Change OCR": (2, 0),
        "good · Change Color": (1, 0),
        "bad · Change OCR": (2, 3),
        "bad · Change Color": (1, 1),
    }
    wanted = {"by": "model", "group": "bad", "criterion": IF, "measure": "mae", "n": 3}
    assert any(wanted.items() <= row.items() for row in found.rows())
    with pytest.raises(UserError, match='has a column "colour" to group agreement by'):
        measure_agreement(tmp_path / "run", by=["colour"])
