from pathlib import Path

import pytest

from editloupe.evals.analysis.bootstrap import Resampling
from editloupe.evals.analysis.compare import compare
from editloupe.evals.analysis.matching import question_of
from editloupe.evals.analysis.run_table import table_of
from editloupe.evals.manifests.untouched import NOTHING_EDITED
from editloupe.types import UserError
from tests.evals.model_runs import model_run
from tests.evals.sample_runs import IF, Line, make_run

QUICK = Resampling(200)
GOOD, POOR = [(4, 4)] * 12, [(2, 4)] * 12


def test_two_models_that_often_return_the_same_picture_are_still_two_models(tmp_path: Path) -> None:
    """Half of the pictures are the identical source: only these once were compared, with a difference of 0."""
    half = {"x": range(6), "y": range(6)}
    a = model_run(tmp_path / "a", {"x": [(1, 4)] * 6 + [(4, 4)] * 6}, half)
    b = model_run(tmp_path / "b", {"y": [(1, 4)] * 6 + [(2, 4)] * 6}, half)
    found = compare(a, b, how=QUICK)
    assert found.question == "models"
    assert (found.edits, found.same_picture, found.left_out) == (12, 6, {})
    assert found.criteria[IF].difference.value == pytest.approx((200 / 3) / 2)


def test_models_without_a_picture_in_common_are_compared_on_their_sources_and_instructions(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {"x": GOOD}), model_run(tmp_path / "b", {"y": POOR})
    found = compare(a, b, how=QUICK)
    assert (found.question, found.edits, found.same_picture) == ("models", 12, 0)
    assert found.overall.better == "a"


def test_runs_that_name_no_model_are_told_apart_by_their_pictures(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "a", {None: GOOD}), model_run(tmp_path / "b", {None: POOR}, seed=1)
    assert question_of(table_of(a), table_of(b)) == "models"


def test_what_each_model_lacks_is_counted(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": [*GOOD[:10], None, (None, None)]})
    b = model_run(tmp_path / "b", {"y": [None, None, *POOR[2:]]})
    found = compare(a, b, how=QUICK)
    assert found.edits == 8
    assert found.left_out == {"only in the first run": 2, "only in the second run": 1, "unjudged in a run": 1}


def test_two_judges_on_the_same_pictures_are_judges_whatever_the_ids_and_models(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD, "y": POOR})
    b = model_run(tmp_path / "b", {"x": POOR, "y": POOR}, judge="openai:gpt-4.1")
    found = compare(a, b, how=QUICK)
    assert (found.question, found.edits) == ("judges", 24)
    assert found.criteria[IF].difference.value == pytest.approx(100 / 3)


def test_one_judge_asked_again_about_the_same_pictures_is_compared_with_itself(tmp_path: Path) -> None:
    a, b = (model_run(tmp_path / name, {"x": GOOD}) for name in ("a", "b"))
    assert question_of(table_of(a), table_of(b)) == "judges"


def test_two_models_that_return_only_sources_are_two_models(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD}, {"x": range(12)})
    b = model_run(tmp_path / "b", {"y": GOOD}, {"y": range(12)})
    found = compare(a, b, how=QUICK)
    assert (found.question, found.same_picture, found.overall.p) == ("models", 12, 1)


def test_other_models_and_another_judge_leave_the_question_open(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD}, {"x": [0]})
    b = model_run(tmp_path / "b", {"y": POOR}, {"y": [0]}, judge="openai:gpt-4.1")
    with pytest.raises(UserError, match="differ both in the judge") as told:
        question_of(table_of(a), table_of(b))
    assert "1 edited picture is" in str(told.value)
    forced = compare(a, b, how=QUICK, question="models")
    assert any("not judged alike" in note for note in forced.notes)
    assert compare(a, b, how=QUICK, question="judges").edits == 1


def test_runs_of_other_sources_have_nothing_in_common(tmp_path: Path) -> None:
    a, b = model_run(tmp_path / "x" / "a", {"x": GOOD}), make_run(tmp_path / "y" / "b", [Line("e0")])
    with pytest.raises(UserError, match="neither an edited picture nor a source and instruction in common"):
        compare(a, b, how=QUICK)


def test_the_judged_reference_does_not_make_two_models_two_judges(tmp_path: Path) -> None:
    a = model_run(tmp_path / "a", {"x": GOOD, NOTHING_EDITED: [(1, 4)] * 12}, {NOTHING_EDITED: range(12)})
    b = model_run(tmp_path / "b", {"y": POOR, NOTHING_EDITED: [(1, 4)] * 12}, {NOTHING_EDITED: range(12)})
    found = compare(a, b, how=QUICK)
    assert (found.question, found.edits) == ("models", 12)
