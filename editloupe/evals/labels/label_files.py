"""Files of human labels, with their columns, the meaning of their texts, and which of them count for a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from editloupe.evals.labels.label_studio import read_label_studio
from editloupe.evals.manifests.columns import (
    Columns,
    check_columns,
    check_names,
    rename_columns,
    rename_row,
    split_list,
)
from editloupe.evals.manifests.jsonl_log import read_log_rows
from editloupe.evals.manifests.readers import READERS, Row, read_jsonl
from editloupe.evals.runs.run_folder import LABELS
from editloupe.types import UserError

KINDS = (*READERS, ".json")
"""Suffixes of label files; JSON is an export of Label Studio."""


@dataclass(frozen=True)
class LabelFile:
    """A file of human labels, and how it is read.

    Args:
        path: The file.
        columns: Fields and criteria to the columns that hold them, if the columns have other names.
        meanings: Texts in the file to labels or criteria, in any case. `CRITERION:TEXT` holds for one criterion only. The
            empty label is no label.
        origin: A name of the file for messages.
    """

    path: Path
    columns: Columns = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""

    @cached_property
    def _meanings(self) -> dict[str, str]:
        return {fold_text(text): meaning for text, meaning in self.meanings.items()}

    def translate(self, text: Any, criterion: str = "") -> Any:
        """Return what a text of the file means: a label of the criterion, or a criterion if none is named."""
        if not isinstance(text, (str, int, float)) or not self.meanings:
            return text
        key = fold_text(str(text))
        own = self._meanings.get(fold_text(f"{criterion}:{text}")) if criterion else None
        return self._meanings.get(key, text) if own is None else own

    def read_rows(self, notes: list[str]) -> Iterator[Row]:
        """Yield the rows of the file with their columns renamed.

        Args:
            notes: Gets a sentence if the last line was cut off.

        Raises:
            UserError: The file cannot be read, or has no such column.
        """
        path = self.path
        kind = path.suffix.lower()
        if not path.is_file() or kind not in KINDS:
            problem = f"is one of {', '.join(KINDS)}" if path.is_file() else f"was not found at {path}"
            raise UserError(f"{path.name}: a file of human labels {problem}")
        if kind == ".json":
            rows = read_label_studio(path, notes)
        else:
            rows = read_log_rows(path, notes) if READERS[kind] is read_jsonl else READERS[kind](path)
        if not self.columns:
            return rows
        if kind == ".json":
            rows = iter(exported := list(rows))
            check_names(path.name, list(dict.fromkeys(name for row in exported for name in row.values)), self.columns)
        else:
            check_columns(path, self.columns)
        columns = {"edit_id" if name == "id" else name: column for name, column in self.columns.items()}
        return (rename_row(row, partial(rename_columns, columns=columns)) for row in rows)


def fold_text(text: str) -> str:
    """Return a text without the differences of case, white space, hyphens and underscores."""
    return " ".join(text.replace("_", " ").replace("-", " ").split()).casefold()


def parse_meanings(texts: Iterable[str]) -> dict[str, str]:
    """Parse `TEXT=LABEL[,TEXT=LABEL…]`, the values of the option `--map`.

    >>> parse_meanings(["Yes=Perfect,No=Wrong Action", "visual_consistency:Yes=Perfect Consistency"])["No"]
    'Wrong Action'

    Raises:
        UserError: A part is not TEXT=LABEL, or a text is named twice.
    """
    meanings: dict[str, str] = {}
    for part in split_list(texts):
        text, equals, label = (word.strip() for word in part.rpartition("="))
        if not (text and equals):
            raise UserError(f'--map takes TEXT=LABEL, such as "Yes=4", not "{part.strip()}"')
        if text in meanings:
            raise UserError(f'--map names "{text}" twice')
        meanings[text] = label
    return meanings


def list_label_files(
    folder: Path, studio: Path | None = None, files: Iterable[str | Path | LabelFile] = ()
) -> list[LabelFile]:
    """List the files whose labels count for a run, each once, with a name for messages.

    Args:
        folder: The run's folder, in which the studio usually writes.
        studio: The studio's file if it is not in the run's folder.
        files: Further files.
    """
    written = [LabelFile(path) for path in (folder / LABELS, studio) if path is not None and path.is_file()]
    return name_files((*written, *map(as_label_file, files)))


def as_label_file(file: str | Path | LabelFile) -> LabelFile:
    """Return a file of labels; a path is one whose columns have the usual names."""
    return file if isinstance(file, LabelFile) else LabelFile(Path(file))


def name_files(files: Iterable[LabelFile]) -> list[LabelFile]:
    """Return each file once, with its file name as its origin, or its path if several have the same name."""
    by_path = {file.path.resolve(): file for file in files}
    names = [file.path.name for file in by_path.values()]
    return [
        replace(file, origin=file.path.name if names.count(file.path.name) == 1 else str(file.path))
        for file in by_path.values()
    ]
