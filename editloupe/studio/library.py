"""The runs the studio shows, by a short key that stands in addresses; no path ever does."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from editloupe.evals.pictures import PictureFolder
from editloupe.evals.store import FILE, PICTURES, Run
from editloupe.studio.index import RunIndex
from editloupe.studio.labels import FILE as LABELS
from editloupe.studio.labels import LabelBook
from editloupe.studio.settings import StudioSettings
from editloupe.types import UserError

HERE = "here"
"""The key of the run that takes what is judged on the page."""


@dataclass(frozen=True)
class OpenRun:
    """A run that is open for reading, with its table and its labels."""

    key: str
    name: str
    run: Run
    labels: LabelBook
    index: RunIndex


class Library:
    """All runs: those named at the start, those in the folders named at the start, and the one judged here."""

    def __init__(self, settings: StudioSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._open: dict[Path, OpenRun] = {}
        self._temporary = None if settings.out else Path(tempfile.mkdtemp(prefix="editloupe-studio-"))
        self._folder = settings.out or (self._temporary or Path()) / "judged here"
        self._writer: Run | None = None
        for folder in settings.runs:
            if not folder.is_dir():
                raise UserError(f"there is no run at {folder}")
        found = list(self._found())
        if settings.runs and not found:
            raise UserError(f"{settings.runs[0]} is not a run and holds none: it has no {FILE}")
        if settings.labels and len(found) != 1:
            raise UserError("--labels goes with exactly one run; without it every run has its own labels")
        for folder in found:
            self._open_run(folder)
        for one in self._open.values():
            with one.index.reading():  # read whole before the first page asks for it
                pass

    def runs(self) -> list[OpenRun]:
        """Return the runs in the order they were named; runs that came into a named folder since are among them."""
        with self._lock:
            for folder in self._found():
                if folder.resolve() not in self._open:
                    self._open_run(folder)
            own = self._folder.resolve()
            if own not in self._open and (self._folder / FILE).is_file():
                self._open_run(self._folder, HERE)
            return list(self._open.values())

    def get(self, key: str) -> OpenRun | None:
        """Return a run by its key."""
        return next((one for one in self.runs() if one.key == key), None)

    def judged_here(self) -> OpenRun | None:
        """Return the run of the Judge page, None before anything was judged."""
        own = self._folder.resolve()
        self.runs()
        return self._open.get(own)

    def folders(self) -> Iterator[PictureFolder]:
        """Yield where pictures may be found."""
        with self._lock:
            opened = list(self._open.values())
        yield from (one.run.pictures for one in opened)
        if self._folder.resolve() not in self._open:
            yield self.pictures

    @property
    def pictures(self) -> PictureFolder:
        """Where pictures of the Judge page go."""
        return PictureFolder(self._folder / PICTURES)

    @property
    def uploads(self) -> Path:
        """Where uploaded files lie, under their hashes."""
        return self._folder / "uploads"

    def writer(self) -> Run:
        """Return the run that takes what is judged here, made at the first use."""
        with self._lock:
            if self._writer is None:
                self._writer = Run.write(self._folder)
                self.uploads.mkdir(exist_ok=True)
            return self._writer

    def close(self) -> None:
        """Close everything; a temporary run is gone with it."""
        with self._lock:
            for one in self._open.values():
                one.index.close()
                one.run.close()
            if self._writer is not None:
                self._writer.close()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def _found(self) -> Iterator[Path]:
        for folder in self._settings.runs:
            if (folder / FILE).is_file():
                yield folder
            else:
                yield from sorted(inner for inner in folder.iterdir() if (inner / FILE).is_file())

    def _open_run(self, folder: Path, key: str | None = None) -> None:
        run = Run.open(folder)
        labels = LabelBook(folder / LABELS if key == HERE else self._settings.labels or folder / LABELS)
        name = "Judged here" if key == HERE and self._temporary else folder.resolve().name
        taken = {one.key for one in self._open.values()}
        index = RunIndex(run, labels)
        self._open[folder.resolve()] = OpenRun(key or _key(name, taken), name, run, labels, index)


def _key(name: str, taken: set[str]) -> str:
    """Return a short name for addresses that is not taken yet.

    >>> _key("My Run: 2", {"my-run-2"})
    'my-run-2-2'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    wanted = [plain, *(f"{plain}-{number}" for number in range(2, len(taken) + 3))]
    return next(key for key in wanted if key not in taken and key != HERE)
