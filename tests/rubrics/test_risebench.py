"""RISEBench: what each case is asked and shown, its scores, the published list, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.labels.import_scores import import_scores
from editloupe.evals.manifests import load_outputs
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.risebench import (
    CONSISTENCY,
    LOGICAL,
    PLAUSIBILITY,
    REASONING,
    RISEBENCH,
    SPATIAL,
    count_right,
    score_five,
)
from editloupe.types import Edit, UserError
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import report
from tests.evals.stats.scores.paper_tables.judged_runs import edit, keep, tables

TEMPORAL = "temporal_reasoning"
CASE = {
    "index": "temporal_reasoning_1",
    "category": TEMPORAL,
    "instruction": "Show it in winter",
    "image": "temporal_reasoning_images/1.png",
    "reference": "snow on the roof",
}


def case(category: str, hint: str | None = "so", reference: bool = False, **extra: Any) -> Edit:
    given = {"hint": hint, "reference": Path("ref.png") if reference else None}
    return edit("x", category, "m", **extra).model_copy(update=given)


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        (case(TEMPORAL), ("general", "description", "general")),
        (case("Causal", reasoning_img=True), ("general", "description_with_source", "general")),
        (case(TEMPORAL, consistency_free=True), ("description", "general")),
        (case(TEMPORAL, consistency_free=False), ("general", "description", "general")),
        (case(TEMPORAL, consistency_free="False", reasoning_img=""), ("general", "description", "general")),
        (case(TEMPORAL, consistency_free=float("nan")), ("general", "description", "general")),
        (case(SPATIAL), ("spatial", "description", "spatial")),
        (case(SPATIAL, reference=True), ("spatial_reference", "reference", "spatial")),
        (case(LOGICAL), ("logical", "logical_answer")),
        (case(LOGICAL, None, reference=True), ("logical_reference", "logical_picture")),
        (case(LOGICAL, None, reference=True, reasoning_wo_ins=True), ("logical_reference", "logical_match")),
    ],
)
def test_a_case_decides_what_is_asked_and_how(one: Edit, asked: tuple[str, ...]) -> None:
    assert tuple(rubric.variant for rubric in RISEBENCH.rubrics_for(one)) == asked


def test_every_question_shows_the_pictures_of_the_benchmark_in_its_order() -> None:
    source, reference = ("Source Image", "Edited Image"), ("Reference Image", "Edited Image")
    shown = {rubric.name: rubric.modes["plain"].images for rubric in RISEBENCH.rubrics}
    assert shown == {
        f"{CONSISTENCY}/general": source,
        f"{CONSISTENCY}/spatial": source,
        f"{CONSISTENCY}/spatial_reference": reference,
        f"{CONSISTENCY}/logical": source,
        f"{CONSISTENCY}/logical_reference": reference,
        f"{REASONING}/description": ("Edited Image",),
        f"{REASONING}/description_with_source": source,
        f"{REASONING}/reference": reference,
        f"{REASONING}/logical_answer": ("Edited Image",),
        f"{REASONING}/logical_picture": reference,
        f"{REASONING}/logical_match": reference,
        f"{PLAUSIBILITY}/general": ("Edited Image",),
        f"{PLAUSIBILITY}/spatial": ("Edited Image",),
    }
    for rubric in RISEBENCH.rubrics:
        tools = rubric.modes["tools"]
        assert (tools.images, tools.tools) == (rubric.modes["plain"].images, True)
        assert all(name in rubric.modes["plain"].setting for name in rubric.modes["plain"].images)


def test_a_case_without_anything_to_compare_with_is_not_judged() -> None:
    with pytest.raises(MissingInput, match=r"nothing to compare the result with; give a description as its hint$"):
        RISEBENCH.rubrics_for(case(TEMPORAL, None, reference=True), [REASONING])
    with pytest.raises(MissingInput, match="or a reference picture"):
        RISEBENCH.rubrics_for(case(LOGICAL, None), [REASONING])


@pytest.mark.parametrize(
    ("one", "scores", "five", "right"),
    [
        (case(TEMPORAL), {CONSISTENCY: 100, REASONING: 100, PLAUSIBILITY: 100}, 5, 100),
        (case(TEMPORAL), {CONSISTENCY: 50, REASONING: 75, PLAUSIBILITY: 25}, 0.9 + 2 + 0.4, 0),
        (case(TEMPORAL), {CONSISTENCY: 100, REASONING: 0, PLAUSIBILITY: 75}, (1.5 + 0.5 + 0.8) / 2, 0),
        (case(TEMPORAL), {CONSISTENCY: 0, REASONING: 0, PLAUSIBILITY: 0}, 1, 0),
        (case(TEMPORAL, consistency_free=True), {REASONING: 100, PLAUSIBILITY: 100}, 5, 100),
        (case(TEMPORAL, consistency_free=True), {REASONING: 75, PLAUSIBILITY: 100}, 3.2 + 1, 0),
        (case(LOGICAL), {CONSISTENCY: 100, REASONING: 0}, (1.5 + 0.7) / 2, 0),
        (case(LOGICAL), {CONSISTENCY: 0, REASONING: 100}, 0.3 + 3.5, 0),
        (case(LOGICAL), {CONSISTENCY: 100, REASONING: 100}, 5, 100),
        (case(LOGICAL), {REASONING: 100}, None, None),
        (case(TEMPORAL), {REASONING: 100, PLAUSIBILITY: 100}, None, None),
    ],
)
def test_a_case_s_score_is_the_weighted_mean_halved_where_reasoning_is_1(
    one: Edit, scores: dict[str, float], five: float | None, right: float | None
) -> None:
    assert score_five(one, scores) == (None if five is None else pytest.approx(five))
    assert count_right(one, scores) == right
    assert RISEBENCH.score_of(one, scores) == (None if five is None else pytest.approx((five - 1) * 25))


def write_data(folder: Path, *cases: Any, name: str = "data_total.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps([{**CASE, **fields} for fields in cases]), "utf-8")
    return folder


def load(data: Path, results: Path) -> list[Edit]:
    return list(load_outputs(data, {"m": results}, "risebench").edits())


def test_an_empty_cell_of_a_table_sets_no_flag(tmp_path: Path) -> None:
    nan = float("nan")
    data = write_data(tmp_path / "data", {"consistency_free": nan, "reasoning_img": nan, "reasoning_wo_ins": nan})
    touch(tmp_path / f"m/images/{TEMPORAL}/temporal_reasoning_1.png")
    (only,) = load(data, tmp_path / "m")
    assert only.extra == {"consistency_free": False}


def test_the_list_of_cases_is_read_with_its_references_and_fields(tmp_path: Path) -> None:
    data = write_data(
        tmp_path / "data",
        {"subtask": "Life Progression", "consistency_free": True, "reasoning_img": None},
        {
            "index": "s_1",
            "category": SPATIAL,
            "reference": None,
            "reference_img": "spatial/1_ref.png",
            "reasoning_img": 1,
        },
        {"index": "l_1", "category": LOGICAL, "reference": "", "reference_txt": "4", "consistency_free": None},
    )
    touch(data / "data/temporal_reasoning_images/1.png", data / "spatial/1_ref.png")
    results = tmp_path / "m"
    touch(results / f"images/{TEMPORAL}/temporal_reasoning_1.jpeg", results / f"images/{SPATIAL}/s_1.png")
    touch(results / f"images/{LOGICAL}/l_1.jpg")
    first, second, third = load(data, results)
    assert first.source == data / "data/temporal_reasoning_images/1.png", "the unpacked archive"
    assert (first.hint, first.extra) == ("snow on the roof", {"subtask": "Life Progression", "consistency_free": True})
    assert (second.hint, second.reference, second.extra) == (None, data / "spatial/1_ref.png", {"reasoning_img": True})
    assert (third.hint, third.reference, third.extra) == ("4", None, {"consistency_free": False})
    assert [one.edited.name for one in (first, second, third)] == ["temporal_reasoning_1.jpeg", "s_1.png", "l_1.jpg"]  # type: ignore[union-attr]


def test_the_list_may_be_named_itself_or_be_in_the_folder_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(tmp_path / "data", {})
    write_data(tmp_path / "data", {}, {"index": "temporal_reasoning_2"}, name="datav2_total_w_subtask.json")
    touch(tmp_path / f"m/images/{TEMPORAL}/temporal_reasoning_1.png")
    assert len(load(tmp_path, tmp_path / "m")) == 2, "the list with subtasks goes first"
    named = tmp_path / "data/data_total.json"
    assert len(load(named, tmp_path / "m")) == 1
    command = ["batch", str(named), "--layout", "risebench", "--results", str(tmp_path / "m"), "--judge", "openai:x"]
    assert run([*command, "--out", str(tmp_path / "run"), "--base-url", "http://127.0.0.1:9/v1", "--dry-run"]) == 0
    assert "3 units to judge" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"index": None}, 'data_total.json, case 1: "index" is missing'),
        ({"instruction": ""}, 'case temporal_reasoning_1: "instruction" is missing'),
        ({"image": ["a.png"]}, '"image" is missing or is not a text'),
        ({"category": "moral_reasoning"}, '"moral_reasoning" is not a category of RISEBench'),
        ({"reference": None}, 'none of "reference", "reference_txt" and "reference_img" is there'),
        ({"index": "../1"}, "the key '../1' has a path in it"),
        ({"image": "../../1.png"}, "leads outside the benchmark's folder"),
        ({"consistency_free": "no"}, "\"consistency_free\" is 'no', neither true nor false"),
    ],
)
def test_a_mistake_in_a_case_is_one_sentence(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(write_data(tmp_path / "data", fields), tmp_path)


def test_a_wrong_folder_two_lists_and_two_outputs_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"has no list of cases, such as datav2_total_w_subtask\.json"):
        load(tmp_path / "empty", tmp_path)
    data = write_data(tmp_path / "data", {}, name="a.json")
    write_data(data, {}, name="b.json")
    with pytest.raises(UserError, match=r"has several JSON files \(a.json, b.json\); name the list of cases itself"):
        load(data, tmp_path)
    touch(*(tmp_path / f"m/images/{TEMPORAL}/temporal_reasoning_1.{suffix}" for suffix in ("png", "jpg")))
    with pytest.raises(UserError, match="two pictures for one key"):
        load(data / "a.json", tmp_path / "m")
    with pytest.raises(UserError, match="twice; ids must be unique"):
        load(write_data(tmp_path / "twice", {}, {}), tmp_path / "empty")


def test_an_unjudged_criterion_leaves_its_case_without_score_and_counts_elsewhere(tmp_path: Path) -> None:
    lines = [
        (edit("1", TEMPORAL, "a"), {CONSISTENCY: 100.0, REASONING: None, PLAUSIBILITY: 100.0}),
        (edit("2", TEMPORAL, "a"), {CONSISTENCY: 0.0, REASONING: 100.0, PLAUSIBILITY: 100.0}),
    ]
    printed = tables(keep(tmp_path / "run", "risebench", lines))
    row = printed["RISEBench, accuracy and score"]["a"]
    assert row["Temporal score"] == row["Overall score"] == pytest.approx(0.3 + 2.5 + 1)
    assert (row["Overall accuracy %"], row["Logical score"]) == (0, None)
    assert printed["RISEBench, dimensions in percent"]["a"]["Overall consistency"] == 50


def test_a_csv_of_the_script_s_rows_is_imported_with_logical_cases_on_the_same_scale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "judge.csv"
    file.write_text(
        "index,category,ApprConsistency,Reasoning,VisualPlausibility\n"
        f"l_1,{LOGICAL},5.0,1.0,\nt_1,{TEMPORAL},5.0,5.0,5.0\n"
    )
    columns = {"id": "index", "instruction_type": "category", CONSISTENCY: "ApprConsistency"}
    columns |= {REASONING: "Reasoning", PLAUSIBILITY: "VisualPlausibility"}
    import_scores(file, tmp_path / "run", "gpt-4.1", "risebench", columns)
    row = report(capsys, tmp_path / "run")["RISEBench, accuracy and score"]["(no model)"]
    assert (row["Logical score"], row["Logical score %"]) == (pytest.approx(1.1), pytest.approx(2.5))
    assert (row["Overall accuracy %"], row["judged"], row["expected"]) == (50, 5, 5)
    script = report(capsys, tmp_path / "run", "--as-published")["RISEBench by the rules of its public script"]
    assert script["(no model)"]["Logical score"] == pytest.approx(1.1)
