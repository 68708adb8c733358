from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from skimage import data

from editloupe.cli.main import run
from editloupe.pictures.decode import open_picture
from editloupe.pictures.encode import encode


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    photo = np.ascontiguousarray(data.astronaut())
    edited = photo.copy()
    edited[40:80, 380:430] = (30, 120, 40)
    paths = tmp_path / "before.png", tmp_path / "after.png"
    for path, pixels in zip(paths, (photo, edited), strict=True):
        path.write_bytes(encode(pixels))
    return str(paths[0]), str(paths[1])


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["tool", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.long
def test_differences_are_printed_as_json_and_their_pictures_written(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, "localize_differences", *pair, "--out", str(tmp_path / "looks"))
    [picture] = printed["pictures"]

    assert printed["tool"] == "localize_differences"
    assert len(printed["data"]["regions"]) == 1
    assert open_picture(Path(picture["file"])).size == (picture["width"], picture["height"])


@pytest.mark.long
def test_zoom_takes_a_box_and_two_pictures_mean_both(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    one = report(capsys, "zoom_in_image", pair[0], "--box", "10,10,110,110", "--enhancer", "none")
    two = report(capsys, "zoom_in_image", *pair, "--box", "10,10,110,110", "--enhancer", "none")
    second = report(
        capsys,
        "zoom_in_image",
        *pair,
        "--box",
        "10,10,110,110",
        "--enhancer",
        "none",
        "--param",
        "target_image=Edited Image",
    )

    assert one["pictures"][0]["width"] == 100
    assert two["parameters"]["target_image"] == "both"
    assert two["pictures"][0]["width"] > 200
    assert second["data"]["pictures"] == ["Edited Image"]


@pytest.mark.long
def test_without_json_it_is_readable(pair: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tool", "localize_differences", *pair]) == 0

    assert "differs, in 1 place" in " ".join(capsys.readouterr().out.split())


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["look_harder", "{a}"], 'no tool called "look_harder"'),
        (["localize_differences", "{a}"], "compares 2 pictures; 1 given"),
        (["localize_differences", "{a}", "{b}", "{a}", "{b}"], "up to three pictures"),
        (["zoom_in_image", "{a}"], 'needs "bbox_2d"'),
        (["zoom_in_image", "{a}", "--box", "1,2,x,4"], "is not a box"),
        (["zoom_in_image", "{a}", "--box", "900,900,950,950"], "outside the picture"),
        (["zoom_in_image", "{a}", "--box", "1,1,9,9", "--param", "colour"], "key=value"),
        (["zoom_in_image", "missing.png", "--box", "1,1,9,9"], "no picture at"),
        (["zoom_in_image", "{a}", "--box", "1,1,9,9", "--enhancer", "magic"], "is not a value of enhancer"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], says: str, pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["tool", *(argument.format(a=pair[0], b=pair[1]) for argument in arguments)])
    told = capsys.readouterr()

    assert code == 2
    assert says in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
