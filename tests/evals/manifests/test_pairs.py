"""Files of preference pairs: tasks and metrics by fields and paths, what is refused, edits that pairs share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.manifests.pairs import Pair, load_pairs, merge_pair_edits
from editloupe.judge import Judge
from editloupe.rubrics.editreward import EDITREWARD_COMPASS
from editloupe.types import UserError


def write(folder: Path, *items: dict[str, Any], name: str = "pairs.jsonl") -> Path:
    """Write pairs; what an item does not say is filled in."""
    usual = {"source_image": "s.png", "prompt": "Do it", "winner": "w.png", "loser": "l.png", "dimension": "IA"}
    whole = [{**usual, **item} for item in items]
    path = folder / name
    path.write_text(json.dumps(whole) if path.suffix == ".json" else "\n".join(map(json.dumps, whole)), "utf-8")
    return path


def only(folder: Path, **item: Any) -> Pair:
    (pair,) = load_pairs(write(folder, item))
    return pair


@pytest.mark.parametrize(
    ("item", "task"),
    [
        ({"task": "chemical"}, "Chemical"),
        ({"source_image": "data/Part3/Chemical/images/1.png"}, "Chemical"),
        ({"winner": "Part4/Number_Link/out/1.png"}, "Number_Link"),
        ({"edit_type": "Virtual_Try_On"}, "Virtual_Try_On"),
        ({"edit_type": "Complex_paint", "sub_type": "Complex_paint_cn"}, "Complex_Paint_cn"),
        ({"edit_type": "Complex_paint"}, "Complex_Paint_en"),
        ({"task": "Move", "source_image": "Part3/Chemical/1.png"}, "Move"),
    ],
)
def test_a_task_is_read_from_the_fields_of_an_item_or_from_its_path(
    tmp_path: Path, item: dict[str, Any], task: str
) -> None:
    assert only(tmp_path, **item).task == task


@pytest.mark.parametrize(
    ("item", "asked"),
    [
        ({"source_image": "Part3/Chemical/1.png"}, ["instruction_following", "world_awareness"]),
        ({"source_image": "Part1/ADD/1.png"}, ["instruction_following"]),
        ({"source_image": "Part1/ADD/1.png", "WA": True}, ["instruction_following", "world_awareness"]),
        ({"WA": False}, ["instruction_following"]),
        ({"dimension": "VC", "task": "Swap"}, ["unedited_region_consistency", "identity_consistency"]),
        ({"dimension": "VC", "URC": True, "IC": False}, ["unedited_region_consistency"]),
        ({"dimension": "VQ"}, ["visual_quality"]),
    ],
)
def test_metrics_follow_from_the_booleans_else_from_the_task(
    tmp_path: Path, item: dict[str, Any], asked: list[str]
) -> None:
    pair = only(tmp_path, **item)
    found = [rubric.criterion for rubric in EDITREWARD_COMPASS.rubrics_for(pair.candidate("loser"))]
    assert found == asked


@pytest.mark.parametrize(
    ("item", "family"),
    [
        ({"source_image": "Part5/Virtual_Try_On/1.png", "reference_image_path": ["r.png"]}, "multi_image"),
        ({"source_image": "Part5/Virtual_Try_On/1.png"}, "other"),  # nothing but source and instruction can be judged
        ({"source_image": "Part6/Complex_Instruction/1.png"}, "complex_instruction"),
        ({"source_image": "Part6/Complex_Paint_en/EN/1.png"}, "complex_paint"),
        ({"source_image": "Part1/ADD/1.png"}, "other"),
        ({"WA": False, "reference_image_path": ["r.png"]}, "multi_image"),
    ],
)
def test_the_family_of_wordings_follows_from_the_task(tmp_path: Path, item: dict[str, Any], family: str) -> None:
    edit = only(tmp_path, **item).candidate("winner")
    (rubric,) = EDITREWARD_COMPASS.rubrics_for(edit, ["instruction_following"])
    assert rubric.variant == family


def test_a_source_with_marks_is_shown_beside_the_source_without_them(tmp_path: Path) -> None:
    pair = only(tmp_path, source_image="Part6/Complex_Paint_en/EN/7.png")
    marked = tmp_path / "Part6/Complex_Paint_en/EN/7.png"
    edit = pair.candidate("winner")
    assert edit.source == tmp_path / "Part6/Complex_Paint_en/image/7.png"
    assert edit.more_images["annotated"] == (marked,)
    assert pair.ordered(True).source == marked  # asked both at once, the marks are part of the question
    other = only(tmp_path, source_image="EN/Part1/ADD/7.png")
    assert other.candidate("winner").source == tmp_path / "EN/Part1/ADD/7.png"


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({}, 'it is unknown which metrics of IA apply: add its "task", or "WA" as true or false'),
        ({"dimension": "VC"}, '"URC" and "IC" as true or false'),
        ({"dimension": "VC", "URC": True}, '"IC" as true or false'),
        ({"task": "Chemistry"}, 'Edit-Compass has no task "Chemistry"'),
        ({"WA": "yes"}, '"WA" is "yes", not true or false'),
        ({"source_image": "Part3/ADD/1.png"}, "it is unknown which metrics"),
    ],
)
def test_an_item_whose_metrics_cannot_be_known_is_refused_with_its_line(
    tmp_path: Path, item: dict[str, Any], words: str
) -> None:
    for name, place in (("pairs.jsonl", "pairs.jsonl, line 2: "), ("pairs.json", "pairs.json, pair 2: ")):
        with pytest.raises(UserError) as told:
            list(load_pairs(write(tmp_path, {"task": "ADD"}, item, name=name)))
        assert str(told.value).startswith(place)
        assert words in str(told.value)


@pytest.mark.parametrize("name", ["source_image", "winner", "loser", "reference_image_path"])
def test_a_picture_outside_the_files_folder_is_refused_unless_outside_is_allowed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    for path in ("../other.png", "/etc/passwd", "link/other.png"):
        file = write(folder, {"task": "ADD", name: path})
        with pytest.raises(UserError) as told:
            list(load_pairs(file))
        assert str(told.value) == (
            f'pairs.jsonl, line 1: "{name}" leads outside the file\'s folder ({path}); --allow-outside permits that'
        )
        assert len(list(load_pairs(file, allow_outside=True))) == 1


def test_what_decides_metrics_does_not_matter_to_both_at_once_numbers_and_other_protocols(tmp_path: Path) -> None:
    file = write(tmp_path, {})
    assert len(list(load_pairs(file, way="pairwise"))) == 1
    assert len(list(load_pairs(file, way=None))) == 1
    assert len(list(load_pairs(file, "dlebench"))) == 1


def test_a_folders_task_is_not_told_to_the_judge_of_a_protocol_without_such_tasks(tmp_path: Path) -> None:
    file = write(tmp_path, {"source_image": "Part3/Chemical/1.png"})
    assert [next(load_pairs(file, name)).task for name in ("dlebench", "edit-compass")] == [None, "Chemical"]


def test_an_id_that_stands_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'line 3: the id "x" is already used at pairs\.jsonl, line 1'):
        list(load_pairs(write(tmp_path, {"id": "x", "task": "ADD"}, {"task": "ADD"}, {"id": "x", "task": "ADD"})))


def test_an_edit_that_several_pairs_share_is_one_edit_that_knows_its_pairs(tmp_path: Path) -> None:
    first = {"id": "a", "task": "ADD", "winner": "1.png", "loser": "2.png"}
    second = {"id": "b", "task": "ADD", "winner": "2.png", "loser": "3.png"}
    other = {"id": "c", "task": "ADD", "winner": "1.png", "loser": "3.png", "dimension": "VQ"}
    pairs = list(load_pairs(write(tmp_path, first, second, other)))
    edits = [edit for pair in pairs for edit in pair.edits("pointwise")]
    by_dimension = merge_pair_edits(edits, True)
    found = [
        (e.edited.name, e.extra["dimension"], [(p["id"], p["role"]) for p in e.extra["pairs"]]) for e in by_dimension
    ]
    assert found == [
        ("1.png", "IA", [("a", "winner")]),
        ("2.png", "IA", [("a", "loser"), ("b", "winner")]),
        ("3.png", "IA", [("b", "loser")]),
        ("1.png", "VQ", [("c", "winner")]),
        ("3.png", "VQ", [("c", "loser")]),
    ]
    assert [edit.edited.name for edit in merge_pair_edits(edits, False)] == ["1.png", "2.png", "3.png"]
    assert len({edit.id for edit in by_dimension}) == 5


def test_a_pair_of_which_nothing_is_asked_has_no_criteria(tmp_path: Path) -> None:
    edit = only(tmp_path, dimension="VC", task="Style_Transfer", URC=False).candidate("winner")
    with Judge("rules", protocol="editreward-compass") as judge:
        assert judge.criteria_for(edit) == ()
