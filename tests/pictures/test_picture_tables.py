"""Finding the tables of a data set, and reading their rows with pictures that are opened later."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from editloupe.pictures.decode import hash_file
from editloupe.pictures.picture_tables import find_tables, iter_rows, table_columns
from editloupe.pictures.pixels import hash_bytes
from editloupe.types import Edit, UserError
from tests.pictures.table_files import image_type, images, png, write_table

pyarrow = pytest.importorskip("pyarrow")
PICTURES = [png(seed) for seed in range(45)]
FILES = ("edits.parquet", "stream.arrow", "indexed.arrow")


def all_forms() -> dict[str, Any]:
    """Return columns of pictures in all forms, with and without empty cells."""
    nested = pyarrow.list_(image_type())
    return {
        "key": pyarrow.array([f"k{i}" for i in range(len(PICTURES))]),
        "image": images([*PICTURES]),
        "some": images([data if i % 3 else None for i, data in enumerate(PICTURES)]),
        "plain": pyarrow.array(PICTURES),
        "plain_some": pyarrow.array([data if i % 2 else None for i, data in enumerate(PICTURES)], pyarrow.binary()),
        "several": pyarrow.array(
            [[{"bytes": data, "path": None}] * (i % 3) if i % 4 else None for i, data in enumerate(PICTURES)], nested
        ),
        "several_plain": pyarrow.array([[data] * (i % 3) for i, data in enumerate(PICTURES)]),
        "files": pyarrow.array(
            [{"bytes": None, "path": "a.png"} if i % 5 else {"bytes": d, "path": "b"} for i, d in enumerate(PICTURES)],
            image_type(),
        ),
    }


def hashed(value: Any) -> Any:
    """Return a value that was read, with hashes for pictures."""
    if isinstance(value, list):
        return [hashed(item) for item in value]
    return hash_file(value) if isinstance(value, Path) else value


def expected(value: Any) -> Any:
    """Return a value that was written, with hashes for pictures."""
    if isinstance(value, list):
        return [expected(item) for item in value]
    if isinstance(value, dict):
        return hash_bytes(value["bytes"]) if value["bytes"] else value["path"]
    return hash_bytes(value) if isinstance(value, bytes) else value


@pytest.mark.parametrize("name", FILES)
@pytest.mark.long
def test_every_form_of_picture_column_yields_references_with_the_contents_that_were_written(
    tmp_path: Path, name: str
) -> None:
    columns = all_forms()
    file = write_table(tmp_path / name, columns)
    written = pyarrow.table(columns).to_pylist()
    rows = [*iter_rows(file)]
    assert [where for where, _ in rows] == [f"{name}, row {i}" for i in range(1, 46)]
    assert [list(values) for _, values in rows] == [list(columns)] * 45
    for (_, values), cells in zip(rows, written, strict=True):
        assert {key: hashed(value) for key, value in values.items()} == {k: expected(v) for k, v in cells.items()}
    order = random.Random(1).sample(range(45), 45)
    assert [hashed(rows[i][1]["image"]) for i in order] == [hash_bytes(PICTURES[i]) for i in order]


def test_the_bytes_of_pictures_are_not_read_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import parquet

    columns = {"key": pyarrow.array(["a", "b"]), "image": images([png(1), png(2)]), "mask": images([png(1), None])}
    file = write_table(tmp_path / "a.parquet", columns)
    read: list[str] = []
    original = parquet.ParquetFile.iter_batches

    def spy(self: Any, *args: Any, **options: Any) -> Any:
        read.extend(options["columns"])
        return original(self, *args, **options)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", spy)
    assert [values["mask"] is None for _, values in iter_rows(file)] == [False, True]
    assert read == ["key", "image.path", "mask.path"]


def test_a_reference_is_a_picture_of_an_edit_that_can_be_stored_and_opened_again(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {"image": images([png(1)]), "out put": images([png(2)])})
    (_, values), *_ = iter_rows(file, ["image", "out put"])
    edit = Edit(source=values["image"], edited=values["out put"], instruction="Make it red")
    again = Edit.model_validate_json(edit.model_dump_json())
    assert (edit.id, again) == ("a-1", edit)
    assert [hash_file(path) for path in again.paths] == [hash_bytes(png(1)), hash_bytes(png(2))]


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {"a": [1, 2], "b": ["x", "y"], "image": images([png(1), None])})
    assert [values for _, values in iter_rows(file, ["b"])] == [{"b": "x"}, {"b": "y"}]
    assert [values["image"] for _, values in iter_rows(file, ["image"])] == [Path(f"{file}#row=1&column=image"), None]
    assert table_columns(file) == {"a": False, "b": False, "image": True}
    with pytest.raises(UserError, match=r'^a\.parquet has no column "c"; its columns are a, b, image$'):
        next(iter_rows(file, ["c"]))


@pytest.mark.parametrize("name", FILES)
def test_half_a_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    file = write_table(tmp_path / name, {"image": images([png(i, 32) for i in range(20)])})
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(
        UserError, match=f"^{name}(, after row [01]+: this cannot be read| is not an? .* file, or not a whole)"
    ):
        [*iter_rows(file)]


def test_a_pointer_of_git_lfs_is_called_one(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    with pytest.raises(UserError, match=r"^a\.parquet is a pointer of Git LFS, not the file itself"):
        [*iter_rows(file)]


def touch(folder: Path, *names: str) -> None:
    """Make empty files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("names", "split", "found"),
    [
        (["data/dev-00000-of-00002.parquet", "data/dev-00001-of-00002-0a1b.parquet"], None, [0, 1]),
        (["data/dev-00000-of-00001.parquet", "data/train-00000-of-00001.parquet"], "train", [1]),
        (["b.parquet", "a.parquet"], None, [1, 0]),
        (["test.parquet", "train.parquet"], "test", [0]),
        (["train/0.parquet", "train/1.parquet", "test/0.parquet"], "train", [0, 1]),
        (["en/train-00000-of-00001.parquet", "zh/train-00000-of-00001.parquet"], "zh/train", [1]),
        (["data-00000-of-00001.arrow"], None, [0]),
        (["picture.png"], None, []),
    ],
)
def test_tables_of_a_split_are_found_in_order(
    tmp_path: Path, names: list[str], split: str | None, found: list[int]
) -> None:
    touch(tmp_path, *names)
    assert find_tables(tmp_path, split) == [tmp_path / names[index] for index in found]


def test_several_splits_are_listed_and_a_missing_one_too(tmp_path: Path) -> None:
    touch(tmp_path, "data/dev-00000-of-00001.parquet", "data/train-00000-of-00001.parquet")
    with pytest.raises(UserError, match=f"has the splits dev, train; name one, as {tmp_path.name}:dev$"):
        find_tables(tmp_path)
    with pytest.raises(UserError, match='has no split "test"; there are: dev, train'):
        find_tables(tmp_path, "test")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "data/train-00000-of-00003.parquet", "data/train-00002-of-00003.parquet")
    with pytest.raises(
        UserError, match=r"data has 2 of the 3 shards that train-00000-of-00003.parquet .* 00001 is missing$"
    ):
        find_tables(tmp_path)


def test_the_folders_of_save_to_disk_are_read_as_their_own_files_list_them(tmp_path: Path) -> None:
    touch(tmp_path, "dev/data-00000-of-00001.arrow", "dev/cache-1.arrow")
    (tmp_path / "dev/state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["dev"]}')
    assert find_tables(tmp_path) == find_tables(tmp_path / "dev") == [tmp_path / "dev/data-00000-of-00001.arrow"]
    (tmp_path / "dev/data-00000-of-00001.arrow").unlink()
    with pytest.raises(UserError, match=r"dev has no data-00000-of-00001.arrow, which its state.json lists$"):
        find_tables(tmp_path, "dev")
