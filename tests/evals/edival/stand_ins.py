"""Exact stand-ins behind the pipeline's own interfaces, and a painted scene whose every figure can be worked out by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from editloupe.evals.edival.files import ChainFile, ChainTurn, relative_name, write_json
from editloupe.evals.edival.instruct import build_complex_prompts
from editloupe.pictures.decode import decode
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.edival.pools import SceneObject, start_pools, update_pools
from editloupe.rubrics.edival.tasks import Task, wording
from editloupe.tools.models.detectors import Detection
from editloupe.tools.models.features import Vectors
from editloupe.types import Box
from tests.drawn_pictures import save
from tests.scripted import Answer, Request, say

Rgb = tuple[int, int, int]
GRAY, WHITE = (90, 90, 90), (255, 255, 255)
PAINT: Mapping[str, Rgb] = {
    "ceramic white cup": (250, 250, 250),
    "ceramic blue cup": (20, 40, 220),
    "wooden box": (140, 90, 40),
    "paper red sign": (220, 20, 20),
    "lamp": (250, 220, 40),
    "HELLO": (10, 10, 10),
}
"""What the scripted detector takes for what: flat patches of exactly this color."""


class ColorFinder:
    """A detector that finds flat patches of a phrase's color; every patch is one box, surely."""

    fingerprint = "patches of flat color"

    def __init__(self, paint: Mapping[str, Rgb] = PAINT, scores: Mapping[str, float] | None = None) -> None:
        self.paint, self.scores = paint, dict(scores or {})
        self.asked: list[str] = []

    def unavailable(self) -> str | None:
        return None

    def find(self, pixels: Pixels, phrase: str) -> list[Detection]:
        self.asked.append(phrase)
        if phrase not in self.paint:
            return []
        # Resizing rings at the edges of a patch: a little off is still the color, a few pixels are no patch.
        off = np.abs(pixels.astype(int) - np.array(self.paint[phrase])).max(2)
        count, _, stats, _ = cv2.connectedComponentsWithStats((off <= 12).astype(np.uint8))
        patches = [stat for stat in stats[1:count] if stat[4] >= 100]
        boxes = [Box(x1=int(x), y1=int(y), x2=int(x + w), y2=int(y + h)) for x, y, w, h, _ in patches]
        return [Detection(box, self.scores.get(phrase, 0.9), phrase) for box in boxes]


class MeanColor:
    """Features that can be worked out in the head: the mean color of a picture."""

    fingerprint = "mean color"

    def unavailable(self) -> str | None:
        return None

    def embed(self, pictures: Sequence[Pixels]) -> Vectors:
        return np.stack([picture.reshape(-1, 3).mean(0) for picture in pictures]).astype(np.float64)

    def patches(self, pictures: Sequence[Pixels]) -> Vectors:
        """Every pixel is a patch."""
        return np.stack(pictures).astype(np.float64)


class Brightness:
    """A quality model that likes light: the mean of all channels over 25.5."""

    fingerprint = "brightness"

    def unavailable(self) -> str | None:
        return None

    def score(self, pixels: Pixels) -> float:
        return float(pixels.mean() / 25.5)

    def close(self) -> None: ...


def scene(
    *patches: tuple[str, tuple[int, int, int, int]], size: tuple[int, int] = (200, 100), ground: Rgb = GRAY
) -> Pixels:
    """Paint named patches on a plain ground."""
    pixels = np.empty((size[1], size[0], 3), np.uint8)
    pixels[:] = ground
    for name, (x1, y1, x2, y2) in patches:
        pixels[y1:y2, x1:x2] = PAINT[name]
    return pixels


CUP, BOX, SIGN, LAMP = (20, 40, 50, 80), (80, 40, 120, 80), (150, 20, 190, 60), (60, 10, 76, 26)
BASE = scene(("ceramic white cup", CUP), ("wooden box", BOX), ("paper red sign", SIGN))


def save_base(folder: Path) -> Path:
    """Write the base picture."""
    folder.mkdir(parents=True, exist_ok=True)
    return save(BASE, folder / "kitchen.png")


def kitchen_chain(chains: Path, base: Path) -> ChainFile:
    """Write the chain of the tests: recolor the cup, put a lamp right of it, remove the box."""
    tasks = [
        Task(type="color_alter", object="ceramic white cup", color="blue"),
        Task(type="subject_add", new_object="lamp", reference="ceramic blue cup", position="right"),
        Task(type="subject_remove", object="wooden box"),
    ]
    first = pools = start_pools(
        [
            SceneObject(name="ceramic white cup", object="cup", color="white", material="ceramic"),
            SceneObject(name="wooden box", object="box", material="wooden"),
            SceneObject(name="paper red sign", object="sign", color="red", material="paper", foreground=False),
        ]
    )
    turns = []
    for number, task in enumerate(tasks, 1):
        pools = update_pools(pools, task)
        turns.append(ChainTurn(turn=number, task=task, instruction=wording(task), pools=pools))
    chain = ChainFile(
        id="kitchen",
        image=relative_name(base, chains),
        sha="0",
        seed=0,
        key="by hand",
        proposals="by hand",
        start=first,
        turns=tuple(turns),
        complex=build_complex_prompts(turns, random.Random(0)),
    )
    write_json(chains / "kitchen.json", chain)
    return chain


GOOD = (
    scene(("ceramic blue cup", CUP), ("wooden box", BOX), ("paper red sign", SIGN)),
    scene(("ceramic blue cup", CUP), ("wooden box", BOX), ("paper red sign", SIGN), ("lamp", LAMP)),
    scene(("ceramic blue cup", CUP), ("paper red sign", SIGN), ("lamp", LAMP)),
)
"""What each turn should look like."""
DRIFTED: Rgb = (90, 90, 150)
"""A ground that turned bluish."""


def put(results: Path, model: str, mode: str, pictures: Mapping[int, Pixels]) -> None:
    """Put a model's pictures where `evaluate` looks for them."""
    folder = results / model / mode / "kitchen"
    folder.mkdir(parents=True, exist_ok=True)
    for turn, pixels in pictures.items():
        save(pixels, folder / f"{turn}.png")


def seeing(request: Request) -> Answer:
    """A scripted LMM that looks: yes where the shown crop is mostly the blue of the cup."""
    shown = decode(request.messages[-1].images[0].data, "crop").pixels
    blue = np.all(shown == np.array(PAINT["ceramic blue cup"], np.uint8), axis=2).mean() > 0.5
    word = "yes" if blue else "no"
    return say(json.dumps({"reason": f"The cup is {'blue' if blue else 'not blue'}.", "answer": word}))
