from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.evals.gate.broken_outputs import compare_outputs, find_defect, measure_outside_change
from editloupe.evals.gate.decisions import SPENT, estimate_power, raise_spread
from editloupe.evals.gate.gate import run_gate
from editloupe.evals.stats.comparison.paired_differences import OVERALL, CaseGrid, compute_differences
from editloupe.evals.stats.intervals import t_quantile
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.scores.score_matrix import ScoreMatrix
from editloupe.types import Box, UserError
from tests.drawn_pictures import textured
from tests.evals.model_runs import Scores, model_run
from tests.evals.sample_runs import IF, VC

LOWER_19 = t_quantile(1 - 2 * SPENT * 0.05, 19)
"""Quantile of Student's t with 19 degrees of freedom, for the part of an error of 0.05 that is spent."""
UPPER_19 = t_quantile(1 - 2 * SPENT * 0.05 / 3, 19)
"""For a third of that error."""


def two_models(tmp_path: Path, new: Sequence[Scores | None], old: Sequence[Scores | None]) -> tuple[Path, Path]:
    return model_run(tmp_path / "new", {"new": new}), model_run(tmp_path / "old", {"old": old})


def paint(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def smooth(size: int = 64) -> np.ndarray:
    ramp = np.linspace(40, 200, size)
    return np.repeat((ramp[:, None] + ramp[None]).clip(0, 255)[..., None] / 2, 3, 2)


def test_bounds_are_those_of_the_paired_t_test(tmp_path: Path) -> None:
    # Ten of twenty edits gain one of three steps, ten lose one: the mean is 0, the standard deviation
    # 33.3 · √(20 / 19), and the standard error that divided by √20.
    new, old = two_models(tmp_path, [(3, 4)] * 10 + [(1, 4)] * 10, [(2, 4)] * 20)
    test = run_gate(new, old, 50).criteria[IF]
    se = 100 / 3 / np.sqrt(19)
    assert test.difference == pytest.approx(0)
    assert test.low == pytest.approx(-LOWER_19 * se, abs=1e-6)
    assert test.high == pytest.approx(UPPER_19 * se, abs=1e-6), "the upper bound is Bonferroni's for three scores"
    alone = run_gate(new, old, 50, [IF]).criteria[IF]
    assert alone.high == pytest.approx(LOWER_19 * se, abs=1e-6)


def test_missing_verdicts_do_not_widen_the_bounds(tmp_path: Path) -> None:
    # Both criteria vary little, and half of the edits lack one of them: nothing to raise, as there is one type.
    scores: list[Scores | None] = [(2 + n % 2, 2 + n // 2 % 2 if n < 10 else None) for n in range(20)]
    new, old = (read_run_table(run) for run in two_models(tmp_path, scores, [(4, 4)] * 20))
    grid = CaseGrid.of(old, old.rows)
    a, b = (grid.side(ScoreMatrix(table, table.rows), np.arange(20)) for table in (new, old))
    spread = compute_differences(grid, {"a": a, "b": b}, [("a", "b")], 0.9)["a", "b"][OVERALL].spread
    assert spread is not None
    assert raise_spread(spread, grid, a, b, None).se == pytest.approx(spread.se, rel=0.05)


def test_a_proven_loss_beyond_the_margin_fails(tmp_path: Path) -> None:
    result = run_gate(*two_models(tmp_path, [(2, 4), (3, 4)] * 10, [(4, 4)] * 20), 10)
    assert result.verdict == "failed"
    assert result.criteria[IF].verdict == "failed"
    assert result.difference == pytest.approx(-25)
    assert [edit.difference for edit in result.worst] == [pytest.approx(-100 / 3)] * 5


def test_a_proven_loss_within_the_margin_passes_and_is_named(tmp_path: Path) -> None:
    result = run_gate(*two_models(tmp_path, [(3, 4)] * 10 + [(4, 4)] * 10, [(4, 4)] * 20), 40)
    assert result.verdict == "passed"
    assert result.criteria[IF].loss_within_margin
    assert not result.criteria[VC].loss_within_margin


def test_a_small_difference_of_few_edits_is_undecided_and_the_needed_number_is_named(tmp_path: Path) -> None:
    new, old = two_models(tmp_path, [(3, 4)] * 10 + [(1, 4)] * 10, [(2, 4)] * 20)
    test = run_gate(new, old, 5, [IF]).criteria[IF]
    assert test.verdict == "cannot_tell"
    # The bound is 13.22 below the difference and must be 5: 20 · (13.22 / 5)² edits.
    assert test.needed == int(np.ceil(20 * (LOWER_19 * 100 / 3 / np.sqrt(19) / 5) ** 2))


def test_four_source_pictures_are_too_few_to_tell(tmp_path: Path) -> None:
    result = run_gate(*two_models(tmp_path, [(1, 1)] * 4, [(4, 4)] * 4), 2)
    assert result.verdict == "cannot_tell"
    assert "source pictures" in (result.criteria[IF].why or "")


def test_identical_outputs_pass_whatever_was_judged(tmp_path: Path) -> None:
    old = model_run(tmp_path / "old", {"x": [(4, 4)] * 6})
    new = model_run(tmp_path / "new", {"x": [(1, 1)] * 5 + [(None, None)]})
    result = run_gate(new, old, 2)
    assert (result.verdict, result.difference, result.identical, result.edits) == ("passed", 0, 6, 6)
    assert result.left_out == {}


def test_a_broken_output_fails_the_gate_and_has_no_score(tmp_path: Path) -> None:
    scores: list[Scores | None] = [(4, 4)] * 20
    old = model_run(tmp_path / "old", {"old": scores})
    files = tmp_path / "pictures"
    for number in range(20):
        paint(files / f"new-{number}-0.png", smooth(8) + number)
    paint(files / "new-0-0.png", np.zeros((8, 8, 3)))
    paint(files / "new-1-0.png", smooth(16))
    new = model_run(tmp_path / "new", {"new": [(1, 1), (1, 1), *scores[2:19], None]})
    result = run_gate(new, old, 40)
    assert result.verdict == "failed"
    assert {edit.edit_id: edit.reason for edit in result.broken} == {
        "e0": "all black",
        "e1": "other size: 16×16 instead of 8×8",
        "e19": "missing",
    }
    assert result.difference == pytest.approx(0)
    assert result.edits == 17
    assert {test.verdict for test in result.tests.values()} == {"passed"}


def test_an_output_is_broken_only_if_the_baseline_is_not_broken_alike() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    picture = smooth().astype(np.uint8)
    assert find_defect(noise) == "noise"
    assert find_defect(picture) is None
    grain = (smooth() + np.random.default_rng(0).normal(0, 12, (64, 64, 3))).clip(0, 255).astype(np.uint8)
    assert find_defect(grain) is None, "a grainy picture is not noise"
    assert compare_outputs(noise, noise) is None
    assert compare_outputs(noise, picture) == "noise"
    assert compare_outputs("unreadable", picture) == "unreadable"
    assert compare_outputs("missing", "unreadable") is None
    assert compare_outputs(None, picture) is None


def test_a_picture_that_changed_everywhere_outside_the_targets_is_broken() -> None:
    source = smooth().astype(np.uint8)
    target = [Box(x1=10, y1=10, x2=30, y2=30)]
    good = source.copy()
    good[10:30, 10:30] = (200, 30, 30)
    other = np.ascontiguousarray(source[:, ::-1] // 2 + 120)
    assert (measure_outside_change(source, good, target) or 0) < 0.05
    assert (measure_outside_change(source, other, target) or 0) > 0.6
    whole = [Box(x1=0, y1=0, x2=64, y2=64)]
    assert measure_outside_change(source, other, whole) is None, "nothing is outside"


def test_noise_of_a_latent_picture_and_one_colour_are_defects() -> None:
    cells = np.random.default_rng(0).integers(0, 255, (16, 16, 3)).repeat(8, 0).repeat(8, 1).astype(np.uint8)
    assert find_defect(cells) == "noise"
    assert find_defect(np.full((64, 64, 3), 128, np.uint8)) == "one colour"
    assert find_defect(textured(256, 192, seed=1)) is None


def test_all_outputs_broken_is_a_failure(tmp_path: Path) -> None:
    old = model_run(tmp_path / "old", {"old": [(4, 4)] * 6})
    for number in range(6):
        paint(tmp_path / "pictures" / f"new-{number}-0.png", np.zeros((8, 8, 3)))
    result = run_gate(model_run(tmp_path / "new", {"new": [(4, 4)] * 6}), old, 2)
    assert (result.verdict, len(result.broken), result.edits, result.difference) == ("failed", 6, 0, None)


def test_the_same_cases_are_drawn_every_time(tmp_path: Path) -> None:
    new, old = two_models(tmp_path, [(n % 4 + 1, 4) for n in range(20)], [(2, 4)] * 20)
    first, again = (run_gate(new, old, 5, max_edits=8) for _ in range(2))
    assert first == again
    assert first.edits == 8


def test_unjudged_edits_are_left_out_and_counted(tmp_path: Path) -> None:
    result = run_gate(*two_models(tmp_path, [(None, None), *[(4, 4)] * 9], [(4, 4)] * 10), 40)
    assert result.left_out == {"unjudged in new": 1}
    assert result.edits == 9


def test_more_edits_find_smaller_losses(tmp_path: Path) -> None:
    _, old = two_models(tmp_path, [(4, 4)] * 5, [(4, 4), (3, 4), (2, 3), (1, 4)] * 5)
    few, many = (estimate_power(read_run_table(old), 2, edits=count) for count in (20, 2000))
    assert few.loss > many.loss
    assert few.unchanged_passes < many.unchanged_passes
    assert few.loss / many.loss == pytest.approx(10, rel=0.1), "losses shrink with the root of the number of edits"


def test_the_power_is_not_taken_from_scores_that_do_not_vary(tmp_path: Path) -> None:
    _, old = two_models(tmp_path, [(4, 4)] * 5, [(4, 4)] * 20)
    with pytest.raises(UserError, match="the scores of the baseline do not vary"):
        estimate_power(read_run_table(old), 2)
    assert "standard deviation of 30 points" in estimate_power(None, 2, edits=60).sentence
    with pytest.raises(UserError, match="name a number of edits"):
        estimate_power(None, 2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"drop": 0}, "--drop is a number of points above 0 and up to 100, not 0"),
        ({"drop": float("nan")}, "--drop is a number of points above 0 and up to 100, not nan"),
        ({"drop": 2, "level": 0.5}, "--level is a probability above 0 and below 0.5, not 0.5"),
        ({"drop": 2, "criteria": ["beauty"]}, 'the baseline has no criterion "beauty"; it has: instruction_following'),
    ],
)
def test_bad_settings_are_one_sentence(tmp_path: Path, arguments: dict[str, object], problem: str) -> None:
    new, old = two_models(tmp_path, [(4, 4)] * 6, [(4, 4)] * 6)
    with pytest.raises(UserError, match=problem):
        run_gate(new, old, **arguments)  # type: ignore[arg-type]


def test_runs_that_do_not_compare_are_refused(tmp_path: Path) -> None:
    new, old = two_models(tmp_path, [(4, 4)] * 6, [(4, 4)] * 6)
    both = model_run(tmp_path / "both", {"x": [(4, 4)] * 6, "y": [(4, 4)] * 6})
    other = model_run(tmp_path / "other", {"x": [(4, 4)] * 6}, judge="openai:other")
    far = model_run(tmp_path / "far" / "run", {"x": [(4, 4)] * 6})
    with pytest.raises(UserError, match="both holds 2 editing models"):
        run_gate(both, old, 2)
    with pytest.raises(UserError, match="were judged differently"):
        run_gate(other, old, 2)
    assert run_gate(far, new, 2).verdict, "equal sources are the same cases wherever they are stored"
