"""WiseEdit's Tables 5 and 6 of three models, cell by cell, against a calculation by hand; languages stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.stats.scores.paper_tables import build_paper_tables
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.wiseedit import CF, DP, IF, KF, VQ
from tests.evals.stats.scores.paper_tables.judged_runs import Given, edit, keep, tables

ENGLISH, CHINESE = "WiseEdit, Table 5: English instructions", "WiseEdit, Table 6: Chinese instructions"
ALL, SINGLE = ", all cases", ", cases with one input picture"
OTHERS = "WiseEdit, Interpretation and WiseEdit-Complex (Table 2), English"


def known(a: float | None, b: float, c: float, d: float) -> dict[str, float | None]:
    return {IF: a, DP: b, VQ: c, KF: d}


def fused(a: float, b: float, c: float, d: float) -> dict[str, float | None]:
    return {IF: a, DP: b, VQ: c, CF: d}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Model a has everything in English and one case in Chinese; b lacks Interpretation and a verdict; c is Chinese only."""
    complex_ = {**known(10, 20, 30, 40), CF: 50.0}
    lines: list[Given] = [
        (edit("1", "Awareness", "a", language="en"), known(100, 80, 60, 40)),
        (edit("2", "Awareness", "a", language="en", several=True), known(0, 20, 40, 60)),
        (edit("3", "Interpretation", "a", language="en"), known(90, 90, 90, 50)),
        (edit("4", "Imagination", "a", language="en", several=True), fused(40, 40, 40, 0)),
        (edit("5", "Imagination", "a", language="en"), fused(60, 60, 60, 100)),
        (edit("6", "WiseEdit-Complex", "a", language="en", several=True), complex_),
        (edit("7", "Awareness", "a", language="cn"), known(10, 10, 10, 10)),
        (edit("1", "Awareness", "b", language="en"), known(None, 80, 80, 80)),
        (edit("2", "Awareness", "b", language="en", several=True), known(20, 40, 60, 80)),
        (edit("5", "Imagination", "b", language="en"), fused(0, 0, 0, 0)),
        (edit("7", "Awareness", "c", language="cn"), known(90, 90, 90, 90)),
        (edit("8", "Interpretation", "c", language="cn"), known(60, 60, 60, 60)),
        (edit("9", "Imagination", "c", language="cn"), fused(30, 30, 30, 30)),
    ]
    return keep(tmp_path / "run", "wiseedit", lines)


def row(awareness: list[float | None], imagination: list[float | None], *last: float | None) -> dict[str, float | None]:
    columns = [f"Awareness {name}" for name in ("IF", "DP", "VQ", "KF", "AVG")]
    columns += [f"Imagination {name}" for name in ("IF", "DP", "VQ", "CF", "AVG")]
    return dict(zip((*columns, "Overall AVG", "judged", "expected"), (*awareness, *imagination, *last), strict=True))


NONE: list[float | None] = [None] * 5


def test_every_cell_of_table_5(run: Path) -> None:
    found = tables(run)[ENGLISH + ALL]
    assert set(found) == {"a", "b"}
    overall = (50 + 80 + 50) / 3
    assert found["a"] == pytest.approx(row([50, 50, 50, 50, 50], [50, 50, 50, 50, 50], overall, 20, 20))
    # The AVG is the mean of the metrics' means; the unjudged metric of the first case is left out of its own mean alone.
    assert found["b"] == pytest.approx(row([20, 60, 70, 80, 57.5], [0, 0, 0, 0, 0], None, 11, 12))
    found = tables(run)[ENGLISH + SINGLE]
    overall = (70 + 80 + 70) / 3
    assert found["a"] == pytest.approx(row([100, 80, 60, 40, 70], [60, 60, 60, 100, 70], overall, 12, 12))
    assert found["b"] == pytest.approx(row([None, 80, 80, 80, None], [0, 0, 0, 0, 0], None, 7, 8))


def test_every_cell_of_table_6(run: Path) -> None:
    found = tables(run)[CHINESE + ALL]
    assert found["a"] == pytest.approx(row([10] * 5, NONE, None, 4, 4))
    assert found["c"] == pytest.approx(row([90] * 5, [30] * 5, (90 + 60 + 30) / 3, 12, 12))
    assert "b" not in found


def test_the_tasks_that_table_5_leaves_out(run: Path) -> None:
    found = tables(run)[OTHERS]
    assert list(found) == ["a"]
    assert found["a"]["Interpretation AVG"] == 80
    assert found["a"]["WiseEdit-Complex AVG"] == 30
    assert (found["a"]["judged"], found["a"]["expected"]) == (9, 9)


def test_complex_in_both_languages_has_the_mean_that_the_script_prints(tmp_path: Path) -> None:
    lines: list[Given] = []
    for number, language in enumerate(("en", "cn")):
        scores = {**known(10, 20, 30, 40), CF: 50.0 + 100 * number}
        lines.append((edit(f"6{language}", "WiseEdit-Complex", "a", language=language), scores))
    lines.append((edit("6en", "WiseEdit-Complex", "b", language="en"), {**known(10, 10, 10, 10), CF: 10.0}))
    found = tables(keep(tmp_path / "run", "wiseedit", lines))["WiseEdit, WiseEdit-Complex in both languages"]
    assert [found["a"][f"WiseEdit-Complex AVG{end}"] for end in (" en", " cn", "")] == pytest.approx([30, 50, 40])
    assert [found["b"][f"WiseEdit-Complex AVG{end}"] for end in (" en", " cn", "")] == [10, None, None]
    assert (found["a"]["judged"], found["a"]["expected"]) == (10, 10)


def test_an_unjudged_metric_is_stated_with_its_number_of_cases(run: Path) -> None:
    first = build_paper_tables(read_run_table(run))[0]
    assert first.notes == ("An unjudged criterion is left out of its own mean alone; concerned: 1 edit of b.",)


def test_languages_and_models_are_in_no_common_score(run: Path) -> None:
    found = compute_scores(run)
    assert list(found.parts) == ["a · en", "a · cn", "b · en", "c · cn"]
    assert found.overall.value is None
    assert (
        found.overall.why == "the run holds 3 editing models, in en and cn, which have a score each and none in common"
    )
    assert found.parts["a · en"].overall.value == pytest.approx(60)
    assert found.parts["a · cn"].overall.value is None
    printed = tables(run)
    for label, part in found.parts.items():
        model, language = label.split(" · ")
        title = (ENGLISH if language == "en" else CHINESE) + ALL
        assert printed[title][model]["Overall AVG"] == pytest.approx(part.overall.value)


def test_missing_outputs_are_counted_under_the_table(tmp_path: Path) -> None:
    lines: list[Given] = [
        (edit("1", "Awareness", "a", language="en", output="missing"), known(0, 0, 0, 0)),
        (edit("2", "Awareness", "a", language="en", output="present"), known(100, 100, 100, 100)),
    ]
    first = build_paper_tables(read_run_table(keep(tmp_path / "run", "wiseedit", lines)))[0]
    assert first.notes == ("a: 1 output is missing and counts 0 on every metric (Supplement C).",)
    assert first.rows[0][5] == 50
