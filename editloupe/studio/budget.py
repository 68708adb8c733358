"""How many pixels are decoded at one time: pages ask for many pictures at once, and memory does not grow with them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from editloupe.images import FORMATS

AT_ONCE = 100_000_000
"""Pixels decoded at one time, 300 MB of them; one larger picture is decoded alone."""


class PixelBudget:
    """Lets threads decode pictures side by side up to so many pixels; who asks for more waits."""

    def __init__(self, pixels: int = AT_ONCE) -> None:
        self._whole = pixels
        self._left = pixels
        self._changed = threading.Condition()

    @contextmanager
    def room(self, *files: Path) -> Iterator[None]:
        """Hold room for these pictures, by the sizes their headers state."""
        wanted = min(self._whole, sum(self.pixels_of(file) or 0 for file in files))
        with self._changed:
            self._changed.wait_for(lambda: self._left >= wanted)
            self._left -= wanted
        try:
            yield
        finally:
            with self._changed:
                self._left += wanted
                self._changed.notify_all()

    def pixels_of(self, file: Path) -> int | None:
        """Return how many pixels a file's header promises, None where it is no picture; nothing is decoded."""
        with self._changed, warnings.catch_warnings():  # the filters of warnings belong to all threads together
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            try:
                with Image.open(file, formats=FORMATS) as image:
                    return image.size[0] * image.size[1]
            except Image.DecompressionBombError:
                return self._whole + 1
            except Exception:  # whoever opens it next says in a sentence what is wrong with it
                return None
