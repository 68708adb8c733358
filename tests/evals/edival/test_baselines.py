"""Methods against people: accuracy, correlation, kappa and F1 worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from editloupe.evals.edival.baselines import (
    CLIP_DIR,
    EDIVAL_IF,
    LMM,
    OVERALL,
    RATING_RULES,
    LabelledEdit,
    build_blocks,
    build_tables,
    compare_methods,
    f1_score,
    find_best_threshold,
)
from editloupe.evals.report.text_renderer import as_text
from editloupe.rubrics.edival.tasks import TYPES, Task, build_captions


def edit(kind: str, followed: bool, **said: float | None) -> LabelledEdit:
    names = {"rule": EDIVAL_IF, "lmm": LMM, "clip": CLIP_DIR}
    return LabelledEdit(kind, (float(followed),), {names[name]: value for name, value in said.items()})


ADD = [
    edit("subject_add", True, rule=1, lmm=1, clip=0.30),
    edit("subject_add", True, rule=1, lmm=1, clip=0.20),
    edit("subject_add", True, rule=0, lmm=1, clip=0.05),
    edit("subject_add", False, rule=0, lmm=1, clip=0.10),
]
COUNT = [
    edit("count_change", False, rule=0, lmm=1, clip=0.5),
    edit("count_change", False, rule=0, lmm=0, clip=0.6),
]


def test_the_measures_of_a_small_table_by_hand() -> None:
    found = compare_methods(ADD, [EDIVAL_IF, LMM])
    rule, lmm = (next(a for a in found.agreements if (a.kind, a.method) == (OVERALL, m)) for m in (EDIVAL_IF, LMM))
    assert (rule.edits, rule.accuracy) == (4, 0.75)
    assert rule.f1 == pytest.approx(2 * 2 / (2 + 3))
    assert rule.kappa == pytest.approx((0.75 - 0.5) / 0.5), "by chance 0.5 · 0.75 + 0.5 · 0.25"
    assert rule.plcc == pytest.approx(1 / 3**0.5)
    assert lmm.accuracy == 0.75
    assert lmm.f1 == pytest.approx(6 / 7)
    assert lmm.kappa == 0
    assert lmm.plcc is None, "somebody who always says yes has no correlation"


def test_every_rating_counts_and_the_majority_is_stated_too() -> None:
    """529 edits rated by two people of whom 76 are split, as 14.4 % were: the majority drops every disagreement."""
    split = [LabelledEdit("subject_add", (1.0, 0.0), {EDIVAL_IF: 1.0})] * 76
    right = [LabelledEdit("subject_add", (1.0, 1.0), {EDIVAL_IF: 1.0})] * 426
    wrong = [LabelledEdit("subject_add", (0.0, 0.0), {EDIVAL_IF: 1.0})] * 27
    each, majority = (compare_methods([*split, *right, *wrong], [EDIVAL_IF], rule=rule) for rule in RATING_RULES)
    overall, by_majority = each.agreements[-1], majority.agreements[-1]
    assert (overall.edits, overall.ratings, by_majority.edits, by_majority.ratings) == (529, 1058, 453, 453)
    assert overall.accuracy == pytest.approx((76 + 2 * 426) / 1058)
    assert by_majority.accuracy == pytest.approx(426 / 453)
    assert overall.f1 == pytest.approx(2 * 928 / (1058 + 928))
    assert "By the majority of people, where 76 edits with as many yes as no are left out" in each.notes[1]
    assert "EdiVal-IF 94.0 %" in each.notes[1]
    assert "With every rating counting, the overall accuracy is: EdiVal-IF 87.7 %." in majority.notes


def test_types_stand_in_the_papers_order_and_overall_is_all_edits_together() -> None:
    found = compare_methods([*COUNT, *ADD], [EDIVAL_IF, LMM])
    assert list(dict.fromkeys(a.kind for a in found.agreements)) == ["subject_add", "count_change", OVERALL]
    by = {(a.kind, a.method): a for a in found.agreements}
    assert by["count_change", EDIVAL_IF].accuracy == 1
    assert by["count_change", EDIVAL_IF].f1 is None, "nobody ever says yes"
    assert by[OVERALL, EDIVAL_IF].accuracy == pytest.approx(5 / 6)
    assert by[OVERALL, LMM].accuracy == pytest.approx(4 / 6)


def test_the_direction_gets_the_best_threshold_of_each_type() -> None:
    found = compare_methods([*ADD, *COUNT], [EDIVAL_IF, CLIP_DIR])
    by = {a.kind: a for a in found.agreements if a.method == CLIP_DIR}
    assert (by["subject_add"].threshold, by["subject_add"].accuracy) == (0.05, 0.75)
    assert by["count_change"].threshold is None, "no edit of this type should pass"
    assert by["count_change"].accuracy == 1
    assert by[OVERALL].accuracy == pytest.approx(5 / 6)
    assert any("tuned" in note for note in found.notes)


@pytest.mark.parametrize(
    ("scores", "human", "threshold"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], 0.3),
        ([0.4, 0.3, 0.2, 0.1], [1, 1, 0, 0], 0.3),
        ([0.1, 0.2], [1, 1], 0.1),
        ([0.1, 0.2], [0, 0], float("inf")),
        ([0.2, 0.2, 0.2], [1, 0, 0], float("inf")),
        ([], [], float("inf")),
    ],
    ids=["in order", "in another order", "all pass", "none passes", "equal scores stay together", "nothing"],
)
def test_a_threshold_is_found_that_no_other_beats(scores: list[float], human: list[float], threshold: float) -> None:
    assert find_best_threshold(np.array(scores, float), np.array(human, float)) == threshold


def test_no_threshold_beats_the_one_found_on_random_scores() -> None:
    chance = np.random.default_rng(0)
    for _ in range(50):
        scores, human = chance.integers(0, 6, 12) / 10, chance.integers(0, 2, 12).astype(float)
        best = find_best_threshold(scores, human)
        tried = [np.mean((scores >= t) == human) for t in (*scores, np.inf)]
        assert np.mean((scores >= best) == human) == max(tried)


def test_only_edits_that_every_method_judged_are_compared_and_the_rest_is_told() -> None:
    found = compare_methods([*ADD, edit("subject_add", True, rule=1, lmm=None)], [EDIVAL_IF, LMM], people=0.855)
    assert (found.labelled, found.compared, found.left_out) == (5, 4, {EDIVAL_IF: 0, LMM: 1})
    told = as_text(build_blocks(found), 120)
    assert "4 of 5 labelled edits" in told
    assert "LMM alone has no outcome for 1 of them." in told
    assert "85.5 %" in told


def test_the_tables_have_the_papers_columns() -> None:
    figure, table = build_tables(compare_methods([*ADD, *COUNT], [EDIVAL_IF, LMM, CLIP_DIR]))
    assert figure.columns == ("type", "edits", "ratings", EDIVAL_IF, LMM, CLIP_DIR)
    assert figure.rows[0] == ("subject_add", 4, 4, 75.0, 75.0, 75.0)
    assert table.columns[2:5] == ("PLCC", "κ", "F1")
    assert table.rows[0] == ("subject_add", EDIVAL_IF, "0.5774", "0.5000", "0.8000", None)


def test_nothing_to_compare_has_no_figures() -> None:
    found = compare_methods([edit("subject_add", True, rule=None)], [EDIVAL_IF])
    assert found.compared == 0
    assert all(a.accuracy is None for a in found.agreements)
    assert f1_score(np.zeros(0), np.zeros(0)) is None


TASKS = {
    "subject_add": {"new_object": "lamp", "reference": "cup", "position": "left"},
    "subject_remove": {"object": "cup"},
    "subject_replace": {"object": "cup", "new_object": "mug"},
    "color_alter": {"object": "cup", "color": "blue"},
    "material_alter": {"object": "cup", "material": "glass"},
    "text_change": {"object": "cup", "text": "ANN", "old_text": "JOE"},
    "position_change": {"object": "cup", "reference": "box", "position": "left"},
    "count_change": {"object": "cup", "count": 3},
    "background_change": {"background": "forest"},
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_has_captions_that_differ_by_what_is_asked(kind: str) -> None:
    before, after = build_captions(Task(type=kind, **TASKS[kind]))  # type: ignore[arg-type]
    assert before != after
    assert "{" not in before + after
    asked = {"subject_remove": "cup", "position_change": "left"}.get(kind, list(TASKS[kind].values())[-1])
    if kind == "text_change":
        assert ("JOE" in before, "ANN" in after) == (True, True)
    elif kind == "subject_remove":
        assert "cup" in before
    else:
        assert str(asked) in after
