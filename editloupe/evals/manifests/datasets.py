"""Turn the rows of a manifest into edits. Every error names the row's location."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe._util.files import is_inside
from editloupe._util.json_safe import sanitize_text
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.columns import FIELDS, NEAR, Naming, format_columns, rename_row
from editloupe.evals.manifests.outputs import OutputNames, detect_output_names
from editloupe.evals.manifests.readers import (
    REQUIRED,
    Reader,
    Row,
    TablePicture,
    find_reader,
    name_picture,
    split_folder,
)
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.table_cells import resolve_picture_path
from editloupe.types import Edit, UserError

Typing = Callable[[Edit], Edit]
"""Spells an edit's type as a protocol does; raises UserError if the protocol has no such type."""
LISTED = 8
"""The most columns that one sentence lists."""


def make_name_checker(criteria: Collection[str], note: Callable[[str], object]) -> Typing:
    """Return a function that reports misspelt names of an edit's fields and criteria, and returns the edit unchanged.

    Every name is reported once, when it is first seen.

    Args:
        criteria: The criteria of the protocol; empty if they are not known.
        note: Called with a sentence that lists further columns, if one of them resembles a field, and with one for every
            criterion of human labels that resembles a criterion of the protocol.
    """
    seen: set[str] = set()

    def check(edit: Edit) -> Edit:
        if columns := [name for name in edit.extra if name not in seen]:
            seen.update(columns)
            names = sorted((_with_question(name, FIELDS) for name in columns), key=lambda text: not text.endswith("?)"))
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            if names[0].endswith("?)"):
                note(f"not fields of an edit, kept as further columns: {', '.join(names[:LISTED])}{more}")
        if edit.human and (labelled := [name for name in edit.human if f"human.{name}" not in seen]):
            seen.update(f"human.{name}" for name in labelled)
            for name in labelled:
                if name not in criteria and (question := _with_question(name, criteria)) != name:
                    note(f"human labels on {question} are kept, but the protocol has no criterion of that name")
        return edit

    return check


def _with_question(name: str, names: Collection[str]) -> str:
    """Return a name, with the one of several names that it resembles.

    >>> _with_question("hunan", ["human", "hint"])
    'hunan (did you mean human?)'
    """
    near = get_close_matches(name, names, n=1, cutoff=NEAR)
    return f"{name} (did you mean {near[0]}?)" if near else name


def read_manifest(
    path: str | Path, allow_outside: bool = False, naming: Naming | None = None, typing: Typing | None = None
) -> Iterator[Edit]:
    """Stream the edits of a manifest, as `load_manifest` does.

    Args:
        path: The manifest.
        allow_outside: Allow paths outside the manifest's folder.
        naming: Renames the fields of a row to those of `Edit`.
        typing: Spells the type of an edit as a protocol does.
    """
    return Manifest(Path(path), allow_outside, naming, typing).edits()


class Manifest:
    """A manifest that can be read several times, with its own edited pictures or with outputs in models' folders.

    Args:
        path: The manifest.
        allow_outside: Allow paths outside the manifest's folder.
        naming: Renames the fields of a row to those of `Edit`.
        typing: Spells the type of an edit as a protocol does.
        reader: Reads the rows; by default the reader for the manifest's form.
    """

    def __init__(
        self,
        path: Path,
        allow_outside: bool = False,
        naming: Naming | None = None,
        typing: Typing | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.path, self._allow_outside, self._naming, self._typing = path, allow_outside, naming, typing
        self._reader = reader
        folder, _ = split_folder(path)
        self.folder = (folder if folder.is_dir() else folder.parent).resolve()
        self._names: dict[Path, OutputNames] = {}
        if reader is None:
            find_reader(path)

    def edits(self) -> Iterator[Edit]:
        """Stream the edits; ids must be unique per model."""
        seen = IdSet()
        for row in self.rows():
            edit = self._assign_type(row, build_edit(row, self.folder, self._allow_outside))
            key = _key(edit.id, edit.model)
            if seen.add(key) and (first := self._find_first(key)) != row.where:
                raise row.error(f'the id "{edit.id}" is already used at {first}; ids must be unique')
            yield edit

    def edits_with_outputs(self, folder: Path, model: str) -> Iterator[Edit]:
        """Stream the edits with the outputs of one model; ids must be unique."""
        names, seen = self.output_names(folder), IdSet()
        for row in self.rows(with_outputs=True):
            edit = self._assign_type(
                row, build_edit(_of_model(row, model), self.folder, self._allow_outside, names.path(row))
            )
            if seen.add(edit.id) and (first := self._find_first(_key(edit.id, None), with_outputs=True)) != row.where:
                raise row.error(f'the id "{edit.id}" is already used at {first}; with outputs, ids must be unique')
            yield edit

    def output_names(self, folder: Path) -> OutputNames:
        """Return how the outputs in a folder are named; detected once per folder."""
        if folder not in self._names:
            self._names[folder] = detect_output_names(lambda: self.rows(with_outputs=True), folder)
        return self._names[folder]

    def _assign_type(self, row: Row, edit: Edit) -> Edit:
        try:
            return self._typing(edit) if self._typing else edit
        except UserError as error:
            raise row.error(str(error)) from None

    def rows(self, with_outputs: bool = False) -> Iterator[Row]:
        """Stream the rows with their fields renamed."""
        read = self._reader or find_reader(self.path, with_outputs)
        for row in read(self.path):
            yield rename_row(row, self._naming)

    def _find_first(self, key: str, with_outputs: bool = False) -> str:
        """Return the first location of an id. The file is read again, because two ids may share a hash."""
        for row in self.rows(with_outputs):
            model = None if with_outputs else row.values.get("model")
            if ("edited" in row.values or with_outputs) and _key(_id(row), model) == key:
                return row.where
        raise UserError(f"{self.path.name} changed while it was read")


def _key(edit_id: str, model: Any) -> str:
    return edit_id if model is None else f"{edit_id}\0{sanitize_text(str(model))}"


def _of_model(row: Row, model: str) -> Row:
    """Return a row for this model's output; human labels are kept only if the row names this model."""
    values = {name: value for name, value in row.values.items() if name != "human" or row.values.get("model") == model}
    return Row(row.where, {**values, "model": model})


def build_edit(row: Row, folder: Path, allow_outside: bool = False, output: Path | None = None) -> Edit:
    """Return the edit of a row.

    Args:
        row: The row.
        folder: The folder that paths are relative to.
        allow_outside: Allow paths outside the folder.
        output: Used instead of the row's edited picture.

    Raises:
        UserError: The row has a mistake; the message begins with its location.
    """
    values = row.values
    for name in REQUIRED:
        if name == "edited" and output is not None:
            continue
        if values.get(name) in (None, ""):
            near = get_close_matches(name, [column for column in values if column not in FIELDS], n=1, cutoff=NEAR)
            hint = f'; "{near[0]}" may be a misspelling of it' if near else ""
            if name == "edited" and not near:
                hint = "; --results MODEL=FOLDER names the outputs of a model"
            elif not near and values:
                hint = f"; if one of them holds it, name that with --columns {name}=NAME"
            raise row.error(f'"{name}" is missing; this row has {format_columns(values) or "nothing"}{hint}')
    fields = {name: value for name, value in values.items() if name in FIELDS and value is not None}
    if _is_empty(fields.get("reference")):
        del fields["reference"]
    fields["id"] = _id(row)
    if output is not None:
        fields["edited"] = output
    for name in ("source", "edited", "reference"):
        if name in fields and not (name == "edited" and output is not None):
            fields[name] = _find_picture(row, name, fields[name], folder, allow_outside)
    if "human" in fields:
        fields["human"] = _labels(row, fields["human"])
    if "more_images" in fields:
        fields["more_images"] = _more_images(row, fields["more_images"], folder, allow_outside)
    extra = {name: value for name, value in values.items() if name not in (*FIELDS, "extra") and not _is_picture(value)}
    if isinstance(nested := values.get("extra"), Mapping):
        extra = {**nested, **extra}
    elif nested is not None:
        extra["extra"] = nested
    try:
        return Edit(**fields, extra=extra)
    except ValidationError as error:
        raise row.error(_sentence(error)) from None


def _id(row: Row) -> str:
    value = row.values.get("id")
    if value is None or value == "":
        return sanitize_text(name_picture(row.values.get("edited") or row.values["source"]))
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise row.error('"id" must be a text or a whole number')
    return sanitize_text(str(value))


def _is_picture(value: Any) -> bool:
    """Return whether a value is a picture in a table, or a list of these."""
    return any(isinstance(item, TablePicture) for item in (value if isinstance(value, list) else [value]))


def resolve_picture(
    row: Row, name: str, value: Any, folder: Path, allow_outside: bool, whose: str = "manifest"
) -> Path:
    """Return the absolute path of a picture that a row names.

    Args:
        row: The row, for errors.
        name: The field that holds the path.
        value: The path, relative to the folder.
        folder: The folder of the row's file, with links resolved.
        allow_outside: Allow paths outside the folder.
        whose: What the folder belongs to, for errors.

    Raises:
        UserError: The value is not a path, or leads outside the folder, also by links.
    """
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise row.error(f'"{name}" must be the path of a picture')
    if "://" in value:
        raise row.error(f'"{name}" is a URL ({value}); pictures must be files')
    try:
        resolved = resolve_picture_path(folder / value)
    except (OSError, RuntimeError, ValueError):  # too long, links in a circle, half a character
        raise row.error(f'"{name}" is not a valid path: {value}') from None
    if not allow_outside and not is_inside(resolved, folder):
        raise row.error(f'"{name}" leads outside the {whose}\'s folder ({value}); --allow-outside permits that')
    return resolved


def _labels(row: Row, value: Any) -> dict[str, str | tuple[str, ...]]:
    """Return labels by criterion: one, or one per annotator; numbers as text."""
    if not isinstance(value, Mapping):
        raise row.error('"human" must map a criterion to a label or a list of labels')
    labels: dict[str, str | tuple[str, ...]] = {}
    for criterion, label in value.items():
        several = isinstance(label, (list, tuple))
        # null is an annotator who skipped the edit; the position in the list identifies the annotator.
        items = ["" if item is None else item for item in label] if several else [label]
        if not items or any(isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in items):
            raise row.error(f'"human" has no usable label for {criterion}')
        labels[str(criterion)] = tuple(map(str, items)) if several else str(items[0])
    return labels


def _more_images(row: Row, value: Any, folder: Path, allow_outside: bool) -> dict[str, tuple[PictureSource, ...]]:
    if not isinstance(value, Mapping):
        raise row.error('"more_images" must map a role to a path or a list of paths')
    return {
        str(role): tuple(_find_picture(row, f"more_images.{role}", item, folder, allow_outside) for item in pictures)
        for role, paths in value.items()
        if (pictures := [item for item in _as_list(paths) if not _is_empty(item)]) or not _as_list(paths)
    }


def _is_empty(value: Any) -> bool:
    return isinstance(value, TablePicture) and not value.held


def _find_picture(row: Row, name: str, value: Any, folder: Path, allow_outside: bool) -> PictureSource:
    """Return a picture of a row: the one in a table's cell, or the path of a file."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], TablePicture):
        value = value[0]
    if isinstance(value, TablePicture):
        return value.source
    if isinstance(value, list) and _is_picture(value):
        raise row.error(f'"{name}" has {len(value)} pictures; it takes one')
    return resolve_picture(row, name, value, folder, allow_outside)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _sentence(error: ValidationError) -> str:
    first = first_error(error)
    return f'"{first.place}": {first.message}' if first.place else first.message
