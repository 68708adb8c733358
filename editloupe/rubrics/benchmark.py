"""Benchmarks as their authors lay them out on disk: a folder of tasks, and a folder of one model's results."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe._util.files import read_text
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, UserError

LANGUAGES = ("en", "cn")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


def _ignore_note(sentence: str) -> None:
    """Take a note that nobody asked for."""


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark and a model's results lie, and what of them is wanted."""

    data: Path
    results: Path
    languages: tuple[str, ...] = LANGUAGES
    model: str | None = None
    """The name under which the results are filed; else the name of their folder."""
    note: Callable[[str], object] = _ignore_note
    """Is told what of the benchmark is passed over."""

    @property
    def model_name(self) -> str:
        """The name of the model whose results these are."""
        return self.model or self.results.resolve().name

    def path(self, said: str, *folders: Path) -> Path:
        """Return a picture of the benchmark, looked for in these folders; it may not lead out of the benchmark."""
        try:
            candidates = [(folder / said).resolve() for folder in (*folders, self.data)]
            inside = [path for path in candidates if path.is_relative_to(self.data.resolve())]
            if not inside:
                raise UserError(f"{said} leads outside the benchmark's folder {self.data}")
            return next((path for path in inside if path.exists()), inside[-1])
        except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a NUL or half a character
            raise UserError(f"{said!r} leads nowhere in the benchmark's folder {self.data}") from None


def read_json_list(file: Path) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON file that holds a list of them, or an object of them by id."""
    try:
        content = json.loads(read_text(file))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not JSON ({error})") from None
    items = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UserError(f"{file} must hold a list of objects")
    return items


def further_columns(item: Mapping[str, Any], read: re.Pattern[str]) -> dict[str, Any]:
    """Return the columns of a benchmark's item that no field of an edit was read from, empty ones left out.

    >>> further_columns({"idx": "7", "knowledge": "procedural", "note": ""}, re.compile("idx|prompt"))
    {'knowledge': 'procedural'}
    """
    return {
        name: value
        for name, value in item.items()
        if isinstance(name, str) and value not in (None, "", [], {}) and not read.fullmatch(name)
    }


def picture_in(folder: Path, stem: str) -> Path | None:
    """Return the picture of this name in a folder, whatever its format."""
    place = os.path.join(folder, stem)
    if os.path.basename(stem) != stem and not Path(os.path.normpath(place)).is_relative_to(os.path.normpath(folder)):
        raise UserError(f"{stem!r} leads outside the folder {folder}")
    for suffix in PICTURES:
        try:
            if stat.S_ISREG(os.stat(place + suffix).st_mode):
                return Path(place + suffix)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            raise UserError(f"no picture in {folder} can be called {stem!r}") from None
    return None


def list_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name, hidden ones left out; one that cannot be read is the user's mistake."""
    if not folder.is_dir():
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None


def make_edit(where: str, **fields: Any) -> Edit:
    """Return an edit of a benchmark; a mistake in its fields is told with its place."""
    try:
        return Edit(**fields)
    except ValidationError as error:
        raise UserError(f"{where}: {describe_validation_error(error)}") from None
