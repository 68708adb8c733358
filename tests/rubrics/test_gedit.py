"""GEdit-Bench: two scores in one reply, the data set's layout, and one sentence for what is wrong with it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.agent.replies.answers import parse_reply
from editloupe.evals.manifests import load_outputs
from editloupe.judge.question_facts import find_inputs
from editloupe.pictures.decode import Album
from editloupe.pictures.input import as_memory_picture
from editloupe.rubrics.gedit import GEDIT, PAPER, PQ, PUBLISHED, SC, TASKS, compute_tables
from editloupe.rubrics.published import RawAnswer, RawEdit
from editloupe.types import Edit, UserError
from tests.drawn_pictures import save
from tests.evals.manifests.benchmarks import touch
from tests.pictures.table_files import images, png, write_table

ROW = {
    "key": "k1",
    "task_type": "subject-add",
    "instruction": "Add a lamp",
    "instruction_language": "en",
    "Intersection_exist": True,
}


def write_data(folder: Path, *rows: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "info.jsonl").write_text("\n".join(json.dumps({**ROW, **row}) for row in rows), "utf-8")
    return folder


def write_outputs(folder: Path, *names: str) -> Path:
    touch(*(folder / "fullset" / name for name in names))
    return folder


def load(data: Path, results: Path) -> list[Edit]:
    return list(load_outputs(data, {"m": results}, "gedit").edits())


@pytest.mark.parametrize(
    ("criterion", "reply", "score"),
    [
        (SC, '{"reason": "seen", "success": 8, "overediting": 5}', 0.5),
        (SC, '{"reason": "seen", "success": "0", "overediting": 10}', 0.0),
        (PQ, '{"reason": "seen", "naturalness": 10, "artifacts": 7}', 0.7),
        (PQ, '{"reason": "seen", "naturalness": 7.5, "artifacts": 7}', None),
        (SC, '{"reason": "seen", "success": 11, "overediting": 5}', None),
        (SC, '{"score": [8, 5]}', None),
        (SC, "[8, 5]", None),
    ],
)
def test_a_criterion_is_the_lower_of_two_scores_in_one_reply(criterion: str, reply: str, score: float | None) -> None:
    answer = parse_reply(reply, GEDIT.rubric(criterion).answer).answer
    assert (answer.score if answer else None) == (score if score is None else pytest.approx(score))


def test_an_edit_s_score_is_the_root_of_the_product() -> None:
    edit = Edit(source=Path("s.png"), edited=Path("e.png"), instruction="x")
    assert GEDIT.score_of(edit, {SC: 90.0, PQ: 40.0}) == pytest.approx(60.0)
    assert GEDIT.score_of(edit, {SC: 90.0}) is None


def test_sc_is_shown_both_pictures_with_the_instruction_and_pq_the_edited_one_alone() -> None:
    shown = {rubric.criterion: (rubric.modes["plain"].images, rubric.tells) for rubric in GEDIT.rubrics}
    assert shown == {SC: (("Source Image", "Edited Image"), ("instruction",)), PQ: (("Edited Image",), ())}
    assert GEDIT.modes == ("tools", "plain")


def test_plain_mode_shows_the_edited_picture_in_the_size_of_the_source(tmp_path: Path) -> None:
    source = save(np.zeros((30, 40, 3), np.uint8), tmp_path / "s.png")
    edited = save(np.full((60, 60, 3), 9, np.uint8), tmp_path / "e.png")
    edit = Edit(source=source, edited=edited, instruction="x")
    own_size = PUBLISHED.reword(GEDIT, {"gedit.edited_size": "own"})
    for rubric in GEDIT.rubrics:
        for protocol, mode, size in (
            (GEDIT, "plain", (40, 30)),
            (GEDIT, "tools", (60, 60)),
            (own_size, "plain", (60, 60)),
        ):
            album = Album()
            (case,) = protocol.make_cases(edit, rubric, mode, album)  # type: ignore[arg-type]
            assert album[case.pictures["Edited Image"]].size == size
        resized, own = (find_inputs(protocol, rubric, "plain", edit) for protocol in (GEDIT, own_size))
        assert resized != own, "another size is another question"


def test_an_exported_folder_is_read_with_outputs_as_the_script_saves_them(tmp_path: Path) -> None:
    data = write_data(
        tmp_path / "data",
        {},
        {"key": "k2", "instruction_language": "cn", "instruction": "加一盏灯", "Intersection_exist": False},
        {"key": "k3", "task_type": "text_change", "input_image": "own/k3.png", "difficulty": "hard"},
    )
    touch(data / "k1_SRCIMG.png", data / "own/k3.png")
    results = write_outputs(
        tmp_path / "m", "subject-add/en/k1.png", "subject-add/cn/k2.png", "subject-add/cn/k2_SRCIMG.png"
    )
    first, second, third = load(data, results)
    assert (first.id, first.source.name, first.instruction_type) == ("en/k1", "k1_SRCIMG.png", "subject-add")  # type: ignore[union-attr]
    assert first.extra == {"language": "en", "Intersection_exist": True}
    assert second.source == results / "fullset/subject-add/cn/k2_SRCIMG.png", "the copy next to the output"
    assert second.extra == {"language": "cn", "Intersection_exist": False}
    assert third.source == data / "own/k3.png"
    assert third.extra == {"language": "en", "Intersection_exist": True, "difficulty": "hard", "output": "missing"}


def test_a_picture_folder_of_the_split_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = write_data(tmp_path / "data/train", {"file_name": "p/0.png"})
    (data / "info.jsonl").rename(data / "metadata.jsonl")
    touch(data / "p/0.png")
    (edit,) = load(tmp_path / "data", write_outputs(tmp_path / "m", "subject-add/en/k1.png"))
    assert edit.source == data / "p/0.png"


def test_a_snapshot_of_the_data_set_is_read_with_the_pictures_in_its_tables(tmp_path: Path) -> None:
    columns = {name: [value] * 2 for name, value in ROW.items() if name != "key"}
    columns |= {
        "key": ["k1", "k2"],
        "input_image": images([png(1), png(2)]),
        "input_image_raw": images([png(3), png(4)]),
    }
    for number in (0, 1):
        part = {name: values[number : number + 1] for name, values in columns.items()}
        write_table(tmp_path / f"data/data/train-0000{number}-of-00002.parquet", part)
    first, second = load(tmp_path / "data", write_outputs(tmp_path / "m", "subject-add/en/k1.png"))
    assert (first.id, second.id) == ("en/k1", "en/k2")
    assert [Album().open(edit.source).sha for edit in (first, second)] == [
        Album().open(as_memory_picture(png(number))).sha for number in (1, 2)
    ], "the picture that was edited, not the raw one"
    assert first.extra == {"language": "en", "Intersection_exist": True}
    (tmp_path / "data/data/train-00001-of-00002.parquet").unlink()
    with pytest.raises(UserError, match=r"1 of the 2 shards .* number 00001 is missing"):
        load(tmp_path / "data", tmp_path / "m")


def test_a_language_without_outputs_is_absent_and_a_task_without_outputs_is_missing(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", {}, {"key": "k2", "task_type": "text_change"}, {"instruction_language": "cn"})
    loaded = load_outputs(data, {"m": write_outputs(tmp_path / "m", "subject-add/en/k1.png")}, "gedit")
    assert [edit.id for edit in loaded.edits()] == ["en/k1", "en/k2"]
    notes = " ".join(loaded.notes)
    assert "no outputs for cn (1 case): absent, not counted" in notes
    assert "1 of 2 outputs missing" in notes


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"key": ""}, '"key" is missing'),
        ({"key": "../k1"}, "line 1: the key '../k1' has a path in it"),
        ({"key": "a\\b"}, "has a path in it"),
        (
            {"task_type": "subject_swap"},
            'line 1: "subject_swap" is not a task of GEdit-Bench; its tasks are background',
        ),
        ({"instruction_language": "zh"}, 'the language "zh" is neither en nor cn'),
        ({"instruction": None}, 'line 1: "instruction" is missing; there is key, task_type'),
        ({"input_image": "../../s.png"}, "leads outside the benchmark's folder"),
        ({"key": 1.5}, "line 1: the key is 1.5, neither a text nor a whole number"),
        ({"instruction": float("nan")}, 'line 1: "instruction" is nan, not a text'),
        ({"Intersection_exist": "maybe"}, "\"Intersection_exist\" is 'maybe'; it must be true or false"),
        ({"Intersection_exist": None}, '"Intersection_exist" is missing; it must be true or false'),
    ],
)
def test_a_mistake_in_a_row_is_one_sentence_with_its_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    data, results = write_data(tmp_path / "data", row), write_outputs(tmp_path / "m", "subject-add/en/k1.png")
    with pytest.raises(UserError, match=message.replace("\\", "\\\\")) as caught:
        load(data, results)
    assert "\n" not in str(caught.value)


def test_two_rows_or_two_files_for_one_key_are_refused(tmp_path: Path) -> None:
    results = write_outputs(tmp_path / "m", "subject-add/en/k1.png")
    with pytest.raises(UserError, match='has the id "en/k1" twice'):
        load(write_data(tmp_path / "data", {}, {}), results)
    write_outputs(results, "subject-add/en/k1.jpg")
    with pytest.raises(UserError, match=r"two pictures for one key: k1\.png and k1\.jpg"):
        load(write_data(tmp_path / "data", {}), results)


def test_a_wrong_folder_is_named_with_what_is_there(tmp_path: Path) -> None:
    results = write_outputs(tmp_path / "m", "subject-add/en/k1.png")
    (tmp_path / "other" / "pictures").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has neither .*; it has the folders pictures"):
        load(tmp_path / "other", results)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/info.jsonl").write_text("{no json\n")
    with pytest.raises(UserError, match=r"info\.jsonl, line 1 is not JSON"):
        load(tmp_path / "data", results)
    with pytest.raises(UserError, match=r"has no output of this benchmark; looked for fullset/subject-add/en/k1"):
        load(write_data(tmp_path / "data", {}), write_outputs(tmp_path / "n", "elsewhere/k1.png"))


COLUMNS = (
    "edited_image",
    "instruction",
    "sementics_score",
    "quality_score",
    "intersection_exist",
    "instruction_language",
)


def write_results(folder: Path, name: str, *rows: tuple[Any, ...], columns: tuple[str, ...] = COLUMNS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return folder


def read_results(folder: Path) -> list[dict[str, Any]]:
    assert PAPER.read_results
    return [dict(row) for _, row in PAPER.read_results(folder)]


ROW_OF_RESULTS = ("x/m/fullset/text_change/cn/k1.png", "Do", "8", "7.5", "True", "cn")


def test_result_files_of_the_script_are_rows_with_scores_from_0_to_1(tmp_path: Path) -> None:
    folder = tmp_path / "r/m/gpt4o/eval_results_new"
    write_results(folder, "m_text_change_gpt_score.csv", ROW_OF_RESULTS, (*ROW_OF_RESULTS[:2], "11", "", "False", "cn"))
    write_results(folder, "m_combined_gpt_score.csv", ROW_OF_RESULTS)
    first, second = read_results(tmp_path / "r")
    assert first == {
        "id": "cn/k1",
        "model": "m",
        "instruction": "Do",
        "instruction_type": "text_change",
        "language": "cn",
        "Intersection_exist": True,
        SC: 0.8,
        PQ: 0.75,
    }
    assert (second[SC], second[PQ]) == (None, None), "a number outside 0 to 10 and an empty cell are unjudged"


def test_a_mistake_in_result_files_is_one_sentence(tmp_path: Path) -> None:
    name = "m_text_change_gpt_score.csv"
    with pytest.raises(UserError, match="has no result file MODEL_TASK_gpt_score"):
        read_results(tmp_path)
    write_results(tmp_path / "a", name, ("k1.png", *ROW_OF_RESULTS[1:]))
    with pytest.raises(UserError, match=r"line 2: .edited_image. is 'k1\.png', not a path that ends in"):
        read_results(tmp_path / "a")
    write_results(tmp_path / "b", name, (*ROW_OF_RESULTS[:2], "good", *ROW_OF_RESULTS[3:]))
    with pytest.raises(UserError, match="line 2: \"sementics_score\" is 'good', not a number"):
        read_results(tmp_path / "b")
    write_results(tmp_path / "c", name, columns=("edited_image", "quality"))
    with pytest.raises(UserError, match='the column "instruction" is missing; there is edited_image, quality'):
        read_results(tmp_path / "c")
    write_results(tmp_path / "d", name, (*ROW_OF_RESULTS[:-2], "maybe", ROW_OF_RESULTS[-1]))
    with pytest.raises(UserError, match="line 2: \"intersection_exist\" is 'maybe'; it must be true or false"):
        read_results(tmp_path / "d")
    write_results(tmp_path / "e", name, (*ROW_OF_RESULTS[:-1], "fr"))
    with pytest.raises(UserError, match="line 2: \"instruction_language\" is 'fr', but the picture is in"):
        read_results(tmp_path / "e")
    with pytest.raises(UserError, match="are results of the same model and task"):
        read_results(tmp_path)


def raw(
    kind: str, sc: float | None, pq: float | None = None, *, status: str = "judged", missing: bool = False, **extra: Any
) -> RawEdit:
    edit = Edit(
        source=Path("s.png"),
        edited=Path("e.png"),
        instruction="x",
        instruction_type=kind,
        extra={"language": "en", "Intersection_exist": True, **extra},
    )
    answers = {SC: RawAnswer(status, sc), PQ: RawAnswer(status, pq)}  # type: ignore[arg-type]
    return RawEdit(edit, 0, {} if status == "waiting" else answers, missing)


def compute(edits: list[RawEdit], published: bool = False, **changes: str) -> dict[str, Any]:
    table = next(iter(compute_tables({"m": edits}, PUBLISHED.choose(changes, published))))
    return dict(zip(table.columns, table.rows["m"], strict=True)) | {"lost": table.irreproducible, **table.concerned}


def test_failed_and_missing_edits_count_as_a_rule_says_and_waiting_ones_never() -> None:
    edits = [
        raw("ps_human", 0.4, 0.9),
        raw("ps_human", 0.9, 0.4),
        raw("ps_human", None, status="unjudged"),
        raw("ps_human", None, status="unjudged", missing=True),
        raw("ps_human", None, status="waiting"),
    ]
    cell = "ps_human G_O"
    assert compute(edits)[cell] == pytest.approx(6.0)
    assert compute(edits, failed="zero")[cell] == pytest.approx(4.0)
    assert compute(edits, missing="zero")[cell] == pytest.approx(4.0)
    assert compute(edits, failed="zero", missing="zero")[cell] == pytest.approx(3.0)
    published = compute(edits, published=True)
    assert published[cell] is None
    assert "ps_human and the averages" in published["lost"][0]
    assert (published["gedit.failed"], published["gedit.missing"]) == ("1 edit of m", "1 edit of m")
    assert compute(edits, published=True, failed="left_out")[cell] == pytest.approx(6.0)


def test_an_average_needs_all_tasks_unless_a_rule_leaves_empty_ones_out() -> None:
    edits = [raw("ps_human", 0.5, 0.5), raw("ps_human", 0.5, 0.5), raw("text_change", 0.2, 0.2)]
    assert compute(edits)["G_SC"] is None
    assert compute(edits, empty_task="left_out")["G_SC"] == pytest.approx(3.5)
    assert compute(edits, average="edits")["G_SC"] == pytest.approx(4.0)
    whole = [raw(task, 0.1 * number, 0.5) for number, task in enumerate(TASKS)]
    assert compute(whole)["G_SC"] == pytest.approx(5.0)


def test_the_intersection_subset_has_numbers_of_its_own() -> None:
    edits = [raw("ps_human", 0.5, 0.5), raw("ps_human", 0.9, 0.9, Intersection_exist=False)]
    full, subset = compute_tables({"m": edits}, PUBLISHED.choose({}))
    position = full.columns.index("ps_human G_SC")
    assert (full.rows["m"][position], subset.rows["m"][position]) == (pytest.approx(7.0), pytest.approx(5.0))
