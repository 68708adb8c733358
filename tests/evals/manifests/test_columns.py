"""Columns under other names are read by `--columns`, and a benchmark's published folder is read as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.columns import parse_columns
from editloupe.evals.manifests.layouts import load_manifest, load_outputs
from editloupe.types import Box, UserError
from tests.drawn_pictures import save, textured


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def published(root: Path, **more: Any) -> Path:
    """Write DLEBench's folder with two samples that share a source picture, and outputs of one model."""
    folder = root / "DLEBench"
    for name in ("Source_Images/0.png", "Reference_Images/0_a.png", "Reference_Images/0_b.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save(textured(64, 48), folder / name)
    (root / "outputs").mkdir()
    rows = []
    for name in ("0_a", "0_b"):
        save(textured(64, 48, 1), root / "outputs" / f"{name}.png")
        rows.append(
            {
                "image": "0.png",
                "reference_image": f"{name}.png",
                "edit_operation": "Removed the cup",
                "prompt_clean": "a cup",
                "prompt_adv": "no cup",
                **more,
            }
        )
    write_rows(folder / "data.jsonl", rows)
    return folder


def test_the_published_folder_is_read_as_it_is(tmp_path: Path) -> None:
    folder = published(tmp_path, edit_type="Removal Object", bbox=[1, 2, 30, 40])
    outputs = load_outputs(folder, [f"m={tmp_path / 'outputs'}"], "dlebench")
    edits = list(outputs.edits())
    assert [edit.id for edit in edits] == ["0_a", "0_b"]
    edit = edits[0]
    assert edit.source == folder / "Source_Images/0.png"
    assert edit.reference == folder / "Reference_Images/0_a.png"
    assert edit.edited == tmp_path / "outputs/0_a.png"
    assert (edit.instruction, edit.instruction_type) == ("Removed the cup", "Removal Object")
    assert edit.target_boxes == (Box(x1=1, y1=2, x2=30, y2=40),)
    assert (edit.extra["prompt_clean"], edit.extra["prompt_adv"]) == ("a cup", "no cup")
    (note,) = outputs.notes
    assert 'boxes are read from the column "bbox", as x1, y1, x2, y2 in pixels' in note


@pytest.mark.parametrize(
    ("boxes", "kind"),
    [("targetBoxes", "instructionType"), ("BBox", "Type"), ("object_bbox", "edit_task"), ("target_boxes", "category")],
)
def test_type_and_boxes_are_found_under_plausible_names(boxes: str, kind: str, tmp_path: Path) -> None:
    folder = published(tmp_path, **{boxes: "[1, 2, 30, 40]", kind: "change_color"})
    outputs = load_outputs(folder, [f"m={tmp_path / 'outputs'}"], "dlebench")
    assert {(edit.target_boxes, edit.instruction_type) for edit in outputs.edits()} == {
        ((Box(x1=1, y1=2, x2=30, y2=40),), "Change Color")
    }
    assert len(outputs.notes) == (boxes.casefold().replace("_", "") != "targetboxes")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            {"x": 1, "y": 2, "w": 30, "h": 40},
            r'"bbox" must be a box \[x1, y1, x2, y2\] in pixels, or a list of such boxes',
        ),
        ("1 2 30 40", r'"bbox" must be a box \[x1, y1, x2, y2\] in pixels'),
        ([0.1, 0.2, 0.5, 0.75], r'"bbox" has numbers from 0 to 1; a box is \[x1, y1, x2, y2\] in pixels'),
        ([30, 20, 10, 15], r"box \[30, 20, 10, 15\] has no area: x2 must be greater than x1"),
    ],
)
def test_boxes_in_another_form_are_refused_and_not_converted(value: object, problem: str, tmp_path: Path) -> None:
    folder = published(tmp_path, bbox=value)
    with pytest.raises(UserError, match=problem):
        list(load_outputs(folder, [f"m={tmp_path / 'outputs'}"], "dlebench").edits())


def test_fields_that_the_file_lacks_are_reported_with_its_columns(tmp_path: Path) -> None:
    folder = published(tmp_path, where=[[1, 2, 30, 40]])
    notes = load_outputs(folder, [f"m={tmp_path / 'outputs'}"], "dlebench").notes
    assert len(notes) == 2
    assert "image, reference_image, edit_operation, prompt_clean, prompt_adv, where" in notes[0]
    assert notes[0].endswith("name it with --columns target_boxes=NAME")
    assert notes[1].endswith("name it with --columns instruction_type=NAME")
    # A column that looks like boxes is used only if it is named.
    columns = {"target_boxes": "where"}
    edits = load_outputs(folder, [f"m={tmp_path / 'outputs'}"], "dlebench", columns=columns).edits()
    assert [edit.target_boxes for edit in edits] == [(Box(x1=1, y1=2, x2=30, y2=40),)] * 2


def test_the_published_folder_alone_says_how_outputs_are_named(tmp_path: Path) -> None:
    folder = published(tmp_path)
    with pytest.raises(UserError, match=r'line 1: "edited" is missing; .*--results MODEL=FOLDER names the outputs'):
        list(load_manifest(folder, layout="dlebench"))


def test_a_folder_without_the_file_of_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no data\.jsonl, in which DLEBench lists its samples"):
        list(load_manifest(tmp_path, layout="dlebench"))


def test_columns_of_a_manifest_may_have_other_names(tmp_path: Path) -> None:
    row = {
        "name": "e1",
        "before": "a.png",
        "after": "b.png",
        "what": "Make it red",
        "where": [[1, 2, 3, 4]],
        "kind": "color",
    }
    columns = parse_columns(["id=name,source=before,edited=after,instruction=what", "boxes=where,type=kind"])
    (edit,) = load_manifest(write_rows(tmp_path / "m.jsonl", [row]), columns=columns, protocol="dlebench")
    assert (edit.id, edit.instruction, edit.instruction_type) == ("e1", "Make it red", "Change Color")
    assert edit.source == tmp_path / "a.png"
    assert edit.target_boxes == (Box(x1=1, y1=2, x2=3, y2=4),)
    assert edit.extra == {}


def test_columns_of_a_csv_file_may_hold_json(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text('before,after,what,where\na.png,b.png,Make it red,"[[1, 2, 3, 4]]"\n', encoding="utf-8")
    columns = parse_columns(["source=before,edited=after,instruction=what,target_boxes=where"])
    (edit,) = load_manifest(path, columns=columns)
    assert edit.target_boxes == (Box(x1=1, y1=2, x2=3, y2=4),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("source", 'takes FIELD=COLUMN, such as source=input_image, not "source"'),
        ("souce=a", '"souce" is not a field of an edit; did you mean source?'),
        ("source=a,source=b", 'names "source" twice'),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UserError, match="--columns") as refused:
        parse_columns([text])
    assert problem in str(refused.value)


def test_a_column_that_is_not_in_the_file_is_refused_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "m.jsonl", [{"before": "a.png", "after": "b.png"}])
    assert run(["batch", str(path), "--judge", "rules", "--out", str(tmp_path / "r"), "--columns", "source=befor"]) == 2
    assert 'm.jsonl has no column "befor"; its columns are before, after' in capsys.readouterr().err


def test_a_row_without_a_field_says_what_it_has(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "m.jsonl", [{"source": "a.png", "edited": "b.png", "prompt": "Make it red"}])
    sentence = "this row has source, edited, prompt; if one of them holds it, name that with --columns instruction=NAME"
    with pytest.raises(UserError, match=f'line 1: "instruction" is missing; {sentence}'):
        list(load_manifest(path))
