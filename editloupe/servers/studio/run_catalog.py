"""Opens the runs of the studio and finds them by a short key, so that addresses hold no paths."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from editloupe.evals.labels.label_form import find_rubric, list_choices, list_recorded_wordings
from editloupe.evals.runs.damage import RunDamaged, raise_run_damaged
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.evals.runs.run_folder import FILE, PictureFolder
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.stats.scores.run_table import format_version_notes, parse_versions
from editloupe.evals.traces.run_index import RunIndex
from editloupe.evals.traces.trace_search import TraceHit
from editloupe.rubrics.model import Rubric
from editloupe.servers.studio.annotation.label_file import FILE as LABELS
from editloupe.servers.studio.annotation.label_file import StudioLabels
from editloupe.servers.studio.settings import StudioSettings
from editloupe.types import Trace, UserError

HERE = "here"
"""The key of the run that stores what is judged on the page."""
T = TypeVar("T")
Mark = tuple[int, ...]
Content = tuple[str, str, str]
"""Source picture, edited picture, instruction."""


@dataclass(frozen=True)
class OpenRun:
    """A run that is open for reading, with its index and its labels. Methods raise RunDamaged if it cannot be read."""

    key: str
    name: str
    run: Run
    labels: StudioLabels
    index: RunIndex
    mark: Mark = ()
    """Identifies the file: a run that was deleted and made again has another one."""
    _cached: dict[str, tuple[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    """Facts that are read again if the run changed, each with the state of the run that it was read in."""

    def edit(self, name: str) -> StoredEdit:
        """Return one edit by its name, with the hashes of its pictures by role."""
        with raise_run_damaged(self.name):
            return self.run.edit(name)

    def siblings(self, edit_id: str) -> list[tuple[str, str | None]]:
        """Return name and model of the edits that share an id."""
        return self.index.edits_with_id(edit_id)

    def content(self, name: str) -> Content | None:
        """Return the content of an edit; None if it is not known."""
        return self.index.content(name)

    def alike(self, content: Content) -> list[str]:
        """Return the names of the edits with this content."""
        return self.index.edits_with_content(content)

    def units(self, name: str) -> list[Unit]:
        """Return the units of one edit, of every configuration."""
        with raise_run_damaged(self.name):
            return list(self.run.units(name))

    def traces(self, unit: Unit) -> tuple[Trace, ...]:
        """Return the traces of one unit."""
        with raise_run_damaged(self.name):
            return self.run.load_trace(unit.name, unit.criterion, unit.repeat, unit.asked)

    def configuration_of(self, verdict: Unit | TraceHit) -> str:
        """Return the first configuration that a verdict's question belongs to."""
        return self._find_configuration(verdict)[1]

    def position_of(self, verdict: Unit | TraceHit) -> int:
        """Return the position of this configuration in the run."""
        return self._find_configuration(verdict)[0]

    def place_of(self, verdict: Unit | TraceHit) -> str:
        """Return a verdict as CONFIGURATION~REPEAT, unique for its edit and criterion."""
        return f"{self.configuration_of(verdict)}~{verdict.repeat}"

    def _find_configuration(self, verdict: Unit | TraceHit) -> tuple[int, str]:
        configurations = self._read_once("configurations of questions", self.index.configurations_of_questions)
        return configurations.get(verdict.asked, (0, ""))

    def short_name_of(self, unit: Unit) -> str:
        """Return the short name of a unit's configuration, unique in the run, such as `rules/tools#2`."""
        names = self._read_once(
            "short names", lambda: {each.name: each.short_name for each in self.run.configurations()}
        )
        return names.get(self.configuration_of(unit)) or f"{unit.judge}/{unit.mode}"

    def asks(self, configuration: str, asked: str) -> bool:
        """True if a question belongs to a configuration."""
        return self.index.asks(configuration, asked)

    def served_notes(self, configuration: str) -> tuple[str, ...]:
        """Return a note if a configuration's judge was served in several versions."""

        def count() -> tuple[str, ...]:
            with self.run.reader() as reader:
                return format_version_notes(parse_versions(reader.count_served(configuration)))

        return self._read_once(f"served notes of {configuration}", count)

    def rubric(self, protocol: str, criterion: str) -> Rubric | None:
        """Return a criterion's rubric, by a protocol of this version or as the run recorded it; None if it is not known."""
        return find_rubric(protocol, criterion) or self.find_recorded_rubric(criterion)

    def find_recorded_rubric(self, criterion: str, variant: str | None = None) -> Rubric | None:
        """Return a criterion's rubric as the run recorded it, of a variant or in its first wording, or None."""
        wordings = self._read_once("rubrics", lambda: list_recorded_wordings(self.run.about()))
        return next((rubric for rubric in wordings.get(criterion, ()) if variant in (None, rubric.variant)), None)

    def _read_once(self, name: str, read: Callable[[], T]) -> T:
        """Return what was read under a name, and read it again only if the run changed."""
        state = self.index.state()
        cached = self._cached.get(name)
        if cached is None or cached[0] != state:
            with raise_run_damaged(self.name):
                cached = self._cached[name] = state, read()
        return cast(T, cached[1])

    def title_of(self, criterion: str, protocol: str) -> str:
        """Return a criterion's title from the run's rubric."""
        rubric = self.rubric(protocol, criterion)
        return rubric.title if rubric else criterion.replace("_", " ").capitalize()

    def labels_apart(self, protocol: str, criterion: str, first: str | None, second: str | None) -> int | None:
        """Return how many labels of a criterion's scale two labels are apart; None if one of them is not on it."""
        rubric = self.rubric(protocol, criterion)
        scale = [choice.value for choice in list_choices(rubric.answer)] if rubric else []
        return abs(scale.index(first) - scale.index(second)) if first in scale and second in scale else None

    def close(self) -> None:
        """Close the run's files, after requests that read them."""
        self.index.close()
        self.run.close()


@dataclass(frozen=True)
class ClosedRun:
    """A run that cannot be read, and why."""

    key: str
    name: str
    why: str
    mark: Mark = field(default=())
    """Identifies the file that could not be read; it is tried again if it changes."""


class RunCatalog:
    """All runs: those the studio was started with, those in its folders, and the one of the Judge page."""

    def __init__(self, settings: StudioSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._runs: dict[Path, OpenRun | ClosedRun] = {}
        self._writer: Run | None = None
        self._manifests: dict[Path, Path] = {}
        """Unjudged manifests, and the temporary run of each."""
        self._unjudged: Path | None = None
        self._temporary: Path | None = None
        for folder in settings.runs:
            if not folder.is_dir() and not folder.is_file():
                raise UserError(f"there is no run at {folder}")
        self._open_manifests()
        folders = list(self._find_folders())
        if settings.runs and not folders:
            self.remove_temporary()
            raise UserError(f"{settings.runs[0]} is not a run and holds none: it has no {FILE}")
        if settings.labels and len(folders) != 1:
            self.remove_temporary()
            raise UserError("--labels goes with exactly one run; without it every run has its own labels")
        self._folder = settings.out
        """The run of the Judge page; without --out a temporary folder, created at first use."""
        try:
            self._read_all()
        except BaseException:
            self.close()
            raise

    def runs(self) -> list[OpenRun]:
        """Return the runs in the order they were named, with those that were added to the folders since."""
        return [run for run in self.all() if isinstance(run, OpenRun)]

    def all(self) -> list[OpenRun | ClosedRun]:
        """Return all runs, also those that cannot be read."""
        with self._lock:
            folders = dict.fromkeys(self._find_folders())
            here = self._folder.resolve() if self._folder else None
            if here and (here / FILE).is_file():
                folders.setdefault(here)
            for folder in [*folders, *(other for other in self._runs if other not in folders)]:
                self._look_at(folder, HERE if folder == here else None)
            return list(self._runs.values())

    def get(self, key: str) -> OpenRun | None:
        """Return a run by its key, None if there is none; raise RunDamaged if it cannot be read."""
        run = next((run for run in self.all() if run.key == key), None)
        if isinstance(run, ClosedRun):
            raise RunDamaged(run.why)
        return run

    def judged_here(self) -> OpenRun | None:
        """Return the run of the Judge page, None before anything was judged."""
        self.all()
        run = self._runs.get(self._folder.resolve()) if self._folder else None
        return run if isinstance(run, OpenRun) else None

    def folders(self) -> Iterator[PictureFolder]:
        """Yield the picture folders of the open runs."""
        with self._lock:
            runs = [run for run in self._runs.values() if isinstance(run, OpenRun)]
        yield from (run.run.pictures for run in runs)

    def writer(self) -> Run:
        """Return the run of the Judge page; it is created at first use."""
        with self._lock:
            if self._folder is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="editloupe-studio-"))
                self._folder = self._temporary / "judged here"
            if self._writer is None:
                self._writer = Run.write(self._folder)
            return self._writer

    def close(self) -> None:
        """Close all runs and remove temporary ones. Closing again does nothing."""
        with self._lock:
            for run in self._runs.values():
                if isinstance(run, OpenRun):
                    run.close()
            self._runs.clear()
            writer, self._writer = self._writer, None
            try:
                if writer is not None:
                    writer.close()
            finally:
                self.remove_temporary()

    def remove_temporary(self) -> None:
        """Remove temporary runs."""
        for folder in (self._temporary, self._unjudged):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _open_manifests(self) -> None:
        """Write a run with the edits of every manifest, for people to label; with queues, only the edits in them."""
        files = [path for path in self._settings.runs if path.is_file()]
        if not files:
            return
        from editloupe.evals.labels.unjudged_run import write_unjudged_run
        from editloupe.evals.stats.trust.label_queue import LabelQueue

        names = {sample.name for path in self._settings.queues for sample in LabelQueue.read(path).drawn}
        self._unjudged = Path(tempfile.mkdtemp(prefix="editloupe-studio-"))
        try:
            for number, path in enumerate(files):
                folder = self._unjudged / str(number) / path.stem
                write_unjudged_run(path, folder, self._settings.protocol, names or None, self._settings.rubrics)
                self._manifests[path] = folder
        except BaseException:
            self.remove_temporary()
            raise

    def _read_all(self) -> None:
        """Index every run before the first page needs it; raise the first error if no run can be read."""
        runs, faults = self.all(), []
        for run in runs:
            try:
                if isinstance(run, ClosedRun):
                    raise RunDamaged(run.why)
                with run.index.reading():
                    pass
            except UserError as error:
                faults.append(error)
        if faults and len(faults) == len(runs):
            raise faults[0]

    def _find_folders(self) -> Iterator[Path]:
        """Yield the folders of runs, resolved; open pages ask for it often, so only links in a folder are resolved again."""
        for folder in self._settings.runs:
            if folder in self._manifests:
                yield self._manifests[folder].resolve()
                continue
            if (folder / FILE).is_file():
                yield folder.resolve()
                continue
            # A folder that has been removed holds nothing.
            with suppress(OSError), os.scandir(folder.resolve()) as entries:
                inner = sorted((entry.path, entry.is_symlink()) for entry in entries)
                yield from (
                    Path(path).resolve() if is_link else Path(path)
                    for path, is_link in inner
                    if os.path.isfile(os.path.join(path, FILE))
                )

    def _own_labels(self, folder: Path) -> Path:
        """Return the label file of a run: in its folder, or next to its manifest."""
        manifests = {temporary.resolve(): path for path, temporary in self._manifests.items()}
        manifest = manifests.get(folder.resolve())
        return folder / LABELS if manifest is None else manifest.with_name(f"{manifest.stem}.{LABELS}")

    def _look_at(self, folder: Path, key: str | None) -> None:
        """Open a run that is not open, and close it if its file was removed or replaced."""
        entry, file = self._runs.get(folder), _file_mark(folder)
        if entry is not None and (entry.mark[:2] == file[:2] if isinstance(entry, OpenRun) else entry.mark == file):
            return
        name = entry.name if entry else "Judged here" if key == HERE and self._temporary else folder.name
        key = entry.key if entry else key or _make_key(name, {other.key for other in self._runs.values()})
        if isinstance(entry, OpenRun):
            entry.close()
        try:
            if not file:
                raise RunDamaged(f"the run “{name}” is gone: {FILE} was removed from its folder")
            with raise_run_damaged(name):
                run = Run.open(folder)
        except UserError as error:
            self._runs[folder] = ClosedRun(key, name, str(error), file)
            return
        path = folder / LABELS if key == HERE else self._settings.labels or self._own_labels(folder)
        labels = StudioLabels(path, partial(_resolve_edit, run))
        self._runs[folder] = OpenRun(key, name, run, labels, RunIndex(run, labels.path, name), file)


def _resolve_edit(run: Run, edit_id: str, model: str | None) -> str:
    """Return the name of the edit a label is about; the id as it is if it cannot be resolved."""
    if model is not None:
        with suppress(UserError):
            return run.resolve_name(edit_id, model)
    return edit_id


def _file_mark(folder: Path) -> Mark:
    """Return device, inode, size and modification time of a run's file; empty if there is none."""
    try:
        about = os.stat(os.path.join(folder, FILE))
    except OSError:
        return ()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


def _make_key(name: str, taken: set[str]) -> str:
    """Return a short key for addresses that is not taken yet.

    >>> _make_key("My Run: 2", {"my-run-2"})
    'my-run-2-2'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    keys = [plain, *(f"{plain}-{number}" for number in range(2, len(taken) + 3))]
    return next(key for key in keys if key not in taken and key != HERE)
