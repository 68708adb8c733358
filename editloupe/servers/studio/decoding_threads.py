"""How many pixels are decoded at one time: pages ask for many pictures at once, and memory does not grow with them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from PIL import Image

from editloupe.pictures.decode import FORMATS
from editloupe.pictures.pixel_budget import PixelBudget

T = TypeVar("T")

AT_ONCE = 50_000_000
"""Pixels decoded at one time, half a gigabyte with the decoder's copies; one larger picture is decoded alone."""

JUDGED_AT_ONCE = 150_000_000
"""Pixels of edits judged at one time; a judging holds its pictures to its end, and its tools make copies of them."""

# Pillow takes a picture's memory in blocks of 16 MB, which glibc keeps for every thread that ever asked for them; blocks
# above 32 MB go back to the system when they are freed.
Image.core.set_block_size(64 * 2**20)  # type: ignore[attr-defined]


class DecodingThreads:
    """Decodes pictures in two threads of its own, up to so many pixels at one time; who asks for more waits.

    Threads of its own, because the memory a thread has used for a picture is kept for that thread's next one.
    """

    def __init__(self, pixels: int = AT_ONCE) -> None:
        self._budget = PixelBudget(pixels)
        self._headers = threading.Lock()
        self._threads = ThreadPoolExecutor(2, "decoding")

    def run(self, work: Callable[[], T], *files: Path) -> T:
        """Do some work on these pictures as soon as there is room for them, by the sizes their headers state."""
        return self._threads.submit(self._in_turn, work, files).result()

    def close(self) -> None:
        """Do nothing further; what has begun is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _in_turn(self, work: Callable[[], T], files: Sequence[Path]) -> T:
        with self._budget.room_in_thread(sum(self.pixels_of(file) or 0 for file in files)):
            return work()

    def pixels_of(self, file: Path) -> int | None:
        """Return how many pixels a file's header promises, None where it is no picture; nothing is decoded."""
        with self._headers, warnings.catch_warnings():  # the filters of warnings belong to all threads together
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            try:
                with Image.open(file, formats=FORMATS) as image:
                    return image.size[0] * image.size[1]
            except Image.DecompressionBombError:
                return self._budget.total + 1
            except Exception:  # whoever opens it next says in a sentence what is wrong with it
                return None
