"""Manifests whose edited pictures come from the folders of editing models."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.manifests import load_outputs
from editloupe.types import UserError
from tests.evals.manifests.benchmarks import touch


def manifest(folder: Path, *rows: dict[str, Any]) -> Path:
    """Write a manifest of these lines, each with a source and an instruction unless it says otherwise."""
    folder.mkdir(exist_ok=True)
    path = folder / "m.jsonl"
    lines = [{"source": f"src/{n}.png", "instruction": f"Do {n}", **row} for n, row in enumerate(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


def test_outputs_are_found_by_id_whatever_their_format_and_lines_need_no_edited_picture(
    tmp_path: Path, out: Path
) -> None:
    path = manifest(tmp_path, {"id": "x"}, {"id": 7, "scene": "street"}, {"id": "deep/y"})
    touch(*(out / "a" / name for name in ("x.png", "7.jpeg", "deep/y.webp")), out / "b/x.jpg", out / "b/7.png")
    found = load_outputs(path, [f"A={out / 'a'}", f"B={out / 'b'}"])
    edits = [(edit.model, edit.id, edit.edited.relative_to(out).as_posix(), edit.instruction) for edit in found.edits()]
    assert edits == [
        ("A", "x", "a/x.png", "Do 0"),
        ("B", "x", "b/x.jpg", "Do 0"),
        ("A", "7", "a/7.jpeg", "Do 1"),
        ("B", "7", "b/7.png", "Do 1"),
        ("A", "deep/y", "a/deep/y.webp", "Do 2"),
        ("B", "deep/y", "b/deep/y.png", "Do 2"),
    ]
    edits_again = list(found.edits())
    assert [edit.extra.get("output") for edit in edits_again] == [None, None, None, None, None, "missing"]
    assert edits_again[2].extra == {"scene": "street"}
    assert found.notes == (
        f"model B: 1 of 3 outputs missing, such as {out / 'b/deep/y.png'}: they stay unjudged and are not counted",
    )


@pytest.mark.parametrize(("by", "name"), [("edited", "e{}"), ("source", "{}")])
def test_outputs_may_be_called_like_the_manifests_pictures(tmp_path: Path, out: Path, by: str, name: str) -> None:
    path = manifest(tmp_path, *({"id": f"id{n}", "edited": f"old/e{n}.jpg"} for n in range(3)))
    touch(*(out / f"{name.format(n)}.png" for n in range(3)))
    found = load_outputs(path, {"A": out})
    assert [edit.edited for edit in found.edits()] == [out / f"{name.format(n)}.png" for n in range(3)]
    assert [edit.id for edit in found.edits()] == ["id0", "id1", "id2"]
    assert found.notes == (f"model A: outputs are found by the names of the manifest's {by} pictures",)


def test_the_way_of_naming_under_which_most_are_there_is_taken_for_the_whole_folder(tmp_path: Path, out: Path) -> None:
    path = manifest(tmp_path, {"id": "x", "source": "cat.png"}, {"id": "cat", "source": "dog.png"}, {"id": "z"})
    touch(out / "x.png", out / "z.png", out / "dog.png")
    found = {edit.id: edit for edit in load_outputs(path, {"A": out}).edits()}
    assert found["cat"].extra == {"output": "missing"}, (
        "dog.png is called like its source, but the others like their ids"
    )


def test_two_lines_that_would_share_an_output_are_refused(tmp_path: Path, out: Path) -> None:
    path = manifest(tmp_path, {"id": "x", "source": "a/cat.png"}, {"id": "y"}, {"id": "z", "source": "b/cat.png"})
    touch(out / "cat.png")
    with pytest.raises(
        UserError, match=r"m.jsonl, line 3: .* called cat like the source picture, which m.jsonl, line 1 has"
    ):
        load_outputs(path, {"A": out})


def test_a_line_without_an_id_goes_by_its_source_and_an_id_stands_once(tmp_path: Path, out: Path) -> None:
    touch(out / "0.png", out / "x.png")
    assert [edit.id for edit in load_outputs(manifest(tmp_path, {}), {"A": out}).edits()] == ["0"]
    twice = manifest(tmp_path, {"id": "x", "model": "A"}, {"id": "x", "model": "B"})
    with pytest.raises(UserError, match=r'line 2: the id "x" is already used at m\.jsonl, line 1; with outputs'):
        load_outputs(twice, {"A": out})


def test_peoples_labels_stay_with_the_model_they_were_given_to(tmp_path: Path, out: Path) -> None:
    human = {"instruction_following": "Wrong Action"}
    path = manifest(tmp_path, {"id": "x", "model": "A", "human": human}, {"id": "y", "human": human})
    touch(*(out / model / f"{name}.png" for model in "AB" for name in "xy"))
    found = load_outputs(path, out)
    labels = {(edit.model, edit.id): dict(edit.human) for edit in found.edits()}
    assert labels == {("A", "x"): human, ("A", "y"): {}, ("B", "x"): {}, ("B", "y"): {}}
    assert found.notes == (
        "model A: human labels on 1 line are left out, because it names another model or none",
        "model B: human labels on 2 lines are left out, because they name another model or none",
    )


def test_a_type_of_which_a_model_has_no_output_is_absent(tmp_path: Path, out: Path) -> None:
    rows = [{"id": f"{kind[:3]}{n}", "instruction_type": kind} for kind in ("color", "Removal") for n in range(2)]
    touch(out / "col0.png")
    found = load_outputs(manifest(tmp_path, *rows), {"A": out}, protocol="dlebench")
    assert [(edit.id, edit.instruction_type) for edit in found.edits()] == [
        ("col0", "Change Color"),
        ("col1", "Change Color"),
    ]
    assert found.notes[0] == "model A: no outputs for Removal Object (2 cases): absent, not counted"


def test_a_folder_of_sources_and_instructions_takes_outputs(tmp_path: Path, out: Path) -> None:
    touch(
        *(tmp_path / "set/sources" / f"{name}.png" for name in "xy"),
        *(out / m / f"{n}.png" for m in "AB" for n in "xy"),
    )
    (tmp_path / "set/instructions.txt").write_text("y\tMake it red\nx\tMake it blue\n")
    edits = [(edit.model, edit.id, edit.instruction) for edit in load_outputs(tmp_path / "set", out).edits()]
    assert edits == [
        ("A", "y", "Make it red"),
        ("B", "y", "Make it red"),
        ("A", "x", "Make it blue"),
        ("B", "x", "Make it blue"),
    ]


def test_dlebenchs_samples_take_the_outputs_of_three_models(tmp_path: Path, out: Path) -> None:
    made = {"q_type": ["color"], "edit_ops": ["alter_color"], "edit_instruction": ["Changed the cup from red to blue."]}
    captions = {
        "prompt_clean": ["A red cup is shown."],
        "prompt_adv": "A blue cup is shown.",
        "modified_object": ["red cup"],
    }
    path = tmp_path / "m.jsonl"
    lines = [
        {"idx": 1, "source_image": "s/1.png", **made, **captions, "bbox": [1, 2, 30, 40]},
        {"idx": 2, "source_image": "s/2.png", "edit_ops": ["remove_object"], "edit_instruction": "Removed the cup."},
        {"idx": 3, "source_image": "s/3.png", "q_type": "Recipe", "edit_instruction": "Cook it."},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    touch(*(out / model / f"{n}.png" for model in ("p", "q", "r") for n in (1, 2, 3)))
    found = load_outputs(path, out, "dlebench")
    edits = {(edit.model, edit.id): edit for edit in found.edits()}
    assert set(edits) == {(model, n) for model in ("p", "q", "r") for n in "123"}
    for (model, number), edit in edits.items():
        assert edit.edited == out / model / f"{number}.png"
        assert edit.source == tmp_path / f"s/{number}.png"
        assert edit.instruction_type == {"1": "Change Color", "2": "Removal Object", "3": "Recipe"}[number]
    first = edits["q", "1"]
    assert first.instruction == "Changed the cup from red to blue."
    assert [list(box) for box in first.target_boxes] == [[1, 2, 30, 40]]
    assert first.extra == {
        "q_type": "color",
        "edit_ops": "alter_color",
        "modified_object": "red cup",
        "prompt_clean": "A red cup is shown.",
        "prompt_adv": "A blue cup is shown.",
    }
    boxes, recipe = found.notes
    assert 'boxes are read from the column "bbox"' in boxes
    assert recipe == '"Recipe" is not a type of DLEBench; it is counted as a separate type'


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"edit_ops": ["remove_object", "alter_color"]}, '"edit_ops" names operations of several types'),
        (
            {"edit_instruction": ["Remove it", "Paint it"]},
            '"instruction" must be a single value per edit, not a list of 2',
        ),
        ({"q_type": ["color", "shape"]}, '"q_type" must be a single value per edit'),
    ],
)
def test_a_dlebench_sample_that_says_two_things_is_told_with_its_line(
    tmp_path: Path, out: Path, row: dict[str, Any], sentence: str
) -> None:
    touch(out / "1.png")
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"id": 1, "source": "s.png", "edit_instruction": "x", **row}) + "\n")
    with pytest.raises(UserError) as caught:
        load_outputs(path, {"A": out}, "dlebench")
    assert str(caught.value).startswith(f"m.jsonl, line 1: {sentence}")


@pytest.mark.long
def test_edits_are_streamed_and_none_is_kept(tmp_path: Path, out: Path) -> None:
    path = manifest(tmp_path, *({"id": f"e{n}"} for n in range(200)))
    touch(out / "a/e0.png", out / "b/e0.png")
    found = load_outputs(path, out)
    given = [weakref.ref(edit) for edit in found.edits()]
    assert len(given) == 400
    assert sum(edit() is not None for edit in given) <= 2
