"""The file of one stage: JSONL that only grows, where the last line about a sample counts and a half line is never read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from editloupe._util.errors import first_error
from editloupe._util.files import open_file
from editloupe._util.text import for_json
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.manifests.jsonl_log import append_line
from editloupe.making.records import SampleRecord
from editloupe.types import UserError

T = TypeVar("T", bound=SampleRecord)


class StageFile(Generic[T]):
    """The records of one stage; every one is on disk when `add` returns.

    Another process may add to it as well: `refresh` reads what has come since, and only that.
    """

    def __init__(self, path: Path, kind: TypeAdapter[T]) -> None:
        self.path = path
        self._kind = kind
        self._latest: dict[str, T] = {}
        self._read = 0
        self._lines = 0
        self._lock = threading.Lock()
        self._without_secrets = Secrets()
        self.refresh()

    def add(self, record: T) -> None:
        """Write a record; it takes the place of earlier ones about the same sample."""
        line = self._without_secrets(for_json(record.model_dump(mode="json"))).encode()
        with self._lock:
            try:
                append_line(self.path, line)
            except OSError as error:
                raise UserError(f"{self.path} cannot be written: {error.strerror or error}") from None
        self.refresh()

    def refresh(self) -> None:
        """Read what was added since the last time."""
        with self._lock:
            for record in self._new():
                self.take(record)

    def take(self, record: T) -> None:
        """Count a record that was read."""
        self._latest[record.id] = record

    def latest(self) -> dict[str, T]:
        """Return the last record of every sample."""
        return dict(self._latest)

    def get(self, sample_id: str) -> T | None:
        """Return the last record of a sample."""
        return self._latest.get(sample_id)

    def all(self) -> Iterator[T]:
        """Read every record there is, also those that others took the place of."""
        if self.path.exists():
            yield from StageLog(self.path, self._kind).records()

    def _new(self) -> Iterator[T]:
        log = StageLog(self.path, self._kind, self._read, self._lines)
        yield from log.records()
        self._read, self._lines = log.place, log.lines


class StageLog(Generic[T]):
    """The lines of a stage's file from one place on."""

    def __init__(self, path: Path, kind: TypeAdapter[T], place: int = 0, lines: int = 0) -> None:
        self._path, self._kind = path, kind
        self.place, self.lines = place, lines

    def records(self) -> Iterator[T]:
        """Yield the records of whole lines; one without an end was cut off by a kill and is passed over."""
        if not self._path.exists():
            return
        try:
            with open_file(self._path) as file:
                file.seek(self.place)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self.place += len(line)
                    self.lines += 1
                    if line.strip():
                        yield self._record(line)
        except OSError as error:
            raise UserError(f"{self._path} cannot be read: {error.strerror or error}") from None

    def _record(self, line: bytes) -> T:
        try:
            return self._kind.validate_json(line)
        except ValidationError as error:
            why = first_error(error).message
            raise UserError(
                f"{self._path.name}, line {self.lines}: this is no record of this stage ({why}); mend or remove the line"
            ) from None
