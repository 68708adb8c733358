"""The bundled demo edits show what their labels say, and nothing else."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from editloupe.demo import demo_manifest
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.pictures.decode import open_picture
from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.model import LabelAnswer
from editloupe.types import Box, Edit

FOLDER = demo_manifest().parent
EDITS = list(load_manifest(demo_manifest()))
MAKER = Path(__file__).parents[1] / "benchmarks" / "make_demo.py"

ANOMALIES: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "spoon-wood": ((258, 133, 311, 176),),
    "name-tag": ((133, 347, 209, 425),),
    "rocket-emblem": ((190, 116, 212, 194), (375, 40, 421, 84)),
}
"""Where each edit changed something besides its target: a heart on the coffee, the round patch, a rod and a moon."""
EXPECTED_ANOMALIES = {"Perfect Consistency": 0, "Single Anomaly": 1, "Multiple Anomalies": 2}

VISIBLE = 15.0
"""A colour distance (Lab, after a slight blur) that a person sees; recompression alone stays below it."""

each_edit = pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.id)


def _lab(path: Path, size: tuple[int, int]) -> npt.NDArray[np.float32]:
    pixels = cv2.resize(open_picture(path).pixels, size, interpolation=cv2.INTER_LINEAR).astype(np.float32) / 255
    return np.asarray(cv2.GaussianBlur(cv2.cvtColor(pixels, cv2.COLOR_RGB2LAB), (0, 0), 1.5), np.float32)


def _distance(edit: Edit, first: Path, second: Path) -> npt.NDArray[np.float32]:
    """Colour distance pixel by pixel in the source's size, with the common shift of tone taken out."""
    size = open_picture(edit.source).size
    difference = _lab(second, size) - _lab(first, size)
    return np.asarray(np.linalg.norm(difference - np.median(difference, axis=(0, 1)), axis=2), np.float32)


def _in(distance: npt.NDArray[np.float32], box: Box) -> npt.NDArray[np.float32]:
    return distance[box.y1 : box.y2, box.x1 : box.x2]


def _visible_part(distance: npt.NDArray[np.float32], box: Box) -> float:
    return float((_in(distance, box) > VISIBLE).mean())


def _reference(edit: Edit) -> Path:
    assert edit.reference is not None
    return edit.reference


def test_the_manifest_has_the_fields_of_the_public_format_and_no_others() -> None:
    for line in demo_manifest().read_text(encoding="utf-8").splitlines():
        assert set(json.loads(line)) == {
            "id", "source", "edited", "reference", "instruction", "instruction_type", "target_boxes", "human",
        }  # fmt: skip


def test_the_edits_cover_every_label_of_instruction_following_and_several_types() -> None:
    answer = DLEBENCH.rubric("instruction_following").answer
    assert isinstance(answer, LabelAnswer)
    assert {edit.human["instruction_following"] for edit in EDITS} == {label.name for label in answer.labels}
    assert {edit.human["visual_consistency"] for edit in EDITS} == set(EXPECTED_ANOMALIES)
    assert len({edit.instruction_type for edit in EDITS}) >= 5


@each_edit
def test_labels_and_type_are_names_of_dlebench(edit: Edit) -> None:
    assert edit.instruction_type in DLEBENCH.types
    assert set(edit.human) == set(DLEBENCH.criteria)
    for criterion, label in edit.human.items():
        answer = DLEBENCH.rubric(criterion).answer
        assert isinstance(answer, LabelAnswer)
        assert label in {known.name for known in answer.labels}


@each_edit
def test_pictures_open_and_the_target_is_a_small_part_of_the_source(edit: Edit) -> None:
    source = open_picture(edit.source)
    assert open_picture(_reference(edit)).size == source.size
    for path in (edit.source, edit.edited, _reference(edit)):
        assert max(open_picture(path).size) <= 640
    for box in edit.target_boxes:
        assert box.clamped(*source.size) == box
        assert box.area < 0.06 * source.size[0] * source.size[1]


@each_edit
def test_the_reference_changes_the_target_and_nothing_else(edit: Edit) -> None:
    distance = _distance(edit, edit.source, _reference(edit))
    for box in edit.target_boxes:
        assert _visible_part(distance, box) > 0.05
        _in(distance, box)[:] = 0
    assert distance.max() < VISIBLE


@each_edit
def test_the_edited_picture_has_exactly_the_anomalies_its_label_counts(edit: Edit) -> None:
    anomalies = [Box.model_validate(box) for box in ANOMALIES.get(edit.id, ())]
    assert len(anomalies) == EXPECTED_ANOMALIES[str(edit.human["visual_consistency"])]
    distance = _distance(edit, edit.source, edit.edited)
    for box in anomalies:
        assert _visible_part(distance, box) > 0.05
    for box in (*anomalies, *edit.target_boxes):
        _in(distance, box)[:] = 0
    assert distance.max() < VISIBLE


@each_edit
def test_the_target_came_out_as_the_label_of_instruction_following_says(edit: Edit) -> None:
    (target,) = edit.target_boxes
    changed = _visible_part(_distance(edit, edit.source, edit.edited), target)
    off_reference = _visible_part(_distance(edit, _reference(edit), edit.edited), target)
    match edit.human["instruction_following"]:
        case "Localization Failure":
            assert changed == 0
            assert off_reference > 0.05
        case "Flawless Execution":
            assert changed > 0.05
            assert off_reference == 0
        case _:
            assert changed > 0.05
            assert off_reference > 0.01  # two swapped letters are a small part of a word


def test_one_edited_picture_has_another_size_and_tone_than_its_source() -> None:
    edit = next(edit for edit in EDITS if edit.id == "rocket-rod")
    source, edited = open_picture(edit.source), open_picture(edit.edited)
    assert edited.size != source.size
    shift = np.median(_lab(edit.edited, source.size) - _lab(edit.source, source.size), axis=(0, 1))
    assert np.linalg.norm(shift) > 2


def test_all_pictures_together_stay_within_700_kilobytes_and_each_is_used() -> None:
    files = set((FOLDER / "pictures").iterdir())
    assert sum(file.stat().st_size for file in files) <= 700_000
    assert {file.resolve() for file in files} == {p for e in EDITS for p in (e.source, e.edited, _reference(e))}


def test_every_photograph_and_every_made_picture_has_its_licence_listed() -> None:
    lines = (FOLDER / "LICENSES.md").read_text(encoding="utf-8").splitlines()
    for edit in EDITS:
        (row,) = [line for line in lines if line.startswith(f"| `pictures/{edit.source.name}`")]
        assert "CC0" in row or "public domain" in row
        (row,) = [line for line in lines if line.startswith(f"| `{edit.id}`")]
        assert all(f"`{path.name}`" in row for path in (edit.edited, _reference(edit), edit.source))


@pytest.mark.long
def test_the_maker_gives_the_bundled_pictures_and_manifest_again(tmp_path: Path) -> None:
    runpy.run_path(str(MAKER))["make"](tmp_path)
    assert (tmp_path / "manifest.jsonl").read_text(encoding="utf-8") == demo_manifest().read_text(encoding="utf-8")
    for bundled in (FOLDER / "pictures").iterdir():
        made = open_picture(tmp_path / "pictures" / bundled.name).pixels.astype(np.int16)
        # Other versions of the JPEG and drawing libraries may round differently.
        assert np.abs(made - open_picture(bundled).pixels).mean() < 0.5
