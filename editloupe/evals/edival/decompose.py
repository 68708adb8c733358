"""Decomposition of pictures into objects that a model lists and a detector finds, one JSON file per picture."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from editloupe._util.files import write_bytes
from editloupe.agent.asker import Asker
from editloupe.agent.replies.answers import parse_object
from editloupe.evals.batch.work_items import ItemTally, TemporaryReplies, Tick, ignore_tally, work_through
from editloupe.evals.edival.files import SceneFile, file_key, load_if_current, relative_name, write_json
from editloupe.graphs.edival_observations import hit_box
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.encode import encode
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.edival.pools import GroundedObject, SceneObject, join_object_names, read_listing
from editloupe.rubrics.edival.rules import EdivalSettings, Hit, filter_usable, is_grounded
from editloupe.rubrics.edival.tasks import prompts
from editloupe.tools.drawing import draw_boxes, resize
from editloupe.tools.models.detectors import Finder
from editloupe.types import Box


class PictureFile(NamedTuple):
    """A picture to decompose, with the name of its files."""

    id: str
    path: Path


@dataclass(frozen=True)
class Decomposer:
    """Decomposes pictures into objects and writes one file per picture.

    Args:
        asker: Model that lists objects.
        judge: Spec of the model, stored in the files.
        finder: Detector.
        detector: Name of the detector, stored in the files.
        settings: Thresholds and rules.
        out: Folder for the files.
        kept: Store of the model's replies.
    """

    asker: Asker
    judge: str
    finder: Finder
    detector: str
    settings: EdivalSettings
    out: Path
    kept: TemporaryReplies | None = None

    async def all(self, pictures: dict[str, Path], concurrency: int = 8, tick: Tick = ignore_tally) -> ItemTally:
        """Decompose all pictures. Files that are still valid are skipped."""
        async with aclosing(self.asker.chat):
            tally = ItemTally("decompose", total=len(pictures))
            items = (PictureFile(*item) for item in pictures.items())
            await work_through(items, self.one, tally, concurrency, tick, self.kept)
            return tally

    async def one(self, item: PictureFile) -> bool:
        """Decompose one picture; return False if its file is still valid."""
        name, path = item
        album = Album()
        picture = await asyncio.to_thread(album.open, path)
        key = self.key(picture)
        file = self.out / f"{name}.json"
        if await asyncio.to_thread(load_if_current, file, SceneFile, key):
            return False
        texts = prompts()["listing"]
        answered = await self.asker.ask(
            system=texts["system"],
            task=texts["task"].format(),
            read=lambda text: read_listing(parse_object(text)),
            repair=lambda problem: str(texts["repair"]).format(problem=problem),
            picture=picture,
            album=album,
        )
        objects = await asyncio.to_thread(self.ground, picture, answered.value)
        await asyncio.to_thread(write_bytes, self.out / f"{name}.boxes.jpg", render_boxes(picture, objects))
        scene = SceneFile(
            id=name,
            image=relative_name(path, self.out),
            sha=picture.sha,
            size=picture.size,
            key=key,
            judge=self.judge,
            detector=self.detector,
            listed=answered.value,
            objects=objects,
            filtered_all_objects=join_object_names(item.name for item in objects),
            usage=answered.usage,
        )
        await asyncio.to_thread(write_json, file, scene)
        return True

    def ground(self, picture: Picture, objects: Sequence[SceneObject]) -> tuple[GroundedObject, ...]:
        """Return the objects that the detector finds and whose boxes are all small enough (Algorithm 1).

        The detector sees the picture letterboxed with black bars, as the released pictures are (Section O.1, Appendix P). People
        are dropped.
        """
        settings = self.settings
        frame = Letterbox.around(picture.size, settings.decompose_side)
        padded = frame.pad(picture.pixels)
        grounded = []
        for item in objects:
            if item.is_person:
                continue
            hits = [
                _hit(found.box, found.score, found.label, frame.side) for found in self.finder.find(padded, item.name)
            ]
            # The large-box filter of the evaluation does not apply here: a box that is too large drops its object.
            hits = filter_usable(hits, settings.decompose_threshold, 1.0)
            if is_grounded(hits, settings.decompose_max_side, settings.decompose_max_area):
                grounded.append(GroundedObject(**item.model_dump(), hits=tuple(map(frame.unpad, hits))))
        return tuple(grounded)

    def key(self, picture: Picture) -> str:
        """Return the hash of everything that the file of this picture depends on."""
        names = ("decompose_threshold", "decompose_side", "decompose_max_side", "decompose_max_area")
        return file_key(
            {
                "sha": picture.sha,
                "prompts": prompts()["listing"],
                "judge": self.judge,
                "detector": self.finder.fingerprint,
                "settings": {name: getattr(self.settings, name) for name in names},
            }
        )


class Letterbox(NamedTuple):
    """A square frame in which a picture is centered between black bars."""

    side: int
    size: tuple[int, int]
    """Width and height of the picture inside the frame."""

    @classmethod
    def around(cls, size: tuple[int, int], side: int) -> Letterbox:
        """Return the frame of a picture of this size."""
        width, height = (max(1, round(length * side / max(size))) for length in size)
        return cls(side, (width, height))

    @property
    def _corner(self) -> tuple[int, int]:
        return (self.side - self.size[0]) // 2, (self.side - self.size[1]) // 2

    def pad(self, pixels: Pixels) -> Pixels:
        """Return the picture resized into its frame."""
        (x, y), (width, height) = self._corner, self.size
        framed = np.zeros((self.side, self.side, 3), np.uint8)
        framed[y : y + height, x : x + width] = resize(pixels, self.size)
        return framed

    def unpad(self, hit: Hit) -> Hit:
        """Return a hit in shares of the frame as a hit in shares of the picture."""
        (x, y), (width, height) = self._corner, self.size
        shares = {
            "x1": (hit.x1 * self.side - x) / width,
            "y1": (hit.y1 * self.side - y) / height,
            "x2": (hit.x2 * self.side - x) / width,
            "y2": (hit.y2 * self.side - y) / height,
        }
        return hit.model_copy(update={name: min(1.0, max(0.0, share)) for name, share in shares.items()})


def render_boxes(picture: Picture, objects: Sequence[GroundedObject]) -> bytes:
    """Return the picture as a JPEG file with all boxes and names drawn."""
    hits = [(item.name, hit) for item in objects for hit in item.hits]
    boxes = [hit_box(hit, picture.size) for _, hit in hits]
    labels = [f"{name} {hit.score:.2f}" for name, hit in hits]
    return encode(draw_boxes(picture.pixels, boxes, labels), "jpeg", 90)


def _hit(box: Box, score: float, phrase: str, side: int) -> Hit:
    return Hit(x1=box.x1 / side, y1=box.y1 / side, x2=box.x2 / side, y2=box.y2 / side, score=score, phrase=phrase)
