"""`editloupe make dlebench` given again: other questions, other editors, samples tried once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.making.folder import MakingFolder
from editloupe.making.reviews import review
from editloupe.pictures.decode import open_picture
from editloupe.pictures.encode import encode
from tests.conftest import StartServer
from tests.making.demo_questions import DEMO, QUESTIONS, lines, make, models, painted, write_questions
from tests.scripted import Reply, Request
from tests.scripted.images_wire import picture

REFUSED = {"box": True, "metadata": True, "reference": False}


def rewrite(questions: Path, name: str, **changes: Any) -> None:
    """Write a question set anew with one question changed."""
    rows = [json.loads(line) for line in questions.read_text("utf-8").splitlines()]
    changed = [{**row, **changes} if row["id"] == name else row for row in rows]
    questions.write_text("".join(json.dumps(row) + "\n" for row in changed), "utf-8")


def another_shape(request: Request) -> Reply:
    return picture(encode(open_picture(DEMO / "pictures" / "rocket.jpg").pixels[:200]), request)


@pytest.mark.long
def test_samples_whose_pictures_were_of_no_use_are_asked_for_again_and_what_is_on_disk_is_not_taken_for_an_answer(
    tmp_path: Path, scripted: StartServer
) -> None:
    def edit(request: Request) -> Reply:
        pictures = sum(bool(one.images) for one in server.requests)
        return another_shape(request) if pictures <= 6 else picture(painted(request.images[0].data), request)

    questions, out = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench"
    server = scripted(models(edit=edit))
    assert make(questions, out, server) == 0
    assert lines(out / "references.jsonl")[0]["attempts"] == 4

    assert make(questions, out, server, "--again", "references") == 0

    made = lines(out / "references.jsonl")[-1]
    assert made["attempt"] == 7
    assert made["made_anew"] == 0, "pictures of no use are no regenerations"
    folder = MakingFolder(out)
    review(folder, "cat-eye", "ann", "regenerate", REFUSED)
    (sample,) = folder.samples()
    assert sample.step == "regenerate"


@pytest.mark.long
def test_a_picture_one_editor_left_on_disk_is_not_taken_for_another_editor_s(
    tmp_path: Path, scripted: StartServer
) -> None:
    questions, out, server = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench", scripted(models())
    assert make(questions, out, server) == 0
    (out / "references.jsonl").unlink()

    assert make(questions, out, server, editor="google_genai:gemini-3-pro-image") == 0

    (made,) = lines(out / "references.jsonl")
    assert made["by"] == "google_genai:gemini-3-pro-image"
    assert sum(bool(one.images) for one in server.requests) == 2


@pytest.mark.long
def test_a_second_question_set_with_the_same_ids_stands_beside_the_first(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first, out, server = (
        write_questions(tmp_path / "set", "cat-eye", "spoon-wood"),
        tmp_path / "bench",
        scripted(models()),
    )
    assert make(first, out, server, "--source", "One", "--licence", "CC0") == 0
    second = write_questions(tmp_path / "other", "spoon-wood").rename(tmp_path / "other" / "second.jsonl")
    rewrite(second, "spoon-wood", id="cat-eye")
    capsys.readouterr()

    assert make(second, out, server) == 0

    assert 'these samples are called "second-" and their id' in capsys.readouterr().err
    found = {one.id: one.question for one in MakingFolder(out).samples()}
    assert list(found) == ["cat-eye", "spoon-wood", "second-cat-eye"]
    assert found["cat-eye"].question == QUESTIONS["cat-eye"]["question"]
    assert (found["cat-eye"].source, found["cat-eye"].licence) == ("One", "CC0")
    assert (found["second-cat-eye"].source, found["second-cat-eye"].licence) == ("second", None)
    served = server.served
    for one in (first, second):
        assert make(one, out, server) == 0
    assert server.served == served
    assert len(lines(out / "questions.jsonl")) == 3
    again = write_questions(tmp_path / "moved", "cat-eye").rename(tmp_path / "moved" / "renamed.jsonl")
    assert make(again, out, server) == 0
    assert len(lines(out / "questions.jsonl")) == 3, "the same question in a file of another name is the same question"
    namesake = write_questions(tmp_path / "third", "rocket-rod")
    rewrite(namesake, "rocket-rod", id="cat-eye")
    assert make(namesake, out, server) == 0
    assert [one.id for one in MakingFolder(out).samples()][3:] == ["questions-cat-eye"]


@pytest.mark.long
def test_boxes_corrected_in_the_question_set_take_the_place_of_those_it_had(
    tmp_path: Path, scripted: StartServer
) -> None:
    questions, out, server = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench", scripted(models())
    assert make(questions, out, server) == 0
    rewrite(questions, "cat-eye", target_boxes=[[140, 90, 200, 140]])

    assert make(questions, out, server) == 0

    (sample,) = MakingFolder(out).samples()
    assert sample.boxes is not None
    assert [list(box) for box in sample.boxes.boxes] == [[140, 90, 200, 140]]
    assert sample.step == "review"
    assert len(lines(out / "references.jsonl")) == 2


def test_of_boxes_of_several_things_those_of_the_target_are_taken_and_a_person_looks(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As V*-Bench has them for questions about where one thing is beside another."""
    questions, out, server = (
        write_questions(tmp_path / "set", "rocket-rod", boxes=False),
        tmp_path / "bench",
        scripted(models()),
    )
    beside = {"target_object": ["rocket", "white rod"], "bbox": [[300, 100, 60, 200], [440, 119, 17, 99]]}
    (tmp_path / "set" / "pictures" / "rocket.json").write_text(json.dumps(beside), "utf-8")

    assert make(questions, out, server) == 0

    (sample,) = MakingFolder(out).samples()
    assert sample.step == "confirm boxes"
    assert sample.boxes is not None
    assert [list(box) for box in sample.boxes.boxes] == [[440, 119, 457, 218]]
    assert "1 sample waits for people to confirm boxes" in capsys.readouterr().err
