"""What a manifest holds, counted by hand beside it: types, targets, areas, and what cannot be counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.evals.manifests.stats import ManifestStats, manifest_stats
from editloupe.types import UserError

WIDE, TALL = (200, 100), (100, 200)


def write(folder: Path, rows: list[dict[str, Any]], name: str = "edits.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", WIDE).save(folder / "wide.png")
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sample(number: int, *boxes: list[int], **more: Any) -> dict[str, Any]:
    return {"source": "wide.png", "instruction": f"edit {number}", "target_boxes": list(boxes), **more}


def of(tmp_path: Path, *rows: dict[str, Any]) -> ManifestStats:
    return manifest_stats(write(tmp_path, list(rows)))


def test_samples_are_counted_by_type_and_by_targets_without_any_edited_picture(tmp_path: Path) -> None:
    found = of(
        tmp_path,
        sample(1, [0, 0, 10, 10], instruction_type="Change Color"),
        sample(2, [0, 0, 10, 10], [20, 0, 30, 5], instruction_type="Change Color"),
        sample(3, instruction_type="Change OCR"),
        sample(4),
    )
    assert found.types == {"Change Color": 2, "Change OCR": 1, "(no type)": 1}
    assert found.targets == {0: 2, 1: 1, 2: 1}
    assert (found.rows, found.samples, found.measured) == (4, 4, 2)
    assert found.notes == ("2 of 4 samples have no annotated target.",)


def test_pictures_of_a_split_are_found_in_the_folder_that_has_the_splits(tmp_path: Path) -> None:
    write(tmp_path / "set" / "dev", [sample(1, [0, 0, 10, 10], source_file_name="wide.png")], "metadata.jsonl")
    found = manifest_stats(Path(f"{tmp_path / 'set'}:dev"), lambda row: {**row, "source": row["source_file_name"]})
    assert (found.rows, found.measured, found.notes) == (1, 1, ())


def test_areas_are_shares_of_the_picture_all_targets_of_a_sample_together(tmp_path: Path) -> None:
    """The picture has 20 000 pixels: 2, 100 + 50, 300 and 5 000 of them are 0.01, 0.75, 1.5 and 25 percent."""
    found = of(
        tmp_path,
        sample(1, [0, 0, 2, 1]),
        sample(2, [0, 0, 10, 10], [20, 0, 30, 5]),
        sample(3, [0, 0, 30, 10]),
        sample(4, [0, 0, 100, 50]),
    )
    assert [area for area, _ in found.curve] == pytest.approx([0.01, 0.75, 1.5, 25])
    assert [share for _, share in found.curve] == pytest.approx([0.25, 0.5, 0.75, 1])
    assert found.below == {"0.1": 0.25, "1": 0.5, "10": 0.75}
    assert found.area["median"] == pytest.approx((0.75 + 1.5) / 2)
    counts = {(one.above, one.up_to): one.samples for one in found.intervals}
    assert {edge: count for edge, count in counts.items() if count} == {
        (0.0, 0.01): 1,
        (0.5, 1.0): 1,
        (1.0, 2.0): 1,
        (20.0, 50.0): 1,
    }
    assert sum(counts.values()) == found.measured
    assert max(counts) == (20.0, 50.0), "nothing behind the last that holds a sample"
    assert found.sides["shorter side"]["maximum"] == 50
    assert found.sides["width"]["minimum"] == 2


def test_a_sample_that_several_models_edited_is_one_sample(tmp_path: Path) -> None:
    rows = [sample(1, [0, 0, 10, 10], id=f"1-{model}", edited="wide.png", model=model) for model in ("a", "b", "c")]
    found = of(tmp_path, *rows, sample(2, [0, 0, 10, 10], id="2", edited="wide.png", model="a"))
    assert (found.rows, found.samples) == (4, 2)
    assert found.models == {"a": 2, "b": 1, "c": 1}


def test_a_turned_photograph_is_measured_as_it_is_shown(tmp_path: Path) -> None:
    write(tmp_path, [])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", WIDE).save(tmp_path / "turned.jpg", exif=exif)
    path = tmp_path / "turned.jsonl"
    path.write_text(json.dumps({**sample(1, [0, 100, 100, 200]), "source": "turned.jpg"}) + "\n")
    found = manifest_stats(path)
    assert found.area["maximum"] == pytest.approx(50), "the lower half of a picture 100 wide and 200 high"
    assert not found.notes


def test_pictures_that_cannot_be_opened_and_boxes_outside_are_said_and_not_guessed(tmp_path: Path) -> None:
    write(tmp_path, [])
    (tmp_path / "broken.png").write_bytes(b"no picture")
    found = of(
        tmp_path,
        sample(1, [0, 0, 10, 10]),
        {**sample(2, [0, 0, 10, 10]), "source": "gone.png"},
        {**sample(3, [0, 0, 10, 10]), "source": "broken.png"},
        sample(4, [190, 90, 210, 110]),
    )
    assert found.measured == 2
    assert found.area["maximum"] == pytest.approx(0.5), "10 × 10 of the box's 20 × 20 pixels lie inside"
    assert "2 samples with targets have no area" in found.notes[0]
    assert "gone.png" in found.notes[0]
    assert found.notes[1].startswith("1 target reaches beyond the picture")


def test_only_the_header_of_a_picture_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, [sample(1, [0, 0, 10, 10])])
    noise = np.random.default_rng(0).integers(0, 255, (100, 200, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "wide.png")
    whole = (tmp_path / "wide.png").read_bytes()
    (tmp_path / "wide.png").write_bytes(whole[:200])
    assert manifest_stats(path).measured == 1


@pytest.mark.long
def test_a_long_manifest_keeps_a_curve_that_can_be_drawn(tmp_path: Path) -> None:
    rows = [sample(n, [0, 0, 1 + n % 150, 1 + n % 90]) for n in range(1200)]
    found = of(tmp_path, *rows)
    assert found.measured == 1200
    assert len(found.curve) <= 400
    assert found.curve[-1][1] == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no edit"),
        ('{"instruction": "x"}\n', "line 1"),
        ('{"source": "../x.png"}\n', "outside the manifest's folder"),
        ('{"source": "a.png", "target_boxes": [[1, 2, 1, 4]]}\n', "has no area"),
        ("not json\n", "this is not JSON"),
    ],
)
def test_what_is_no_manifest_is_one_sentence_with_its_place(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(text)
    with pytest.raises(UserError, match=sentence):
        manifest_stats(tmp_path / "m.jsonl")
