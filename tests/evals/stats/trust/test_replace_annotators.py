"""The alternative annotator test: its verdicts, and its conditions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.trust.replace_annotators import run_annotator_test
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.stats.trust.samples import write_labels

RANDOM = np.random.default_rng(6)
NAMES = ("Ada", "Bo", "Cy")


def ratings(edits: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the truth and what three annotators make of it."""
    truth = RANDOM.integers(1, 5, edits).astype(float)
    said = np.where(RANDOM.random((edits, 3)) < noise, RANDOM.integers(1, 5, (edits, 3)), truth[:, None])
    return truth, said


@pytest.mark.parametrize("scale", [False, True])
def test_a_judge_better_than_people_may_replace_them_and_a_dice_may_not(scale: bool) -> None:
    truth, said = ratings(120, 0.3)
    good = run_annotator_test(truth, said, NAMES, 0.2, scale)
    assert (good.may_replace, good.winning_rate) == (True, 1.0)
    dice = run_annotator_test(RANDOM.integers(1, 5, 120).astype(float), said, NAMES, 0.2, scale)
    assert (dice.may_replace, dice.winning_rate) == (False, 0.0)
    assert (dice.advantage or 1) < 0.6 < 0.8 < (good.advantage or 0)


def test_wins_are_counted_as_the_paper_counts_them() -> None:
    judge = np.array([1.0, 2.0] * 20)
    said = np.stack([np.ones(40), np.ones(40), np.ones(40)], 1)
    found = run_annotator_test(judge, said, NAMES, 0.2)
    ada = found.annotators["Ada"]
    assert (ada.judge_wins, ada.annotator_wins) == (0.5, 1.0), "equal closeness is a win of both"


def test_the_conditions_of_the_test_are_checked() -> None:
    truth, said = ratings(29, 0.1)
    few = run_annotator_test(truth, said, NAMES, 0.2)
    assert few.may_replace is None
    assert "Ada shares 29 edits with others" in (few.why or "")
    truth, said = ratings(60, 0.1)
    assert run_annotator_test(truth, said[:, :2], NAMES[:2], 0.2).may_replace is None


def test_the_correction_is_that_of_benjamini_and_yekutieli() -> None:
    for noise in np.linspace(0.05, 0.9, 12):
        truth, said = ratings(60, noise)
        tested = list(run_annotator_test(truth, said, NAMES, 0.1).annotators.values())
        ordered = sorted(one.p for one in tested)
        limits = [0.05 * rank / 3 / (1 + 1 / 2 + 1 / 3) for rank in (1, 2, 3)]
        largest = max((p for p, limit in zip(ordered, limits, strict=True) if p <= limit), default=-1)
        assert [one.rejected for one in tested] == [one.p <= largest for one in tested]


@pytest.mark.long
def test_agree_tells_the_test_beside_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth, said = ratings(40, 0.2)
    run = make_run(tmp_path / "run", [Line(f"e{n}", int(truth[n]), "") for n in range(40)])
    rows = [
        {"edit_id": f"e{n}", "rater": name, IF: int(said[n, place])}
        for n in range(40)
        for place, name in enumerate(NAMES)
    ]
    labels = str(write_labels(tmp_path / "h.jsonl", rows))
    asked = ["agree", str(run), "--human", labels, "--replace-annotators"]
    assert command(asked) == 0
    assert "May the judge replace annotators?" in capsys.readouterr().out
    assert command([*asked, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["replace_annotators"][IF]["may_replace"] is True
