"""Question sets are read as their makers lay them out; a row no sample can be made of says why."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.making.questions import read_questions
from editloupe.making.records import LeftOutSample, PictureQuestion
from editloupe.types import Box, UserError


def a_picture(path: Path, size: tuple[int, int] = (80, 60)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (20, 90, 160)).save(path)
    return path


def read(path: Path, out: Path, **more: Any) -> list[PictureQuestion | LeftOutSample]:
    return list(read_questions(path, out, **more))


def only(path: Path, out: Path) -> PictureQuestion:
    (found,) = read(path, out)
    assert isinstance(found, PictureQuestion), found
    return found


def test_plain_rows_of_every_format_say_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    a_picture(tmp_path / "a.png")
    row = {"id": "q1", "picture": "a.png", "question": "What color is it?", "options": ["blue", "red"], "answer": "A"}
    (tmp_path / "q.jsonl").write_text(json.dumps(row), "utf-8")
    (tmp_path / "q.json").write_text(json.dumps([row]), "utf-8")
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "q.parquet")
    with (tmp_path / "q.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(row)
        writer.writerow(["q1", "a.png", "What color is it?", "blue | red", "A"])

    found = [only(tmp_path / f"q.{kind}", tmp_path / "out") for kind in ("jsonl", "json", "csv", "parquet")]

    facts = {(one.id, one.question, one.options, one.answer, one.sha, one.size) for one in found}
    assert len(facts) == 1
    assert found[0].answer == "blue"
    assert (tmp_path / "out" / found[0].picture).is_file()


def test_what_is_nested_too_deeply_is_no_list_of_options_and_no_boxes(tmp_path: Path) -> None:
    deep = "[" * 20_000
    a_picture(tmp_path / "a.png")
    (tmp_path / "a.json").write_text(deep, "utf-8")
    (tmp_path / "q.csv").write_text(f"picture,question,options,answer\na.png,Which?,{deep},A\n", "utf-8")
    question = only(tmp_path / "q.csv", tmp_path / "out")
    assert (question.options, question.boxes) == ((deep,), ())


def test_v_star_bench_has_options_in_the_text_and_boxes_beside_the_picture(tmp_path: Path) -> None:
    a_picture(tmp_path / "direct_attributes" / "sa_1.jpg")
    beside = {"target_object": ["glove"], "bbox": [[10, 20, 30, 15]]}
    (tmp_path / "direct_attributes" / "sa_1.json").write_text(json.dumps(beside), "utf-8")
    text = "What is the material of the glove?\n(A) rubber\n(B) cotton\n(C) leather\n"
    row = {
        "image": "direct_attributes/sa_1.jpg",
        "text": text + "Answer with the option's letter from the given choices directly.",
        "category": "direct_attributes",
        "label": "B",
        "question_id": 0,
    }
    (tmp_path / "test_questions.jsonl").write_text(json.dumps(row), "utf-8")

    found = only(tmp_path / "test_questions.jsonl", tmp_path / "out")

    assert found.question == "What is the material of the glove?"
    assert found.options == ("rubber", "cotton", "leather")
    assert found.answer == "cotton"
    assert found.boxes == (Box(x1=10, y1=20, x2=40, y2=35),)


def test_v_star_bench_s_own_folder_has_the_right_option_first_and_names_its_boxes(tmp_path: Path) -> None:
    a_picture(tmp_path / "vstar" / "relative_position" / "sa_2.jpg")
    a_picture(tmp_path / "vstar" / "relative_position" / "sa_3.jpg")
    beside = {
        "target_object": ["dog", "motorcycle"],
        "bbox": [[10, 20, 30, 15], [50, 5, 10, 10]],
        "question": "Is the motorcycle on the left or right side of the dog?",
        "options": [
            "The motorcycle is on the right side of the dog.",
            "The motorcycle is on the left side of the dog.",
        ],
    }
    (tmp_path / "vstar" / "relative_position" / "sa_2.json").write_text(json.dumps(beside), "utf-8")
    (tmp_path / "vstar" / "relative_position" / "sa_3.json").write_text("{", "utf-8")

    found, broken = read(tmp_path / "vstar", tmp_path / "out")

    assert isinstance(found, PictureQuestion)
    assert (found.id, found.answer) == ("relative_position/sa_2", "The motorcycle is on the right side of the dog.")
    assert found.boxes == (Box(x1=10, y1=20, x2=40, y2=35), Box(x1=50, y1=5, x2=60, y2=15))
    assert found.box_names == ("dog", "motorcycle")
    assert isinstance(broken, LeftOutSample)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no questions"):
        read(tmp_path / "empty", tmp_path / "out")


def test_mme_real_world_has_names_of_its_own_and_pictures_in_a_folder(tmp_path: Path) -> None:
    a_picture(tmp_path / "imgs" / "b.png")
    row = {
        "Question_id": "perception/ocr_cc/0913",
        "Image": "b.png",
        "Text": "What is on the sign?",
        "Question Type": "Multiple Choice",
        "Answer choices": ["(A) STOP", "(B) GO", "(E) The image does not feature the content."],
        "Ground truth": "B",
        "Category": "ocr",
    }
    (tmp_path / "MME.json").write_text(json.dumps([row]), "utf-8")

    found = only(tmp_path / "MME.json", tmp_path / "out")

    assert found.id == "perception/ocr_cc/0913"
    assert found.options[0] == "STOP"
    assert found.answer == "GO"


def test_pictures_may_lie_in_the_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    data = a_picture(tmp_path / "c.jpg").read_bytes()
    rows = [
        {
            "question": "How many?",
            "multi-choice options": ["(A) 1", "(B) 2"],
            "answer": "A",
            "bytes": base64.b64encode(data).decode(),
        }
    ]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    hub = [{"image": {"bytes": data, "path": "c.jpg"}, "question": "How many?", "choices": ["1", "2"], "answer": 1}]
    parquet.write_table(pa.Table.from_pylist(hub), tmp_path / "b.parquet")

    first, second = (only(tmp_path / f"{name}.parquet", tmp_path / "out") for name in "ab")

    assert first.picture == second.picture
    assert (tmp_path / "out" / first.picture).read_bytes() == data
    assert (first.answer, second.answer) == ("1", "2")


def test_pictures_and_options_may_each_be_one_text(tmp_path: Path) -> None:
    """As MME-RealWorld's files in base64 have them, and the tables that its evaluation makes of those."""
    data = a_picture(tmp_path / "c.jpg", (400, 300)).read_bytes()
    text = base64.b64encode(data).decode()
    assert len(text) > 1000
    row = {"index": 7, "image": text, "question": "How many?", "answer": "B", "category": "Perception/Monitoring"}
    (tmp_path / "a.json").write_text(json.dumps([{**row, "multi-choice options": ["(A) 13", "(B) 90"]}]), "utf-8")
    with (tmp_path / "b.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow([*row, "multi-choice options"])
        writer.writerow([*row.values(), "The choices are listed below:\n(A) 13\n(B) 90"])
    with (tmp_path / "c.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow([*row, "A", "B", "C"])
        writer.writerow([*row.values(), "13", "90", ""])

    for name in ("a.json", "b.tsv", "c.tsv"):
        found = only(tmp_path / name, tmp_path / "out")
        assert (found.id, found.options, found.answer) == ("7", ("13", "90"), "90")
        assert (tmp_path / "out" / found.picture).read_bytes() == data


def test_a_question_whose_answer_is_that_nothing_is_there_has_nothing_to_edit(tmp_path: Path) -> None:
    a_picture(tmp_path / "a.png")
    row = {
        "Question_id": "perception/monitoring/vehicle/counting/0310",
        "Image": "a.png",
        "Text": "What is the number of buses in the image?",
        "Answer choices": ["(A) 13", "(B) 90", "(C) 77", "(D) 6", "(E) The image does not feature the buses"],
        "Ground truth": "E",
    }
    (tmp_path / "q.json").write_text(json.dumps([row]), "utf-8")

    (found,) = read(tmp_path / "q.json", tmp_path / "out")

    assert isinstance(found, LeftOutSample)
    assert "there is nothing to edit" in found.left_out


def test_pixel_reasoner_has_lists_and_boxed_answers_and_videos_are_left_out(tmp_path: Path) -> None:
    a_picture(tmp_path / "images" / "d.png")
    rows = [
        {
            "qid": "a",
            "image": ["d.png"],
            "question": "<image>\nWhich color?\nA. red\nB. blue",
            "answer": ["\\boxed{B}"],
            "is_video": False,
        },
        {"qid": "b", "image": ["1.jpg", "2.jpg"], "question": "When?", "answer": ["\\boxed{A}"], "is_video": True},
        {
            "qid": "c",
            "image": ["d.png"],
            "question": "How many?",
            "answer": "\\boxed{['12', 'twelve']}",
            "is_video": None,
        },
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")

    picture, video, several = read(tmp_path / "q.jsonl", tmp_path / "out")

    assert isinstance(several, PictureQuestion)
    assert several.answer == "12"
    assert isinstance(picture, PictureQuestion)
    assert (picture.question, picture.options, picture.answer) == ("Which color?", ("red", "blue"), "blue")
    assert isinstance(video, LeftOutSample)
    assert video.left_out == "it is about a video"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"picture": "none.png"}, "the picture none.png was not found next to the question set"),
        ({"picture": "../outside.png"}, "the picture ../outside.png was not found next to the question set"),
        ({"picture": "broken.png"}, "broken.png"),
        ({"question": " "}, "it has no question"),
        ({"answer": None}, "it has no single answer"),
        ({"answer": "F"}, "its answer is option F, and there are 2"),
        ({"target_boxes": [[0, 0, 500, 10]]}, "a target box is outside its picture, which has 80 × 60 pixels"),
        ({"target_boxes": [[9, 9, 9, 9]]}, "its boxes cannot be read"),
        ({"target_boxes": [[0, 0, 5, 5]] * 9}, "it has 9 target boxes, and a sample has at most 8"),
    ],
)
def test_a_row_that_cannot_be_used_says_why_and_the_others_go_on(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    folder = tmp_path / "set"
    a_picture(folder / "a.png")
    a_picture(tmp_path / "outside.png")
    (folder / "broken.png").write_bytes(b"no picture")
    row = {"picture": "a.png", "question": "Which?", "options": ["x", "y"], "answer": "A"}
    (folder / "q.jsonl").write_text(json.dumps({**row, **changes}) + "\n" + json.dumps(row), "utf-8")

    bad, good = read(folder / "q.jsonl", tmp_path / "out")

    assert isinstance(bad, LeftOutSample)
    assert why in bad.left_out
    assert isinstance(good, PictureQuestion)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("q.txt", "x", "q.txt is not a question set"),
        ("q.jsonl", "{", "q.jsonl, line 1: this is not JSON"),
        ("q.json", "{}", "q.json must hold a list"),
        ("q.parquet", "x", "q.parquet is not a Parquet file"),
        ("none.jsonl", None, "there is no question set at"),
        ("q.jsonl", '{"id": 1}\n{"id": 1}', 'the id "1" is already used at q.jsonl, line 1'),
    ],
)
def test_a_file_that_cannot_be_read_is_the_user_s_mistake(
    tmp_path: Path, name: str, content: str | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(UserError, match=re.escape(sentence)):
        read(tmp_path / name, tmp_path / "out")
