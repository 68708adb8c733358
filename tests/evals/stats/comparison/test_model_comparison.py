from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.stats.comparison.model_comparison import ModelComparison, compare_models, compare_models_by_slice
from editloupe.evals.stats.comparison.run_comparison import compare_runs
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import RunTable, read_run_table
from editloupe.rubrics.registry import find_protocol
from editloupe.types import UserError
from tests.evals.model_runs import model_run
from tests.evals.sample_runs import IF, VC, Line, make_run


def compared(*runs: Path, criteria: bool = True) -> ModelComparison:
    return compare_models([read_run_table(run) for run in runs], criteria=criteria)


def test_a_pair_is_worked_out_by_the_papers_arithmetic_on_the_cases_both_have(tmp_path: Path) -> None:
    """Types Color (cases 0, 2) and OCR (cases 1, 3); y lacks case 2, so Color is compared on case 0 alone.

    x: Color (IF 100, VC 100) → 100, OCR IF (0 + 100)/2, VC 100 → 75, overall 87.5.
    y: Color (IF 0, VC 100) → 50, OCR IF 100/3, VC 200/3 → 50, overall 50.
    """
    run = model_run(
        tmp_path / "run",
        {"x": [(4, 4), (1, 4), (1, 1), (4, 4)], "y": [(1, 4), (2, 3), None, (2, 3)]},
        types=("Change Color", "Change OCR"),
    )
    found = compared(run)
    (pair,) = found.pairs
    assert (pair.a, pair.b, pair.cases, pair.a_lacks, pair.b_lacks) == ("x", "y", 3, 0, 1)
    assert (pair.overall.a, pair.overall.b) == (pytest.approx(87.5), pytest.approx(50))
    assert pair.overall.difference.value == pytest.approx(37.5)
    assert pair.overall.difference.n == 3
    assert pair.criteria[IF].difference.value == pytest.approx((100 + 50) / 2 - (0 + 100 / 3) / 2)
    assert pair.criteria[VC].difference.value == pytest.approx(100 - (100 + 200 / 3) / 2)
    assert pair.overall.p is None
    assert pair.overall.difference.why == "no interval: 3 source pictures, at least 5 are needed"
    assert pair.overall.better is None


def test_a_models_own_score_is_the_one_its_report_prints(tmp_path: Path) -> None:
    given = {"x": [(4, 4), (1, 4), (1, 1), (4, 4)], "y": [(1, 4), (2, 3), None, (2, None)]}
    run = model_run(tmp_path / "run", given, types=("Change Color", "Change OCR"))
    printed = compute_scores(run).by["model"]
    assert {one.model: one.overall for one in compared(run).models} == {
        name: pytest.approx(score.value) for name, score in printed.items()
    }


def test_pairs_are_corrected_for_their_number_and_ranks_follow(tmp_path: Path) -> None:
    """Six cases, each better by the same: every pair has p = 2/64 by the sign test; times 3 pairs 6/64 for all three."""
    run = model_run(tmp_path / "run", {"low": [(1, 3)] * 6, "high": [(4, 3)] * 6, "middle": [(2, 3)] * 6})
    found = compared(run)
    assert [one.model for one in found.models] == ["high", "middle", "low"]
    assert [(pair.a, pair.b) for pair in found.pairs] == [("high", "middle"), ("high", "low"), ("middle", "low")]
    assert [pair.overall.p for pair in found.pairs] == [pytest.approx(3 / 32)] * 3
    assert [pair.overall.better for pair in found.pairs] == [None] * 3
    assert all((pair.overall.difference.low or 0) <= 0 for pair in found.pairs)
    assert [one.ranks for one in found.models] == [(1, 3)] * 3
    assert "No best of 3 editing models: high scores highest" in found.answer


def test_best_is_said_where_every_corrected_test_says_so(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", {"high": [(4, 4)] * 12, "middle": [(2, 4)] * 12, "like it": [(2, 4)] * 12})
    found = compared(run)
    assert [one.ranks for one in found.models] == [(1, 1), (2, 3), (2, 3)]
    assert found.answer.startswith("Best of 3 editing models: high with 100.0, better than each of the others")


def test_without_criteria_the_overall_is_the_same(tmp_path: Path) -> None:
    run = model_run(tmp_path / "run", {"high": [(4, 4)] * 12, "low": [(2, 4)] * 12})
    quick, whole = compared(run, criteria=False), compared(run)
    assert quick.answer == whole.answer
    assert [one.ranks for one in quick.models] == [one.ranks for one in whole.models]
    assert quick.pairs[0].overall == whole.pairs[0].overall
    assert not quick.pairs[0].criteria


@pytest.mark.long
def test_intervals_of_pairs_hold_together_and_agree_with_p(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    given = {
        name: [(int(random.integers(low, 5)), 4) for _ in range(30)] for name, low in (("x", 2), ("y", 1), ("z", 1))
    }
    run = model_run(tmp_path / "run", given)
    found = compared(run)
    table = read_run_table(run)
    for pair in found.pairs:
        difference = pair.overall.difference
        assert difference.low is not None
        assert difference.high is not None
        assert pair.overall.p is not None
        assert (pair.overall.p < 0.05) == (not difference.low <= 0 <= difference.high)
        own = table.with_rows(row for row in table.rows if row.model in (pair.a, pair.b))
        (alone,) = compare_models([own]).pairs
        assert (alone.overall.difference.high or 0) < difference.high
        assert pair.overall.p == pytest.approx(min(1, 3 * (alone.overall.p or 0)))


def test_cases_of_one_source_are_not_counted_as_independent(tmp_path: Path) -> None:
    """Twenty-four cases of six sources: p is 2/64 at best."""
    run = model_run(tmp_path / "run", {"x": [(4, 4)] * 24, "y": [(2, 4)] * 24}, per_source=4)
    assert compared(run).pairs[0].overall.p == pytest.approx(1 / 32)


def test_models_in_several_runs_are_compared_as_in_one(tmp_path: Path) -> None:
    given = {"x": [(4, 4)] * 8, "y": [(2, 3)] * 8}
    whole = compared(model_run(tmp_path / "whole", given))
    parts = compared(*(model_run(tmp_path / name, {name: rows}) for name, rows in given.items()))
    assert parts.pairs == whole.pairs
    assert parts.runs == ("x", "y")


def test_one_name_with_other_pictures_is_told_apart_by_the_run(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {"x": [(4, 4)] * 8}), model_run(tmp_path / "b", {"x": [(1, 4)] * 8}, seed=1)
    assert [one.model for one in compared(a, b).models] == ["x (a)", "x (b)"]


def test_a_model_that_lies_in_two_runs_is_one_model(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": [(4, 4)] * 4})
    b = model_run(tmp_path / "b", {"x": [(4, 4)] * 8, "y": [(1, 4)] * 8})
    assert {one.model: one.cases for one in compared(a, b).models} == {"x": 8, "y": 8}


def test_one_model_alone_has_no_pair(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"only one editing model \(x\)"):
        compared(model_run(tmp_path / "run", {"x": [(4, 4)] * 4}))


def test_models_that_were_given_different_edits_are_not_ranked(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 4 if n % 2 else 1, 4, model=("x", "y")[n % 2]) for n in range(12)]
    found = compared(make_run(tmp_path / "run", lines))
    assert found.pairs[0].cases == 0
    assert found.pairs[0].overall.difference.value is None
    assert "they share no source and instruction" in found.answer


@pytest.mark.long
def test_a_model_that_returns_its_source_is_not_best_without_a_word(tmp_path: Path) -> None:
    """What every benchmark must survive: the blurred source gets IF 0 and VC 100, so 50, and real editors less."""
    given = {"blur": [(1, 4)] * 12, "editor": [(2, 2)] * 12, "other": [(2, 1)] * 12}
    found = compared(model_run(tmp_path / "run", given))
    assert "None of them is clearly better than an unedited source, which scores 50.0." in found.answer
    assert any(note.startswith("blur: 12 of 12 outputs are unedited or judged as if they were") for note in found.notes)
    assert not any(note.startswith("editor") for note in found.notes)
    against = {pair.a: pair.overall for pair in found.against_reference}
    assert against["blur"].p == 1
    assert against["editor"].better == NOTHING_EDITED


def test_a_judged_reference_stands_beside_the_models_and_is_ranked_nowhere(tmp_path: Path) -> None:
    given = {"x": [(4, 4)] * 12, "y": [(2, 4)] * 12, NOTHING_EDITED: [(1, 3)] * 12}
    found = compared(model_run(tmp_path / "run", given, {NOTHING_EDITED: range(12)}))
    assert [one.model for one in found.models] == ["x", "y"]
    assert found.reference.judged
    assert found.reference.overall.value == pytest.approx(100 / 3)
    assert [pair.overall.better for pair in found.against_reference] == ["x", "y"]


def test_the_numbers_can_be_had_as_rows(tmp_path: Path) -> None:
    found = compared(model_run(tmp_path / "run", {"x": [(4, 4)] * 6, "y": [(1, 4)] * 6}))
    rows = found.rows()
    assert [(row["model_a"], row["model_b"], row["score"]) for row in rows[:3]] == [
        ("x", "y", "overall"),
        ("x", "y", IF),
        ("x", "y", VC),
    ]
    assert rows[0]["difference_value"] == pytest.approx(50)
    assert "NaN" not in found.model_dump_json()


def in_languages(run: Path) -> RunTable:
    """A run of WiseEdit whose cases are in two languages by turns; its units stand for the metrics, whatever they say."""
    table, protocol = read_run_table(run), find_protocol("wiseedit")
    assert protocol is not None
    rows = []
    for row in table.rows:
        language = ("en", "cn")[int(row.edit.id[1:]) % 2]
        kind = ("Awareness", "Interpretation", "Imagination")[int(row.edit.id[1:]) // 2 % 3]
        edit = row.edit.model_copy(update={"instruction_type": kind, "extra": {"language": language}})
        (unit,) = row.units[IF]
        asked = [rubric.criterion for rubric in protocol.rubrics_for(edit)]
        rows.append(replace(row, edit=edit, units={name: (unit.with_kind(criterion=name),) for name in asked}))
    return replace(table, protocol="wiseedit", rows=tuple(rows))


@pytest.mark.long
def test_languages_that_a_paper_keeps_apart_are_compared_apart(tmp_path: Path) -> None:
    """In English x is better, in Chinese y: one number of both would say that they are the same."""
    high, low = (4, 4), (1, 1)
    run = model_run(tmp_path / "run", {"x": [high, low] * 9, "y": [low, high] * 9})
    found = compare_models_by_slice([in_languages(run)])
    assert [(one.part, one.models[0].model, one.models[0].overall, one.cases) for one in found] == [
        (("en",), "x", pytest.approx(100), 9),
        (("cn",), "y", pytest.approx(100), 9),
    ]
    assert found[0].pairs[0].overall.difference.value == pytest.approx(100)


def test_cases_of_a_task_that_is_no_part_of_the_overall_are_not_counted_as_compared(tmp_path: Path) -> None:
    """Of eight cases two are of a task that the paper reports apart."""
    table = in_languages(model_run(tmp_path / "run", {"x": [(4, 4)] * 8, "y": [(1, 1)] * 8}))
    rows = []
    for row in table.rows:
        kind = "WiseEdit-Complex" if row.edit.id in ("e0", "e1") else row.edit.instruction_type
        edit = row.edit.model_copy(update={"instruction_type": kind, "extra": {"language": "en"}})
        rows.append(replace(row, edit=edit))
    found = compare_models([replace(table, rows=tuple(rows))])
    assert (found.cases, found.common, found.pairs[0].cases, found.pairs[0].overall.difference.n) == (6, 6, 6, 6)
    assert {one.cases for one in found.models} == {6}
    assert "2 cases of WiseEdit-Complex have no part in the overall score, and are not compared." in found.notes


@pytest.mark.parametrize(("cases", "apart"), [(4, False), (6, False), (7, True)])
def test_too_few_cases_are_not_told_apart(tmp_path: Path, cases: int, apart: bool) -> None:
    """Three pairs: of 6 cases 3 × 2/64 is above 0.05, of 7 cases 3 × 2/128 is below."""
    given = {"low": [(1, 3)] * cases, "high": [(4, 3)] * cases, "middle": [(2, 3)] * cases}
    found = compared(model_run(tmp_path / "run", given))
    assert all((pair.overall.better is not None) is apart for pair in found.pairs)
    assert all((pair.overall.p is None) is (cases < 5) for pair in found.pairs)


@pytest.mark.parametrize("prefix", ["{model}/{id}", "{id}", "{model}-{id}"])
def test_a_case_that_a_benchmark_has_twice_is_paired_by_its_id_or_else_in_order(tmp_path: Path, prefix: str) -> None:
    """Four lines ask the same of one source; readers of some benchmarks put the model's name before the id."""
    table = read_run_table(model_run(tmp_path / "run", {"x": [(4, 4), (4, 4), (1, 1), (1, 1)], "y": [(1, 1)] * 4}))
    source = table.rows[0].pictures["source"]
    rows = []
    for row in table.rows:
        name = prefix.format(model=row.model, id=row.edit.id)
        edit = row.edit.model_copy(update={"id": name, "instruction": "Do it"})
        rows.append(replace(row, edit=edit, pictures={**row.pictures, "source": source}))
    found = compare_models([replace(table, rows=tuple(rows))])
    assert (found.cases, found.common) == (4, 4)
    assert found.pairs[0].overall.difference.value == pytest.approx(50)


def test_two_judges_have_no_overall_over_languages_that_are_kept_apart(tmp_path: Path) -> None:
    a = in_languages(model_run(tmp_path / "a", {"x": [(4, 4)] * 12}))
    b = in_languages(model_run(tmp_path / "b", {"x": [(2, 2)] * 12}, judge="openai:other"))
    found = compare_runs(a, b)
    assert found.question == "judges"
    assert found.overall.difference.value is None
    assert "the paper keeps en and cn apart" in (found.overall.difference.why or "")
