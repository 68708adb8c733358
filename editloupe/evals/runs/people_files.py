"""Merge the files that people made in run folders: labels, notes on traces, label queues and whatever else they put there.

Rows name edits by their names in one run. In a merged run an edit may have another name, so rows are rewritten.
"""

from __future__ import annotations

import filecmp
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge as merge_sorted
from pathlib import Path
from typing import Any, NamedTuple

from editloupe.types import UserError

LABELS, TRACE_NOTES, QUEUE, QUEUE_SUFFIX = "labels.jsonl", "trace_notes.jsonl", "label_queue.jsonl", ".queue.jsonl"
"""Files of a run's folder that people's work goes into; a queue is called `label_queue.jsonl` or ends in the suffix."""
ALREADY_LABELLED = "already_labelled_names"
"""The field of a queue's first line that lists edits by their names."""
_MADE = ("run.sqlite", "run.json", "run.lock", "run.v1.sqlite", "trace_index.sqlite", "pictures")
"""What a run's folder holds that nobody wrote by hand, with or without a suffix such as `-wal`."""
Row = dict[str, Any]


class EditName(NamedTuple):
    """An edit as rows refer to it."""

    name: str
    edit_id: str
    model: str | None


@dataclass(frozen=True)
class RunFiles:
    """A run's folder and what its edits are called in the merged run."""

    folder: Path
    names: Mapping[EditName, EditName]

    @property
    def title(self) -> str:
        """The folder's name, for files that would clash."""
        return self.folder.resolve().name

    def find(self, row: Mapping[str, Any]) -> EditName | None:
        """Return what the edit of a label row is called in the merged run; None if the row does not say which it is.

        Id and model go before the name, as wherever labels are read.
        """
        edit_id, name, model = (_text(row.get(key)) for key in ("edit_id", "name", "model"))
        edit_id = edit_id or _text(row.get("id")) or name
        alike = self._by_id.get(edit_id or "", [])
        if not alike:
            return next((self._by_name[key] for key in (edit_id, name) if key in self._by_name), None)
        if model is not None:
            alike = [edit for edit in alike if edit.model == model] or [edit for edit in alike if edit.model is None]
        if len(alike) > 1:
            alike = [edit for edit in alike if edit.name == name]
        return self.names[alike[0]] if alike else None

    def new_name(self, name: Any) -> Any:
        """Return the new name of an edit; anything else stays as it is."""
        edit = self._by_name.get(name) if isinstance(name, str) else None
        return name if edit is None else edit.name

    @cached_property
    def _by_id(self) -> dict[str, list[EditName]]:
        edits: dict[str, list[EditName]] = {}
        for edit in self.names:
            edits.setdefault(edit.edit_id, []).append(edit)
        return edits

    @cached_property
    def _by_name(self) -> dict[str | None, EditName]:
        return {old.name: new for old, new in self.names.items()}


@dataclass
class PeopleFiles:
    """What was taken over."""

    labels: int = 0
    """Rows of labels."""
    notes: int = 0
    """Rows of notes on traces."""
    queues: int = 0
    others: int = 0
    """Files of other kinds."""
    left: list[str] = field(default_factory=list)
    """Folders that stay in the source runs."""
    remarks: list[str] = field(default_factory=list)


def merge_people_files(runs: Sequence[RunFiles], target: Path) -> PeopleFiles:
    """Write what people made in these runs into the folder of the merged run.

    A row that an earlier run has already is taken once. Files of one name and different content are named after their runs.

    Raises:
        UserError: a line of a file is not JSON.
    """
    done = PeopleFiles()
    labels = [_read_rows(run, LABELS, _rewrite_label, done) for run in runs]
    in_time = merge_sorted(*(_with_time(rows) for rows in _without_copies(labels)), key=lambda pair: pair[0])
    done.labels = _write_rows(target / LABELS, (row for _, row in in_time))
    notes = [_read_rows(run, TRACE_NOTES, _rewrite_name, done) for run in runs]
    fresh = [row for rows in _without_copies(notes) for row in rows]
    done.notes = len(fresh)
    _write_rows(target / TRACE_NOTES, (*fresh, *_combine_notes(notes)))
    done.queues = _merge_queues(runs, target, done)
    for run in runs:
        _copy_others(run, target, done)
    return done


def _read_rows(run: RunFiles, name: str, rewrite: Callable[[RunFiles, Row], Row], done: PeopleFiles) -> list[Row]:
    """Return the rows of a file, rewritten for the merged run; a last line that was cut off is passed over."""
    path = run.folder / name
    if not path.is_file():
        return []
    rows = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError):
            if number < len(lines):
                raise UserError(f"{path}, line {number}: not a JSON object; correct or remove the line") from None
            done.remarks.append(f"the last line of {path} was cut off and is left out")
            continue
        rows.append(rewrite(run, row))
    return rows


def _rewrite_label(run: RunFiles, row: Row) -> Row:
    edit = run.find(row)
    if edit is None:
        return row
    model = {} if edit.model is None else {"model": edit.model}
    return {**row, "edit_id": edit.edit_id, **model, "name": edit.name}


def _rewrite_name(run: RunFiles, row: Row) -> Row:
    return {**row, "name": run.new_name(row["name"])} if "name" in row else row


def _rewrite_queue(run: RunFiles, row: Row) -> Row:
    row = _rewrite_name(run, row)
    listed = row.get(ALREADY_LABELLED)
    return {**row, ALREADY_LABELLED: [run.new_name(name) for name in listed]} if isinstance(listed, list) else row


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)


def _without_copies(files: Iterable[Sequence[Row]]) -> Iterator[list[Row]]:
    """Yield each file's rows without those that an earlier file has; rows repeated within one file stay."""
    known: Counter[str] = Counter()
    for rows in files:
        own: Counter[str] = Counter()
        fresh = []
        for row in rows:
            line = json.dumps(row, sort_keys=True)
            own[line] += 1
            if own[line] > known[line]:
                fresh.append(row)
        known |= own
        yield fresh


def _with_time(rows: Iterable[Row]) -> list[tuple[str, Row]]:
    """Return rows with their times, in the file's order: a later row of the same person replaces an earlier one."""
    timed, last = list[tuple[str, Row]](), ""
    for row in rows:
        at = row.get("at")
        last = max(last, at) if isinstance(at, str) else last
        timed.append((last, row))
    return timed


def _write_rows(path: Path, rows: Iterable[Row]) -> int:
    lines = [_line(row) for row in rows]
    if lines:
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8", errors="backslashreplace", newline="")
    return len(lines)


def _combine_notes(files: Sequence[Sequence[Row]]) -> Iterator[Row]:
    """Yield a row for each trace on which several runs have different notes: the tags and notes of all of them.

    A note that another run has in its history was replaced there and does not come back.
    """
    standing = [{_trace_of(row): row for row in rows} for rows in files]
    history = [{_line(row) for row in rows} for rows in files]
    for trace in dict.fromkeys(trace for rows in standing for trace in rows):
        current: dict[str, Row] = {}
        for number, rows in enumerate(standing):
            line = _line(rows[trace]) if trace in rows else ""
            replaced = any(
                line in history[other] and _line(standing[other][trace]) != line
                for other in range(len(files))
                if other != number and trace in standing[other]
            )
            if line and not replaced and (rows[trace].get("tags") or rows[trace].get("note")):
                current[line] = rows[trace]
        if len(current) > 1:
            rows_here = list(current.values())
            tags = dict.fromkeys(str(tag) for row in rows_here for tag in row.get("tags") or ())
            notes = dict.fromkeys(str(row["note"]) for row in rows_here if row.get("note"))
            yield {**rows_here[-1], "tags": list(tags), "note": "\n".join(notes)}


def _trace_of(row: Row) -> tuple[str, ...]:
    return tuple(str(row.get(key)) for key in ("name", "criterion", "repeat", "asked"))


def _merge_queues(runs: Sequence[RunFiles], target: Path, done: PeopleFiles) -> int:
    """Copy queues. A queue's probabilities hold for its own run, so different ones are never joined."""
    queues: dict[str, dict[str, RunFiles]] = {}
    for run in runs:
        for path in sorted(run.folder.glob("*.jsonl")):
            if path.name == QUEUE or path.name.endswith(QUEUE_SUFFIX):
                rows = _read_rows(run, path.name, _rewrite_queue, done)
                queues.setdefault(path.name, {}).setdefault("".join(f"{_line(row)}\n" for row in rows), run)
    for name, contents in queues.items():
        for text, run in contents.items():
            kept = name if len(contents) == 1 else f"{run.title}{QUEUE_SUFFIX if name == QUEUE else f'-{name}'}"
            _free(target, kept, QUEUE_SUFFIX).write_text(text, "utf-8", errors="backslashreplace", newline="")
    return sum(map(len, queues.values()))


def _copy_others(run: RunFiles, target: Path, done: PeopleFiles) -> None:
    for path in sorted(run.folder.iterdir()):
        known = path.name in (LABELS, TRACE_NOTES, QUEUE) or path.name.endswith(QUEUE_SUFFIX)
        if known or path.name.startswith((".", *_MADE)):
            continue
        if path.is_symlink() or not path.is_file():
            done.left.append(str(path))
            continue
        copy = target / path.name
        if copy.exists() and filecmp.cmp(path, copy, shallow=False):
            continue
        shutil.copy2(path, copy if not copy.exists() else _free(target, f"{run.title}-{path.name}", path.suffix))
        done.others += 1


def _free(folder: Path, name: str, suffix: str) -> Path:
    """Return a path that is not taken, with a number before the suffix if needed."""
    path, number = folder / name, 2
    while path.exists():
        path = folder / f"{name.removesuffix(suffix)}-{number}{suffix}"
        number += 1
    return path


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
