"""What `batch` prints for a criterion is what `report` shows, model by model."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.analysis.criterion_means import criterion_means
from editloupe.evals.analysis.run_rows import table_of
from editloupe.evals.analysis.scores import scores
from tests.evals.sample_runs import IF, VC, Line, make_run


def test_the_mean_is_over_types_and_the_same_as_in_the_report(tmp_path: Path) -> None:
    lines = [
        Line("1", 4, 4, type="Change Color", model="a"),
        Line("2", 4, 4, type="Change Color", model="a"),
        Line("3", 1, None, type="Change OCR", model="a"),
        Line("1", 1, 1, type="Change Color", model="b"),
    ]
    run = make_run(tmp_path / "run", lines)
    found = {(one.model, one.criterion): one for one in criterion_means(table_of(run))}
    assert found["a", IF].mean == 50, "100 and 0, each type counting the same"
    assert (found["a", VC].mean, found["a", VC].judged, found["a", VC].units) == (100, 2, 3)
    assert found["b", IF].mean == 0
    for label, part in scores(run).parts.items():
        for criterion, score in part.overall.criteria.items():
            assert found[label, criterion].mean == pytest.approx(score.value)


def test_repeats_have_a_spread_and_a_run_without_models_names_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("1", (4, 1), (4, 4)), Line("2", (4, 4), (4, 4))])
    following, consistent = criterion_means(table_of(run))
    assert (following.model, following.mean, following.repeats) == (None, 75, 2)
    assert following.deviation == pytest.approx(50 / 2**0.5)
    assert consistent.deviation == 0
