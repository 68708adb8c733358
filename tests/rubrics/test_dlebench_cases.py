"""How an edit becomes cases: the published expansion, mapped boxes, white masks, one case a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.case_pictures import compute_crop, compute_expansion
from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Box, Edit, Mode
from tests.drawn_pictures import save, textured


@pytest.mark.parametrize(
    ("side", "ratio"), [(8, 6.0), (32, 6.0), (88, 4.575), (144, 3.15), (200, 1.725), (256, 0.3), (900, 0.3)]
)
def test_the_expansion_follows_equation_1(side: int, ratio: float) -> None:
    assert compute_expansion(side) == pytest.approx(ratio)


def test_a_crop_grows_by_its_expansion_and_stays_inside_the_picture() -> None:
    assert list(compute_crop(Box.model_validate([500, 500, 532, 564]), 2000, 2000)) == [404, 308, 628, 756]
    assert list(compute_crop(Box.model_validate([0, 0, 32, 32]), 2000, 2000)) == [0, 0, 128, 128]
    assert list(compute_crop(Box.model_validate([0, 0, 300, 300]), 310, 320)) == [0, 0, 310, 320]


@pytest.fixture
def album() -> Album:
    return Album()


def make(tmp_path: Path, **fields: Any) -> Edit:
    source = save(textured(200, 100), tmp_path / "source.png")
    edited = save(textured(400, 200, seed=1), tmp_path / "edited.png")
    reference = save(textured(200, 100, seed=2), tmp_path / "reference.png")
    boxes = fields.pop("target_boxes", ((50, 40, 60, 50), (120, 10, 150, 30)))
    return Edit(
        source=source, edited=edited, reference=reference, instruction="Change it", target_boxes=boxes, **fields
    )


def cases(edit: Edit, criterion: str, mode: Mode, album: Album) -> list[Case]:
    return DLEBENCH.make_cases(edit, DLEBENCH.rubric(criterion), mode, album)


@pytest.mark.parametrize("mode", ["tools", "plain"])
@pytest.mark.parametrize("criterion", DLEBENCH.criteria)
def test_tools_and_plain_mode_see_the_whole_pictures_and_no_boxes(
    tmp_path: Path, album: Album, mode: Mode, criterion: str
) -> None:
    (case,) = cases(make(tmp_path), criterion, mode, album)
    assert list(case.pictures) == ["Source Image", "Edited Image"]
    assert album[case.pictures["Edited Image"]].size == (400, 200)
    assert not case.target_boxes
    assert case.uses_tools == (mode == "tools")


def test_oracle_instruction_following_sees_one_crop_a_target_without_tools(tmp_path: Path, album: Album) -> None:
    one, two = cases(make(tmp_path), "instruction_following", "oracle", album)
    assert list(one.pictures) == ["Source Image", "Edited Image", "Reference Image"]
    assert (one.target, two.target) == (0, 1)
    assert not one.uses_tools
    assert album[one.pictures["Source Image"]].size == (70, 70)
    assert album[one.pictures["Edited Image"]].size == (140, 140)
    assert list(one.target_boxes["Source Image"][0]) == [30, 30, 40, 40]
    assert list(one.target_boxes["Edited Image"][0]) == [60, 60, 80, 80]
    assert (album[one.pictures["Source Image"]].pixels == textured(200, 100)[10:80, 20:90]).all()


def test_a_count_is_judged_on_all_instances_together(tmp_path: Path, album: Album) -> None:
    (case,) = cases(make(tmp_path, instruction_type="Change Count"), "instruction_following", "oracle", album)
    assert case.target is None
    assert len(case.target_boxes["Source Image"]) == 2


def test_oracle_visual_consistency_paints_every_target_white_in_all_three_pictures(
    tmp_path: Path, album: Album
) -> None:
    (case,) = cases(make(tmp_path), "visual_consistency", "oracle", album)
    assert case.uses_tools
    edited = album[case.pictures["Edited Image"]].pixels
    assert (edited[80:100, 100:120] == 255).all()
    assert (edited[20:60, 240:300] == 255).all()
    white = (edited == 255).all(axis=2).sum()
    assert white == 20 * 20 + 40 * 60
    source = album[case.pictures["Source Image"]].pixels
    assert (source[40:50, 50:60] == 255).all()
    assert np.array_equal(source[:10], textured(200, 100)[:10])


@pytest.mark.parametrize("missing", ["target_boxes", "reference"])
def test_oracle_without_boxes_or_reference_says_what_is_missing(tmp_path: Path, album: Album, missing: str) -> None:
    edit = make(tmp_path).model_copy(update={missing: () if missing == "target_boxes" else None})
    words = "target boxes" if missing == "target_boxes" else "a reference picture"
    for criterion in DLEBENCH.criteria:
        with pytest.raises(MissingInput, match=words):
            cases(edit, criterion, "oracle", album)


@pytest.mark.parametrize("box", [(500, 10, 600, 20), (10, 10, 210, 50), (-50, 0, 20, 20)])
def test_a_box_outside_the_picture_is_told(tmp_path: Path, album: Album, box: tuple[int, ...]) -> None:
    with pytest.raises(MissingInput, match="outside the source picture"):
        cases(make(tmp_path, target_boxes=(box,)), "instruction_following", "tools", album)


def test_a_box_that_reaches_over_the_border_by_rounding_is_clamped(tmp_path: Path, album: Album) -> None:
    (case,) = cases(make(tmp_path, target_boxes=((150, 50, 201, 101),)), "instruction_following", "oracle", album)
    assert case.target_boxes["Source Image"][0].x2 <= album[case.pictures["Source Image"]].size[0]
