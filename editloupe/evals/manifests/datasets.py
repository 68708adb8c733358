"""Manifests: edits streamed from a file or a folder, every mistake told with the place it stands at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe._util.json_safe import storable_text
from editloupe.evals.manifests.cases import IdSet
from editloupe.evals.manifests.outputs import OutputNames, detect_output_names
from editloupe.evals.manifests.readers import REQUIRED, Row, find_reader
from editloupe.types import Edit, UserError

Naming = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Gives the values of a row our names of fields."""
Typing = Callable[[Edit], Edit]
"""Gives an edit its type as a protocol spells it; a UserError where it has no such type."""
FIELDS = frozenset(Edit.model_fields) - {"extra"}


def read_manifest(
    path: str | Path, allow_outside: bool = False, naming: Naming | None = None, typing: Typing | None = None
) -> Iterator[Edit]:
    """Stream the edits of a manifest, as `load_manifest` does; rows whose fields have other names go through `naming`."""
    return Manifest(Path(path), allow_outside, naming, typing).edits()


class Manifest:
    """A manifest that can be read again and again, with its own edited pictures or with the outputs in models' folders."""

    def __init__(
        self, path: Path, allow_outside: bool = False, naming: Naming | None = None, typing: Typing | None = None
    ) -> None:
        self.path, self._allow_outside, self._naming, self._typing = path, allow_outside, naming, typing
        self._folder = (path if path.is_dir() else path.parent).resolve()
        self._names: dict[Path, OutputNames] = {}
        find_reader(path)

    def edits(self) -> Iterator[Edit]:
        """Stream the edits; an id may stand once a model."""
        seen = IdSet()
        for row in self._rows():
            edit = self._typed(row, build_edit(row, self._folder, self._allow_outside))
            key = _key(edit.id, edit.model)
            if seen.add(key) and (first := self._first_place(key)) != row.where:
                raise row.error(f'the id "{edit.id}" stands already at {first}; ids must be unique')
            yield edit

    def edits_with_outputs(self, folder: Path, model: str) -> Iterator[Edit]:
        """Stream the edits with the outputs of one model; an id may stand once."""
        names, seen = self.output_names(folder), IdSet()
        for row in self._rows(with_outputs=True):
            edit = self._typed(
                row, build_edit(_of_model(row, model), self._folder, self._allow_outside, names.path(row))
            )
            if seen.add(edit.id) and (first := self._first_place(_key(edit.id, None), with_outputs=True)) != row.where:
                raise row.error(f'the id "{edit.id}" stands already at {first}; with outputs an id stands once')
            yield edit

    def output_names(self, folder: Path) -> OutputNames:
        """Return how the outputs in a folder are called; looked for once a folder."""
        if folder not in self._names:
            self._names[folder] = detect_output_names(lambda: self._rows(with_outputs=True), folder)
        return self._names[folder]

    def _typed(self, row: Row, edit: Edit) -> Edit:
        try:
            return self._typing(edit) if self._typing else edit
        except UserError as error:
            raise row.error(str(error)) from None

    def _rows(self, with_outputs: bool = False) -> Iterator[Row]:
        for row in find_reader(self.path, with_outputs)(self.path):
            yield self._named(row)

    def _named(self, row: Row) -> Row:
        try:
            return Row(row.where, self._naming(row.values)) if self._naming else row
        except UserError as error:
            raise row.error(str(error)) from None

    def _first_place(self, wanted: str, with_outputs: bool = False) -> str:
        """Return where an id stands first; two different ids may share a hash, so the file is asked again."""
        for row in self._rows(with_outputs):
            model = None if with_outputs else row.values.get("model")
            if ("edited" in row.values or with_outputs) and _key(_id(row), model) == wanted:
                return row.where
        raise UserError(f"{self.path.name} changed while it was read")


def _key(edit_id: str, model: Any) -> str:
    return edit_id if model is None else f"{edit_id}\0{storable_text(str(model))}"


def _of_model(row: Row, model: str) -> Row:
    """Return a line as it is about this model's output: people's labels are of the output of the model the line names."""
    values = {name: value for name, value in row.values.items() if name != "human" or row.values.get("model") == model}
    return Row(row.where, {**values, "model": model})


def build_edit(row: Row, folder: Path, allow_outside: bool = False, output: Path | None = None) -> Edit:
    """Return the edit a row describes, with `output` in place of its edited picture; its place is before every mistake."""
    values = row.values
    for name in REQUIRED:
        if name == "edited" and output is not None:
            continue
        if values.get(name) in (None, ""):
            raise row.error(f'"{name}" is missing')
    known = {name: value for name, value in values.items() if name in FIELDS and value is not None}
    known["id"] = _id(row)
    if output is not None:
        known["edited"] = output
    for name in ("source", "edited", "reference"):
        if name in known and not (name == "edited" and output is not None):
            known[name] = _path(row, name, known[name], folder, allow_outside)
    if "human" in known:
        known["human"] = _labels(row, known["human"])
    if "more_images" in known:
        known["more_images"] = _more_images(row, known["more_images"], folder, allow_outside)
    extra = {name: value for name, value in values.items() if name not in FIELDS and name != "extra"}
    if isinstance(nested := values.get("extra"), Mapping):
        extra = {**nested, **extra}
    elif nested is not None:
        extra["extra"] = nested
    try:
        return Edit(**known, extra=extra)
    except ValidationError as error:
        raise row.error(_sentence(error)) from None


def _id(row: Row) -> str:
    value = row.values.get("id")
    if value is None or value == "":
        return storable_text(Path(str(row.values.get("edited") or row.values["source"])).stem)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise row.error('"id" must be a text or a whole number')
    return storable_text(str(value))


def _path(row: Row, name: str, value: Any, folder: Path, allow_outside: bool) -> Path:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise row.error(f'"{name}" must be the path of a picture')
    if "://" in value:
        raise row.error(f'"{name}" is an address ({value}); pictures must be files')
    try:
        resolved = (folder / value).resolve()
    except (OSError, RuntimeError, ValueError):  # too long, links in a circle, half a character
        raise row.error(f'"{name}" leads nowhere: {value}') from None
    if not allow_outside and not resolved.is_relative_to(folder):
        raise row.error(f'"{name}" leads outside the manifest\'s folder ({value}); --allow-outside permits that')
    return resolved


def _labels(row: Row, value: Any) -> dict[str, str | tuple[str, ...]]:
    """Labels by criterion, one or one an annotator; numbers are kept as their text."""
    if not isinstance(value, Mapping):
        raise row.error('"human" must map a criterion to a label or a list of labels')
    labels: dict[str, str | tuple[str, ...]] = {}
    for criterion, given in value.items():
        several = isinstance(given, (list, tuple))
        # An annotator who skipped the edit is written as null; the place in the list says whose label is missing.
        items = ["" if item is None else item for item in given] if several else [given]
        if not items or any(isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in items):
            raise row.error(f'"human" has no usable label for {criterion}')
        labels[str(criterion)] = tuple(map(str, items)) if several else str(items[0])
    return labels


def _more_images(row: Row, value: Any, folder: Path, allow_outside: bool) -> dict[str, tuple[Path, ...]]:
    if not isinstance(value, Mapping):
        raise row.error('"more_images" must map a role to a path or a list of paths')
    return {
        str(role): tuple(_path(row, f"more_images.{role}", item, folder, allow_outside) for item in _listed(paths))
        for role, paths in value.items()
    }


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _sentence(error: ValidationError) -> str:
    first = first_error(error)
    return f'"{first.place}": {first.message}' if first.place else first.message
