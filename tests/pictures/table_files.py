"""Tables with pictures, in the forms in which data sets are published."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def png(seed: int, size: int = 8) -> bytes:
    """Return the bytes of a small picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def image_type() -> Any:
    """Return the type of an image column: `{bytes, path}`."""
    import pyarrow

    return pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def images(cells: list[bytes | None]) -> Any:
    """Return an image column; None is an empty cell."""
    import pyarrow

    values = [None if cell is None else {"bytes": cell, "path": f"{i}.png"} for i, cell in enumerate(cells)]
    return pyarrow.array(values, image_type())


def write_table(path: Path, columns: dict[str, Any], rows: int = 10) -> Path:
    """Write a table as Parquet, or as an Arrow stream like `save_to_disk`, with row groups or batches of this many rows."""
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table(columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=rows)
        return path
    new = pyarrow.ipc.new_file if path.stem.startswith("indexed") else pyarrow.ipc.new_stream
    with pyarrow.OSFile(str(path), "wb") as file, new(file, table.schema) as out:
        out.write_table(table, max_chunksize=rows)
    return path
