"""Several runs into one: edits meet by id, model and content, verdicts by what was asked and shown."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs import configurations, schema
from editloupe.evals.runs.edit_rows import Enrolled, Entry, enrol
from editloupe.evals.runs.people_files import EditName, PeopleFiles, RunFiles, merge_people_files
from editloupe.evals.runs.run_folder import FILE, RunLock
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import ANSWER, insert_unit, write_over
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


@dataclass
class Merged:
    """What came together."""

    edits: int = 0
    answers: int = 0
    """Verdicts, and what is unjudged, as a report counts them: one that is true of two edits counts for both."""
    in_both: int = 0
    """Answers that an earlier run had already; the first run's stand, unless only a later one has a verdict."""
    unreadable: list[str] = field(default_factory=list)
    """Names of edits that could not be read and are left out."""
    people: PeopleFiles = field(default_factory=PeopleFiles)
    """What people made: labels, notes, queues and other files."""


def merge(runs: Sequence[Path], out: Path) -> Merged:
    """Write everything that these runs hold into a new run; the runs themselves are not changed.

    The merged run is written into a temporary folder and renamed when it is complete. Two processes cannot merge into one folder
    at the same time. What a killed process left is removed by the next merge into the same folder.

    Args:
        runs: Folders of runs.
        out: The folder of the merged run, which must not exist or must be empty.

    Raises:
        UserError: a run cannot be merged, the folder is taken, or another process merges into it.
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
        with _only_merge(part, out):
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
def _only_merge(part: Path, out: Path) -> Iterator[None]:
    """Hold a temporary folder for one merge, without what a killed process left in it; remove it afterwards."""
    part.mkdir(parents=True, exist_ok=True)
    try:
        lock = RunLock(part / _LOCK)
    except (UserError, FileNotFoundError):  # held, or removed just now by the process that held it
        raise UserError(
            f"another process is merging into {out}; wait for it to end, or merge into another folder"
        ) from None
    try:
        for left in part.iterdir():
            if left.name != _LOCK:
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        yield
    finally:
        shutil.rmtree(part, ignore_errors=True)
        lock.release()


def _merge_all(runs: Sequence[Path], folder: Path) -> Merged:
    merged, numbers = Merged(), list[dict[EditName, int]]()
    with Run.write(folder) as target:
        for path in runs:
            with Run.open(path) as source:
                numbers.append(_merge_one(source, target, merged))
        with target.reader() as reader:
            rows = reader.connection.execute("SELECT edit, name, edit_id, model FROM edits").fetchall()
    edits = {number: EditName(*names) for number, *names in rows}
    files = [
        RunFiles(path, {old: edits[number] for old, number in own.items()})
        for path, own in zip(runs, numbers, strict=True)
    ]
    merged.people = merge_people_files(files, folder)
    return merged


def _merge_one(source: Run, target: Run, merged: Merged) -> dict[EditName, int]:
    """Take a run over and return the numbers of its edits in the target."""
    numbers: dict[EditName, int] = {}
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
                numbers[EditName(row["name"], row["edit_id"], row["model"])] = number
        for row in old.execute("SELECT sha, text FROM texts"):
            new.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", tuple(row))
        for row in old.execute("SELECT key, edit_id, reply, kept_at FROM replies"):
            new.execute("INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?)", tuple(row))
        _add_spending(old, new)
        _add_forks(old, new)
    known = source.about().get("configurations", ())
    target.add_configurations({**one, "name": names.get(str(one["name"]), one["name"])} for one in known)
    _copy_pictures(source, target)
    return numbers


def _merge_configurations(old: sqlite3.Connection, new: sqlite3.Connection) -> dict[str, str]:
    """Take over which questions belong together and return the names these have in the new run, by their old ones.

    Two runs that began alike and went on differently have configurations of one name that ask different things.
    """
    query = "SELECT configuration, asked, criterion FROM configurations JOIN asked USING (asked) ORDER BY configurations.rowid"
    questions: dict[str, list[tuple[str, str]]] = {}
    for name, asked, criterion in old.execute(query):
        questions.setdefault(str(name), []).append((str(criterion), str(asked)))
    names: dict[str, str] = {}
    for name, own in questions.items():
        names[name] = configurations.name_among(new, own, preferred=name)
        for _, asked in own:
            configurations.link(new, names[name], asked)
    return names


def _merge_edit(
    old: sqlite3.Connection,
    new: sqlite3.Connection,
    row: sqlite3.Row,
    first: int,
    merged: Merged,
    names: Mapping[str, str],
) -> int | None:
    """Take an edit over with its answers and return its number; None if it cannot be read."""
    edit, pictures = None, {}
    with suppress(ValueError, TypeError, RecursionError):
        edit, pictures = Edit.model_validate_json(row["facts"]), json.loads(row["pictures"])
    if edit is None:
        merged.unreadable.append(str(row["name"]))
        return None
    known = Enrolled(*(row[name] for name in Enrolled._fields))
    last = new.execute("SELECT coalesce(max(edit), 0) FROM edits").fetchone()[0]
    number = enrol(new, Entry(edit, first + row["position"], row["content"], known.stamps(), pictures), Secrets())
    merged.edits += number > last
    for answer in old.execute(_ANSWERS, (row["edit"],)):
        place = (number, answer["own_asked"], answer["own_repeat"])
        if there := new.execute(_STATUS, place).fetchone():
            merged.in_both += 1
            if there[0] == "judged" or answer["status"] != "judged":
                continue
        else:
            merged.answers += 1
        unit = _merge_unit(old, new, answer, names)
        own = (answer["own_criterion"], answer["own_asked"], answer["own_repeat"])
        new.execute(ANSWER, (number, *own, unit, answer["own_shown"]))
    return number


def _merge_unit(old: sqlite3.Connection, new: sqlite3.Connection, answer: sqlite3.Row, names: Mapping[str, str]) -> int:
    """Return the number of the unit an answer points to, copied with its traces where the new run has no verdict like it."""
    values: dict[str, Any] = {name: answer[name] for name in schema.UNIT_COLUMNS}
    values["configuration"] = names.get(str(answer["configuration"]), answer["configuration"])
    same = "SELECT unit, status FROM units WHERE shown = :shown AND asked = :asked AND repeat = :repeat"
    if found := new.execute(same, values).fetchone():
        if found[1] == "judged" or answer["status"] != "judged":
            return int(found[0])
        unit = write_over(new, int(found[0]), values)
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
    """Take forks over behind those that are there, under new numbers."""
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
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/*")) if folder.is_dir() else ():
        copy = target.pictures.folder / path.parent.name / path.name
        if path.is_symlink() or not path.is_file() or copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:  # another disk
            shutil.copy2(path, copy)
