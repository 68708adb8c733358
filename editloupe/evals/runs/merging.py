"""Merge several runs into a new one, with their pictures and the files that people made in their folders.

Edits are the same if id, model and content are. Units are the same if question, inputs and repeat are. Labels, notes and queues
name edits by their names in one run. An edit may have another name in the merged run, so these rows are rewritten.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge as merge_sorted
from pathlib import Path
from typing import Any, NamedTuple

from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.claim_store import FILE as CLAIMS
from editloupe.evals.runs.edit_rows import EditRecord, NewEdit, upsert_edit
from editloupe.evals.runs.run_folder import (
    ABOUT,
    ALREADY_LABELLED,
    FILE,
    LABELS,
    LOCK,
    PICTURES,
    QUEUE,
    QUEUE_SUFFIX,
    TRACE_NOTES,
    RunLock,
)
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import ANSWER, insert_unit, replace_unit
from editloupe.types import Edit, Usage, UserError

_WHOLE, _LOCK = "run", "merge.lock"
"""In the temporary folder: the merged run while it is written, and the lock of the process that writes it."""
_UNIT = ", ".join(f"units.{name}" for name in schema.UNIT_COLUMNS)
_OWN = ", ".join(f"answers.{name} AS own_{name}" for name in ("criterion", "asked", "repeat", "shown"))
_ANSWERS = (
    f"SELECT answers.unit, {_OWN}, {_UNIT} FROM answers JOIN units ON units.unit = answers.unit "
    "WHERE answers.edit = ? ORDER BY answers.answer"
)
_STATUS = (
    "SELECT units.status FROM answers JOIN units ON units.unit = answers.unit "
    "WHERE answers.edit = ? AND answers.asked = ? AND answers.repeat = ?"
)
_DATABASES = (FILE, CLAIMS, "trace_index.sqlite", "run.v1.sqlite")
_OWN_FILES = {
    ABOUT,
    LOCK,
    PICTURES,
    *(f"{name}{log}" for name in _DATABASES for log in ("", "-wal", "-shm", "-journal")),
}
"""Files of a run's folder that EditLoupe writes."""
Row = dict[str, Any]


@dataclass
class PeopleFiles:
    """Counts of the merged files."""

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


@dataclass
class MergeResult:
    """Counts of a merge."""

    edits: int = 0
    answers: int = 0
    """Verdicts and unjudged units as a report counts them: a unit that answers two edits counts twice."""
    in_both: int = 0
    """Answers that an earlier run has too. The first run's is used, unless only a later one has a verdict."""
    unreadable: list[str] = field(default_factory=list)
    """Names of edits that could not be read and are left out."""
    people: PeopleFiles = field(default_factory=PeopleFiles)
    """Labels, notes, queues and other files."""


def merge_runs(runs: Sequence[Path], out: Path) -> MergeResult:
    """Merge runs into a new one; the runs themselves are not changed.

    The merged run is written into a temporary folder and renamed when it is complete. Two processes cannot merge into one folder
    at the same time. Files that a killed process left are deleted by the next merge into the same folder.

    Args:
        runs: Folders of runs.
        out: The folder of the merged run, which must not exist or must be empty.

    Raises:
        UserError: A run cannot be merged, the folder is not empty, or another process merges into it.
    """
    for folder in runs:
        schema.connect_to_read(folder / FILE).close()
    if len({folder.resolve() for folder in runs}) < len(runs):
        raise UserError("the same run is named twice; what was spent would count twice")
    if any(out.resolve().is_relative_to(folder.resolve()) for folder in runs):
        raise UserError(f"{out} is inside a run that is merged; merge into another folder")
    _check_free(out)
    part = out.absolute().with_name(f".{out.absolute().name}.part")
    try:
        with _lock_merge(part, out):
            _check_free(out)
            merged = _merge_all(runs, part / _WHOLE)
            (part / _WHOLE).replace(out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise UserError(f"{out} was made by another process meanwhile; merge into another folder") from None
        raise UserError(f"{out} cannot be written: {error.strerror or error}") from None
    return merged


def _check_free(out: Path) -> None:
    if (out / FILE).exists():
        raise UserError(f"{out} is a run already; merge into another folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty; merge into another folder")


@contextmanager
def _lock_merge(part: Path, out: Path) -> Iterator[None]:
    """Lock and empty a temporary folder for one merge; delete it afterwards."""
    part.mkdir(parents=True, exist_ok=True)
    try:
        lock = RunLock(part / _LOCK)
    except (UserError, FileNotFoundError):  # held, or removed just now by the process that held it
        raise UserError(
            f"another process is merging into {out}; wait for it to end, or merge into another folder"
        ) from None
    except OSError:  # a full disk
        with suppress(OSError):
            part.rmdir()
        raise
    try:
        for path in part.iterdir():
            if path.name != _LOCK:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        yield
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.release()


def _merge_all(runs: Sequence[Path], folder: Path) -> MergeResult:
    merged, numbers = MergeResult(), list[dict[EditReference, int]]()
    origins = set[bool]()
    with Run.write(folder) as target:
        for path in runs:
            with Run.open(path) as source:
                if (about := source.about()).get("configurations"):
                    origins.add(configurations.is_imported(about))
                if len(origins) > 1:
                    raise UserError(
                        "judged and imported verdicts are kept apart; merge only runs of one of the two kinds"
                    )
                numbers.append(_merge_run(source, target, merged))
        with target.reader() as reader:
            rows = reader.connection.execute("SELECT edit, name, edit_id, model FROM edits").fetchall()
    edits = {number: EditReference(*names) for number, *names in rows}
    files = [
        RunFiles(path, {old: edits[number] for old, number in own.items()})
        for path, own in zip(runs, numbers, strict=True)
    ]
    merged.people = merge_people_files(files, folder)
    return merged


def _merge_run(source: Run, target: Run, merged: MergeResult) -> dict[EditReference, int]:
    """Copy a run into the target; return the numbers of its edits there."""
    numbers: dict[EditReference, int] = {}
    with source.reader() as reader, target.transaction() as new:
        old = reader.connection
        old.row_factory = sqlite3.Row
        for row in old.execute("SELECT asked, criterion, facts FROM asked"):
            new.execute("INSERT OR IGNORE INTO asked VALUES (?, ?, ?)", tuple(row))
        names = _merge_configurations(old, new)
        first = new.execute("SELECT coalesce(max(position) + 1, 0) FROM edits").fetchone()[0]
        for row in old.execute("SELECT * FROM edits ORDER BY position, edit_id, name"):
            number = _merge_edit(old, new, row, first, merged, names)
            if number is not None:
                numbers[EditReference(row["name"], row["edit_id"], row["model"])] = number
        for row in old.execute("SELECT sha, text FROM texts"):
            new.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", tuple(row))
        for row in old.execute("SELECT key, edit_id, reply, kept_at FROM replies"):
            new.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?)", tuple(row))
        _add_spending(old, new)
        _add_forks(old, new)
    entries = source.about().get("configurations", ())
    target.add_configurations({**entry, "name": names.get(str(entry["name"]), entry["name"])} for entry in entries)
    _copy_pictures(source, target)
    return numbers


def _merge_configurations(old: sqlite3.Connection, new: sqlite3.Connection) -> dict[str, str]:
    """Copy the configurations; return their names in the new run by their old names.

    Two runs may have configurations of the same name that ask different questions, so a name may change.
    """
    query = "SELECT configuration, asked, criterion FROM configurations JOIN asked USING (asked) ORDER BY configurations.rowid"
    questions: dict[str, list[tuple[str, str]]] = {}
    for name, key, criterion in old.execute(query):
        questions.setdefault(str(name), []).append((str(criterion), str(key)))
    names: dict[str, str] = {}
    for name, own in questions.items():
        names[name] = configurations.find_name_by_keys(new, own, preferred=name)
        for _, key in own:
            configurations.link_question(new, names[name], key)
    return names


def _merge_edit(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    row: sqlite3.Row,
    first: int,
    merged: MergeResult,
    names: Mapping[str, str],
) -> int | None:
    """Copy an edit with its answers and return its number; None if it cannot be read."""
    edit, pictures = None, {}
    with suppress(ValueError, TypeError, RecursionError):
        edit, pictures = Edit.model_validate_json(row["facts"]), json.loads(row["pictures"])
    if edit is None:
        merged.unreadable.append(str(row["name"]))
        return None
    stamps = EditRecord(*(row[name] for name in EditRecord._fields)).stamps()
    last = new.execute("SELECT coalesce(max(edit), 0) FROM edits").fetchone()[0]
    number = upsert_edit(new, NewEdit(edit, first + row["position"], row["content"], stamps, pictures), Secrets())
    merged.edits += number > last
    for answer in old.execute(_ANSWERS, (row["edit"],)):
        key = (number, answer["own_asked"], answer["own_repeat"])
        if existing := new.execute(_STATUS, key).fetchone():
            merged.in_both += 1
            if existing[0] == "judged" or answer["status"] != "judged":
                continue
        else:
            merged.answers += 1
        unit = _merge_unit(old, new, answer, names)
        own = (answer["own_criterion"], answer["own_asked"], answer["own_repeat"])
        new.execute(ANSWER, (number, *own, unit, answer["own_shown"]))
    return number


def _merge_unit(old: sqlite3.Connection, new: sqlite3.Connection, answer: sqlite3.Row, names: Mapping[str, str]) -> int:
    """Return the unit that an answer refers to; copy it with its traces if the new run has no such verdict."""
    values: dict[str, Any] = {name: answer[name] for name in schema.UNIT_COLUMNS}
    values["configuration"] = names.get(str(answer["configuration"]), answer["configuration"])
    same = "SELECT unit, status FROM units WHERE shown = :shown AND asked = :asked AND repeat = :repeat"
    if existing := new.execute(same, values).fetchone():
        if existing[1] == "judged" or answer["status"] != "judged":
            return int(existing[0])
        unit = replace_unit(new, int(existing[0]), values)
    else:
        unit = insert_unit(new, values)
    for trace in old.execute("SELECT * FROM traces WHERE unit = ? ORDER BY trace", (answer["unit"],)).fetchall():
        number = new.execute(
            "INSERT INTO traces (unit, target, seconds, head) VALUES (?, ?, ?, ?)",
            (unit, trace["target"], trace["seconds"], trace["head"]),
        ).lastrowid
        steps = old.execute("SELECT position, seconds, step FROM steps WHERE trace = ?", (trace["trace"],))
        new.executemany("INSERT INTO steps VALUES (?, ?, ?, ?)", ((number, *step) for step in steps))
    return unit


def _add_spending(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    names = (*Usage.model_fields, "cost")
    for row in old.execute(f"SELECT judge, {', '.join(names)} FROM spent"):
        added = ", ".join(f"{name} = {name} + excluded.{name}" for name in names)
        marks = ", ".join("?" * (len(names) + 1))
        new.execute(
            f"INSERT INTO spent (judge, {', '.join(names)}) VALUES ({marks}) ON CONFLICT (judge) DO UPDATE SET {added}",
            tuple(row),
        )


def _add_forks(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Copy forks after the existing ones, under new numbers."""
    if not old.execute(schema.FORKS_THERE).fetchone():
        return
    new.execute(schema.FORKS)
    first = int(new.execute("SELECT coalesce(max(fork), 0) FROM forks").fetchone()[0])
    for row in old.execute("SELECT fork, edit_id, name, criterion, identity, record FROM forks ORDER BY fork"):
        number, *rest, record = row
        with suppress(ValueError, TypeError):
            record = json.dumps({**json.loads(record), "number": first + number}, ensure_ascii=False)
        new.execute("INSERT INTO forks VALUES (?, ?, ?, ?, ?, ?)", (first + number, *rest, record))


def _copy_pictures(source: Run, target: Run) -> None:
    folder = source.pictures.folder
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/[0-9a-f]*")) if folder.is_dir() else ():
        copy = target.pictures.folder / path.parent.name / path.name
        if path.is_symlink() or not path.is_file() or copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:  # another disk
            shutil.copy2(path, copy)


class EditReference(NamedTuple):
    """An edit as rows of labels and notes refer to it."""

    name: str
    edit_id: str
    model: str | None


@dataclass(frozen=True)
class RunFiles:
    """A run's folder, and the names of its edits in the merged run."""

    folder: Path
    names: Mapping[EditReference, EditReference]

    @property
    def title(self) -> str:
        """The folder's name, for files that would clash."""
        return self.folder.resolve().name

    def find(self, row: Mapping[str, Any]) -> EditReference | None:
        """Return the edit of a label row in the merged run; None if the row does not identify one.

        Id and model take precedence over the name, as in all readers of labels.
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
        """Return the new name of an edit; return any other value unchanged."""
        edit = self._by_name.get(name) if isinstance(name, str) else None
        return name if edit is None else edit.name

    @cached_property
    def _by_id(self) -> dict[str, list[EditReference]]:
        edits: dict[str, list[EditReference]] = {}
        for edit in self.names:
            edits.setdefault(edit.edit_id, []).append(edit)
        return edits

    @cached_property
    def _by_name(self) -> dict[str | None, EditReference]:
        return {old.name: new for old, new in self.names.items()}


def merge_people_files(runs: Sequence[RunFiles], target: Path) -> PeopleFiles:
    """Merge labels, notes, queues and other files of runs into the folder of the merged run.

    A row that an earlier run has too is written once. Files with the same name and different content are named after their runs.

    Raises:
        UserError: A line of a file is not JSON.
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
        _copy_other_files(run, target, done)
    return done


def _read_rows(run: RunFiles, name: str, rewrite: Callable[[RunFiles, Row], Row], done: PeopleFiles) -> list[Row]:
    """Return the rows of a file, rewritten for the merged run; skip a last line that was cut off."""
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
    names = row.get(ALREADY_LABELLED)
    return {**row, ALREADY_LABELLED: [run.new_name(name) for name in names]} if isinstance(names, list) else row


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)


def _without_copies(files: Iterable[Sequence[Row]]) -> Iterator[list[Row]]:
    """Yield each file's rows without those that an earlier file has; rows repeated within one file stay."""
    earlier: Counter[str] = Counter()
    for rows in files:
        own: Counter[str] = Counter()
        fresh = []
        for row in rows:
            line = json.dumps(row, sort_keys=True)
            own[line] += 1
            if own[line] > earlier[line]:
                fresh.append(row)
        earlier |= own
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
    current_rows = [{_trace_of(row): row for row in rows} for rows in files]
    history = [{_line(row) for row in rows} for rows in files]
    for trace in dict.fromkeys(trace for rows in current_rows for trace in rows):
        current: dict[str, Row] = {}
        for number, rows in enumerate(current_rows):
            line = _line(rows[trace]) if trace in rows else ""
            replaced = any(
                line in history[other] and _line(current_rows[other][trace]) != line
                for other in range(len(files))
                if other != number and trace in current_rows[other]
            )
            if line and not replaced and (rows[trace].get("tags") or rows[trace].get("note")):
                current[line] = rows[trace]
        if len(current) > 1:
            differing = list(current.values())
            tags = dict.fromkeys(str(tag) for row in differing for tag in row.get("tags") or ())
            notes = dict.fromkeys(str(row["note"]) for row in differing if row.get("note"))
            yield {**differing[-1], "tags": list(tags), "note": "\n".join(notes)}


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
            new_name = name if len(contents) == 1 else f"{run.title}{QUEUE_SUFFIX if name == QUEUE else f'-{name}'}"
            _find_free_path(target, new_name, QUEUE_SUFFIX).write_text(
                text, "utf-8", errors="backslashreplace", newline=""
            )
    return sum(map(len, queues.values()))


def _copy_other_files(run: RunFiles, target: Path, done: PeopleFiles) -> None:
    for path in sorted(run.folder.iterdir()):
        is_merged = path.name in (LABELS, TRACE_NOTES, QUEUE) or path.name.endswith(QUEUE_SUFFIX)
        if is_merged or path.name in _OWN_FILES or path.name.startswith("."):
            continue
        if path.is_symlink() or not path.is_file():
            done.left.append(str(path))
            continue
        copy = target / path.name
        if copy.exists() and filecmp.cmp(path, copy, shallow=False):
            continue
        shutil.copy2(
            path, copy if not copy.exists() else _find_free_path(target, f"{run.title}-{path.name}", path.suffix)
        )
        done.others += 1


def _find_free_path(folder: Path, name: str, suffix: str) -> Path:
    """Return a path that is not taken, with a number before the suffix if needed."""
    path, number = folder / name, 2
    while path.exists():
        path = folder / f"{name.removesuffix(suffix)}-{number}{suffix}"
        number += 1
    return path


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)
