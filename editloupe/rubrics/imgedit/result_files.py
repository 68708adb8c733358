"""The reader of result files of ImgEdit-Bench's public scripts, for `editloupe import`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from editloupe.rubrics.benchmark import list_folders, read_json_object, read_json_objects
from editloupe.rubrics.imgedit import CRITERION, NAMES, SUITE, UGE
from editloupe.types import UserError

REPLIES, AVERAGES = "result.json", "average_score.json"
LISTS = {"basic": "basic_edit.json", UGE: "UGE_edit.json"}
LINE = re.compile(
    r"[\s*\-#>]*(?P<name>[A-Z][A-Za-z& ]+?)[\s*]*:[\s*]*\[?(?P<score>[0-9][0-9.]*?)(?:\s*/\s*5)?\]?\.?[\s*]*"
)
"""A line of a reply with a score, such as `Prompt Compliance: 4`, also in bold, in brackets, or as `4/5`."""
LONGEST_LINE = 200
"""Letters of a line that may have a score."""
SINGLE = re.compile(r"\bscore\b[\s*]*:[\s*]*([0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)
"""The score of a reply of the UGE suite, which may be within its last line."""


def read_results(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a result file, or of the result files in a folder and its sub-folders, with scores from 0 to 1.

    A model is named after the folder of its file. Types and instructions are read from `basic_edit.json` and `UGE_edit.json`
    in that folder or one of the two above it; without them a reply's type is found by the names of its scores.
    """
    files = [path] if path.is_file() else _find_files(path)
    for file in files:
        items = _find_items(file)
        content = read_json_object(file)
        for key, value in content.items():
            yield f"{file.name}, {key}", _build_row(file, key, value, items)


def _find_files(folder: Path) -> list[Path]:
    """Return the file of replies, else that of averages, of a folder or of each of its sub-folders."""
    for own in ([folder], list_folders(folder)):
        found = [next((file for name in (REPLIES, AVERAGES) if (file := part / name).is_file()), None) for part in own]
        if files := [file for file in found if file]:
            return files
    raise UserError(f"{folder} has no {REPLIES} or {AVERAGES} of ImgEdit-Bench's scripts, and none of its folders has")


def _find_items(file: Path) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the suite and the item of every key, from the lists near a result file; the first list that has the keys counts."""
    near = [file.resolve().parent, *file.resolve().parent.parents][:3]
    lists = [(suite, folder / name) for folder in near for suite, name in LISTS.items() if (folder / name).is_file()]
    if len({suite for suite, _ in lists}) > 1:
        raise UserError(
            f"{file}: there are {lists[0][1]} and {lists[1][1]}, which have the same keys; keep the one that belongs to it"
        )
    return {key: (suite, item) for suite, path in lists[:1] for key, item in read_json_objects(path).items()}


def _build_row(file: Path, key: str, value: Any, items: Mapping[str, tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    suite, item = items.get(key, ("", {}))
    where = f"{file.name}, {key}"
    if items and not item:
        raise UserError(f"{where}: the benchmark's list has no such key")
    kind = (UGE if suite == UGE else str(item.get("edit_type") or "")) if item else _guess_type(value, where)
    if kind not in (*NAMES, UGE):
        raise UserError(f'{where}: "{kind}" is not a type of ImgEdit-Bench; its types are {", ".join(NAMES)}')
    row: dict[str, Any] = {
        "id": key if kind != UGE else f"UGE/{key}",
        "model": file.resolve().parent.name,
        "instruction_type": kind,
        SUITE: UGE if kind == UGE else "basic",
        CRITERION: _read_score(value, kind, where),
    }
    return row | ({"instruction": str(item["prompt"])} if item.get("prompt") else {})


def _guess_type(value: Any, where: str) -> str:
    """Return the type of a reply by the names of its scores; raise UserError if they do not tell."""
    if isinstance(value, str):
        lines = _read_lines(value)
        kinds = [kind for kind, names in NAMES.items() if set(names) <= set(lines)]
        if len(kinds) == 1:
            return kinds[0]
        if not lines and SINGLE.search(value):
            return UGE
    raise UserError(
        f"{where}: the type of this edit is not known; put {LISTS['basic']} or {LISTS[UGE]} next to the file, or one folder above"
    )


def _read_lines(reply: str) -> dict[str, set[str]]:
    """Return the scores of a reply by their names, as texts."""
    scores: dict[str, set[str]] = {}
    for line in reply.splitlines():
        if match := LINE.fullmatch(line[:LONGEST_LINE]):
            scores.setdefault(match["name"].strip(), set()).add(match["score"])
    return scores


def _read_score(value: Any, kind: str, where: str) -> float | None:
    """Return an edit's score from 0 to 1; None, which is unjudged, without a whole number from 1 to 5 for each name."""
    failed = value is None or (isinstance(value, dict) and "error" in value)
    if isinstance(value, bool) or not (failed or isinstance(value, (str, int, float))):
        raise UserError(f"{where} is neither a reply, a score nor an error in place of one")
    if isinstance(value, (int, float)):  # an average of average_score.json
        return (value - 1) / 4 if 1 <= value <= 5 else None
    if not isinstance(value, str):  # an error in place of a reply
        return None
    if kind == UGE:
        texts = [set(SINGLE.findall(value))]
    else:
        lines = _read_lines(value)
        texts = [lines.get(name, set()) for name in NAMES[kind]]
    numbers = [next(iter(own)) for own in texts if len(own) == 1]
    if len(numbers) < len(texts) or not all(re.fullmatch("[1-5]", number) for number in numbers):
        return None
    return (fmean(map(int, numbers)) - 1) / 4
