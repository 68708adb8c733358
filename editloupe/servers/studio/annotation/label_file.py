"""Reads and writes the label file of a run, a JSONL file that `editloupe agree` reads and that is only appended to.

A row is `{"edit_id", "criterion", "label", "annotator"}`, with the edit's `model` and its `name` in the run if the id is not
unique. A later row of the same annotator replaces the earlier one, and an empty label removes it; undoing appends a row, so
nothing is lost. A label may have `"unsure": true`, the answers of a check list under `checks`, `"adjudicated": true` if it
settles differences between annotators, and `"judge_seen": true` if the annotator had seen the judge's verdict on the edit. Rows
with `target_boxes`, `skipped` or `comment` in place of a criterion hold corrected boxes, skipped edits and comments; `agree`
ignores them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from editloupe._util.json_safe import sanitize
from editloupe.evals.manifests.jsonl_log import append_line, read_log_rows
from editloupe.evals.runs.run_folder import LABELS
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.types import Box, UserError

FILE = LABELS
Kind = Literal["label", "adjudicated", "target_boxes", "skipped", "comment"]
BOXES: Final = "target_boxes"
SKIPPED: Final = "skipped"
COMMENT: Final = "comment"


@dataclass(frozen=True)
class LabelValue:
    """An annotator's answer on a criterion of an edit."""

    label: str | None
    """None if a check list is not complete, or if none of it applies."""
    unsure: bool = False
    checks: Mapping[str, str] = field(default_factory=dict)
    """Answers to the items of a check list."""


Value = LabelValue | str | bool | None | tuple[Box, ...]


@dataclass(frozen=True)
class LabelKey:
    """Identifies what a row is about: a criterion of an edit, or the edit's boxes, skip mark or comment."""

    edit_id: str
    """The edit's name, unique in its run."""
    criterion: str | None
    kind: Kind = "label"

    @classmethod
    def of(cls, edit_id: str, row: Mapping[str, Any]) -> LabelKey | None:
        """Return the key of a row; None for rows of another kind."""
        if row.get("criterion") is not None:
            return cls(edit_id, row["criterion"], "adjudicated" if row.get("adjudicated") is True else "label")
        kinds: tuple[Kind, ...] = (BOXES, SKIPPED, COMMENT)
        return next((cls(edit_id, None, kind) for kind in kinds if kind in row), None)

    def value(self, row: Mapping[str, Any]) -> Value:
        """Return the value in a row."""
        if self.criterion is not None:
            text, checks = row.get("label"), row.get("checks")
            label = (str(text).strip() or None) if text is not None else None
            answers = {str(key): str(answer) for key, answer in checks.items()} if isinstance(checks, Mapping) else {}
            return LabelValue(label, row.get("unsure") is True, answers) if label or answers else None
        content = row.get(self.kind)
        if self.kind == BOXES:
            return None if content is None else tuple(Box.model_validate(box) for box in content)
        return (
            (content is True or None) if self.kind == SKIPPED else (str(content).strip() or None if content else None)
        )

    def written(self, value: Value) -> dict[str, Any]:
        """Return the fields of a row with this value."""
        if self.criterion is None:
            return {self.kind: [list(box) for box in value] if isinstance(value, tuple) else value}
        answer = value if isinstance(value, LabelValue) else LabelValue(None)
        return {
            "criterion": self.criterion,
            "label": answer.label,
            **({"checks": dict(answer.checks)} if answer.checks else {}),
            **({"unsure": True} if answer.unsure else {}),
            **({"adjudicated": True} if self.kind == "adjudicated" else {}),
        }


Resolve = Callable[[str, str | None], str]
"""Returns the name of the edit with an id and a model."""


class StudioLabels:
    """The label file of one run, held in memory. Every change is written to disk first."""

    def __init__(self, path: Path, resolve: Resolve | None = None) -> None:
        self.path = path
        self._resolve: Resolve = resolve or (lambda edit_id, model: edit_id)
        self._about: dict[str, dict[str, Any]] = {}
        """Id and model of the edits that were labelled, by name."""
        self._lock = threading.RLock()
        self._size = -1
        self._given: dict[str, dict[LabelKey, Value]] = {}
        self._undo: dict[str, list[tuple[LabelKey, Value]]] = {}
        self._seen: set[tuple[str, str]] = set()
        """Annotators with the edits on which they have seen the judge's verdict, as far as a row says so."""
        self.version = 0
        """Changes with every row."""
        self.notes: tuple[str, ...] = ()
        """Notes on rows that were skipped."""

    def annotators(self) -> list[str]:
        """Return the names of all annotators, in the order in which they began."""
        with self._lock:
            self._read()
            return list(self._given)

    def said(self, kind: Literal["label", "adjudicated"] = "label") -> Iterator[tuple[str, LabelKey, LabelValue]]:
        """Yield all answers on criteria: annotator, key and value."""
        with self._lock:
            self._read()
            rows = [(name, key, value) for name, values in self._given.items() for key, value in values.items()]
        for name, key, value in rows:
            if key.criterion is not None and key.kind == kind and isinstance(value, LabelValue):
                yield name, key, value

    def skipped(self, annotator: str) -> set[str]:
        """Return the edits an annotator skipped."""
        with self._lock:
            self._read()
            values = self._given.get(annotator, {})
            return {key.edit_id for key, value in values.items() if key.kind == SKIPPED and value is True}

    def has_seen(self, annotator: str, edit_id: str) -> bool:
        """True if an annotator labelled an edit after seeing the judge's verdict: no later label on it is blind."""
        with self._lock:
            self._read()
            return (annotator, edit_id) in self._seen

    def about(
        self, annotator: str, edit_id: str, kind: Literal["label", "adjudicated"] = "label"
    ) -> dict[str, LabelValue]:
        """Return an annotator's answers on an edit, by criterion."""
        with self._lock:
            self._read()
            values = self._given.get(annotator, {})
            return {
                key.criterion: value
                for key, value in values.items()
                if key.edit_id == edit_id
                and key.criterion is not None
                and key.kind == kind
                and isinstance(value, LabelValue)
            }

    def comment(self, annotator: str, edit_id: str) -> str:
        """Return an annotator's comment on an edit."""
        with self._lock:
            self._read()
            value = self._given.get(annotator, {}).get(LabelKey(edit_id, None, COMMENT))
            return value if isinstance(value, str) else ""

    def boxes(self, annotator: str, edit_id: str) -> tuple[Box, ...] | None:
        """Return an annotator's boxes of an edit, None if they were not changed."""
        with self._lock:
            self._read()
            value = self._given.get(annotator, {}).get(LabelKey(edit_id, None, BOXES))
            return value if isinstance(value, tuple) else None

    def say(
        self,
        annotator: str,
        name: str,
        criterion: str,
        answer: LabelValue | None,
        adjudicated: bool = False,
        **more: Any,
    ) -> None:
        """Write an answer on a criterion; nothing is written if it is the same. `more` holds further fields of the row.

        `name` is the edit's name in its run. If `more` has `edit_id` and `model`, they are written, too.
        """
        self._put(annotator, LabelKey(name, criterion, "adjudicated" if adjudicated else "label"), answer, more)

    def skip(self, annotator: str, name: str, skipped: bool = True, **more: Any) -> None:
        """Write that an annotator skips an edit, or no longer does."""
        self._put(annotator, LabelKey(name, None, SKIPPED), skipped or None, more)

    def remark(self, annotator: str, name: str, comment: str, **more: Any) -> None:
        """Write an annotator's comment on an edit; an empty one removes it."""
        self._put(annotator, LabelKey(name, None, COMMENT), comment.strip() or None, more)

    def draw(self, annotator: str, name: str, boxes: tuple[Box, ...], **more: Any) -> None:
        """Write an annotator's boxes of an edit; nothing is written if they are the same."""
        self._put(annotator, LabelKey(name, None, BOXES), boxes, more)

    def undo(self, annotator: str) -> LabelKey | None:
        """Undo an annotator's last change and return its key; None if there is nothing to undo."""
        with self._lock:
            self._read()
            stack = self._undo.get(annotator)
            if not stack:
                return None
            key, before = stack[-1]
            self._write(annotator, key, before, {"undo": True})
            return key

    def _put(self, annotator: str, key: LabelKey, value: Value, more: Mapping[str, Any]) -> None:
        with self._lock:
            self._read()
            if self._given.get(annotator, {}).get(key) != value:
                self._write(annotator, key, value, more)

    def _write(self, annotator: str, key: LabelKey, value: Value, more: Mapping[str, Any]) -> None:
        fields = key.written(value)
        about = {"edit_id": key.edit_id, **self._about.get(key.edit_id, {})}
        about |= {name: more[name] for name in ("edit_id", "model") if name in more}
        if about["edit_id"] != key.edit_id:
            about["name"] = key.edit_id
        row = {**{k: v for k, v in about.items() if v is not None}, **fields, "annotator": annotator, "at": timestamp()}
        row |= {name: value for name, value in more.items() if name not in ("edit_id", "model")}
        line = json.dumps(sanitize(row), ensure_ascii=False).encode()
        with self._lock:
            self._read()
            try:
                size = append_line(self.path, line)
            except OSError as error:
                raise UserError(
                    f"{self.path} cannot be written ({error.strerror or error}); name another file with --labels"
                ) from None
            self._take(sanitize(row))
            # If another studio wrote in between, or a line was repaired, the size is different: read the file again.
            self._size = size if size == max(self._size, 0) + len(line) + 1 else -1

    def _read(self) -> None:
        """Read the file again if it was changed by another program."""
        try:
            size = self.path.stat().st_size
        except OSError:
            size = 0
        if size == self._size:
            return
        self._given, self._undo, self._about, self._seen, self.notes = {}, {}, {}, set(), ()
        if size:
            try:
                self._take_all()
            except OSError as error:
                raise UserError(f"{self.path} cannot be read ({error.strerror or error})") from None
        self._size = size  # from before the reading: what was added meanwhile is read next time
        self.version += 1

    def _take_all(self) -> None:
        notes: list[str] = []
        for row in read_log_rows(self.path, notes):
            if row.values.get("annotator") and row.values.get("edit_id") is not None:
                try:
                    self._take(row.values)
                except (ValidationError, TypeError):
                    raise row.error(f"{BOXES} must be a list of boxes [x1, y1, x2, y2]") from None
        self.notes = tuple(notes)

    def _take(self, row: Mapping[str, Any]) -> None:
        edit_id, model = str(row["edit_id"]), None if row.get("model") in (None, "") else str(row["model"])
        edit = str(row.get("name") or self._resolve(edit_id, model))
        if (key := LabelKey.of(edit, row)) is None:
            return
        self._about[edit] = {"edit_id": edit_id, "model": model}
        name = " ".join(str(row["annotator"]).split())
        if row.get("judge_seen") is True:
            self._seen.add((name, edit))
        values, stack = self._given.setdefault(name, {}), self._undo.setdefault(name, [])
        if row.get("undo") and stack:
            stack.pop()
        else:
            stack.append((key, values.get(key)))
        values[key] = key.value(row)
        self.version += 1
