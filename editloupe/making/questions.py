"""Question sets: pictures with questions, options and answers, however a set spells them; read once, pictures and all.

One reader takes the layouts of several public sets, because they differ in names and spelling only:

- plain rows: `picture` (or `image`), `question`, `options`, `answer`, in JSONL, JSON, CSV, TSV or Parquet;
- V*-Bench: `image`, `text` with the options in it, `label`, or its folder; a JSON file beside each picture has `bbox` as x, y,
  width, height, and in `target_object` the name of each;
- MME-RealWorld: `Image`, `Text`, `Answer choices`, `Ground truth`; as Parquet `question`, `multi-choice options`, `answer` and
  the picture as base64 in `bytes`; as JSON or TSV base64 in `image`, and in the TSV all options in one text;
- Pixel-Reasoner: `image` as a list, `answer` as a list with `\\boxed{}` around it, `is_video`;
- options in columns A, B, C…, as other sets of choices have them.
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
from editloupe._util.files import make_folder, read_text, whole_file
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
"""Our field to the names it is looked for under, the first one present taken."""
PICTURE_FOLDERS = ("", "images", "imgs", "data", "data/imgs")
"""Where pictures lie beside a question set, in the order they are looked for."""
LETTERS = "ABCDEFGHIJ"
SOURCES = "sources"
LONGEST_PATH = 1000
"""Characters; a longer text in a picture's place is the picture itself in base64."""
_OPTION = re.compile(r"^\s*\(?([A-Z])(?:[).:]|\)\.)\s*(.+?)\s*$", re.MULTILINE)
_ASKS_FOR_A_LETTER = re.compile(
    r"(?i)^\s*(answer|select|respond|choose)\b.*\b(letter|option|choice)s?\b.*$", re.MULTILINE
)
_BOXED = re.compile(r"^\\boxed\{(.*)\}$", re.DOTALL)
_MEDIA = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"RIFF": ".webp"}


class UnusableRow(ValueError):
    """A row no sample can be made of; the sentence says why."""


def read_questions(
    path: Path, out: Path, source: str | None = None, licence: str | None = None, pictures: Path | None = None
) -> Iterator[PictureQuestion | LeftOutSample]:
    """Yield the questions of a set with their pictures brought into the folder; a row that cannot be used says why.

    A file that cannot be read at all, and an id that stands twice, are the user's mistakes.
    """
    beside = path if path.is_dir() else path.parent
    folders = [pictures] if pictures else [beside / name for name in PICTURE_FOLDERS]
    seen: dict[str, str] = {}
    for number, row in enumerate(read_rows(path, (*FIELDS["options"], *FIELDS["boxes"])), start=1):
        values = {ours: _first(row.values, names) for ours, names in FIELDS.items()}
        values["options"] = values["options"] if values["options"] is not None else _columns(row.values)
        name = str(values["id"] if values["id"] not in (None, "") else f"{path.stem}-{number}")
        if name in seen:
            raise row.error(f'the id "{name}" stands already at {seen[name]}; ids must be unique')
        seen[name] = row.where
        try:
            if row.values.get("is_video"):
                raise UnusableRow("it is about a video")
            yield _question(name, values, row, folders, out, source or path.stem, licence, name_question_set(path))
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


def _question(
    name: str,
    values: Mapping[str, Any],
    row: Row,
    folders: Sequence[Path],
    out: Path,
    source: str,
    licence: str | None,
    question_set: str,
) -> PictureQuestion:
    text, options = _asked(values["question"], values["options"])
    answer = _answer(values["answer"], options, any(isinstance(one, int) for one in _listed(values["options"])))
    if NOT_SHOWN.search(answer):
        raise UnusableRow(f'its right answer says that there is nothing to edit: "{answer}"')
    file, boxes, names = _picture(values, folders, out)
    given = values["boxes"]
    try:
        found = tuple(Box.model_validate(box) for box in _listed(given)) if given else boxes
    except ValidationError as error:
        raise UnusableRow(f"its boxes cannot be read: {first_error(error).message}") from None
    if len(found) > MOST_TARGETS:
        raise UnusableRow(f"it has {len(found)} target boxes, and a sample has at most {MOST_TARGETS}")
    size = declared_size(out / file)
    if any(box.clamped(*size) != box for box in found):
        raise UnusableRow(f"a target box lies outside its picture, which is {size[0]} × {size[1]} pixels")
    return PictureQuestion(
        id=name,
        picture=file,
        sha=Path(file).stem,
        size=size,
        question=text,
        options=options,
        answer=answer,
        boxes=found,
        box_names=() if given else names,
        source=str(values["source"] or source),
        licence=str(values["licence"]) if values["licence"] else licence,
        origin=row.where,
        question_set=question_set,
    )


def _asked(question: Any, options: Any) -> tuple[str, tuple[str, ...]]:
    """Return the question alone and its options without their letters; options may stand in the question's text."""
    if not isinstance(question, str) or not question.strip():
        raise UnusableRow("it has no question")
    text = question.replace("<image>", "").strip()
    listed = [str(one) for one in _listed(options)] if options is not None else []
    if isinstance(options, str) and (inside := _options_in(options)):
        listed = [found.group(2) for found in inside]
    if not listed and (inside := _options_in(text)):
        listed = [found.group(2) for found in inside]
        text = text[: inside[0].start()]
    text = _ASKS_FOR_A_LETTER.sub("", text).strip()
    stripped = [found.group(2) if (found := _OPTION.fullmatch(one)) else one.strip() for one in listed]
    return " ".join(text.split()), tuple(one for one in stripped if one)


def _options_in(text: str) -> list[re.Match[str]]:
    """Return the options that stand in a text, each in a line of its own with its letter; none where it has no such list."""
    found = list(_OPTION.finditer(text))
    return found if len(found) >= 2 and found[0].group(1) == "A" else []


def _columns(values: Mapping[str, Any]) -> list[str] | None:
    """Return options that stand in columns A, B, C…, None where there are no two of them."""
    found = []
    for letter in LETTERS:
        if values.get(letter) in (None, ""):
            break
        found.append(str(values[letter]))
    return found if len(found) >= 2 else None


def _answer(answer: Any, options: Sequence[str], of_numbers: bool) -> str:
    """Return the right answer in words: a letter or a place among the options stands for the option.

    A number is a place, counted from 0, unless the options are numbers themselves or have no such place.
    """
    listed = _listed(answer)
    if answer is None or len(listed) != 1:
        raise UnusableRow("it has no single answer")
    value = listed[0]
    if isinstance(value, int) and not isinstance(value, bool) and options and not of_numbers:
        if 0 <= value < len(options):
            return options[value]
        if str(value) not in options:
            raise UnusableRow(f"its answer is option {value}, and there are {len(options)}")
    text = str(value).strip()
    if boxed := _BOXED.match(text):
        text = _first_of_several(boxed.group(1).strip())
    letter = re.fullmatch(r"\(?([A-Z])\)?\.?", text)
    if letter and options and text not in options:
        place = ord(letter.group(1)) - ord("A")
        if place >= len(options):
            raise UnusableRow(f"its answer is option {letter.group(1)}, and there are {len(options)}")
        return options[place]
    if not text:
        raise UnusableRow("it has no answer")
    return found.group(2) if (found := _OPTION.fullmatch(text)) else text


def _first_of_several(text: str) -> str:
    """Return the first of several right answers, where a boxed answer lists them as Python does."""
    if not text.startswith("["):
        return text
    try:
        listed = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return str(listed[0]).strip() if isinstance(listed, list) and listed else text


def _picture(
    values: Mapping[str, Any], folders: Sequence[Path], out: Path
) -> tuple[str, tuple[Box, ...], tuple[str, ...]]:
    """Bring the picture into the folder under the hash of its content; return its name there, boxes beside it and their names."""
    held, data = values["picture"], values["bytes"]
    if isinstance(held, Mapping) and isinstance(held.get("bytes"), bytes):
        return _keep_bytes(held["bytes"], out), (), ()
    if isinstance(held, str) and len(held) > LONGEST_PATH:
        data = held.partition(",")[2] if held.startswith("data:") else held
        held = None
    if data is not None and not isinstance(held, str):
        try:
            data = data if isinstance(data, bytes) else base64.b64decode(data)
        except (binascii.Error, ValueError, TypeError):
            raise UnusableRow("its picture is not in base64") from None
        return _keep_bytes(data, out), (), ()
    listed = _listed(held)
    if len(listed) != 1 or not isinstance(listed[0], str):
        raise UnusableRow("it has no single picture")
    said = listed[0]
    with suppress(OSError, ValueError):
        for folder in folders:
            path = (folder / said).resolve()
            if path.is_file() and any(path.is_relative_to(one.resolve()) for one in folders):
                return _keep_file(path, out), *_boxes_beside(path)
    raise UnusableRow(f"there is no picture {said} beside the question set")


def _keep_file(path: Path, out: Path) -> str:
    sha, (width, _) = hash_file(path), declared_size(path)
    assert width, "a picture has a size"
    suffix = path.suffix.lower()
    name = f"{SOURCES}/{sha}{'.jpg' if suffix == '.jpeg' else suffix}"
    if not (out / name).exists():
        make_folder((out / name).parent)
        with whole_file(out / name) as part:
            try:
                os.link(path, part)
            except OSError:  # another disk, or one that knows no links
                shutil.copyfile(path, part)
    return name


def _keep_bytes(data: bytes, out: Path) -> str:
    decode(data, "its picture")
    suffix = next((one for start, one in _MEDIA.items() if data.startswith(start)), ".png")
    name = f"{SOURCES}/{hash_bytes(data)}{suffix}"
    make_folder((out / name).parent)
    with whole_file(out / name) as part:
        part.write_bytes(data)
    return name


def _boxes_beside(path: Path) -> tuple[tuple[Box, ...], tuple[str, ...]]:
    """Return the boxes in the JSON file beside a picture, given as x, y, width and height, and what each is of."""
    try:
        content = json.loads(read_text(path.with_suffix(".json")))
        found = tuple(Box.model_validate([x, y, x + width, y + height]) for x, y, width, height in content["bbox"])
    except (OSError, ValueError, KeyError, TypeError):
        return (), ()
    names = content.get("target_object")
    named = isinstance(names, list) and len(names) == len(found)
    return found, tuple(str(one) for one in names) if named else ()


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    return list(value) if isinstance(value, (list, tuple)) else [value]


FORMATS = ".jsonl, .json, .csv, .tsv and .parquet"


def name_question_set(path: Path) -> str:
    """Return what a question set goes by in the files of a benchmark: its name, and a mark of the folder it lies in.

    Two files of one name are two question sets; where they lie is nobody's business.
    """
    place = hashlib.sha256(str(path.resolve().parent).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    return f"{path.name} {place}"


def read_rows(path: Path, listed: Collection[str]) -> Iterator[Row]:
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
