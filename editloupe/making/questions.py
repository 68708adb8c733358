"""Read question sets in the layouts of several public data sets, with their pictures.

The layouts differ in names and spelling only:

- plain rows: `picture` (or `image`), `question`, `options`, `answer`, in JSONL, JSON, CSV, TSV or Parquet;
- V*-Bench: `image`, `text` with the options in it, `label`, or its folder; a JSON file next to each picture has `bbox`
  as x, y, width, height, and in `target_object` the name of each;
- MME-RealWorld: `Image`, `Text`, `Answer choices`, `Ground truth`; as Parquet `question`, `multi-choice options`,
  `answer` and the picture as base64 in `bytes`; as JSON or TSV base64 in `image`, and in the TSV all options in one
  text;
- Pixel-Reasoner: `image` as a list, `answer` as a list with `\\boxed{}` around it, `is_video`;
- options in columns A, B, C…, as in other multiple-choice sets.
"""

from __future__ import annotations

import ast
import base64
import binascii
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe._util.files import atomic_write, make_folder, read_text, write_bytes
from editloupe.evals.manifests.readers import PICTURE_SUFFIXES, Row, read_csv, read_jsonl
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.records import MOST_TARGETS, NOT_SHOWN, LeftOutSample, PictureQuestion, content_key
from editloupe.pictures.decode import declared_size, decode, hash_file
from editloupe.pictures.pixels import ImageError, hash_bytes
from editloupe.types import Box, UserError

FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "question_id", "Question_id", "qid", "index"),
    "picture": ("picture", "image", "Image", "image_path", "source_image", "images"),
    "bytes": ("bytes",),
    "question": ("question", "text", "Text", "problem"),
    "options": ("options", "choices", "Answer choices", "multi-choice options"),
    "answer": ("answer", "label", "Ground truth", "solution"),
    "boxes": ("target_boxes", "boxes", "bboxes"),
    "source": ("source", "dataset"),
    "licence": ("licence", "license"),
}
"""Our field to the names it may have in a row; the first one present is taken."""
PICTURE_FOLDERS = ("", "images", "imgs", "data", "data/imgs")
"""Folders next to a question set in which pictures are searched, in this order."""
LETTERS = "ABCDEFGHIJ"
SOURCES = "sources"
LONGEST_PATH = 1000
"""Characters; a longer text in the picture field is the picture itself in base64."""
_OPTION = re.compile(r"^\s*\(?([A-Z])(?:[).:]|\)\.)\s*(.+?)\s*$", re.MULTILINE)
_ASKS_FOR_A_LETTER = re.compile(
    r"(?i)^\s*(answer|select|respond|choose)\b.*\b(letter|option|choice)s?\b.*$", re.MULTILINE
)
_BOXED = re.compile(r"^\\boxed\{(.*)\}$", re.DOTALL)
_MEDIA = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}


class UnusableRow(ValueError):
    """A row that cannot become a sample; the message is the reason."""


def read_questions(
    path: Path, out: Path, source: str | None = None, licence: str | None = None, pictures: Path | None = None
) -> Iterator[PictureQuestion | LeftOutSample]:
    """Yield the questions of a set and copy their pictures into the folder.

    Args:
        path: The file or folder of the question set.
        out: The folder of the benchmark.
        source: Its name for the data card. Default: the file's name.
        licence: The licence of the pictures, if the rows have none.
        pictures: The folder of the pictures. Default: folders next to the question set.

    Returns:
        Questions, and a `LeftOutSample` with the reason per unusable row.

    Raises:
        UserError: If the file cannot be read, or an id occurs twice.
    """
    beside = path if path.is_dir() else path.parent
    folders = [pictures] if pictures else [beside / name for name in PICTURE_FOLDERS]
    places: dict[str, str] = {}
    for number, row in enumerate(read_rows(path, (*FIELDS["options"], *FIELDS["boxes"])), start=1):
        values = {ours: _find_first(row.values, names) for ours, names in FIELDS.items()}
        values["options"] = values["options"] if values["options"] is not None else _read_option_columns(row.values)
        name = str(values["id"] if values["id"] not in (None, "") else f"{path.stem}-{number}")
        if name in places:
            raise row.error(f'the id "{name}" is already used at {places[name]}; ids must be unique')
        places[name] = row.where
        try:
            if row.values.get("is_video"):
                raise UnusableRow("it is about a video")
            yield _build_question(
                name, values, row, folders, out, source or path.stem, licence, name_question_set(path)
            )
        except (UnusableRow, ImageError) as error:
            key = _row_key(row)
            yield LeftOutSample(
                id=name,
                key=key,
                left_out=str(error),
                by=row.where,
                at=timestamp(),
                question_set=name_question_set(path),
            )


def _row_key(row: Row) -> str:
    return content_key({name: value for name, value in row.values.items() if not isinstance(value, bytes)})


def _build_question(
    name: str,
    values: Mapping[str, Any],
    row: Row,
    folders: Sequence[Path],
    out: Path,
    source: str,
    licence: str | None,
    question_set: str,
) -> PictureQuestion:
    text, options = _split_options(values["question"], values["options"])
    answer = _read_answer(
        values["answer"], options, any(isinstance(option, int) for option in _as_list(values["options"]))
    )
    if NOT_SHOWN.search(answer):
        raise UnusableRow(f'its right answer says that there is nothing to edit: "{answer}"')
    file, boxes, names = _store_picture(values, folders, out)
    row_boxes = values["boxes"]
    try:
        targets = tuple(Box.model_validate(box) for box in _as_list(row_boxes)) if row_boxes else boxes
    except ValidationError as error:
        raise UnusableRow(f"its boxes cannot be read: {first_error(error).message}") from None
    if len(targets) > MOST_TARGETS:
        raise UnusableRow(f"it has {len(targets)} target boxes, and a sample has at most {MOST_TARGETS}")
    size = declared_size(out / file)
    if any(box.clamped(*size) != box for box in targets):
        raise UnusableRow(f"a target box is outside its picture, which has {size[0]} × {size[1]} pixels")
    return PictureQuestion(
        id=name,
        picture=file,
        sha=Path(file).stem,
        size=size,
        question=text,
        options=options,
        answer=answer,
        boxes=targets,
        box_names=() if row_boxes else names,
        source=str(values["source"] or source),
        licence=str(values["licence"]) if values["licence"] else licence,
        origin=row.where,
        question_set=question_set,
    )


def _split_options(question: Any, options: Any) -> tuple[str, tuple[str, ...]]:
    """Return the question alone and its options without their letters. Options may be part of the question's text."""
    if not isinstance(question, str) or not question.strip():
        raise UnusableRow("it has no question")
    text = question.replace("<image>", "").strip()
    texts = [str(option) for option in _as_list(options)] if options is not None else []
    if isinstance(options, str) and (inside := _find_options(options)):
        texts = [match.group(2) for match in inside]
    if not texts and (inside := _find_options(text)):
        texts = [match.group(2) for match in inside]
        text = text[: inside[0].start()]
    text = _ASKS_FOR_A_LETTER.sub("", text).strip()
    stripped = [match.group(2) if (match := _OPTION.fullmatch(option)) else option.strip() for option in texts]
    return " ".join(text.split()), tuple(option for option in stripped if option)


def _find_options(text: str) -> list[re.Match[str]]:
    """Return the options in a text, each on a line of its own with its letter, or an empty list."""
    matches = list(_OPTION.finditer(text))
    return matches if len(matches) >= 2 and matches[0].group(1) == "A" else []


def _read_option_columns(values: Mapping[str, Any]) -> list[str] | None:
    """Return options from columns A, B, C…, or None if there are fewer than two."""
    options = []
    for letter in LETTERS:
        if values.get(letter) in (None, ""):
            break
        options.append(str(values[letter]))
    return options if len(options) >= 2 else None


def _read_answer(answer: Any, options: Sequence[str], of_numbers: bool) -> str:
    """Return the right answer in words. A letter or an index selects an option.

    A number is an index from 0, unless the options are numbers themselves or there is no such option.
    """
    answers = _as_list(answer)
    if answer is None or len(answers) != 1:
        raise UnusableRow("it has no single answer")
    value = answers[0]
    if isinstance(value, int) and not isinstance(value, bool) and options and not of_numbers:
        if 0 <= value < len(options):
            return options[value]
        if str(value) not in options:
            raise UnusableRow(f"its answer is option {value}, and there are {len(options)}")
    text = str(value).strip()
    if boxed := _BOXED.match(text):
        text = _take_first_answer(boxed.group(1).strip())
    letter = re.fullmatch(r"\(?([A-Z])\)?\.?", text)
    if letter and options and text not in options:
        index = ord(letter.group(1)) - ord("A")
        if index >= len(options):
            raise UnusableRow(f"its answer is option {letter.group(1)}, and there are {len(options)}")
        return options[index]
    if not text:
        raise UnusableRow("it has no answer")
    return match.group(2) if (match := _OPTION.fullmatch(text)) else text


def _take_first_answer(text: str) -> str:
    """Return the first of several right answers if a boxed answer is a Python list."""
    if not text.startswith("["):
        return text
    try:
        answers = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return str(answers[0]).strip() if isinstance(answers, list) and answers else text


def _store_picture(
    values: Mapping[str, Any], folders: Sequence[Path], out: Path
) -> tuple[str, tuple[Box, ...], tuple[str, ...]]:
    """Copy the picture into the folder under its content hash.

    Returns:
        Its name there, and the boxes next to the original and their names.
    """
    picture, data = values["picture"], values["bytes"]
    if isinstance(picture, Mapping) and isinstance(picture.get("bytes"), bytes):
        return _store_bytes(picture["bytes"], out), (), ()
    if isinstance(picture, str) and len(picture) > LONGEST_PATH:
        data = picture.partition(",")[2] if picture.startswith("data:") else picture
        picture = None
    if data is not None and not isinstance(picture, str):
        try:
            data = data if isinstance(data, bytes) else base64.b64decode(data)
        except (binascii.Error, ValueError, TypeError):
            raise UnusableRow("its picture is not in base64") from None
        return _store_bytes(data, out), (), ()
    pictures = _as_list(picture)
    if len(pictures) != 1 or not isinstance(pictures[0], str):
        raise UnusableRow("it has no single picture")
    name = pictures[0]
    with suppress(OSError, ValueError):
        for folder in folders:
            path = (folder / name).resolve()
            if path.is_file() and any(path.is_relative_to(root.resolve()) for root in folders):
                return _store_file(path, out), *_read_sidecar_boxes(path)
    raise UnusableRow(f"the picture {name} was not found next to the question set")


def _store_file(path: Path, out: Path) -> str:
    sha, (width, _) = hash_file(path), declared_size(path)
    assert width, "a picture has a size"
    suffix = path.suffix.lower()
    name = f"{SOURCES}/{sha}{'.jpg' if suffix == '.jpeg' else suffix}"
    if not (out / name).exists():
        make_folder((out / name).parent)
        with atomic_write(out / name) as part:
            try:
                os.link(path, part)
            except OSError:  # another disk, or one that knows no links
                shutil.copyfile(path, part)
    return name


def _store_bytes(data: bytes, out: Path) -> str:
    decode(data, "its picture")
    suffix = next((ending for start, ending in _MEDIA.items() if data.startswith(start)), ".png")
    name = f"{SOURCES}/{hash_bytes(data)}{suffix}"
    write_bytes(out / name, data)
    return name


def _read_sidecar_boxes(path: Path) -> tuple[tuple[Box, ...], tuple[str, ...]]:
    """Return the boxes (x, y, width, height) in the JSON file next to a picture, and their names."""
    try:
        content = json.loads(read_text(path.with_suffix(".json")))
        boxes = tuple(Box.model_validate([x, y, x + width, y + height]) for x, y, width, height in content["bbox"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return (), ()
    names = content.get("target_object")
    if not isinstance(names, list) or len(names) != len(boxes):
        return boxes, ()
    return boxes, tuple(map(str, names))


def _find_first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else [value]


FORMATS = ".jsonl, .json, .csv, .tsv and .parquet"


def name_question_set(path: Path) -> str:
    """Return the name of a question set in the files of a benchmark: its file name and a hash of its folder.

    The hash separates files of the same name without revealing the folder.
    """
    folder_hash = hashlib.sha256(str(path.resolve().parent).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return f"{path.name} {folder_hash}"


def read_rows(path: Path, listed: Collection[str]) -> Iterator[Row]:
    """Yield the rows of a question set.

    Args:
        path: The file or folder.
        listed: Columns of flat files whose cells hold lists.

    Raises:
        UserError: If the file cannot be read.
    """
    suffix = path.suffix.lower()
    if path.is_dir():
        yield from _read_folder(path)
    elif not path.is_file():
        raise UserError(f"there is no question set at {path}")
    elif suffix == ".jsonl":
        yield from read_jsonl(path)
    elif suffix in (".csv", ".tsv"):
        for row in read_csv(path, "\t" if suffix == ".tsv" else ","):
            yield Row(
                row.where, {name: _read_cell(value) if name in listed else value for name, value in row.values.items()}
            )
    elif suffix == ".parquet":
        yield from _read_parquet(path)
    elif suffix == ".json":
        try:
            content = json.loads(read_text(path))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path.name} is not JSON ({' '.join(str(error).split())[:120]})") from None
        if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
            raise UserError(f"{path.name} must hold a list of questions, each an object in braces")
        yield from (Row(f"{path.name}, entry {number}", entry) for number, entry in enumerate(content, start=1))
    else:
        raise UserError(f"{path.name} is not a question set: use {FORMATS}, or the folder of V*-Bench")


def _read_folder(path: Path) -> Iterator[Row]:
    """Yield the questions of V*-Bench's folder: a JSON file next to each picture, whose first option is right.

    The benchmark's own evaluation counts the first option as right (vstar_bench_eval.py).
    """
    any_question = False
    for file in sorted(path.rglob("*.json")):
        beside = (file.with_suffix(kind) for suffix in PICTURE_SUFFIXES for kind in (suffix, suffix.upper()))
        picture = next((candidate for candidate in beside if candidate.is_file()), None)
        if picture is None:
            continue
        any_question, name = True, file.relative_to(path).as_posix()
        try:
            content = json.loads(read_text(file))
        except (OSError, ValueError, RecursionError):
            content = None
        values = content if isinstance(content, dict) else {}
        position = {"id": name.removesuffix(".json"), "picture": picture.relative_to(path).as_posix()}
        yield Row(f"{path.name}, {name}", {"answer": 0, **values, **position})
    if not any_question:
        raise UserError(f"{path} has no questions: a folder needs a JSON file next to each picture, as in V*-Bench")


def _read_parquet(path: Path) -> Iterator[Row]:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UserError(f"reading {path.name} needs pyarrow: pip install '.[data]'") from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=16):  # pictures may lie in the rows
                for values in batch.to_pylist():
                    number += 1
                    yield Row(f"{path.name}, row {number}", values)
    except (OSError, ValueError, TypeError) as error:  # pyarrow's own kinds descend from these
        raise UserError(f"{path.name} is not a Parquet file ({' '.join(str(error).split())[:120]})") from None


def _read_cell(value: Any) -> Any:
    """Parse a cell of options or boxes: JSON, text separated by |, or plain lines."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return [part.strip() for part in value.split("|")] if "|" in value else value
