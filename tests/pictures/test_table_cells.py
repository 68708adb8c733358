"""Opening pictures in the cells of tables by their paths."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from editloupe.pictures import table_cells
from editloupe.pictures.decode import declared_pixels, declared_size, hash_file, open_picture
from editloupe.pictures.pixels import ImageError, hash_bytes
from editloupe.pictures.table_cells import KEPT_BLOCKS, TableCell, _CellReader, resolve_picture_path
from tests.pictures.table_files import images, png, write_table

pytest.importorskip("pyarrow")


def test_a_path_names_a_cell_and_the_cell_names_the_path() -> None:
    cell = TableCell(Path("/data/a#b.parquet"), 12, "in/put & out", 3)
    assert cell.path == Path("/data/a#b.parquet#row=12&column=in%2Fput%20%26%20out&item=3")
    assert TableCell.parse(pickle.loads(pickle.dumps(cell.path))) == cell


@pytest.mark.parametrize(
    "text", ["a.png", "a.parquet", "a.png#row=1&column=b", "a.parquet#row=0&column=b", "a.parquet#row=1"]
)
def test_other_paths_name_no_cell(text: str) -> None:
    assert TableCell.parse(text) is None


def test_a_picture_in_a_cell_opens_like_a_file(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {"image": images([png(1), png(2, 16)])})
    path = TableCell(file, 2, "image").path
    assert open_picture(path).size == declared_size(path) == (16, 16)
    assert (declared_pixels(path), hash_file(path)) == (256, hash_bytes(png(2, 16)))


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("a.parquet#row=2&column=image", "the cell is empty"),
        ("a.parquet#row=4&column=image", "the table has 3 rows"),
        ("a.parquet#row=1&column=picture", "the table has no such column of pictures"),
        ("a.parquet#row=1&column=name", "the table has no such column of pictures"),
        ("a.parquet#row=3&column=image", "is not a picture this program reads"),
        ("b.parquet#row=1&column=image", "there is no picture at"),
        ("c.parquet#row=1&column=image", "c.parquet is not a Parquet file"),
    ],
)
def test_a_picture_that_cannot_be_opened_is_one_sentence_with_file_and_row(
    tmp_path: Path, cell: str, sentence: str
) -> None:
    write_table(tmp_path / "a.parquet", {"image": images([png(1), None, b"text"]), "name": ["a", "b", "c"]})
    (tmp_path / "c.parquet").write_text("no table")
    with pytest.raises(ImageError) as raised:
        open_picture(tmp_path / cell)
    assert sentence in str(raised.value)
    assert cell in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_table_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a.parquet", {"image": images([png(1)])})
    path = TableCell(file, 1, "image").path
    before = hash_file(path)
    write_table(file, {"image": images([png(2)])})
    os.utime(file, ns=(1, 1))
    assert (before, hash_file(path)) == (hash_bytes(png(1)), hash_bytes(png(2)))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.long
def test_rows_read_in_order_by_several_threads_open_each_row_group_once(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_table(tmp_path / name, {"image": images([png(seed) for seed in range(400)])}, rows=100)
    opened: list[int] = []
    original = _CellReader._take_reader

    def spy(self: _CellReader, column: object, cell: TableCell) -> object:
        if not any(reader.reaches(cell.row) for reader in self._readers.values()):
            opened.append(cell.row)
        return original(self, column, cell)  # type: ignore[arg-type]

    monkeypatch.setattr(_CellReader, "_take_reader", spy)
    cells = _CellReader()
    with ThreadPoolExecutor(8) as threads:
        contents = [*threads.map(lambda row: cells.read(TableCell(file, row, "image")), range(1, 401))]
    assert contents == [png(seed) for seed in range(400)]
    assert len(opened) == 1
    assert len(cells._blocks) <= KEPT_BLOCKS


def test_a_row_group_that_is_a_decompression_bomb_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_table(tmp_path / "a.parquet", {"image": images([bytes(500_000 + row) for row in range(4)])})
    with pytest.raises(ImageError, match="not a picture"):
        open_picture(TableCell(file, 1, "image").path)
    os.utime(file, ns=(1, 1))
    monkeypatch.setattr(table_cells, "BOMB_BYTES", 1_000_000)
    monkeypatch.setattr(table_cells, "BOMB_FACTOR", 10)
    with pytest.raises(
        ImageError, match=r"a\.parquet#row=1&column=image .*: row group 1 grows from \d+ to 20\d+ bytes"
    ):
        open_picture(TableCell(file, 1, "image").path)


def test_links_of_a_cells_table_are_resolved(tmp_path: Path) -> None:
    file = write_table(tmp_path / "outside/a.parquet", {"image": images([png(1)])})
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/b.parquet").symlink_to(file)
    resolved = resolve_picture_path(tmp_path / "inside/b.parquet#row=1&column=image")
    assert resolved == TableCell(file.resolve(), 1, "image").path
