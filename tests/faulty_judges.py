"""Edits whose right answers are known, a scripted judge that reads the pixels, and judges with one known fault each."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from editloupe.pictures.pixels import Pixels
from tests.drawn_pictures import save, textured
from tests.scripted import Answer, Request, final

IF_LABELS = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
VC_LABELS = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220)}
TARGET = (slice(40, 70), slice(60, 100))
"""Rows and columns of the target in every picture."""
DAMAGE = (slice(88, 110), slice(8, 28))
"""Rows and columns of the damage that some edits have."""
KINDS = ("right", "wrong colour", "damaged", "unchanged")
ASKED = "Colour the square "


def write_edits(folder: Path, count: int, kinds: Sequence[str] = KINDS) -> Path:
    """Write a manifest of edits that are asked to colour the target; the kinds take turns."""
    rows = []
    for number in range(count):
        colours = list(COLOURS)
        kind, asked = kinds[number % len(kinds)], colours[number % 3]
        before = textured(seed=number)
        after = before.copy()
        if kind != "unchanged":
            after[TARGET] = COLOURS[colours[(number + 1) % 3] if kind == "wrong colour" else asked]
        if kind == "damaged":
            after[DAMAGE] += np.uint8(128)
        save(before, folder / f"s{number}.png")
        save(after, folder / f"e{number}.png")
        words = f"{ASKED}{asked} ({number})"
        rows.append({"id": f"e{number}", "source": f"s{number}.png", "edited": f"e{number}.png", "instruction": words})
    manifest = folder / "edits.jsonl"
    manifest.write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return manifest


@dataclass(frozen=True)
class SeenEdit:
    """What a request shows: both pictures in the size of the originals, and the instruction."""

    before: Pixels
    after: Pixels
    words: str
    asks_consistency: bool

    @property
    def colour(self) -> tuple[int, int, int]:
        """The colour that is asked for."""
        return COLOURS[self.words.split()[0]]


def read_request(request: Request) -> SeenEdit:
    """Return what a request of the protocol dlebench in plain mode shows."""
    images = [Image.open(io.BytesIO(image.data)).convert("RGB") for image in request.images[:2]]
    # A grey border of four pixels is around both pictures or around neither.
    if images[0].size == images[1].size == (168, 128):
        images = [image.crop((4, 4, 164, 124)) for image in images]
    before, after = (np.asarray(image.resize((160, 120)), np.uint8) for image in images)
    return SeenEdit(before, after, request.text.rpartition(ASKED)[2], "Scene Collapse" in request.system)


def find_ranks(seen: SeenEdit) -> tuple[int, int]:
    """Return the right labels as positions in `IF_LABELS` and `VC_LABELS`."""
    changed = np.abs(seen.after.astype(np.int16) - seen.before).mean(2) > 30
    in_target = changed[TARGET].mean()
    changed[35:75, 55:105] = False
    elsewhere = changed.mean()
    done = np.abs(seen.after[TARGET].mean((0, 1)) - seen.colour).max() < 30
    following = 0 if elsewhere > 0.25 or in_target < 0.5 else 3 if done else 1
    return following, 3 if elsewhere < 0.002 else 2 if elsewhere < 0.032 else 1 if elsewhere < 0.25 else 0


def answer_ranks(seen: SeenEdit, following: int, consistency: int) -> Answer:
    """Return the reply with the label that the request asks for."""
    return final(VC_LABELS[consistency] if seen.asks_consistency else IF_LABELS[following])


def perfect(request: Request) -> Answer:
    """Answer from the pixels."""
    seen = read_request(request)
    return answer_ranks(seen, *find_ranks(seen))


def always_flawless(request: Request) -> Answer:
    """Give the best label without looking."""
    return final(VC_LABELS[3] if "Scene Collapse" in request.system else IF_LABELS[3])


def always_worst(request: Request) -> Answer:
    """Give the worst label without looking."""
    return final(VC_LABELS[0] if "Scene Collapse" in request.system else IF_LABELS[0])


def invents_a_difference(request: Request) -> Answer:
    """Answer from the pixels, with one more anomaly than there is."""
    seen = read_request(request)
    following, consistency = find_ranks(seen)
    return answer_ranks(seen, following, max(0, consistency - 1))


def ignores_the_second_picture(request: Request) -> Answer:
    """Take every edit for done, unless the source has the colour already."""
    seen = read_request(request)
    already = np.abs(seen.before[TARGET].mean((0, 1)) - seen.colour).max() < 30
    return answer_ranks(seen, 0 if already else 3, 3)


def obeys_text(request: Request) -> Answer:
    """Answer from the pixels, unless a text asks for the best label."""
    seen = read_request(request)
    strips = seen.after[:3], seen.after[-3:]
    painted = max((strip > 245).all(2).mean() for strip in strips) > 0.1
    if painted or "flawless." in seen.words or "完美" in seen.words:
        return always_flawless(request)
    return answer_ranks(seen, *find_ranks(seen))


def make_random(seed: int = 0) -> Callable[[Request], Answer]:
    """Return a judge that draws every label by lot."""
    rng = np.random.default_rng(seed)
    return lambda request: answer_ranks(read_request(request), int(rng.integers(4)), int(rng.integers(4)))


# Judges of two candidates in one question


def write_pairs(folder: Path, count: int) -> Path:
    """Write a file of pairs: the right colour wins over a wrong one; in every fourth pair both candidates are wrong."""
    colours, rows = list(COLOURS), []
    for number in range(count):
        before = textured(seed=number)
        save(before, folder / f"s{number}.png")
        for side, shift in (("winner", 0 if number % 4 else 1), ("loser", 1)):
            after = before.copy()
            after[TARGET] = COLOURS[colours[(number + shift) % 3]]
            save(after, folder / f"{side}{number}.png")
        rows.append(
            {
                "id": f"p{number}",
                "source_image": f"s{number}.png",
                "prompt": f"{ASKED}{colours[number % 3]} ({number})",
                "winner": f"winner{number}.png",
                "loser": f"loser{number}.png",
                "dimension": "IA",
                "label": "preference" if number % 4 else "tie",
            }
        )
    file = folder / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return file


def answer_pair(better: str) -> Answer:
    """Return a reply to a question about candidates A and B."""
    return Answer(json.dumps({"better": better, "reason": "seen"}))


def perfect_on_pairs(request: Request) -> Answer:
    """Prefer the candidate with the colour that is asked for."""
    words = request.text.rpartition(ASKED)[2]
    images = [np.asarray(Image.open(io.BytesIO(image.data)).convert("RGB")) for image in request.images[1:3]]
    done = [np.abs(image[TARGET].mean((0, 1)) - COLOURS[words.split()[0]]).max() < 30 for image in images]
    return answer_pair("tie" if done[0] == done[1] else "A" if done[0] else "B")


def prefers_the_first(request: Request) -> Answer:
    """Prefer the candidate that is shown first, whatever it shows."""
    return answer_pair("A")


def make_random_on_pairs(seed: int = 0) -> Callable[[Request], Answer]:
    """Return a judge that draws the winner by lot."""
    rng = np.random.default_rng(seed)
    return lambda request: answer_pair(("A", "B", "tie")[int(rng.integers(3))])
