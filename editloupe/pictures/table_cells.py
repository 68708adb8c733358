"""Pictures in the cells of Parquet and Arrow tables, named by paths of the form `FILE.parquet#row=7&column=image`.

Such a path can be stored, compared and sent to another process like the path of a file. Its bytes are read when the picture is
opened. Tables are read forwards in small blocks: a few recent blocks and a few open readers are kept, so that memory depends
on the row groups of a table and not on its length.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from editloupe._util.errors import UserError
from editloupe._util.files import NotAFile, check_file, open_file, read_bytes
from editloupe._util.text import number_of, shorten_error

SUFFIXES = (".parquet", ".arrow")
PARQUET, ARROW = SUFFIXES
_CELL = re.compile(
    r"(.+\.(?:parquet|arrow))#row=([1-9]\d{0,11})&column=([^&#/]+)(?:&item=([1-9]\d{0,8}))?", re.I | re.S
)
_ARROW_FILE = b"ARROW1"
"""The first bytes of an Arrow file with an index of its batches; `datasets` writes streams, which have none."""
_LFS = b"version https://git-lfs"
_BYTES = ("binary", "large_binary", "binary_view")
BLOCK_ROWS = 8
"""Rows that are read at once from a column of pictures."""
NEAR_ROWS = 64
"""Blocks are kept from this many rows before the one that is asked for, because parallel judges ask a little out of order."""
KEPT_BYTES, KEPT_BLOCKS = 96_000_000, 256
"""Blocks that are kept."""
KEPT_READERS = 6
"""Open readers that are kept, each of which may hold a page of its column."""
BOMB_BYTES, BOMB_FACTOR = 1_000_000_000, 100
"""Most bytes of a column in a row group, and most times its bytes in the file; a column that exceeds both is not read."""
READ_AHEAD = 1 << 18
"""Bytes that are read at once from a Parquet file."""


class TableCell(NamedTuple):
    """A picture in a table.

    Args:
        file: The Parquet or Arrow file.
        row: The row, counted from 1.
        column: The column.
        item: The position in the cell's list, counted from 1; None if the cell is not a list.
    """

    file: Path
    row: int
    column: str
    item: int | None = None

    @classmethod
    def parse(cls, path: Path | str) -> TableCell | None:
        """Return the cell that a path names; None for the path of a file.

        >>> TableCell.parse("edits/train.parquet#row=7&column=input%20image").column
        'input image'
        """
        match = _CELL.fullmatch(str(path))
        return (
            cls(Path(match[1]), int(match[2]), unquote(match[3]), int(match[4]) if match[4] else None)
            if match
            else None
        )

    @property
    def path(self) -> Path:
        """The path that names this cell.

        >>> TableCell(Path("train.parquet"), 7, "images", 2).path.name
        'train.parquet#row=7&column=images&item=2'
        """
        item = "" if self.item is None else f"&item={self.item}"
        return Path(f"{self.file}#row={self.row}&column={quote(self.column, safe='')}{item}")


def find_file(path: Path) -> Path:
    """Return the file that holds a picture: the table of a cell, or the path itself."""
    return cell.file if "#" in path.name and (cell := TableCell.parse(path)) else path


def picture_stem(path: Path) -> str:
    """Return the name of a picture without its suffix; of a cell, its table and row.

    >>> picture_stem(Path("out/cup.png")), picture_stem(Path("train.parquet#row=7&column=image"))
    ('cup', 'train-7')
    """
    cell = TableCell.parse(path) if "#" in path.name else None
    return f"{cell.file.stem}-{cell.row}" if cell else path.stem


def resolve_picture_path(path: str | Path) -> Path:
    """Return the absolute path of a picture with all links resolved, also those of a cell's table.

    Raises:
        OSError: The links lead in a circle.
    """
    cell = TableCell.parse(path) if "#" in str(path) else None
    real = Path(os.path.realpath(cell.file if cell else path))
    if real.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return cell._replace(file=real).path if cell else real


def read_picture_bytes(path: Path, limit: int) -> bytes:
    """Return the bytes of a picture in a file or in a table's cell. Raise OSError if it is larger than the limit, or missing."""
    cell = TableCell.parse(path) if "#" in path.name else None
    if cell is None:
        return read_bytes(path, limit)
    value = _CELLS.read(cell)
    if cell.item is not None and isinstance(value, list):
        value = value[cell.item - 1] if cell.item <= len(value) else None
    if value is None:
        raise _problem(cell, "the cell is empty")
    if not isinstance(value, bytes):
        raise _problem(cell, "the cell is a list; &item=1 names its first picture")
    if len(value) > limit:
        raise _problem(cell, f"it is larger than the limit of {limit // 1_000_000} MB")
    return value


def _problem(cell: TableCell, sentence: str) -> NotAFile:
    return NotAFile(errno.EINVAL, sentence, str(cell.path))


def import_pyarrow(file: Path) -> Any:
    """Return the module `pyarrow`; raise UserError if it is not installed."""
    try:
        import pyarrow  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError(f"reading {file.name} needs pyarrow: pip install '.[data]'") from None
    return pyarrow


def open_parquet(file: Path) -> Any:
    """Open a Parquet file without reading its columns; raise UserError if it is not one, or not a whole one."""
    import_pyarrow(file)
    from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]

    _check_head(file)
    try:
        opened = parquet.ParquetFile(file, buffer_size=READ_AHEAD, pre_buffer=False)
        _read_names(opened.schema_arrow)
        return opened
    except Exception as error:  # pyarrow raises its own kinds and OSError alike
        raise UserError(f"{file.name} is not a Parquet file, or not a whole one ({shorten_error(error)})") from None


def open_batches(file: Path) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the record batches of an Arrow file or stream. The file is mapped, not read into memory."""
    pyarrow = import_pyarrow(file)
    head = _check_head(file)
    try:
        source = pyarrow.memory_map(str(file))
        if head.startswith(_ARROW_FILE):
            indexed = pyarrow.ipc.open_file(source)
            _read_names(indexed.schema)
            return indexed.schema, map(_validate, map(indexed.get_batch, range(indexed.num_record_batches)))
        if source.size() > 4:
            source.seek(source.size() - 4)
            if source.read(4) != bytes(4):
                raise EOFError("the end of the stream is missing")
            source.seek(0)
        stream = pyarrow.ipc.open_stream(source)
        _read_names(stream.schema)
        return stream.schema, map(_validate, stream)
    except Exception as error:  # pyarrow raises its own kinds and OSError alike
        raise UserError(f"{file.name} is not an Arrow file, or not a whole one ({shorten_error(error)})") from None


def _validate(batch: Any) -> Any:
    """Return a record batch whose offsets lie in its buffers; of a damaged file, reading it could end the process."""
    batch.validate(full=True)
    return batch


def _read_names(schema: Any) -> None:
    """Read all names of columns and fields; raise UnicodeDecodeError if one is not UTF-8."""
    fields = list(schema)
    while fields:
        kind = getattr(fields[-1].type, "storage_type", fields[-1].type)
        _ = fields.pop().name
        fields += [kind.field(number) for number in range(kind.num_fields)]


def _check_head(file: Path) -> bytes:
    """Return a file's first bytes; raise UserError if it cannot be read or only points to a file."""
    try:
        with open_file(file) as opened:
            head = opened.read(len(_LFS))
    except OSError as error:
        raise UserError(f"{file.name} cannot be read: {error.strerror or error}") from None
    if head == _LFS:
        raise UserError(f"{file.name} is a pointer of Git LFS, not the file itself; `git lfs pull` downloads it")
    return head


def picture_leaf(kind: Any) -> str | None:
    """Return how the bytes of a column's pictures are stored; None if the column holds no pictures.

    Returns:
        `plain` (bytes), `struct` (`{bytes, path}`), or `list` (a list of one of these).
    """
    from pyarrow import types  # type: ignore[import-untyped,import-not-found,unused-ignore]

    kind = getattr(kind, "storage_type", kind)
    if str(kind) in _BYTES:
        return "plain"
    if types.is_struct(kind):
        fields = {field.name: str(field.type) for field in kind}
        return "struct" if set(fields) <= {"bytes", "path"} and fields.get("bytes") in _BYTES else None
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list" if picture_leaf(kind.value_type) in ("plain", "struct") else None
    return None


def bytes_leaf(schema: Any, column: str) -> str:
    """Return the dotted path of the bytes of a Parquet column of pictures."""
    paths = [str(schema.column(index).path) for index in range(len(schema))]
    leaves = [path for path in paths if path == column or path.startswith(f"{column}.")]
    return next((path for path in leaves if path.rpartition(".")[2] == "bytes"), leaves[0])


class _Reader:
    """Reads a column of pictures forwards, from the beginning of a row group.

    Args:
        cell: The first cell that is wanted.
    """

    def __init__(self, cell: TableCell) -> None:
        self._starts = [0]
        """Rows before each row group."""
        self.position = 0
        """Rows before the next block."""
        self._blocks = self._read_parquet(cell) if cell.file.suffix.lower() == PARQUET else self._read_arrow(cell)

    def reaches(self, row: int) -> bool:
        """Return whether a row comes next, with at most a block of another row group before it.

        Without that block, parallel judges that ask for the first rows of a group too early would open a second reader.
        """
        return self._group_start(row) - BLOCK_ROWS <= self.position < row

    def _group_start(self, row: int) -> int:
        return self._starts[bisect_left(self._starts, row) - 1]

    def _read_parquet(self, cell: TableCell) -> Iterator[Any]:
        file = open_parquet(cell.file)
        _find_column(file.schema_arrow, cell)
        groups = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
        self._starts = [0, *itertools.accumulate(groups)][: len(groups) or 1]
        if cell.row > sum(groups):
            raise _problem(cell, f"the table has {number_of(sum(groups), 'row')}")
        self.position = self._group_start(cell.row)
        following = range(self._starts.index(self.position), len(groups))
        leaf = bytes_leaf(file.schema, cell.column)
        _check_growth(file.metadata, leaf, following, cell)
        batches = file.iter_batches(BLOCK_ROWS, row_groups=following, columns=[leaf], use_threads=False)
        return (batch.column(0) for batch in batches)

    def _read_arrow(self, cell: TableCell) -> Iterator[Any]:
        schema, batches = open_batches(cell.file)
        _find_column(schema, cell)
        for batch in batches:
            column = batch.column(schema.names.index(cell.column))
            yield from (column.slice(start, BLOCK_ROWS) for start in range(0, len(column), BLOCK_ROWS))

    def next_block(self) -> tuple[int, Any]:
        """Return the rows before the next block, and the block; raise StopIteration at the end."""
        block = next(self._blocks)
        start, self.position = self.position, self.position + len(block)
        return start, block


def _check_growth(metadata: Any, leaf: str, groups: range, cell: TableCell) -> None:
    """Raise OSError if a row group would grow to gigabytes when it is decompressed."""
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    for group in groups:
        chunk = metadata.row_group(group).column(paths.index(leaf))
        size, stored = chunk.total_uncompressed_size, chunk.total_compressed_size
        if size > BOMB_BYTES and size > BOMB_FACTOR * stored:
            raise _problem(cell, f"row group {group + 1} grows from {stored} to {size} bytes when it is decompressed")


def _find_column(schema: Any, cell: TableCell) -> None:
    if cell.column not in schema.names or picture_leaf(schema.field(cell.column).type) is None:
        raise _problem(cell, "the table has no such column of pictures")


_Column = tuple[str, int, int, str]
"""A file's path, size and time, and a column."""


class _CellReader:
    """Reads cells; keeps recent blocks, and readers that continue where they stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[_Column, int], Any] = OrderedDict()
        self._readers: OrderedDict[tuple[_Column, int], _Reader] = OrderedDict()
        self._bytes = 0

    def read(self, cell: TableCell) -> Any:
        """Return the bytes in a cell, a list of bytes, or None."""
        status = check_file(cell.file)
        column = (str(cell.file), status.st_size, status.st_mtime_ns, cell.column)
        with self._lock:
            try:
                start, block = self._find(column, cell.row) or self._advance(column, cell)
                return _cell_value(block, cell.row - start - 1)
            except OSError as error:
                if isinstance(error, NotAFile):
                    raise
                raise _problem(cell, shorten_error(error)) from None
            except StopIteration:
                raise _problem(cell, "the table ends before this row") from None
            except Exception as error:  # damaged pages, and UserError if the file is not a table
                raise _problem(cell, shorten_error(error)) from None

    def _find(self, column: _Column, row: int) -> tuple[int, Any] | None:
        for key, block in reversed(self._blocks.items()):
            if key[0] == column and key[1] < row <= key[1] + len(block):
                self._blocks.move_to_end(key)
                return key[1], block
        return None

    def _advance(self, column: _Column, cell: TableCell) -> tuple[int, Any]:
        reader = self._take_reader(column, cell)
        while True:
            start, block = reader.next_block()
            if start + len(block) + NEAR_ROWS >= cell.row:
                self._keep(column, start, block)
            if cell.row <= start + len(block):
                break
        self._readers[column, reader.position] = reader
        if len(self._readers) > KEPT_READERS:
            self._readers.popitem(last=False)
        return start, block

    def _take_reader(self, column: _Column, cell: TableCell) -> _Reader:
        """Return the reader that is nearest before a cell, in its row group; else a new one."""
        before = [key for key, reader in self._readers.items() if key[0] == column and reader.reaches(cell.row)]
        return self._readers.pop(max(before, key=lambda key: key[1])) if before else _Reader(cell)

    def _keep(self, column: _Column, start: int, block: Any) -> None:
        old = self._blocks.pop((column, start), None)
        self._bytes += block.nbytes - (0 if old is None else old.nbytes)
        self._blocks[column, start] = block
        while len(self._blocks) > KEPT_BLOCKS or (self._bytes > KEPT_BYTES and len(self._blocks) > 1):
            self._bytes -= self._blocks.popitem(last=False)[1].nbytes


def _cell_value(block: Any, index: int) -> Any:
    """Return the bytes of one cell, without its path."""
    if hasattr(block, "storage"):
        block = block.storage
    value = block[index].as_py()
    return [_without_path(item) for item in value] if isinstance(value, list) else _without_path(value)


def _without_path(value: Any) -> Any:
    return value.get("bytes") if isinstance(value, dict) else value


_CELLS = _CellReader()
