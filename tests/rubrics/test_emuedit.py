"""Emu Edit's test set: its table becomes edits, and its measures come through `batch` with the real loading code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.manifests.layouts import load_benchmark
from editloupe.types import Edit, UserError
from tests.drawn_pictures import save, textured
from tests.evals.stats.scores.paper_tables.conformance import report
from tests.pictures.table_files import images, png, write_table

pyarrow = pytest.importorskip("pyarrow")
ROWS = (
    ("11", "add", "Add a hat", "a dog", "a dog with a hat"),
    ("12", "style", "Make it a sketch", "a street", "a sketch of a street"),
    ("13", "global", "Make it night", "a beach", "a beach"),
)


def write_benchmark(data: Path, rows: tuple[tuple[str, ...], ...] = ROWS, **changes: Any) -> Path:
    names = ("idx", "task", "instruction", "input_caption", "output_caption")
    columns = {name: pyarrow.array(list(values)) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    columns |= {"image": images([png(seed, 32) for seed in range(len(rows))]), **changes}
    columns = {name: column for name, column in columns.items() if column is not None}
    for split in ("test", "validation"):
        write_table(data / "data" / f"{split}-00000-of-00001.parquet", columns)
    return data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_benchmark(tmp_path / "data")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "m"
    folder.mkdir(parents=True)
    for number, (name, *_) in enumerate(ROWS):
        save(textured(32, 32, seed=number + 40), folder / f"{name}.png")
    return folder


def read(data: Path, results: Path) -> list[Edit]:
    return list(load_benchmark("emu-edit", data, {"m": results}))


def test_the_rows_of_the_test_split_become_edits(data: Path, results: Path) -> None:
    first, *others = read(data, results)
    assert (first.id, first.instruction, first.instruction_type) == ("m/11", "Add a hat", "add")
    assert str(first.source).endswith("test-00000-of-00001.parquet#row=1&column=image")
    assert first.edited == results / "11.png"
    assert first.extra == {"input_caption": "a dog", "output_caption": "a dog with a hat"}
    assert [edit.id for edit in others] == ["m/12", "m/13"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": None}, 'test-00000-of-00001.parquet has no column "task"'),
        ({"image": images([png(0), None, png(2)])}, 'row 2: "image" is empty'),
        ({"idx": ["11", "../12", "13"]}, r"row 2: the key '\.\./12' has a path in it"),
        ({"instruction": ["Add a hat", "", "x"]}, "row 2: the instruction is empty"),
        ({"idx": ["11", None, "13"]}, "row 2: the key is None, neither a text nor a whole number"),
        ({"idx": ["11", "12", "11"]}, 'the benchmark has the id "m/11" twice'),
    ],
)
def test_a_mistake_in_the_table_is_one_sentence_with_the_row(
    tmp_path: Path, results: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        read(write_benchmark(tmp_path / "wrong", **changes), results)


def test_a_folder_without_a_table_is_refused(tmp_path: Path, results: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no Parquet table of Emu Edit's test set"):
        read(tmp_path / "empty", results)


@pytest.mark.models
@pytest.mark.long
def test_all_measures_are_in_the_papers_table(
    data: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from tests.tools.tiny_models import save_tiny_clip, save_tiny_vit

    clip, dino = save_tiny_clip(tmp_path / "clip", side=224), save_tiny_vit(tmp_path / "dino")
    names = [part for name in ("clip_dir", "clip_img", "clip_out", "l1", "dino") for part in ("--criterion", name)]
    out = tmp_path / "run"
    options = ["--layout", "emu-edit", "--results", f"m={results}", *names, "--judge", "rules", "--out", str(out)]
    weights = ["--set", f"tools.clip={clip}", "--set", f"tools.dino={dino}", "--set", "tools.device=cpu"]
    assert command(["batch", str(data), *options, *weights, "--quiet"]) == 0
    row = report(capsys, out)["Emu Edit, test set"]["m"]
    assert all(isinstance(row[name], float) for name in ("CLIPdir", "CLIPimg", "CLIPout", "L1", "DINO"))
    assert -1 <= row["CLIPdir"] <= 1
    assert 0.9 < row["DINO"] <= 1, "tiny random weights find all pictures alike"
    assert row["judged"] == row["expected"], "an edit whose captions are equal has no direction, which is complete"
