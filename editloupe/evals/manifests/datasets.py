"""Manifests: edits streamed from a file or a folder, every mistake told with the place it stands at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe.evals.manifests.ids import IdSet
from editloupe.evals.manifests.readers import REQUIRED, Reader, Row, reader_for
from editloupe.storable import storable_text
from editloupe.types import Edit, UserError

Naming = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Gives the values of a row our names of fields."""
FIELDS = frozenset(Edit.model_fields) - {"extra"}


def read_manifest(path: str | Path, allow_outside: bool = False, naming: Naming | None = None) -> Iterator[Edit]:
    """Stream the edits of a manifest, as `load_manifest` does; rows whose fields have other names go through `naming`."""
    path = Path(path)
    rows = reader_for(path)
    folder = (path if path.is_dir() else path.parent).resolve()
    return _edits(path, rows, folder, allow_outside, naming)


def _edits(path: Path, rows: Reader, folder: Path, allow_outside: bool, naming: Naming | None) -> Iterator[Edit]:
    seen = IdSet()
    for row in _named(rows(path), naming):
        edit = edit_from(row, folder, allow_outside)
        if seen.add(edit.id) and (first := _first_place(path, edit.id, naming)) != row.where:
            raise row.error(f'the id "{edit.id}" stands already at {first}; ids must be unique')
        yield edit


def _named(rows: Iterable[Row], naming: Naming | None) -> Iterator[Row]:
    for row in rows:
        yield Row(row.where, naming(row.values)) if naming else row


def edit_from(row: Row, folder: Path, allow_outside: bool = False) -> Edit:
    """Return the edit a row describes; the row's place is in front of every mistake."""
    values = row.values
    for name in REQUIRED:
        if values.get(name) in (None, ""):
            raise row.error(f'"{name}" is missing')
    known = {name: value for name, value in values.items() if name in FIELDS and value is not None}
    known["id"] = _id(row)
    for name in ("source", "edited", "reference"):
        if name in known:
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
        return storable_text(Path(str(row.values["edited"])).stem)
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
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f'"{place}": {message}' if place else message


def _first_place(path: Path, wanted: str, naming: Naming | None) -> str:
    """Return where an id stands first; two different ids may share a hash, so the file is asked again."""
    for row in _named(reader_for(path)(path), naming):
        if "edited" in row.values and _id(row) == wanted:
            return row.where
    raise UserError(f"{path.name} changed while it was read")
