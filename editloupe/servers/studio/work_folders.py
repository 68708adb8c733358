"""Opens the files of pairs and the benchmark folders that the studio was started with, and finds them by a short key."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from editloupe.evals.manifests.datasets import resolve_picture
from editloupe.evals.manifests.readers import Row
from editloupe.evals.preferences.pairs import (
    OpenPair,
    PairAnswers,
    PairQueue,
    answers_file,
    open_pairs_file,
    read_open_pairs,
)
from editloupe.making.folder import MakingFolder, Sample, is_making_folder
from editloupe.making.questions import SOURCES
from editloupe.making.records import ReferenceImage
from editloupe.servers.studio.picture_cache import MEDIA_TYPES
from editloupe.types import Sha, UserError

PAIR_MEDIA_TYPES = MEDIA_TYPES | {".jpeg": "image/jpeg"}


@dataclass
class PairFile:
    """A file of pairs with its answers; it is read again if it changes."""

    key: str
    path: Path
    answers: PairAnswers
    allow_outside: bool = False
    """Whether pictures outside the file's folder are shown."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _mark: tuple[int, int] = (0, 0)
    _pairs: dict[str, OpenPair] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name on the page."""
        return self.path.stem

    def pairs(self) -> dict[str, OpenPair]:
        """Return all pairs by id, in order."""
        with self._lock:
            try:
                about = open_pairs_file(self.path).stat()
                mark = (about.st_mtime_ns, about.st_size)
            except OSError:
                mark = (0, -1)  # reading it says in one sentence what is wrong
            if mark != self._mark:
                pairs = {pair.id: pair for pair in read_open_pairs(self.path)}
                for pair in pairs.values():
                    for which, relative in self._pictures_of(pair).items():
                        self._resolve(pair, which, relative)
                self._pairs = pairs
                self._mark = mark
            return self._pairs

    def queue(self, who: str) -> PairQueue:
        """Return a person's answered and open pairs."""
        return self.answers.queue(self.pairs().values(), who)

    def people(self) -> dict[str, int]:
        """Return the number of pairs that each person answered."""
        counts: dict[str, int] = {}
        for pair in self.pairs().values():
            for who in self.answers.choices(pair):
                counts[who] = counts.get(who, 0) + 1
        return counts

    def picture(self, pair: OpenPair, which: str) -> tuple[Path, str] | None:
        """Return the file of a pair's picture and its media type, or None if it is missing."""
        path = self._resolve(pair, which, self._pictures_of(pair).get(which))
        media_type = PAIR_MEDIA_TYPES.get(path.suffix.lower()) if path else None
        return (path, media_type) if path and media_type and path.is_file() else None

    def _resolve(self, pair: OpenPair, which: str, relative: str | None) -> Path | None:
        """Return the path of a picture; raise UserError if it leads outside the file's folder."""
        if not relative:
            return None
        row = Row(f"{open_pairs_file(self.path).name}, pair {pair.id}", {})
        return resolve_picture(row, which, relative, self.path.parent.resolve(), self.allow_outside, "file")

    def _pictures_of(self, pair: OpenPair) -> dict[str, str | None]:
        pictures = {"source": pair.source_image, "edited": pair.edited, "a": pair.a.picture, "b": pair.b.picture}
        return pictures | {f"reference-{number}": path for number, path in enumerate(pair.references)}


class PairFiles:
    """All files of pairs of the studio; raises UserError if one cannot be read."""

    def __init__(self, files: Iterable[Path], allow_outside: bool = False) -> None:
        self._files: dict[str, PairFile] = {}
        for number, path in enumerate(dict.fromkeys(files), start=1):
            pair_file = PairFile(str(number), path, PairAnswers(answers_file(path)), allow_outside)
            if not pair_file.pairs():
                raise UserError(f"{path} has no pairs to ask about")
            self._files[pair_file.key] = pair_file

    def all(self) -> list[PairFile]:
        """Return the files in the order they were named."""
        return list(self._files.values())

    def get(self, key: str) -> PairFile | None:
        """Return a file by its key."""
        return self._files.get(key)


BOXES, REVIEW = "boxes", "review"
TURNS: Mapping[str, tuple[str, ...]] = {BOXES: ("boxes", "confirm boxes"), REVIEW: ("review", "disputed")}
"""Steps of samples that each task is for."""


class MakingPictures:
    """Finds the pictures of one benchmark by hash: sources by the hash of the file, references by that of the pixels."""

    def __init__(self, folder: MakingFolder) -> None:
        self._folder = folder

    def find(self, sha: Sha) -> Path | None:
        """Return the file of a picture, None if this benchmark does not have it."""
        root = self._folder.path
        files = [root / SOURCES / f"{sha}{suffix}" for suffix in MEDIA_TYPES]
        references = self._folder.references.latest().values()
        files += [
            root / record.reference for record in references if isinstance(record, ReferenceImage) and record.sha == sha
        ]
        return next((file for file in files if _is_inside(file, root)), None)


def _is_inside(file: Path, folder: Path) -> bool:
    """Return whether a file exists and, after links, is inside a folder."""
    try:
        return file.is_file() and file.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or a link in a circle
        return False


class MakingFolders:
    """The benchmarks by key."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.folders: dict[str, MakingFolder] = {}
        for path in paths:
            plain = key = re.sub(r"[^A-Za-z0-9_-]+", "-", path.resolve().name).strip("-") or "benchmark"
            while key in self.folders:
                key = f"{plain}-{len(self.folders) + 1}"
            self.folders[key] = MakingFolder(path)
        self.pictures = [MakingPictures(folder) for folder in self.folders.values()]


def split_folders(folders: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Split folders into those of runs and those of benchmarks in the making."""
    making = tuple(path for path in folders if is_making_folder(path))
    return tuple(path for path in folders if path not in making), making


def find_waiting_samples(folder: MakingFolder, task: str, name: str) -> list[Sample]:
    """Return the samples that wait for this person; nobody reviews the same state of a sample twice."""
    waiting = [sample for sample in folder.samples() if sample.step in TURNS[task]]
    return [sample for sample in waiting if task == BOXES or name not in (sample.reviews or {})]
