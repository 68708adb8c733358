"""Edits go to Label Studio with a labelling configuration, and its exports come back as labels."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels import load_human_labels
from editloupe.evals.labels.files import EditName
from editloupe.evals.labels.human import merge_labels
from editloupe.evals.labels.label_files import LabelFile
from editloupe.evals.labels.label_form import build_form
from editloupe.evals.labels.label_studio import build_config
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.model import Check, ChecksAnswer, NumberAnswer, YesNoAnswer
from editloupe.rubrics.registry import get_protocol
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run

Json = dict[str, Any]
LINES = (
    Line("a", follows=2, consistent=4, boxes=((12, 8, 60, 40),), confidence=0.7),
    Line("b", follows=None, consistent=1),
    Line("c", model="x"),
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "gpt", LINES, pictures=True)


def export(run: Path, out: Path, *options: str) -> list[Json]:
    assert command(["export", str(run), "--format", "label-studio", "--out", str(out), *options]) == 0
    tasks: list[Json] = json.loads((out / "tasks.json").read_text("utf-8"))
    return tasks


def choose(control: str, choice: str) -> Json:
    return {"from_name": control, "to_name": "edited", "type": "choices", "value": {"choices": [choice]}}


def annotate(task: Json, *results: Json, **more: Any) -> Json:
    annotation = {"completed_by": 1, "was_cancelled": False, "result": list(results), **more}
    return {**task, "id": 7, "annotations": [*task.get("annotations", ()), annotation]}


def write(path: Path, tasks: object) -> Path:
    path.write_text(json.dumps(tasks), "utf-8")
    return path


def test_verdicts_are_predictions_and_unjudged_criteria_have_none(run: Path, tmp_path: Path) -> None:
    first, second, third = export(run, tmp_path / "out")
    (prediction,) = first["predictions"]
    assert prediction["model_version"] == "openai:gpt-5.1/tools"
    assert prediction["score"] == 0.7
    assert prediction["result"][:2] == [choose(IF, "Wrong Action"), choose(VC, "Perfect Consistency")]
    assert {key: prediction["result"][2]["value"][key] for key in ("x", "y", "width", "height")} == {
        "x": 10,
        "y": 10,
        "width": 40,
        "height": 40,
    }
    assert second["predictions"][0]["result"] == [choose(VC, "Scene Collapse")]
    assert second["data"]["unjudged"] == [f"{IF}: unreadable_answer"]
    assert third["data"]["model"] == "x"


def test_pictures_are_files_below_the_runs_or_part_of_the_tasks(run: Path, tmp_path: Path) -> None:
    address = export(run, tmp_path / "out")[0]["data"]["source_image"]
    file = run.parent / address.removeprefix("/data/local-files/?d=")
    embedded = export(run, tmp_path / "with", "--images")[0]["data"]["source_image"]
    assert base64.b64decode(embedded.removeprefix("data:image/png;base64,")) == file.read_bytes()


def test_an_answered_task_comes_back_as_the_labels_of_its_annotators(run: Path, tmp_path: Path) -> None:
    first, second, third = export(run, tmp_path / "out")
    first = annotate(first, choose(IF, "Wrong Action"), choose(VC, "Single Anomaly"), parent_prediction=3)
    first = annotate(first, choose(IF, "Flawless Execution"), completed_by={"id": 2, "email": "bo@x.org"})
    second = annotate(second, choose(IF, "Flawless Execution"), was_cancelled=True)
    third = annotate(third, choose(IF, "Over Modification"), ground_truth=True)
    own = annotate({"data": {"picture": "b.png", "model": "y"}}, choose("q", "OK"))
    file = write(tmp_path / "export.json", [first, second, third])
    human = load_human_labels(read_run_table(run), file)
    assert human.given == {("a", IF): {"1": 2.0, "bo@x.org": 4.0}, ("a", VC): {"1": 3.0}}
    assert human.adjudicated == {("c", IF): 3.0}
    other = LabelFile(write(tmp_path / "own.json", [own]), {"id": "picture", IF: "q"}, {"OK": "4"})
    assert load_human_labels(read_run_table(run), other).given == {("b", IF): {"1": 4.0}}
    assert "1 annotation of export.json began with a prediction, so the annotator had seen the judge's answer." in (
        human.notes
    )


def test_the_short_export_is_read_by_columns(run: Path, tmp_path: Path) -> None:
    rows = [{"id": 11, "edit_id": "a", "annotator": 4, IF: "Wrong Action"}, {"id": 12, "uid": "b.png", "annotator": 4}]
    human = load_human_labels(read_run_table(run), write(tmp_path / "min.json", rows[:1]))
    assert human.given == {("a", IF): {"4": 2.0}}
    own = LabelFile(write(tmp_path / "min.json", [{**rows[1], "q": "ok"}]), {"id": "uid", IF: "q"}, {"OK": "4"})
    assert load_human_labels(read_run_table(run), own).given == {("b", IF): {"4": 4.0}}


def test_a_configuration_has_a_control_for_every_kind_of_answer_and_its_answers_are_read(tmp_path: Path) -> None:
    plain = get_protocol("dlebench").rubric(IF)
    checks = ChecksAnswer(checks=(Check(key="hand", question="Five fingers?"), Check(key="light", question="Lit?")))
    answers = {
        "short": NumberAnswer(low=1, high=5),
        "long": NumberAnswer(low=0, high=100),
        "list": checks,
        "polar": YesNoAnswer(),
    }
    rubrics = [plain.model_copy(update={"criterion": name, "answer": answer}) for name, answer in answers.items()]
    root = ElementTree.fromstring(build_config([build_form(rubric, "own") for rubric in rubrics], boxes=True))
    controls: Mapping[str, list[str]] = {
        element.attrib["name"]: [part.attrib["value"] for part in element]
        for element in root
        if "toName" in element.attrib
    }
    assert controls == {
        "target_boxes": ["target"],
        "short": ["1", "2", "3", "4", "5"],
        "long": [],
        "list.hand": ["0", "1"],
        "list.light": ["0", "1"],
        "polar": ["no", "yes"],
    }
    number = {"from_name": "long", "to_name": "edited", "type": "number", "value": {"number": 40}}
    results = (
        choose("short", "5"),
        number,
        choose("list.hand", "1"),
        choose("list.light", "0"),
        choose("polar", "yes"),
    )
    file = LabelFile(write(tmp_path / "e.json", [annotate({"data": {"edit_id": "e"}}, *results)]))
    human = merge_labels([EditName("e", "e", None)], answers, [], [file])
    assert {criterion: scores["1"] for (_, criterion), scores in human.given.items()} == {
        "short": 5,
        "long": 40,
        "list": 0.5,
        "polar": 1,
    }


def test_drawn_boxes_go_into_a_manifest(run: Path, tmp_path: Path) -> None:
    task = export(run, tmp_path / "out")[0]
    box = {**task["predictions"][0]["result"][2], "value": {"x": 50, "y": 25, "width": 10, "height": 50}}
    labels = write(tmp_path / "export.json", [annotate(task, box)])
    pictures = tmp_path / "runs" / "pictures"
    manifest = write(
        pictures / "m.jsonl", {"id": "a", "source": "own-a.png", "edited": "a-edited.png", "instruction": "Do"}
    )
    out = pictures / "boxed.jsonl"
    assert command(["manifest", "boxes", str(manifest), "--labels", str(labels), "--out", str(out)]) == 0
    assert json.loads(out.read_text("utf-8"))["target_boxes"] == [[60, 20, 72, 60]]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "e.json is not JSON"),
        ('{"a": 1}', "must be a JSON list of objects"),
        ('[{"data": {"edit_id": "a"}, "annotations": [{"result": [{"type": "choices"}]}]}]', "task 1: this annotation"),
        ('[{"data": {"edit_id": "a"}, "annotations": true}]', "task 1: annotations must be a list"),
    ],
)
def test_another_json_file_is_refused_in_a_sentence(run: Path, tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "e.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        load_human_labels(read_run_table(run), tmp_path / "e.json")


def test_a_folder_in_use_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(run, tmp_path / "out")
    assert command(["export", str(run), "--format", "label-studio", "--out", str(tmp_path / "out")]) == 2
    assert "is not an empty folder" in capsys.readouterr().err
    assert command(["export", str(run), "--format", "label-studio"]) == 2
    assert "--format label-studio needs --out" in capsys.readouterr().err


def test_a_run_without_pictures_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (task, *_) = export(make_run(tmp_path / "bare", LINES), tmp_path / "out")
    assert task["data"]["source_image"] == ""
    told = capsys.readouterr().err
    assert "3 tasks lack a picture: the run does not have it" in told
    assert "damaged" not in told


def test_edits_with_other_rubrics_are_a_set_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "runs/gpt", [Line("a"), Line("b", consistent="")], pictures=True)
    out = tmp_path / "out"
    assert [task["data"]["edit_id"] for task in export(run, out)] == ["a"]
    assert [task["data"]["edit_id"] for task in json.loads((out / "tasks-2.json").read_text())] == ["b"]
    assert VC not in (out / "config-2.xml").read_text()
    assert "2 tasks in 2 sets with a configuration each" in capsys.readouterr().err
