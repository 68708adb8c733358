"""A second stage is calibrated on what the first leaves over, at its share of the error, and refused where that is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.calibrate import EarlierStage, calibrate, count_earlier_endings, find_left_over
from editloupe.judge.plans import Cascade, plan_of, stage_calibrations, stage_entries, write_stages
from editloupe.types import UserError
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.stats.trust.samples import write_labels

FIRST, SECOND = "openai:small", "openai:large"


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two judges of 400 edits: the first is right on easy ones, the second also on the middling; both know where."""
    first, second, people = [], [], []
    for number in range(400):
        truth, hard = 1 + number % 3, number // 100
        first.append(Line(f"e{number}", truth if hard < 2 else 4, "", confidence=(0.9, 0.8, 0.5, 0.4)[hard]))
        second.append(Line(f"e{number}", truth if hard < 3 else 4, "", confidence=(0.9, 0.9, 0.8, 0.3)[hard]))
        people.append({"edit_id": f"e{number}", IF: truth})
    labels = write_labels(tmp_path / "h.jsonl", people)
    return make_run(tmp_path / "a", first, judge=FIRST), make_run(tmp_path / "b", second, judge=SECOND), labels


@pytest.mark.long
def test_what_the_first_stage_keeps_is_not_calibrated_again(runs: tuple[Path, Path, Path]) -> None:
    one, two, labels = (read_run_table(runs[0]), read_run_table(runs[1]), runs[2])
    first = calibrate(one, [labels], 0.9, 0.025)
    assert first.criteria[IF].threshold == 0.8
    earlier = [EarlierStage(first, one)]
    assert find_left_over(two, IF, earlier).tolist() == [False] * 200 + [True] * 200
    second = calibrate(two, [labels], 0.9, 0.025, earlier=earlier)
    assert second.criteria[IF].labels == 200
    assert second.criteria[IF].threshold == 0.8
    assert second.after == (first.key,)


@pytest.mark.long
def test_the_share_of_the_error_is_divided_by_where_the_first_stage_could_have_ended(
    runs: tuple[Path, Path, Path],
) -> None:
    one, two, labels = (read_run_table(runs[0]), read_run_table(runs[1]), runs[2])
    first = calibrate(one, [labels], 0.9, 0.025)
    earlier = [EarlierStage(first, one)]
    assert count_earlier_endings(IF, earlier) == 1 + first.criteria[IF].candidates == 5
    tested = calibrate(two, [labels], 0.9, 0.025, earlier=earlier).criteria[IF].tested[0]
    assert tested.lower == pytest.approx((0.025 / 5) ** (1 / tested.labels))


@pytest.mark.long
def test_the_command_appends_a_stage_and_the_file_is_a_cascade(
    runs: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, labels = runs
    out = tmp_path / "trust.yaml"
    given = ["--human", str(labels), "--stages", "2", "--error", "0.05", "--out", str(out)]
    assert command(["calibrate", str(one), *given]) == 0
    assert command(["calibrate", str(two), *given, "--append"]) == 2
    assert "name its run with --earlier" in capsys.readouterr().err
    assert len(stage_entries(out)) == 1, "a refused stage leaves the file as it was"
    assert command(["calibrate", str(two), *given, "--append", "--earlier", str(one)]) == 0
    assert "stage 2" in capsys.readouterr().out
    plan = plan_of(f"cascade:{out}", "http://localhost:1/v1")
    assert isinstance(plan, Cascade)
    assert plan.spec == f"cascade:{FIRST}>{SECOND}"
    assert plan.error == pytest.approx(0.05)
    assert [stage.judge.spec for stage in plan.stages] == [FIRST, SECOND]
    assert stage_calibrations(stage_entries(out), out)[1].criteria[IF].threshold == 0.8


@pytest.mark.long
def test_a_judge_twice_and_more_stages_than_the_error_was_shared_among_are_refused(
    runs: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, labels = runs
    out = tmp_path / "trust.yaml"
    given = ["--human", str(labels), "--out", str(out)]
    assert command(["calibrate", str(one), *given]) == 0
    assert command(["calibrate", str(one), *given, "--append", "--stages", "2"]) == 2
    assert "is a stage of" in capsys.readouterr().err
    assert command(["calibrate", str(two), *given, "--append", "--earlier", str(one)]) == 2
    assert "say with --stages how many" in capsys.readouterr().err
    assert command(["calibrate", str(two), *given, "--earlier", str(one)]) == 2


@pytest.mark.long
def test_stages_out_of_their_order_are_refused(runs: tuple[Path, Path, Path], tmp_path: Path) -> None:
    one, two, labels = runs
    out = tmp_path / "trust.yaml"
    given = ["--human", str(labels), "--stages", "2", "--out", str(out)]
    assert command(["calibrate", str(one), *given]) == 0
    assert command(["calibrate", str(two), *given, "--append", "--earlier", str(one)]) == 0
    write_stages(out, list(reversed(stage_entries(out))))
    with pytest.raises(UserError, match="not calibrated on the edits that the stages before it leave over"):
        plan_of(f"cascade:{out}")


@pytest.mark.long
def test_a_second_stage_whose_bounds_are_not_at_its_share_of_the_error_is_refused(
    runs: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    one, two, labels = runs
    out = tmp_path / "trust.yaml"
    given = ["--human", str(labels), "--stages", "2", "--out", str(out)]
    assert command(["calibrate", str(one), *given]) == 0
    assert command(["calibrate", str(two), *given, "--append", "--earlier", str(one)]) == 0
    plan_of(f"cascade:{out}", "http://localhost:1/v1")
    entries: list[Any] = stage_entries(out)
    entries[0]["calibration"]["criteria"][IF]["candidates"] = 3
    write_stages(out, entries)
    with pytest.raises(UserError, match="lower of test 1"):
        plan_of(f"cascade:{out}", "http://localhost:1/v1")


@pytest.mark.long
def test_the_promise_of_both_stages_holds_although_the_same_labels_found_both() -> None:
    from editloupe.evals.stats.trust.calibrate import fewest_labels, find_thresholds, run_fixed_sequence

    random = np.random.default_rng(11)
    hard = random.random(20_000)
    first, second = (1 - hard + 0.2 * random.normal(size=len(hard)) for _ in range(2))
    right = 1 - 0.5 * hard
    broken = 0
    for _ in range(200):
        some = random.choice(len(hard), 200, replace=False)
        agreed = random.random((2, 200)) < right[some]
        one = [t.threshold for t in run_fixed_sequence(first[some], agreed[0], 0.8, 0.025) if t.passed]
        left = first[some] < (one[-1] if one else np.inf)
        error = 0.025 / (1 + len(find_thresholds(first[some], fewest_labels(0.8, 0.025))))
        two = [t.threshold for t in run_fixed_sequence(second[some][left], agreed[1][left], 0.8, error) if t.passed]
        kept = first >= (one[-1] if one else np.inf)
        later = ~kept & (second >= (two[-1] if two else np.inf))
        broken += any(keeps.any() and right[keeps].mean() < 0.8 for keeps in (kept, later))
    assert broken / 200 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
