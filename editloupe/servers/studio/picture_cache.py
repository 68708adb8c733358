"""Finds pictures of runs and uploads by hash, and makes small copies and differences."""

from __future__ import annotations

import json
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import cv2
import numpy as np
from PIL import Image

from editloupe.evals.runs.run_folder import SUFFIXES
from editloupe.pictures.decode import FORMATS, declared_size, open_picture
from editloupe.pictures.encode import encode
from editloupe.pictures.memory_budget import BYTES_PER_PIXEL, MemoryBudget, memory_shares
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.tools.compare.difference import align, compare
from editloupe.types import Sha

T = TypeVar("T")

SMALL_SIDE = 240
DIFFERENCE_SIDE = 1400
QUIET = 14
"""Differences up to this much of 255 stay transparent: they are compression noise."""
MEDIA_TYPES = {suffix: media_type for media_type, suffix in SUFFIXES.items()}
OVERLAY = (255, 0, 200)
"""A colour that is rare in photographs and visible with any kind of colour vision."""
MOST_REGIONS = 5
"""The most differences that are offered for a closer look."""
LEAST_CROP = 48
"""The least width of a crop in pixels of the picture."""
AT_ONCE = 50_000_000
"""The most pixels decoded at the same time, within the share of previews; a larger picture is decoded alone."""

# Pillow takes a picture's memory in blocks of 16 MB, which glibc keeps for every thread that ever asked for them; blocks
# above 32 MB go back to the system when they are freed.
Image.core.set_block_size(64 * 2**20)  # type: ignore[attr-defined]


class DecodingThreads:
    """Decodes pictures in two threads of its own, within a budget of pixels; further requests wait.

    Threads of its own, because the memory a thread has used for a picture is kept for that thread's next one.
    """

    def __init__(self, pixels: int = AT_ONCE) -> None:
        self._budget = MemoryBudget(min(pixels, memory_shares().previews // BYTES_PER_PIXEL))
        self._headers = threading.Lock()
        self._threads = ThreadPoolExecutor(2, "decoding")

    def run(self, work: Callable[[], T], *files: Path) -> T:
        """Run a function on pictures as soon as the budget allows, by the sizes in their headers."""
        return self._threads.submit(self._in_turn, work, files).result()

    def close(self) -> None:
        """Stop taking work, without waiting for work under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _in_turn(self, work: Callable[[], T], files: Sequence[Path]) -> T:
        with self._budget.reserve_in_thread(sum(self.pixels_of(file) or 0 for file in files)):
            return work()

    def pixels_of(self, file: Path) -> int | None:
        """Return the number of pixels from a file's header, None if it is not a picture."""
        with self._headers, warnings.catch_warnings():  # the filters of warnings belong to all threads together
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            try:
                with Image.open(file, formats=FORMATS) as image:
                    return image.size[0] * image.size[1]
            except Image.DecompressionBombError:
                return self._budget.total + 1
            except Exception:  # whoever opens it next says in a sentence what is wrong with it
                return None


class Pictures(Protocol):
    """A place that finds pictures by hash."""

    def find(self, sha: Sha) -> Path | None:
        """Return the file of a picture, or None."""


class PictureCache:
    """Finds pictures by hash, and caches small copies and differences."""

    def __init__(
        self, folders: Callable[[], Iterable[Pictures]], budget: DecodingThreads, kept_bytes: int = 64 * 2**20
    ) -> None:
        self._folders = folders
        self._budget = budget
        self._made: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self._left = kept_bytes
        self._lock = threading.Lock()

    def find(self, sha: Sha) -> Path | None:
        """Return the file of a picture, None if no open run has it."""
        return next((path for folder in self._folders() if (path := folder.find(sha))), None)

    def size(self, sha: Sha) -> tuple[int, int] | None:
        """Return a picture's width and height, None if it cannot be read."""
        try:
            return declared_size(path) if (path := self.find(sha)) else None
        except ImageError:
            return None

    def small(self, sha: Sha) -> bytes | None:
        """Return a small copy as JPEG."""
        return self._make(("small", sha), lambda files: small_copy(open_picture(files[0]).pixels))

    def difference(self, first: Sha, second: Sha) -> bytes | None:
        """Return a transparent PNG that marks where two pictures differ."""
        return self._make(
            ("difference", first, second),
            lambda files: overlay(open_picture(files[0]).pixels, open_picture(files[1]).pixels),
        )

    def crop(self, sha: Sha, frame: Sha, box: tuple[int, int, int, int]) -> bytes | None:
        """Return the part of a picture around a box as a small JPEG.

        Args:
            sha: The picture.
            frame: The picture in whose pixels the box is; the same share of the picture is shown.
            box: Left, top, right and bottom edge.
        """
        return self._make(
            (f"crop {box}", sha, frame),
            lambda files: crop_around(open_picture(files[0]).pixels, declared_size(files[1]), box),
        )

    def regions(self, first: Sha, second: Sha) -> bytes | None:
        """Return the boxes of the most significant differences as JSON, in pixels of the first picture."""
        return self._make(
            ("regions", first, second),
            lambda files: find_largest_differences(open_picture(files[0]).pixels, open_picture(files[1]).pixels),
        )

    def _make(self, key: tuple[str, ...], make: Callable[[list[Path]], bytes]) -> bytes | None:
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        files = [path for sha in key[1:] if (path := self.find(sha))]
        if len(files) < len(key) - 1:
            return None
        made = self._budget.run(lambda: make(files), *files)
        with self._lock:
            if key not in self._made:
                self._made[key] = made
                self._left -= len(made)
            while self._left < 0 and len(self._made) > 1:
                self._left += len(self._made.popitem(last=False)[1])
        return made


def overlay(first: Pixels, second: Pixels) -> bytes:
    """Return the difference of two pictures as a PNG with transparency, in the first one's frame.

    >>> plain = np.full((40, 60, 3), 90, np.uint8)
    >>> overlay(plain, plain)[:4]
    b'\\x89PNG'
    """
    scale = min(1.0, DIFFERENCE_SIDE / max(first.shape[:2]))
    size = max(1, round(first.shape[1] * scale)), max(1, round(first.shape[0] * scale))
    a = cv2.resize(first, size, interpolation=cv2.INTER_AREA) if scale < 1 else first
    b = np.ascontiguousarray(align(np.ascontiguousarray(a, np.uint8), second))
    amount = cv2.GaussianBlur(np.abs(a.astype(np.int16) - b.astype(np.int16)).max(2).astype(np.float32), (0, 0), 1.0)
    strength = np.clip((amount - QUIET) / 60.0, 0, 1)
    overlaid = np.empty((size[1], size[0], 4), np.uint8)
    overlaid[..., :3] = OVERLAY[::-1]
    overlaid[..., 3] = np.where(strength > 0, 90 + 150 * strength, 0).astype(np.uint8)
    return bytes(cv2.imencode(".png", overlaid)[1])


def find_largest_differences(first: Pixels, second: Pixels) -> bytes:
    """Return the boxes of the most significant differences as JSON; an empty list if the whole scene differs.

    >>> plain = np.full((40, 60, 3), 90, np.uint8)
    >>> find_largest_differences(plain, plain)
    b'[]'
    """
    comparison = compare(first, second)
    return json.dumps(
        [] if comparison.whole_scene else [region.box for region in comparison.regions[:MOST_REGIONS]]
    ).encode()


def crop_around(pixels: Pixels, frame: tuple[int, int], box: tuple[int, int, int, int]) -> bytes:
    """Return the part of a picture around a box as a small JPEG of 4 by 3, with as much again around the box.

    >>> crop_around(np.zeros((300, 400, 3), np.uint8), (400, 300), (10, 10, 30, 20))[:3]
    b'\xff\xd8\xff'
    """
    height, width = pixels.shape[:2]
    across, down = width / frame[0], height / frame[1]
    x1, y1, x2, y2 = box[0] * across, box[1] * down, box[2] * across, box[3] * down
    wide = min(width, max(2 * (x2 - x1), 8 / 3 * (y2 - y1), LEAST_CROP))
    high = min(height, 0.75 * wide)
    left = min(max(0.0, (x1 + x2 - wide) / 2), width - wide)
    top = min(max(0.0, (y1 + y2 - high) / 2), height - high)
    part = pixels[int(top) : max(int(top) + 1, round(top + high)), int(left) : max(int(left) + 1, round(left + wide))]
    return small_copy(np.ascontiguousarray(part))


def small_copy(pixels: Pixels) -> bytes:
    """Return a small copy of a picture as JPEG."""
    scale = min(1.0, SMALL_SIDE / max(pixels.shape[:2]))
    size = max(1, round(pixels.shape[1] * scale)), max(1, round(pixels.shape[0] * scale))
    return encode(np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8), "jpeg", 85)
