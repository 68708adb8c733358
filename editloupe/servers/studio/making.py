"""Benchmarks in the making that the studio was started with: whose turn a sample is, and its pictures by hash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from editloupe.making.folder import MakingFolder, Sample, is_making_folder
from editloupe.making.questions import SOURCES
from editloupe.making.records import ReferenceImage
from editloupe.servers.studio.picture_cache import MEDIA_TYPES
from editloupe.types import Sha

BOXES, REVIEW = "boxes", "review"
TURNS: Mapping[str, tuple[str, ...]] = {BOXES: ("boxes", "confirm boxes"), REVIEW: ("review", "disputed")}
"""What samples wait for that a task settles."""


class MakingPictures:
    """The pictures of one benchmark, found by hash: its sources by their files', its references by their pixels'."""

    def __init__(self, folder: MakingFolder) -> None:
        self._folder = folder

    def find(self, sha: Sha) -> Path | None:
        """Return the file of a picture, None where this benchmark has none of it."""
        root = self._folder.path
        for suffix in MEDIA_TYPES:
            if (path := root / SOURCES / f"{sha}{suffix}").is_file():
                return path
        for record in self._folder.references.latest().values():
            if isinstance(record, ReferenceImage) and record.sha == sha:
                path = root / record.reference
                return path if path.is_file() and path.resolve().is_relative_to(root.resolve()) else None
        return None


class MakingShelf:
    """The benchmarks, by a key that can stand in an address."""

    def __init__(self, places: Iterable[Path]) -> None:
        self.folders: dict[str, MakingFolder] = {}
        for place in places:
            plain = key = re.sub(r"[^A-Za-z0-9_-]+", "-", place.resolve().name).strip("-") or "benchmark"
            while key in self.folders:
                key = f"{plain}-{len(self.folders) + 1}"
            self.folders[key] = MakingFolder(place)
        self.pictures = [MakingPictures(folder) for folder in self.folders.values()]


def split_folders(places: Iterable[Path]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Return the folders that are runs or hold them, and those of benchmarks in the making."""
    listed = list(places)
    making = tuple(place for place in listed if is_making_folder(place))
    return tuple(place for place in listed if place not in making), making


def turns(folder: MakingFolder, task: str, name: str) -> list[Sample]:
    """Return the samples that wait for this person: what one has reviewed as it stands is not shown to the same one again."""
    waiting = [sample for sample in folder.samples() if sample.step in TURNS[task]]
    return [one for one in waiting if task == BOXES or name not in (one.reviews or {})]
