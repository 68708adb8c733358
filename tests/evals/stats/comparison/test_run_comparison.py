from pathlib import Path

import numpy as np
import pytest

from editloupe.evals.gate.gate import run_gate
from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.stats.comparison.model_comparison import compare_models
from editloupe.evals.stats.comparison.run_comparison import compare_runs, find_question
from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.types import UserError
from tests.evals.model_runs import model_run, with_own_criterion
from tests.evals.sample_runs import IF, VC, Line, make_run

GOOD, POOR = [(4, 4)] * 12, [(2, 4)] * 12


def two_runs(
    tmp_path: Path, a: list[int | None], b: list[int | None], people: list[int] | None = None
) -> tuple[Path, Path]:
    kinds = ("Change Color", "Change OCR")
    runs = []
    for name, given in (("a", a), ("b", b)):
        lines = [
            Line(f"e{n}", score, 4, type=kinds[n % 2], human={IF: str(people[n])} if people else {})
            for n, score in enumerate(given)
        ]
        runs.append(make_run(tmp_path / name, lines))
    return runs[0], runs[1]


@pytest.mark.long
def test_the_difference_of_the_overalls_is_paired(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    base = random.integers(1, 4, 60)
    a, b = two_runs(tmp_path, (base + 1).tolist(), base.tolist())
    found = compare_runs(a, b)
    first, second = compute_scores(a).overall, compute_scores(b).overall
    assert first.value is not None
    assert second.value is not None
    assert found.overall.a == pytest.approx(first.value)
    assert found.overall.b == pytest.approx(second.value)
    change = found.overall.difference
    assert change.value == pytest.approx(100 / 6)
    assert change.low is not None
    assert change.high is not None
    assert change.high - change.low < 5 < (first.high or 0) - (first.low or 0)
    assert change.low > 0
    assert found.criteria[IF].difference.value == pytest.approx(100 / 3)
    assert found.overall.p is not None
    assert found.overall.p < 0.001


def test_an_own_criterion_is_compared_and_is_no_part_of_the_overall(tmp_path: Path) -> None:
    better, worse = [(4, 1)] * 12, [(3, 4)] * 12
    a, b = (
        with_own_criterion(model_run(tmp_path / name, {name: list(scores)}))
        for name, scores in (("a", better), ("b", worse))
    )
    comparison = compare_runs(a, b)
    assert (comparison.overall.a, comparison.overall.b) == (100, pytest.approx(compute_scores(b).overall.value))
    assert comparison.overall.better == "a"
    assert comparison.criteria[VC].difference.value == -100
    assert [model.model for model in compare_models([a, b]).models] == ["a", "b"]
    gate = run_gate(a, b, 5)
    assert gate.score is not None
    assert (gate.score.verdict, gate.score.new) == ("passed", 100)


def test_runs_that_differ_by_chance_are_not_told_apart(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    base = random.integers(2, 4, 60)
    noise = random.permutation([1] * 10 + [-1] * 10 + [0] * 40)
    found = compare_runs(*two_runs(tmp_path, (base + noise).tolist(), base.tolist()))
    change = found.overall.difference
    assert change.low is not None
    assert change.high is not None
    assert change.low < 0 < change.high
    assert found.overall.p is not None
    assert found.overall.p > 0.2


def test_the_same_run_against_itself_has_no_difference(tmp_path: Path) -> None:
    a, _ = two_runs(tmp_path, [1, 2, 3, 4], [1, 1, 1, 1])
    found = compare_runs(a, a)
    assert found.overall.difference.value == 0
    assert found.overall.p == 1
    assert found.disagreements == ()
    assert found.criteria[IF].same_label.value == 1


def test_disagreements_come_widest_first_with_what_people_said(tmp_path: Path) -> None:
    found = compare_runs(*two_runs(tmp_path, [4, 4, 1, 2], [4, 1, 2, 2], people=[4, 2, 2, 2]))
    told = [(one.edit_id, one.a, one.b, one.human, one.closer) for one in found.disagreements]
    assert told == [
        ("e1", "Flawless Execution", "Localization Failure", ("Wrong Action",), "b"),
        ("e2", "Localization Failure", "Wrong Action", ("Wrong Action",), "b"),
    ]
    assert found.disagreements[0].difference == pytest.approx(100)
    labels = found.criteria[IF].labels
    assert labels is not None
    assert labels.counts[0][3] == 1


@pytest.mark.long
def test_the_run_closer_to_people_is_named_only_where_it_is_sure(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    people = random.integers(1, 5, 60)
    good, bad = people.copy(), random.integers(1, 5, 60)
    found = compare_runs(*two_runs(tmp_path, good.tolist(), bad.tolist(), people.tolist()))
    measures = found.human[IF]
    assert measures["spearman"].a.value == pytest.approx(1)
    assert measures["spearman"].closer == "a"
    assert {name for name, measure in measures.items() if measure.closer} == {"spearman"}
    assert (measures["mae"].difference.value or 0) < 0
    other = compare_runs(*two_runs(tmp_path / "x", good.tolist(), good.tolist(), people.tolist()))
    assert other.human[IF]["spearman"].closer is None


def test_only_edits_both_judged_with_the_same_pictures_are_compared(tmp_path: Path) -> None:
    lines = [Line("same", 4), Line("reworded", 4), Line("unjudged", None, None), Line("only-a", 4)]
    others = [Line("same", 1), Line("reworded", 1, instruction="Other"), Line("unjudged", 4), Line("only-b", 4)]
    a, b = make_run(tmp_path / "a", lines), make_run(tmp_path / "b", others)
    found = compare_runs(a, b)
    assert found.edits == 1
    assert found.left_out == {
        "only in the first run": 1,
        "only in the second run": 1,
        "other pictures or instruction": 1,
        "unjudged in a run": 1,
    }


def test_the_same_id_with_another_edited_picture_is_another_edit(tmp_path: Path) -> None:
    a = make_run(tmp_path / "x" / "a", [Line("e", 4), Line("f", 4)], pictures=True)
    b = make_run(tmp_path / "y" / "b", [Line("f", 4), Line("e", 4)], pictures=True)
    with pytest.raises(UserError, match="share no edited picture that both judged"):
        compare_runs(a, b, question="judges")


def test_a_criterion_one_run_left_unjudged_is_not_compared_for_that_edit(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", [Line("e", 4, None), Line("f", 4, 4)])
    b = make_run(tmp_path / "b", [Line("e", 1, 1), Line("f", 1, 4)])
    found = compare_runs(a, b)
    assert found.criteria[IF].difference.n == 2
    assert found.criteria[VC].difference.n == 1
    assert found.criteria[VC].difference.value == 0
    assert "NaN" not in found.model_dump_json()


def test_annotators_among_themselves_are_the_ceiling(tmp_path: Path) -> None:
    lines = [Line(f"e{n}", 1 + n % 4, 4, human={IF: [str(1 + n % 4), str(1 + (n + n % 2) % 4)]}) for n in range(12)]
    a, b = make_run(tmp_path / "a", lines), make_run(tmp_path / "b", lines)
    found = compare_runs(a, b)
    assert found.ceiling[IF].annotators == 2
    assert found.ceiling[IF].mae.value == pytest.approx((1 * 3 + 3 * 3) / 12)
    assert VC not in found.ceiling


def test_two_models_that_often_return_the_same_picture_are_still_two_models(tmp_path: Path) -> None:
    """Half of the pictures are the identical source: only these once were compared, with a difference of 0."""
    half = {"x": range(6), "y": range(6)}
    a = model_run(tmp_path / "a", {"x": [(1, 4)] * 6 + [(4, 4)] * 6}, half)
    b = model_run(tmp_path / "b", {"y": [(1, 4)] * 6 + [(2, 4)] * 6}, half)
    found = compare_runs(a, b)
    assert found.question == "models"
    assert (found.edits, found.same_picture, found.left_out) == (12, 6, {})
    assert found.criteria[IF].difference.value == pytest.approx((200 / 3) / 2)


def test_models_without_a_picture_in_common_are_compared_on_their_sources_and_instructions(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {"x": GOOD}), model_run(tmp_path / "b", {"y": POOR})
    found = compare_runs(a, b)
    assert (found.question, found.edits, found.same_picture) == ("models", 12, 0)
    assert found.overall.better == "a"


def test_runs_that_name_no_model_are_told_apart_by_their_pictures(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {None: GOOD}), model_run(tmp_path / "b", {None: POOR}, seed=1)
    assert find_question(read_run_table(a), read_run_table(b)) == "models"


def test_what_each_model_lacks_is_counted(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": [*GOOD[:10], None, (None, None)]})
    b = model_run(tmp_path / "b", {"y": [None, None, *POOR[2:]]})
    found = compare_runs(a, b)
    assert found.edits == 8
    assert found.left_out == {"only in the first run": 2, "only in the second run": 1, "unjudged in a run": 1}


def test_two_judges_on_the_same_pictures_are_judges_whatever_the_ids_and_models(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD, "y": POOR})
    b = model_run(tmp_path / "b", {"x": POOR, "y": POOR}, judge="openai:gpt-4.1")
    found = compare_runs(a, b)
    assert (found.question, found.edits) == ("judges", 24)
    assert found.criteria[IF].difference.value == pytest.approx(100 / 3)


def test_one_judge_asked_again_about_the_same_pictures_is_compared_with_itself(tmp_path: Path) -> None:
    a, b = (model_run(tmp_path / name, {"x": GOOD}) for name in ("a", "b"))
    assert find_question(read_run_table(a), read_run_table(b)) == "judges"


def test_two_models_that_return_only_sources_are_two_models(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD}, {"x": range(12)})
    b = model_run(tmp_path / "b", {"y": GOOD}, {"y": range(12)})
    found = compare_runs(a, b)
    assert (found.question, found.same_picture, found.overall.p) == ("models", 12, 1)


@pytest.mark.long
def test_other_models_and_another_judge_leave_the_question_open(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD}, {"x": [0]})
    b = model_run(tmp_path / "b", {"y": POOR}, {"y": [0]}, judge="openai:gpt-4.1")
    with pytest.raises(UserError, match="differ both in the judge") as told:
        find_question(read_run_table(a), read_run_table(b))
    assert "1 edited picture is" in str(told.value)
    forced = compare_runs(a, b, question="models")
    assert any("not judged alike" in note for note in forced.notes)
    assert compare_runs(a, b, question="judges").edits == 1


def test_runs_of_other_sources_have_nothing_in_common(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "x" / "a", {"x": GOOD}), make_run(tmp_path / "y" / "b", [Line("e0")])
    with pytest.raises(UserError, match="neither an edited picture nor a source and instruction in common"):
        compare_runs(a, b)


@pytest.mark.long
def test_the_judged_reference_does_not_make_two_models_two_judges(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD, NOTHING_EDITED: [(1, 4)] * 12}, {NOTHING_EDITED: range(12)})
    b = model_run(tmp_path / "b", {"y": POOR, NOTHING_EDITED: [(1, 4)] * 12}, {NOTHING_EDITED: range(12)})
    found = compare_runs(a, b)
    assert (found.question, found.edits) == ("models", 12)
