"""Labels and boxes people give in the studio: a JSONL file that only grows, in the form `editloupe agree` reads.

Every row says who labelled what: `{"edit_id", "criterion", "label", "annotator"}`, with the edit's `model` and its `name` in
the run where the id alone does not say which edit is meant. A later row of the same annotator
replaces the earlier one and an empty label takes it back, so that undoing is one more row and nothing is ever lost.
Rows with `target_boxes` in place of a criterion hold corrected boxes; `agree` passes over them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from editloupe.evals.analysis.label_file import append_line, read_label_rows
from editloupe.evals.runs.records import timestamp
from editloupe.storable import storable
from editloupe.types import Box, UserError

FILE = "labels.jsonl"
BOXES = "target_boxes"
Value = str | None | tuple[Box, ...]


@dataclass(frozen=True)
class LabelKey:
    """What a row is about: a criterion of an edit, or the boxes of an edit."""

    edit_id: str
    """The edit's name, unique in its run."""
    criterion: str | None

    def value(self, row: Mapping[str, Any]) -> Value:
        """Return what a row says about this place."""
        if self.criterion is not None:
            text = row.get("label")
            return (str(text).strip() or None) if text is not None else None
        return None if row.get(BOXES) is None else tuple(Box.model_validate(box) for box in row[BOXES])


Resolve = Callable[[str, str | None], str]
"""Gives the name of the edit that an id and a model stand for."""


class LabelBook:
    """The label file of one run, whole in memory; every change is on disk before it counts."""

    def __init__(self, path: Path, resolve: Resolve | None = None) -> None:
        self.path = path
        self._resolve: Resolve = resolve or (lambda edit_id, model: edit_id)
        self._about: dict[str, dict[str, Any]] = {}
        """Id and model of the edits that were labelled, by name."""
        self._lock = threading.RLock()
        self._size = -1
        self._given: dict[str, dict[LabelKey, Value]] = {}
        self._undo: dict[str, list[tuple[LabelKey, Value]]] = {}
        self.version = 0
        """Changes with every row, so that a table knows when to look again."""
        self.notes: tuple[str, ...] = ()
        """What of the file was passed over."""

    def annotators(self) -> list[str]:
        """Return the names of all who labelled something, in the order in which they began."""
        with self._lock:
            self._read()
            return list(self._given)

    def labels(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return labels by (edit, criterion) and annotator."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        with self._lock:
            self._read()
            for name, given in self._given.items():
                for place, value in given.items():
                    if place.criterion is not None and isinstance(value, str):
                        found.setdefault((place.edit_id, place.criterion), {})[name] = value
        return found

    def of(self, annotator: str, edit_id: str) -> dict[str, str]:
        """Return what one annotator said about one edit, by criterion."""
        with self._lock:
            self._read()
            given = self._given.get(annotator, {})
            return {
                place.criterion: value
                for place, value in given.items()
                if place.edit_id == edit_id and place.criterion is not None and isinstance(value, str)
            }

    def boxes(self, annotator: str, edit_id: str) -> tuple[Box, ...] | None:
        """Return the boxes one annotator drew for an edit, None where the annotator left them alone."""
        with self._lock:
            self._read()
            value = self._given.get(annotator, {}).get(LabelKey(edit_id, None))
            return value if isinstance(value, tuple) else None

    def give(self, annotator: str, name: str, criterion: str, label: str | None, **more: Any) -> None:
        """Write a label; `more` holds what else should be known about it. The same label again changes nothing.

        `name` is the edit's in its run; where `more` gives `edit_id` and `model` as well, they stand in the file beside it.
        """
        if self.of(annotator, name).get(criterion) != label:
            self._write(annotator, LabelKey(name, criterion), label, more)

    def draw(self, annotator: str, name: str, boxes: tuple[Box, ...], **more: Any) -> None:
        """Write an annotator's boxes of an edit; the same boxes again change nothing."""
        if self.boxes(annotator, name) != boxes:
            self._write(annotator, LabelKey(name, None), boxes, more)

    def undo(self, annotator: str) -> LabelKey | None:
        """Take back an annotator's last change and say where it was; None where there is nothing left to take back."""
        with self._lock:
            self._read()
            stack = self._undo.get(annotator)
            if not stack:
                return None
            place, before = stack[-1]
            self._write(annotator, place, before, {"undo": True})
            return place

    def _write(self, annotator: str, place: LabelKey, value: Value, more: Mapping[str, Any]) -> None:
        boxes = [list(box) for box in value] if isinstance(value, tuple) else None
        said = {BOXES: boxes} if place.criterion is None else {"criterion": place.criterion, "label": value}
        about = {"edit_id": place.edit_id, **self._about.get(place.edit_id, {})}
        about |= {name: more[name] for name in ("edit_id", "model") if name in more}
        if about["edit_id"] != place.edit_id:
            about["name"] = place.edit_id
        row = {**{k: v for k, v in about.items() if v is not None}, **said, "annotator": annotator, "at": timestamp()}
        row |= {name: value for name, value in more.items() if name not in ("edit_id", "model")}
        line = json.dumps(storable(row), ensure_ascii=False).encode()
        with self._lock:
            self._read()
            try:
                size = append_line(self.path, line)
            except OSError as error:
                raise UserError(
                    f"{self.path} cannot be written ({error.strerror or error}); name another file with --labels"
                ) from None
            self._take(storable(row))
            # Where another studio wrote in between, or a line was mended, the size is not what it should be: read anew.
            self._size = size if size == max(self._size, 0) + len(line) + 1 else -1

    def _read(self) -> None:
        """Read the file anew where somebody else has changed it."""
        try:
            size = self.path.stat().st_size
        except OSError:
            size = 0
        if size == self._size:
            return
        self._given, self._undo, self._about, self.notes = {}, {}, {}, ()
        if size:
            try:
                self._take_all()
                size = self.path.stat().st_size
            except OSError as error:
                raise UserError(f"{self.path} cannot be read ({error.strerror or error})") from None
        self._size = size
        self.version += 1

    def _take_all(self) -> None:
        notes: list[str] = []
        for row in read_label_rows(self.path, notes):
            if row.values.get("annotator") and row.values.get("edit_id") is not None:
                try:
                    self._take(row.values)
                except (ValidationError, TypeError):
                    raise row.error(f"{BOXES} must be a list of boxes [x1, y1, x2, y2]") from None
        self.notes = tuple(notes)

    def _take(self, row: Mapping[str, Any]) -> None:
        if BOXES not in row and row.get("criterion") is None:
            return
        edit_id, model = str(row["edit_id"]), None if row.get("model") in (None, "") else str(row["model"])
        edit = str(row.get("name") or self._resolve(edit_id, model))
        self._about[edit] = {"edit_id": edit_id, "model": model}
        name, place = " ".join(str(row["annotator"]).split()), LabelKey(edit, row.get("criterion"))
        given, stack = self._given.setdefault(name, {}), self._undo.setdefault(name, [])
        if row.get("undo") and stack:
            stack.pop()
        else:
            stack.append((place, given.get(place)))
        given[place] = place.value(row)
        self.version += 1
