"""Which file in a model's folder is the output for a line of a manifest: by its id, or by the names of its pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from editloupe.evals.manifests.ids import IdSet
from editloupe.evals.manifests.readers import Row
from editloupe.rubrics.benchmark import PICTURES, picture_in
from editloupe.types import UserError

WAYS = ("id", "edited", "source")
"""What an output can be called after, in the order that decides between ways that find as many."""


@dataclass(frozen=True)
class OutputNames:
    """How the outputs in one model's folder are called."""

    folder: Path
    by: str = "id"
    labels_of: Mapping[str | None, int] = field(default_factory=dict)
    """Lines with people's labels, by the model they name."""

    def path(self, row: Row) -> Path:
        """Return the output for a line; where there is none, the path it would have."""
        stem = name_of(row, self.by) or name_of(row, "id")
        if stem is None:
            raise row.error('"id" and "source" are missing')
        try:
            return picture_in(self.folder, stem) or self.folder / f"{stem}{PICTURES[0]}"
        except UserError as error:
            raise row.error(str(error)) from None


def name_of(row: Row, by: str) -> str | None:
    """Return what a line's output is called in a way of naming, without suffix; None where the line does not say."""
    value = row.values.get(by)
    if value is not None and value != "":
        return str(value) if by == "id" else PurePosixPath(str(value)).stem
    return (name_of(row, "edited") or name_of(row, "source")) if by == "id" else None


def output_names(rows: Callable[[], Iterable[Row]], folder: Path) -> OutputNames:
    """Find out how the outputs in a folder are called: by id, unless another way finds more that ids do not than ids do."""
    found: Counter[str] = Counter()
    labels: Counter[str | None] = Counter()
    for row in rows():
        if row.values.get("human"):
            labels[_text(row.values.get("model"))] += 1
        for by in WAYS:
            name = name_of(row, by)
            if name is not None and OutputNames(folder, by).path(row).is_file():
                found[by] += 1
                if by == "id":  # as many as ids find, the other ways must find among what ids do not
                    break
    by = max(WAYS, key=lambda way: found[way])
    if by != "id":
        _check_once(rows, by, folder)
    return OutputNames(folder, by, dict(labels))


def _check_once(rows: Callable[[], Iterable[Row]], by: str, folder: Path) -> None:
    """Refuse two lines that would be given the same output: whose it is cannot be told from its name."""
    seen = IdSet()
    for row in rows():
        name = name_of(row, by)
        if name is None or not seen.add(name):
            continue
        first = next(other for other in rows() if name_of(other, by) == name)
        if first.where != row.where:
            raise row.error(
                f"{folder} has an output called {name} like the {by} picture, which {first.where} has too; outputs named by "
                "id tell them apart"
            )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
