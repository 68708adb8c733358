"""Manifests whose pictures are in Parquet and Arrow tables, ImageFolders, and data sets of the package `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe import load_manifest
from editloupe.cli.main import run
from editloupe.evals.manifests.layouts import load_outputs
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import hash_file, open_picture
from editloupe.pictures.memory import MemoryPicture
from editloupe.pictures.pixels import ImageError, hash_bytes
from editloupe.types import Edit, UserError
from tests.drawn_pictures import huge_png
from tests.pictures.table_files import image_type, images, png, write_table

pyarrow = pytest.importorskip("pyarrow")
NAMES = {"source": "input_image", "edited": "output_image", "instruction_type": "task", "id": "key"}


def columns(count: int = 4, **more: Any) -> dict[str, Any]:
    """Return the columns of a table of edits."""
    return {
        "key": [f"k{i}" for i in range(count)],
        "input_image": images([png(i) for i in range(count)]),
        "output_image": images([png(100 + i) for i in range(count)]),
        "instruction": ["Make it red"] * count,
        "task": ["color"] * count,
        **more,
    }


def hashes(edits: Iterator[Edit]) -> list[tuple[str, str, str]]:
    """Return the id of each edit and the hashes of its pictures."""
    return [(edit.id, hash_file(edit.source), hash_file(edit.edited)) for edit in edits]


EXPECTED = [(f"k{i}", hash_bytes(png(i)), hash_bytes(png(100 + i))) for i in range(4)]


@pytest.mark.parametrize("name", ["edits.parquet", "edits.arrow", "set/data/dev-00000-of-00001.parquet"])
def test_columns_of_a_table_become_the_pictures_of_edits(tmp_path: Path, name: str) -> None:
    file = write_table(tmp_path / name, columns(mask=images([png(7)] * 4)))
    path = tmp_path / "set" if name.startswith("set/") else file
    edits = [*load_manifest(path, columns=NAMES)]
    assert hashes(iter(edits)) == EXPECTED
    assert (edits[0].instruction_type, edits[0].extra) == ("color", {})


def test_a_split_of_a_folder_is_named_behind_a_colon_and_its_shards_are_read_in_order(tmp_path: Path) -> None:
    rows = columns()
    for shard in range(2):
        part = {name: column[2 * shard : 2 * shard + 2] for name, column in rows.items()}
        write_table(tmp_path / f"set/data/dev-0000{shard}-of-00002.parquet", part)
    write_table(tmp_path / "set/data/train-00000-of-00001.parquet", rows)
    assert hashes(load_manifest(f"{tmp_path}/set:dev", columns=NAMES)) == EXPECTED
    with pytest.raises(UserError, match=r"has the splits dev, train; name one, as set:dev$"):
        load_manifest(tmp_path / "set", columns=NAMES)
    without_key = {name: column for name, column in NAMES.items() if name != "id"}
    ids = [edit.id for edit in load_manifest(f"{tmp_path}/set:dev", columns=without_key)]
    assert ids == [f"dev-0000{shard}-of-00002-{row}" for shard in (0, 1) for row in (1, 2)]


def test_roles_of_further_pictures_have_columns_of_their_own(tmp_path: Path) -> None:
    several = pyarrow.array([[{"bytes": png(8), "path": None}] * 2, []], pyarrow.list_(image_type()))
    file = write_table(
        tmp_path / "a.parquet", columns(2, gold=images([png(5), None]), mask=images([None, png(6)]), shown=several)
    )
    more = {"reference": "gold", "more_images.mask": "mask", "more_images.shown": "shown"}
    first, second = load_manifest(file, columns={**NAMES, **more})
    assert first.reference is not None
    assert hash_file(first.reference) == hash_bytes(png(5))
    assert {role: len(pictures) for role, pictures in first.more_images.items()} == {"shown": 2}
    assert second.reference is None
    assert [hash_file(picture) for picture in second.more_images["mask"]] == [hash_bytes(png(6))]


def test_outputs_of_models_go_with_a_table_without_outputs(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {n: c for n, c in columns().items() if n != "output_image"})
    (tmp_path / "out").mkdir()
    for i in range(3):
        (tmp_path / f"out/k{i}.png").write_bytes(png(100 + i))
    names = {name: column for name, column in NAMES.items() if name != "edited"}
    outputs = load_outputs(file, f"m={tmp_path}/out", columns=names)
    assert hashes(edit for edit in outputs.edits() if edit.id != "k3") == EXPECTED[:3]
    assert "1 of 4 outputs missing" in outputs.notes[0]
    (tmp_path / "out/k1.jpg").touch()
    with pytest.raises(
        UserError, match=r"a.parquet, row 2: .*/out has two outputs for it, k1.png and k1.jpg; keep one"
    ):
        load_outputs(file, f"m={tmp_path}/out", columns=names)


def test_an_id_with_a_path_in_it_cannot_lead_out_of_the_folder_of_outputs(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {**columns(1), "key": ["../k0"]})
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=r"^a.parquet, row 1: '../k0' leads outside the folder .*/out$"):
        load_outputs(file, f"m={tmp_path}/out", columns={"source": "input_image", "id": "key"})


def test_an_id_that_two_rows_have_names_both_rows(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {**columns(3), "key": ["a", "b", "a"]})
    with pytest.raises(UserError, match=r'^a.parquet, row 3: the id "a" is already used at a.parquet, row 1; '):
        [*load_manifest(file, columns=NAMES)]


def test_a_column_that_is_not_there_is_refused_with_the_columns_that_are(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", columns())
    with pytest.raises(UserError) as raised:
        load_manifest(file, columns={"source": "input_images"})
    assert str(raised.value) == (
        'a.parquet has no column "input_images"; its columns are key, input_image, output_image, instruction, task; '
        "did you mean input_image?"
    )


def test_a_column_that_is_empty_in_all_rows_is_a_column(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", columns(2, hint=pyarrow.array([None, None], pyarrow.string())))
    assert len([*load_manifest(file, columns={**NAMES, "hint": "hint"})]) == 2


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        (None, "cannot be read: the cell is empty"),
        (b"no picture", "is not a picture this program reads"),
        (png(1)[:90], "is a damaged or incomplete picture"),
        (huge_png(50_000, 50_000), "is larger than the limit of 150 megapixels"),
    ],
    ids=["empty", "text", "cut", "bomb"],
)
def test_a_picture_that_cannot_be_used_leaves_its_row_to_be_unjudged(tmp_path: Path, cell: Any, sentence: str) -> None:
    file = write_table(tmp_path / "a.parquet", {**columns(3), "output_image": images([png(1), cell, png(2)])})
    edits = [*load_manifest(file, columns=NAMES)]
    assert [open_picture(edits[i].edited).size for i in (0, 2)] == [(8, 8), (8, 8)]
    with pytest.raises(ImageError, match=r"a\.parquet#row=2&column=output_image ") as raised:
        open_picture(edits[1].edited)
    assert sentence in str(raised.value)


def test_a_cell_with_the_path_of_a_file_follows_the_rules_for_paths(tmp_path: Path) -> None:
    cells = pyarrow.array([{"bytes": None, "path": "a.png"}, {"bytes": None, "path": "../b.png"}], image_type())
    file = write_table(tmp_path / "set/a.parquet", {**columns(2), "input_image": cells})
    edits = load_manifest(file, columns=NAMES)
    assert next(edits).source == tmp_path / "set/a.png"
    with pytest.raises(UserError, match=r'^a.parquet, row 2: "source" leads outside the manifest'):
        next(edits)


def test_a_list_of_several_pictures_is_no_source(tmp_path: Path) -> None:
    cells = pyarrow.array([[{"bytes": png(1), "path": None}] * 2], pyarrow.list_(image_type()))
    file = write_table(tmp_path / "a.parquet", {**columns(1), "input_image": cells})
    with pytest.raises(UserError, match=r'^a.parquet, row 1: "source" has 2 pictures; it takes one$'):
        [*load_manifest(file, columns=NAMES)]


def test_a_path_in_another_manifest_may_name_a_cell_but_not_by_a_link_that_leads_outside(tmp_path: Path) -> None:
    table = write_table(tmp_path / "outside/a.parquet", columns(1))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/link.parquet").symlink_to(table)
    line = {"source": "link.parquet#row=1&column=input_image", "edited": "b.png", "instruction": "Make it red"}
    (tmp_path / "set/m.jsonl").write_text(json.dumps(line))
    with pytest.raises(UserError, match=r'^m.jsonl, line 1: "source" leads outside'):
        [*load_manifest(tmp_path / "set/m.jsonl")]
    (edit,) = load_manifest(tmp_path / "set/m.jsonl", allow_outside=True)
    assert hash_file(edit.source) == hash_bytes(png(0))


def test_an_image_folder_lists_its_pictures_in_metadata(tmp_path: Path) -> None:
    for number, name in enumerate(("a.png", "b.png")):
        (tmp_path / "set/dev").mkdir(parents=True, exist_ok=True)
        (tmp_path / "set/dev" / name).write_bytes(png(number))
    line = {"file_name": "a.png", "edited_file_name": "b.png", "prompt": "Make it red"}
    (tmp_path / "set/dev/metadata.jsonl").write_text(json.dumps(line))
    for path, names in (
        (tmp_path / "set/dev", {"source": "image", "instruction": "prompt"}),
        (f"{tmp_path}/set:dev", {"source": "file_name", "edited": "edited_file_name", "instruction": "prompt"}),
    ):
        assert hashes(load_manifest(path, columns=names)) == [("b", hash_bytes(png(0)), hash_bytes(png(1)))]


class Rows:
    """A stand-in for a `datasets.Dataset` of a table, with the methods that are used of it."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.column_names = table.column_names
        self.largest = 0

    def with_format(self, type: str) -> Rows:
        assert type == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        self.largest = batch_size
        return (self.table.slice(start, batch_size) for start in range(0, len(self.table), batch_size))


def check_dataset(dataset: Any) -> None:
    """Check the edits of a data set with the columns of `columns()`, whose third output is empty."""
    edits = [*load_manifest(dataset, columns=NAMES)]
    assert [edit.id for edit in edits] == ["k0", "k1", "k2", "k3"]
    assert all(isinstance(edit.source, MemoryPicture) for edit in edits)
    assert [hash_file(edit.source) for edit in edits] == [source for _, source, _ in EXPECTED]
    with pytest.raises(ImageError, match=r"^the data set, row 3: the cell is empty$"):
        open_picture(edits[2].edited)
    with pytest.raises(UserError, match=r'^the data set has no column "keys"; .* did you mean key'):
        load_manifest(dataset, columns={"id": "keys"})


def test_a_data_set_from_python_is_read_a_few_rows_at_a_time() -> None:
    table = pyarrow.table({**columns(), "output_image": images([png(1), png(2), None, png(3)])})
    dataset = Rows(table)
    check_dataset(dataset)
    assert dataset.largest <= 16


@pytest.mark.long
def test_a_data_set_of_the_package_is_read_from_memory_from_disk_and_as_a_stream(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {**columns(), "output_image": images([png(1), png(2), None, png(3)])}
    file = write_table(tmp_path / "a.parquet", rows)
    for streaming in (False, True):
        check_dataset(datasets.load_dataset("parquet", data_files=str(file), split="train", streaming=streaming))
    dataset = datasets.Dataset.from_parquet(str(file))
    dataset.save_to_disk(str(tmp_path / "saved"))
    sources = [hash_file(edit.source) for edit in load_manifest(tmp_path / "saved", columns=NAMES)]
    assert sources == [source for _, source, _ in EXPECTED]


@pytest.mark.long
def test_a_run_on_a_table_is_continued_and_shown_after_the_table_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_table(tmp_path / "a.parquet", {**columns(), "output_image": images([png(1), None, None, png(2)])})
    names = ",".join(f"{field}={column}" for field, column in NAMES.items() if field != "instruction_type")
    folder = str(tmp_path / "run")
    command = ["batch", str(file), "--columns", names, "--judge", "rules", "--out", folder, "--quiet"]
    assert run(command) == 3
    assert "4 judged, 4 unjudged" in capsys.readouterr().out
    write_table(file, {**columns(), "output_image": images([png(1), png(3), png(4), png(2)])})
    assert run([*command, "--retry-unjudged"]) == 0
    assert "4 judged, 0 unjudged in" in (printed := capsys.readouterr().out)
    assert "4 held before" in printed
    file.unlink()
    with Run.open(tmp_path / "run") as opened:
        pictures = [opened.pictures.find(hash_bytes(png(seed))) for seed in (0, 1, 2, 3, 4)]
    assert all(pictures)
    assert run(["trace", folder, "k1"]) == 0
