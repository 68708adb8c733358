"""A calibration keeps what its promise: thresholds by fixed-sequence testing, tied to the judge it was made with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from editloupe.cli.main import run as command
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.calibrate import calibrate, lower_bound, require_same_judge, run_fixed_sequence
from editloupe.judge.calibration import Calibration
from editloupe.judge.plans import Cascade, describe_guarantee, plan_of
from editloupe.types import UserError
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.stats.trust.samples import kind_judge, write_labels

RANDOM = np.random.default_rng(9)


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    expected = stats.binomtest(57, 60, alternative="greater").proportion_ci(0.95, method="exact").low
    assert lower_bound(57, 60, 0.05) == pytest.approx(expected)


def test_thresholds_are_tested_from_the_strictest_down_to_the_first_that_fails() -> None:
    confidence = np.linspace(1, 0, 200)
    agreed = confidence > 0.5
    tested = run_fixed_sequence(confidence, agreed, 0.9, 0.05)
    assert tested[0].labels >= 30
    assert [one.threshold for one in tested] == sorted((one.threshold for one in tested), reverse=True)
    assert [one.passed for one in tested] == [True] * (len(tested) - 1) + [False]


def test_equal_confidences_stand_above_or_below_together() -> None:
    confidence = np.repeat([0.9, 0.5], 40)
    tested = run_fixed_sequence(confidence, np.repeat([True, False], 40), 0.9, 0.05)
    assert [(one.threshold, one.labels) for one in tested] == [(0.9, 40), (0.5, 80)]


def test_fewer_than_thirty_labels_are_never_tested() -> None:
    assert run_fixed_sequence(np.ones(29), np.ones(29, bool), 0.5, 0.05) == ()


@pytest.mark.long
@pytest.mark.parametrize("floor", [0.3, 0.6, 0.88])
def test_the_promise_holds_in_nearly_all_calibrations(floor: float) -> None:
    broken = 0
    for _ in range(600):
        confidence = RANDOM.random(150)
        tested = run_fixed_sequence(confidence, RANDOM.random(150) < floor + (0.99 - floor) * confidence, 0.9, 0.05)
        kept = [one.threshold for one in tested if one.passed]
        if kept:
            broken += floor + (0.99 - floor) * (1 + kept[-1]) / 2 < 0.9
    assert broken / 600 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)


def test_a_judge_that_is_right_when_it_is_sure_is_kept_there(tmp_path: Path) -> None:
    lines, people = [], []
    for number in range(200):
        sure = number % 2 == 0
        truth = 1 + number % 3
        lines.append(Line(f"e{number}", truth if sure else 4, "", confidence=0.9 if sure else 0.4))
        people.append({"edit_id": f"e{number}", IF: truth})
    table = read_run_table(make_run(tmp_path / "run", lines))
    found = calibrate(table, write_labels(tmp_path / "h.jsonl", people), 0.9, 0.05)
    assert found.criteria[IF].threshold == 0.9
    assert found.criteria[IF].kept == 0.5
    assert found.keeps(IF, 0.95)
    assert not found.keeps(IF, 0.5)
    assert not found.keeps(IF, None)
    assert not found.keeps("another", 0.99)


@pytest.mark.long
def test_where_no_threshold_passes_nothing_is_kept_and_the_reason_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, people = kind_judge(tmp_path)
    labels, out = str(write_labels(tmp_path / "h.jsonl", people)), tmp_path / "trust.yaml"
    assert command(["calibrate", str(run), "--human", labels, "--agreement", "0.99", "--out", str(out)]) == 0
    assert "nothing may be kept" in capsys.readouterr().out
    found = Calibration.read(out)
    assert found.criteria[IF].threshold is None
    assert not found.keeps(IF, 1.0)


@pytest.mark.long
def test_a_calibration_survives_its_file_and_is_refused_for_another_judge_or_other_words(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path)
    table = read_run_table(run)
    found = calibrate(table, write_labels(tmp_path / "h.jsonl", people), 0.3, 0.05)
    found.write(tmp_path / "trust.yaml")
    again = Calibration.read(tmp_path / "trust.yaml")
    assert again == found
    require_same_judge(again, table)
    other = read_run_table(make_run(tmp_path / "other", [Line("e0")], judge="rules"))
    with pytest.raises(UserError, match="valid for the judge"):
        require_same_judge(again, other)
    with pytest.raises(UserError, match="the prompt, the tools or the settings"):
        again.check(found.judge, found.protocol, found.mode, {IF: ("another key",)})
    (tmp_path / "broken.yaml").write_text("judge: 1\n")
    with pytest.raises(UserError, match="is not a calibration"):
        Calibration.read(tmp_path / "broken.yaml")


def test_only_one_label_of_a_source_picture_counts(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=100)
    found = calibrate(read_run_table(run), write_labels(tmp_path / "h.jsonl", people), 0.5, 0.05)
    assert found.criteria[IF].labels == 50
    assert any("share a source picture one counts" in note for note in found.notes)


def test_without_any_confidence_nothing_can_be_calibrated(tmp_path: Path) -> None:
    table = read_run_table(make_run(tmp_path / "run", [Line(f"e{n}") for n in range(40)]))
    labels = write_labels(tmp_path / "h.jsonl", [{"edit_id": f"e{n}", IF: 4} for n in range(40)])
    with pytest.raises(UserError, match="how sure the judge was"):
        calibrate(table, labels, 0.9, 0.05)


@pytest.mark.long
def test_a_threshold_set_by_hand_is_refused(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=300)
    found = calibrate(read_run_table(run), write_labels(tmp_path / "h.jsonl", people), 0.3, 0.05)
    assert found.criteria[IF].threshold is not None
    lower = found.criteria[IF].model_copy(update={"threshold": 0.01})
    found.model_copy(update={"criteria": {**found.criteria, IF: lower}}).write(tmp_path / "trust.yaml")
    with pytest.raises(UserError, match="hand-edited numbers carry no guarantee"):
        Calibration.read(tmp_path / "trust.yaml")


def _drop(path: tuple[str, ...]) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        del data[path[-1]]

    return change


def _put(path: tuple[str | int, ...], value: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for part in path[:-1]:
            data = data[part]
        data[path[-1]] = value

    return change


FIRST_TEST = ("criteria", IF, "tested", 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_drop(("criteria", IF, "tested")), r"tested is missing\); run `editloupe calibrate` again"),
        (_put(("criteria", IF, "tested"), []), "the threshold of .* is 0"),
        (_put((*FIRST_TEST, "lower"), 0.999), r"lower of test 1 of .* is 0\.999, but \d+ of \d+ labels show 0\.\d+"),
        (_put((*FIRST_TEST, "passed"), False), "passed of test 1 of .* is false, but .* true"),
        (_put((*FIRST_TEST, "labels"), 0), "labels"),
        (_put((*FIRST_TEST, "agreed"), 100_000), "agreed of test 1 of .* is 100000, more than its"),
        (_put((*FIRST_TEST, "threshold"), -5.0), "threshold"),
        (_put(("criteria", IF, "threshold"), 7.0), "threshold"),
        (_put(("criteria", IF, "labels"), 3), "labels of .* is 3, fewer than the"),
        (_put(("criteria", IF, "candidates"), 0), "candidates of .* is 0, fewer than its"),
        (_put(("criteria", IF, "candidates"), 21), "candidates"),
        (_put(("criteria", IF, "kept"), 1.5), "kept"),
        (_put(("agreement",), 7.0), "agreement"),
        (_put(("agreement",), 0.999), "labels of test 1 of .* nothing is tested on fewer than 2995"),
        (_put(("error",), -1.0), "error"),
        (_put(("error",), 1e-9), "lower of test 1|labels of test 1"),
        (_put(("repeats",), 0), "repeats"),
        (_put(("repeats",), 1_000_000_000), "repeats"),
    ],
)
def test_a_calibration_whose_numbers_do_not_follow_from_its_labels_is_refused(
    tmp_path: Path, change: Callable[[Any], None], words: str
) -> None:
    run, people = kind_judge(tmp_path, edits=300)
    path = tmp_path / "trust.yaml"
    calibrate(read_run_table(run), write_labels(tmp_path / "h.jsonl", people), 0.3, 0.05).write(path)
    assert Calibration.read(path).criteria[IF].tested
    data = yaml.safe_load(path.read_text())
    change(data)
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match=words) as refused:
        Calibration.read(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_tests_out_of_order_and_tests_after_a_failed_one_are_refused(tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=300)
    path = tmp_path / "trust.yaml"
    calibrate(read_run_table(run), write_labels(tmp_path / "h.jsonl", people), 0.3, 0.05).write(path)
    data = yaml.safe_load(path.read_text())
    data["criteria"][IF]["tested"].reverse()
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(UserError, match="strictest threshold"):
        Calibration.read(path)


def test_a_calibration_on_no_labels_promises_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [Line(f"e{number}", 4, "", confidence=0.9) for number in range(5)]
    run, out = make_run(tmp_path / "run", lines), tmp_path / "trust.yaml"
    labels = write_labels(tmp_path / "h.jsonl", [{"edit_id": "e0", IF: 4}])
    assert command(["calibrate", str(run), "--human", str(labels), "--out", str(out)]) == 0
    assert "people agree with at least" not in capsys.readouterr().out
    plan = plan_of(f"cascade:{out}", "http://localhost:1/v1")
    assert isinstance(plan, Cascade)
    assert not any("people agree with at least" in sentence for sentence in describe_guarantee(plan))
