"""Benchmarks that need other machines or data run here on tiny weights and small made data, so that they work when needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.drawn_pictures import save, textured


@pytest.mark.models
def test_the_benchmark_of_devices_prints_a_row_per_model_and_concurrency(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    from benchmarks import gpu

    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--seconds", "0.01", "--edits", "1", "3"])
    gpu.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [(row[0].split()[0], row[1]) for row in rows[2:]] == [
        (name, edits) for name in ("detector", "enhancer", "features") for edits in ("1", "3")
    ]
    assert all(float(row[2]) > 0 and int(row[5]) > 0 for row in rows[2:])
    assert rows[2][4].endswith(" %")


def draw_edits(folder: Path, count: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return pairs in which a square changes its colour, with masks that are white there."""
    edits = []
    for number in range(count):
        before = textured(160, 120, seed=number)
        after, mask = before.copy(), np.zeros_like(before)
        x = 20 + 12 * number
        after[40:80, x : x + 40] = (220, 30, 30)
        mask[38:82, x - 2 : x + 42] = 255
        edits.append((before, after, mask))
    return edits


def run_tools(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> list[list[str]]:
    from benchmarks import tools

    monkeypatch.setattr(sys, "argv", ["tools", *map(str, arguments)])
    tools.main()
    lines = capsys.readouterr().out.splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][2:]


@pytest.mark.long
def test_tools_measures_a_folder_in_the_layout_of_magicbrush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, pictures in enumerate(draw_edits(tmp_path, 3)):
        for name, pixels in zip(("input", "output1", "mask1"), pictures, strict=True):
            folder = tmp_path / "images" / f"{number}"
            folder.mkdir(parents=True, exist_ok=True)
            save(pixels, folder / f"{number}-{name}.png")
    columns = "source=*-input.png,edited=*-output1.png,mask=*-mask1.png"
    rows = {row[0]: row[1:] for row in run_tools(monkeypatch, capsys, tmp_path, "--columns", columns)}
    assert rows["localize_differences"][:4] == ["3 of 3 (100.0)", "3 of 3 (100.0)", "0.0", "0"]
    assert list(rows) == ["pixel difference", "SSIM", "localize_differences"]


@pytest.mark.long
def test_tools_measures_a_folder_in_the_layout_of_texteditbench_and_counts_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, (before, after, mask) in enumerate(draw_edits(tmp_path, 4)):
        folder = tmp_path / "signs" / f"{number:03}"
        folder.mkdir(parents=True)
        save(before, folder / "1.jpg")
        save(after, folder / "text_change_1.jpg")
        # The second mask marks another place, the third is not there, and the fourth is empty.
        shown = mask if number == 0 else np.zeros_like(mask)
        if number == 1:
            shown[:10, :10] = 255
        if number != 2:
            save(shown, folder / "1_mask.jpg")
            save(np.zeros_like(mask), folder / "text_change_1_mask.jpg")
    columns = "source=1.jpg,edited=text_change_1.jpg,mask=1_mask.jpg,mask2=text_change_1_mask.jpg"
    rows = {
        row[0]: row[1:]
        for row in run_tools(monkeypatch, capsys, tmp_path, "--columns", columns, "--out", tmp_path / "t.md")
    }
    assert rows["localize_differences"][:3] == ["1 of 2 (50.0)", "1 of 2 (50.0)", "50.0"]
    assert "2 edits; left out: 1 incomplete, 1 with an empty mask." in (tmp_path / "t.md").read_text("utf-8")


@pytest.mark.long
def test_tools_measures_a_table_with_columns_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = []
    for number, pictures in enumerate(draw_edits(tmp_path, 2)):
        paths = [save(pixels, tmp_path / f"{number}-{place}.png") for place, pixels in enumerate(pictures)]
        rows.append({name: {"bytes": path.read_bytes()} for name, path in zip("abc", paths, strict=True)})
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "dev.parquet")
    columns = "source=a,edited=b,mask=c"
    found = {row[0]: row[1:] for row in run_tools(monkeypatch, capsys, tmp_path / "dev.parquet", "--columns", columns)}
    assert found["localize_differences"][0] == "2 of 2 (100.0)"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("source=a,edited=b", "mask is missing"),
        ("source=a,edited=b,mask=c,instruction=d", "none of source, edited, mask, mask2"),
        ("source=a.png,edited=b.png,mask=c.png", "fits source=a.png"),
    ],
)
def test_tools_says_in_one_sentence_what_is_wrong_with_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, words: str
) -> None:
    from benchmarks import tools

    monkeypatch.setattr(sys, "argv", ["tools", str(tmp_path), "--columns", columns])
    with pytest.raises(SystemExit, match=words):
        tools.main()


def write_ratings(folder: Path) -> Path:
    """Write ratings of 160 edits by two judges and three raters; the second judge's first edit is a guess."""
    random = np.random.default_rng(0)
    lines = ["judge,model,uid,judge_sc,judge_pq,sc_guessed,pq_guessed,h1_sc,h1_pq,h2_sc,h2_pq,h3_sc,h3_pq"]
    for judge in ("good_0shot", "kind_0shot"):
        for number in range(160):
            quality = (number * 7 % 11) / 10
            seen = min(quality + (0.3 if judge == "kind_0shot" else 0), 1)
            people = [f"{np.clip(round(2 * (quality + random.normal(0, 0.15))), 0, 2) / 2:g}" for _ in range(6)]
            guess = int(judge == "kind_0shot" and number == 0)
            lines.append(
                ",".join([judge, f"m{number % 2}", f"p{number // 2}", f"{seen:g}", "0.9", f"{guess}", "0", *people])
            )
    path = folder / "replies" / "ratings.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return folder


@pytest.mark.long
def test_real_judges_measures_every_judge_of_a_file_and_leaves_guesses_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import real_judges

    monkeypatch.setenv("EDITLOUPE_CONFORMANCE", str(write_ratings(tmp_path)))
    out = tmp_path / "found.json"
    only = ["--only", "agreement", "corrected", "calibration"]
    monkeypatch.setattr(sys, "argv", ["real_judges", *only, "--draws", "200", "--splits", "20", "--json", str(out)])
    real_judges.main()
    tables = json.loads(out.read_text("utf-8"))
    edits = {row["judge"]: row["edits"] for row in tables["agreement"]}
    assert edits == {"good_0shot": 160, "kind_0shot": 159, "one rater against the others": 160}
    means = {
        row["judge"]: row["mean of corrected"] - row["people"] for row in tables["corrected"] if row["labels"] == 60
    }
    assert all(abs(difference) < 2 for difference in means.values())
    assert all(row["covers"] > 0.9 for row in tables["corrected"])
    assert all(row["promise holds"] >= 0.8 for row in tables["calibration"])


def test_real_judges_skips_with_a_sentence_if_the_files_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import real_judges

    monkeypatch.setenv("EDITLOUPE_CONFORMANCE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["real_judges"])
    real_judges.main()
    assert capsys.readouterr().out == "skipped: EDITLOUPE_CONFORMANCE names no folder with replies/ratings.csv\n"
