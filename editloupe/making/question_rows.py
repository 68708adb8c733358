"""The rows of a question set, whatever file or folder holds them; what they say is read elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from editloupe._util.files import read_text
from editloupe.evals.manifests.readers import PICTURE_SUFFIXES, Row, read_csv, read_jsonl
from editloupe.types import UserError

FORMATS = ".jsonl, .json, .csv, .tsv and .parquet"


def set_name(path: Path) -> str:
    """Return what a question set goes by in the files of a benchmark: its name, and a mark of the folder it lies in.

    Two files of one name are two question sets; where they lie is nobody's business.
    """
    place = hashlib.sha256(str(path.resolve().parent).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return f"{path.name} {place}"


def question_rows(path: Path, listed: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a question set; cells of a flat file named in `listed` hold lists.

    A file that cannot be read at all is the user's mistake.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        yield from _folder(path)
    elif not path.is_file():
        raise UserError(f"there is no question set at {path}")
    elif suffix == ".jsonl":
        yield from read_jsonl(path)
    elif suffix in (".csv", ".tsv"):
        for row in read_csv(path, "\t" if suffix == ".tsv" else ","):
            yield Row(
                row.where, {name: _cell(value) if name in listed else value for name, value in row.values.items()}
            )
    elif suffix == ".parquet":
        yield from _parquet(path)
    elif suffix == ".json":
        try:
            content = json.loads(read_text(path))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path.name} is not JSON ({' '.join(str(error).split())[:120]})") from None
        if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
            raise UserError(f"{path.name} must hold a list of questions, each an object in braces")
        yield from (Row(f"{path.name}, entry {place}", one) for place, one in enumerate(content, start=1))
    else:
        raise UserError(f"{path.name} is no question set: {FORMATS} are read, and V*-Bench's folder")


def _folder(path: Path) -> Iterator[Row]:
    """Yield the questions of V*-Bench's own folder: a JSON file beside each picture, whose first option is the right one.

    That the first is right is how the benchmark's own evaluation counts (vstar_bench_eval.py).
    """
    found = False
    for file in sorted(path.rglob("*.json")):
        beside = (file.with_suffix(kind) for suffix in PICTURE_SUFFIXES for kind in (suffix, suffix.upper()))
        picture = next((one for one in beside if one.is_file()), None)
        if picture is None:
            continue
        found, name = True, file.relative_to(path).as_posix()
        try:
            content = json.loads(read_text(file))
        except (OSError, ValueError, RecursionError):
            content = None
        values = content if isinstance(content, dict) else {}
        place = {"id": name.removesuffix(".json"), "picture": picture.relative_to(path).as_posix()}
        yield Row(f"{path.name}, {name}", {"answer": 0, **values, **place})
    if not found:
        raise UserError(f"{path} holds no question: a folder has a JSON file beside each picture, as V*-Bench has")


def _parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError(f"reading {path.name} needs pyarrow: pip install 'editloupe[data]'") from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=16):  # pictures may lie in the rows
                for values in batch.to_pylist():
                    number += 1
                    yield Row(f"{path.name}, row {number}", values)
    except (OSError, ValueError, TypeError) as error:  # pyarrow's own kinds descend from these
        raise UserError(f"{path.name} is not a Parquet file ({' '.join(str(error).split())[:120]})") from None


def _cell(value: Any) -> Any:
    """Return a flat file's cell of options or boxes: JSON, text with | between the options, or lines as they are."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return [part.strip() for part in value.split("|")] if "|" in value else value
