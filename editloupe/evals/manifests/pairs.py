"""Read preference pairs from files and published sets, and build the edits that are judged for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from editloupe.evals.manifests.datasets import resolve_picture
from editloupe.evals.manifests.readers import Row, read_jsonl
from editloupe.pictures.memory import MemoryPicture, PictureField, PictureSource
from editloupe.pictures.picture_tables import find_tables, iter_rows
from editloupe.pictures.table_cells import SUFFIXES as TABLES
from editloupe.rubrics.pairs import FILE, ROW, Orders, PairRow, PairRules
from editloupe.rubrics.paper import read_json, read_json_list
from editloupe.rubrics.registry import find_pair_rules, find_protocol
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, Record, UserError

LINES = (".jsonl", ".ndjson")
SUFFIXES = (".json", *LINES)


def read_set_rows(path: Path, container: str = "") -> Iterator[PairRow]:
    """Yield every row with its location. Every row has the fields ROW and FILE in addition.

    Args:
        path: A file, or a folder whose files are read in the order of their names.
        container: The field that holds the list of rows, if a JSON file is an object.

    Raises:
        UserError: A file cannot be read or does not exist.
    """
    path = path.absolute()
    for file in _list_files(path):
        name = file.relative_to(path).as_posix() if path.is_dir() else file.name
        for where, key, values in _READERS[file.suffix.lower()](file, name, container):
            yield where, {ROW: key, FILE: file.as_posix(), **values}


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        files = _list_tables(path) or sorted(
            file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()
        )
        if not files:
            raise UserError(f"the folder {path} has no {', '.join(_READERS)} file")
        return files
    if path.suffix.lower() not in _READERS:
        raise UserError(f"{path.name} is not a {', '.join(_READERS)} file")
    return [path]


def _list_tables(folder: Path) -> list[Path]:
    """Return the tables of a data set. If only its folders have tables, they are its parts and all of them are returned."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
    if any(entry.suffix.lower() in TABLES or entry.name in ("data", "dataset_dict.json") for entry in entries):
        return find_tables(folder)
    return [table for entry in entries if entry.is_dir() for table in find_tables(entry)]


def _read_table(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for number, (where, values) in enumerate(iter_rows(file), start=1):
        yield where.replace(file.name, name, 1), f"{file.stem}_{number:05d}", values


def _read_lines(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for number, row in enumerate(read_jsonl(file), start=1):
        yield row.where.replace(file.name, name, 1), f"{file.stem}_{number:05d}", row.values


def _read_json(file: Path, name: str, container: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    content = read_json(file, name)
    if isinstance(content, dict) and container in content:
        content = content[container]
    if isinstance(content, dict):
        items = [(f"{name}, {key}", str(key), value) for key, value in content.items()]
    elif isinstance(content, list):
        numbered = enumerate(content, start=1)
        items = [(f"{name}, row {number}", f"{file.stem}_{number:05d}", value) for number, value in numbered]
    else:
        raise UserError(f"{name} must contain a list of objects")
    for where, key, value in items:
        if not isinstance(value, dict):
            raise UserError(f"{where}: this is {json.dumps(value)[:40]}, not an object")
        yield where, key, value


_READERS: Mapping[str, Callable[[Path, str, str], Iterator[tuple[str, str, Mapping[str, Any]]]]] = {
    **dict.fromkeys(LINES, _read_lines),
    ".json": _read_json,
    **dict.fromkeys(TABLES, _read_table),
}
"""Readers by suffix; they yield where a row is, its name, and its values."""


LABELS = ("preference", "tie")
PAIRS = "pairs"
"""Field of `Edit.extra` that lists the pairs of an edit: records with file, id, role, label and dimension."""
LAYOUT_HINT = "--layout NAME reads the files of a published set"
Way = Literal["pointwise", "pairwise"]
Role = Literal["winner", "loser", "AB", "BA"]
ROLES: Mapping[Way, tuple[Role, Role]] = {"pointwise": ("winner", "loser"), "pairwise": ("AB", "BA")}
"""Roles of the two edits of a pair: its candidates, or both candidates in either order."""


class Pair(Record):
    """Two candidates for one instruction, and which one people prefer."""

    id: str
    source: PictureField
    instruction: str
    winner: PictureField
    loser: PictureField
    dimension: str
    label: Literal["preference", "tie", "open"] = "preference"
    """`open` if no preference is known."""
    models: tuple[str, str] | None = None
    """The editing models of winner and loser, if the pair compares two models."""
    task: str | None = None
    references: tuple[PictureField, ...] = ()
    unmarked: PictureField | None = None
    """The source without marks, if marks on the source are part of the instruction."""
    hint: str | None = None
    file: str = ""
    """Name of its file without suffix; pairs of two files may have the same ids."""
    root: Path | None = None
    """The folder its paths were relative to."""
    layout: str | None = None
    """The published set that the pair is from, whose rules decide it."""
    first: Literal["winner", "loser"] = "winner"
    """The candidate that the file lists first."""
    group: str | None = None
    """The group of candidates that the pair is from, if people ranked more than two."""
    candidates: int | None = None
    """Number of candidates in the group."""
    extra: Mapping[str, Any] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the pair."""
        return self.file, self.id, self.dimension

    def candidate(self, which: Literal["winner", "loser"]) -> Edit:
        """Return one candidate as an edit."""
        annotated = {"annotated": (self.source,)} if self.unmarked else {}
        return self._edit(
            which, self.unmarked or self.source, self.winner if which == "winner" else self.loser, annotated
        )

    def ordered(self, winner_first: bool) -> Edit:
        """Return both candidates as one edit, the winner as candidate A or as candidate B."""
        first, second = (self.winner, self.loser) if winner_first else (self.loser, self.winner)
        pictures = {"candidate_a": (first,), "candidate_b": (second,)}
        return self._edit("AB" if winner_first else "BA", self.source, first, pictures)

    def edits(self, way: Way, orders: Orders = "together") -> tuple[Edit, ...]:
        """Return the edits that are judged for this pair: two, or one if only the order of the file is asked."""
        if way == "pointwise":
            return self.candidate("winner"), self.candidate("loser")
        if orders == "once":
            return (self.ordered(self.first == "winner"),)
        return self.ordered(True), self.ordered(False)

    def _edit(
        self,
        role: Role,
        source: PictureSource,
        edited: PictureSource,
        pictures: Mapping[str, tuple[PictureSource, ...]],
    ) -> Edit:
        references = {"references": self.references} if self.references else {}
        membership = {
            "file": self.file,
            "id": self.id,
            "role": role,
            "label": self.label,
            "dimension": self.dimension,
            **({"models": list(self.models)} if self.models else {}),
            **({"set": self.layout} if self.layout else {}),
            **({"group": self.group, "candidates": self.candidates, "first": self.first} if self.group else {}),
        }
        return Edit(
            id=f"{self.id}:{role}",
            source=source,
            edited=edited,
            instruction=self.instruction,
            instruction_type=self.task,
            hint=self.hint,
            more_images={**references, **pictures},
            extra={**self.extra, "dimension": self.dimension, PAIRS: [membership]},
        )


def load_pairs(
    file: str | Path,
    protocol: str | None = None,
    way: Way | None = "pointwise",
    allow_outside: bool = False,
    *,
    task: str | None = None,
    flags: Mapping[str, bool] | None = None,
    layout: str | None = None,
) -> Iterator[Pair]:
    """Stream pairs from a JSON list or a JSONL file; paths are relative to the file.

    Args:
        file: The file.
        protocol: The protocol that defines the dimensions of pairs; by default that of `editloupe reward`.
        way: `pointwise` judges candidates one by one, `pairwise` both at once; None if scores come from elsewhere.
        allow_outside: Allow pictures outside the file's folder.
        task: Task of pairs of which neither a field nor a path names one.
        flags: Booleans of pairs that lack them, which say whether a metric applies.
        layout: The published set that the file, or the folder, is from.

    Raises:
        UserError: The file or a pair has a mistake, or a pointwise pair lacks a field that its question needs.
    """
    file, rules = Path(file), find_pair_rules(layout or protocol)
    own = find_protocol(protocol)
    usual = _check_defaults(task, flags or {}, rules)
    own_rules = layout is None and (protocol is None or (own is not None and own.pairs is not None))
    if not file.exists() or (layout is None and not file.is_file()):
        raise UserError(f"{file} does not exist" if not file.exists() else f"{file} is a folder, not a file of pairs")
    rows: Iterable[Row]
    if layout not in (None, protocol) and own is not None and own.pairs is not None:
        raise UserError(
            f"{own.title} judges pairs of its own; leave out --protocol, or name one that judges single edits"
        )
    if layout is not None:
        rows = _read_layout(file, layout, rules)
    elif file.suffix.lower() in LINES:
        rows = read_jsonl(file)
    else:
        rows = (Row(f"{file.name}, pair {index}", item) for index, item in enumerate(_read_list(file), start=1))
    first: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        item = {**row.values, **{name: value for name, value in usual.items() if row.values.get(name) is None}}
        if task and rules.task_of(item) is None:
            item["task"] = task
        pair = _pair(Row(row.where, item), number, file, rules, allow_outside, layout)
        if not own_rules and layout is None and (own is None or pair.task not in own.types):
            # A task derived from folder names is unknown to another protocol.
            pair = pair.model_copy(update={"task": item.get("task")})
        if pair.id in first:
            raise row.error(f'the id "{pair.id}" is already used at {first[pair.id]}')
        first[pair.id] = row.where
        if way == "pointwise" and own_rules:
            _check(pair, row, rules)
        yield pair


def holds_pairs(file: Path) -> bool:
    """Return whether a file lists preference pairs in the fields of `load_pairs`, judged by its first row."""
    if not file.is_file() or file.suffix.lower() not in SUFFIXES:
        return False
    if file.suffix.lower() in LINES:
        first = next((row.values for row in read_jsonl(file)), {})
    else:
        first = next(iter(_read_list(file)), {})
    return {"winner", "loser"} <= first.keys()


def _read_list(file: Path) -> list[Mapping[str, Any]]:
    try:
        return read_json_list(file)
    except UserError as error:
        hint = f"; {LAYOUT_HINT}" if str(error).endswith("list of objects") else ""
        raise UserError(f"{error}{hint}") from None


def _read_layout(file: Path, layout: str, rules: PairRules) -> Iterator[Row]:
    """Yield the rows of a published set as rows of a file of pairs."""
    if rules.rows is None:
        raise UserError(f"{layout} has no layout of published pairs")
    for row in read_set_rows(file, rules.container):
        for where, values in rules.rows(row):
            yield Row(where, values)


def _check_defaults(task: str | None, flags: Mapping[str, bool], rules: PairRules) -> Mapping[str, bool]:
    """Return the booleans; raise UserError if the task or a boolean does not exist."""
    if task is not None and rules.tasks and rules.task_of({"task": task}) not in rules.tasks:
        raise UserError(f'--task: there is no task "{task}"; there are: {", ".join(rules.tasks)}')
    for name in flags:
        if name not in rules.flags:
            raise UserError(f'--flags: there is no "{name}"; there are: {", ".join(rules.flags)}')
    return flags


def merge_pair_edits(edits: Iterable[Edit], by_dimension: bool) -> list[Edit]:
    """Return the edits of pairs; an edit that several pairs share occurs once and lists all of them.

    Args:
        edits: The edits, each with its pair.
        by_dimension: The question depends on the dimension, so a candidate is a separate edit per dimension.
    """
    merged: dict[Any, Edit] = {}
    pairs: dict[Any, list[Any]] = {}
    for edit in edits:
        extra = {name: value for name, value in edit.extra.items() if name != PAIRS}
        if not by_dimension:
            extra.pop("dimension", None)
        facts = edit.model_dump(mode="json", exclude={"id", "extra"})
        key = json.dumps([facts, extra], sort_keys=True, default=str)
        pairs.setdefault(key, []).extend(edit.extra.get(PAIRS, ()))
        if key not in merged:
            merged[key] = edit.model_copy(update={"extra": extra})
    return [
        edit.model_copy(update={"extra": {**edit.extra, PAIRS: pairs[key]}}) if pairs[key] else edit
        for key, edit in merged.items()
    ]


def _check(pair: Pair, row: Row, rules: PairRules) -> None:
    """Raise UserError if a pair lacks a field that its question needs."""
    try:
        unknown = rules.unknown(pair.candidate("winner"))
    except UserError as error:
        raise row.error(str(error).removeprefix(f"edit {pair.id}:winner: ")) from None
    if unknown:
        raise row.error(unknown)


def _pair(row: Row, number: int, file: Path, rules: PairRules, allow_outside: bool, layout: str | None = None) -> Pair:
    item = row.values
    folder = (file if file.is_dir() else file.parent).resolve()
    for name in ("source_image", "prompt", "winner", "loser", "dimension"):
        if not str(item.get(name) or "").strip():
            hint = "" if layout or "loser" in item else f"; {LAYOUT_HINT}"
            raise row.error(f'"{name}" is missing{hint}')
    if not isinstance(item["dimension"], str) or item["dimension"] not in rules.dimensions:
        dimensions = ", ".join(rules.dimensions)
        raise row.error(f'"dimension" is {json.dumps(item["dimension"])}, not one of {dimensions}')
    label = item.get("label", "preference")
    if label not in LABELS:
        raise row.error(f'"label" is {json.dumps(label)}, not preference or tie')
    for name in rules.flags:
        if item.get(name) is not None and not isinstance(item[name], bool):
            raise row.error(f'"{name}" is {json.dumps(item[name])}, not true or false')

    def path(name: str, value: Any) -> PictureSource:
        if isinstance(value, MemoryPicture):
            return value
        return resolve_picture(row, name, value, folder, allow_outside, "file")

    references = item.get("reference_image_path") or ()
    if not isinstance(references, (str, list, tuple)):
        raise row.error('"reference_image_path" must be a path or a list of paths')
    unmarked = rules.unmarked(item)
    try:
        pair = Pair(
            id=str(item.get("id") or f"pair_{number:05d}"),
            source=path("source_image", item["source_image"]),
            instruction=str(item["prompt"]),
            winner=path("winner", item["winner"]),
            loser=path("loser", item["loser"]),
            dimension=str(item["dimension"]),
            label=label,
            task=rules.task_of(item),
            references=tuple(
                path("reference_image_path", reference)
                for reference in ([references] if isinstance(references, str) else references)
            ),
            unmarked=path("unmarked", unmarked) if unmarked else None,
            hint=str(item.get("hints") or "").strip() or None,
            file=file.stem,
            root=folder,
            layout=layout,
            models=item.get("models") if layout else None,
            first=item.get("first", "winner") if layout else "winner",
            group=item.get("group") if layout else None,
            candidates=item.get("candidates") if layout else None,
            extra={name: item[name] for name in (*rules.kept, *rules.flags) if item.get(name) is not None},
        )
        pair.candidate("winner")  # validates the edit here, where the location is known
    except ValidationError as error:
        raise row.error(describe_validation_error(error)) from None
    return pair
