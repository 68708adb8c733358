"""How much Python's garbage collector walks through while edits are judged."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def little_to_collect() -> Iterator[None]:
    """Keep all that lives already out of the collector's rounds for a while; what others have frozen stays frozen.

    What is under way in several edits at one time makes the collector walk through the whole program again and again, a trainer
    with all its modules, although next to nothing of it is garbage.
    """
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()
