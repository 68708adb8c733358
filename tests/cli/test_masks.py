"""`editloupe masks`: the pixels that an edit changed, for one pair of pictures and for a run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.cli.main import run as command
from editloupe.tools.compare.difference import decode_rle
from tests.evals.sample_runs import Line, make_run


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    pixels = np.full((120, 160, 3), 90, np.uint8)
    first, second = tmp_path / "before.png", tmp_path / "after.png"
    Image.fromarray(pixels).save(first)
    pixels[40:70, 50:100] = (220, 40, 40)
    Image.fromarray(pixels).save(second)
    return first, second


def test_a_pair_has_the_same_mask_in_every_format(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["masks", *map(str, pair)]
    assert command(words) == 0
    coco = json.loads(capsys.readouterr().out)
    assert coco["images"] == [
        {"id": 1, "width": 160, "height": 120, "file_name": "after", "edit_id": "after", "model": None}
        | {"whole_scene": False}
    ]
    (place,) = coco["annotations"]
    mask = decode_rle(place["segmentation"])
    assert mask[45:65, 55:95].all()
    assert place["area"] == mask.sum() <= 52 * 32
    assert place["bbox"] == [49, 39, 52, 32]
    assert command([*words, "--format", "rle"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert np.array_equal(decode_rle(line), mask)
    assert line["share"] == pytest.approx(mask.mean())
    assert command([*words, "--out", str(tmp_path / "m.png")]) == 0, "the suffix says which format is wanted"
    assert np.array_equal(np.asarray(Image.open(tmp_path / "m.png")), mask)


def test_a_run_has_a_mask_per_edit_and_says_which_edits_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", [Line("a"), Line("b/1", model="x")], pictures=True)
    assert command(["masks", str(run), "--format", "png", "--out", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out").glob("*.png"))) == 2
    assert "2 masks in" in capsys.readouterr().err
    shutil.rmtree(run / "pictures")
    assert command(["masks", str(run), "--format", "rle"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "a has no mask: the run does not have its pictures" in told.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["A", "B", "--format", "pgm"], '--format is one of coco, png, rle, not "pgm"'),
        (["A", "B", "--format", "png"], "--format png needs --out"),
        (["A", "none.png"], "none.png"),
        (["A", "B", "A"], "name the folder of a run, or two pictures"),
        (["A"], "name the folder of a run, or two pictures"),
    ],
)
def test_a_mistake_is_one_sentence(
    pair: tuple[Path, Path], words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"A": str(pair[0]), "B": str(pair[1])}
    assert command(["masks", *(places.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
