"""Boxes that people drew in the studio become part of a manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return write(
        tmp_path / "edits.jsonl",
        *({"id": "a", "model": m, "source": "s.png", "edited": f"{m}.png", "instruction": "Red"} for m in ("x", "y")),
        {
            "id": "b",
            "source": "t.png",
            "edited": "u.png",
            "instruction": "Red",
            "target_boxes": [[1, 1, 5, 5]],
            "note": 7,
        },
        {"id": "c", "source": "t.png", "edited": "u.png", "instruction": "Blue"},
    )


def boxes_in(path: Path) -> list[Any]:
    return [json.loads(line).get("target_boxes") for line in path.read_text().splitlines()]


def test_drawn_boxes_replace_those_of_all_lines_of_the_sample(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        manifest.with_name("edits.labels.jsonl"),
        {"edit_id": "a", "model": "x", "name": "a@x", "target_boxes": [[0, 0, 9, 9]], "annotator": "Ana"},
        {"edit_id": "a", "model": "x", "name": "a@x", "target_boxes": [[2, 2, 9, 9]], "annotator": "Ana"},
        {"edit_id": "b", "target_boxes": [], "annotator": "Ana"},
        {"edit_id": "c", "target_boxes": [[3, 3, 4, 4]], "annotator": "Ana"},
        {"edit_id": "c", "target_boxes": None, "annotator": "Ana", "undo": True},
        {"edit_id": "c", "criterion": "instruction_following", "label": "Wrong Action", "annotator": "Ana"},
    )
    out = manifest.with_name("new.jsonl")
    assert command(["manifest", "boxes", str(manifest), "--out", str(out)]) == 0
    assert "3 of 4 lines with drawn boxes" in capsys.readouterr().err
    assert boxes_in(out) == [[[2, 2, 9, 9]], [[2, 2, 9, 9]], [], None]
    assert json.loads(out.read_text().splitlines()[2])["note"] == 7


def test_boxes_on_which_people_differ_are_not_taken(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = write(
        manifest.with_name("labels.jsonl"),
        {"edit_id": "b", "target_boxes": [[0, 0, 9, 9]], "annotator": "Ana"},
        {"edit_id": "b", "target_boxes": [[0, 0, 8, 8]], "annotator": "Ben"},
        {"edit_id": "z", "target_boxes": [[0, 0, 8, 8]], "annotator": "Ben"},
    )
    options = ["manifest", "boxes", str(manifest), "--labels", str(labels), "--out"]
    assert command([*options, str(manifest.with_name("both.jsonl"))]) == 0
    said = capsys.readouterr().err
    assert "1 sample (b): keeps its boxes" in said
    assert "1 sample (z): has boxes in a label file and is not in the manifest" in said
    assert boxes_in(manifest.with_name("both.jsonl"))[2] == [[1, 1, 5, 5]]
    assert command([*options, str(manifest.with_name("ben.jsonl")), "--annotator", "Ben"]) == 0
    assert boxes_in(manifest.with_name("ben.jsonl"))[2] == [[0, 0, 8, 8]]


def test_a_manifest_is_not_overwritten_and_bad_boxes_are_refused(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = write(manifest.with_name("l.jsonl"), {"edit_id": "b", "target_boxes": [[5, 5]], "annotator": "Ana"})
    for out, sentence in (
        (manifest, "exists; name a new file"),
        (manifest.parent / "sub" / "new.jsonl", "in the manifest's folder"),
        (manifest.with_name("new.jsonl"), "l.jsonl, line 1: target_boxes must be a list of boxes"),
    ):
        assert command(["manifest", "boxes", str(manifest), "--labels", str(labels), "--out", str(out)]) == 2
        assert sentence in capsys.readouterr().err
