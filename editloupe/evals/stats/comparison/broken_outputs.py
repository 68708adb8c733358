"""Find broken outputs of an editing model by their pixels, compared with the outputs of a baseline on the same cases.

An output is broken if it is missing, unreadable, of another size than the baseline's, all black or noise. What the baseline's
output is as well, such as black, may be what the instruction asks for and is not a defect.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_table import RunRow
from editloupe.pictures.decode import open_picture
from editloupe.pictures.memory import MemoryPicture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.pictures.table_cells import find_file
from editloupe.types import Reason, Record

Floats32 = NDArray[np.float32]
MISSING, UNREADABLE = "missing", "unreadable"
BLACK_LEVEL = 8
"""The highest value of a channel, of 255, in a picture that counts as black."""
MIN_NOISE_SIDE = 16
"""Pixels per side below which a picture is never called noise."""
MAX_NOISE_CORRELATION = 0.2
"""Correlation of neighbouring pixels below which a picture is noise; that of photographs and drawings is above 0.8."""
MIN_NOISE_DEVIATION = 10.0
"""Standard deviation of noise, of 255."""


class BrokenOutput(Record):
    """An output that is broken and has no score.

    Args:
        edit_id: The edit's id.
        reason: What is wrong with it.
        instruction: The instruction.
    """

    edit_id: str
    reason: str
    instruction: str


def find_defect(pixels: Pixels) -> str | None:
    """Return what is visibly wrong with a picture: `all black`, `noise` or None.

    >>> find_defect(np.zeros((32, 32, 3), np.uint8)), find_defect(np.full((32, 32, 3), 200, np.uint8))
    ('all black', None)
    """
    if int(pixels.max(initial=0)) <= BLACK_LEVEL:
        return "all black"
    if min(pixels.shape[:2]) < MIN_NOISE_SIDE:
        return None
    grey = pixels.mean(2, dtype=np.float32)
    if float(grey.std()) < MIN_NOISE_DEVIATION:
        return None
    pairs = ((grey[:, 1:], grey[:, :-1]), (grey[1:], grey[:-1]))
    is_noise = all(_correlate(first, second) < MAX_NOISE_CORRELATION for first, second in pairs)
    return "noise" if is_noise else None


def _correlate(first: Floats32, second: Floats32) -> float:
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).mean() * (second**2).mean()))
    return float((first * second).mean()) / scale if scale else 1.0


def read_output(run: Run, row: RunRow) -> Pixels | str | None:
    """Return the pixels of an edited picture, what is wrong with its file, or None if the picture is no longer at hand.

    A picture that was judged and is gone since then is not a broken output.
    """
    shas = row.pictures.get("edited")
    path = (run.pictures.find(shas[0]) if shas else None) or row.edit.edited
    is_memory = isinstance(path, MemoryPicture)
    is_here = path.has_content or bool(path.problem) if isinstance(path, MemoryPicture) else find_file(path).exists()
    refused = any(unit.kind.reason == Reason.BAD_IMAGE for units in row.units.values() for unit in units)
    if not is_here:
        return MISSING if refused and not shas and not is_memory else None
    try:
        return open_picture(path).pixels
    except ImageError:
        return UNREADABLE


def compare_outputs(new: Pixels | str | None, baseline: Pixels | str | None) -> str | None:
    """Return what is wrong with an output that is not wrong with the baseline's output, None if nothing is.

    >>> black, grey = np.zeros((32, 32, 3), np.uint8), np.full((32, 32, 3), 99, np.uint8)
    >>> compare_outputs(black, grey), compare_outputs(black, black), compare_outputs(grey[:16], grey)
    ('all black', None, 'other size: 32×16 instead of 32×32')
    """
    if isinstance(new, str):
        return None if isinstance(baseline, str) else new
    if new is None:
        return None
    reference = None if isinstance(baseline, str) else baseline
    defect = find_defect(new)
    if defect and (reference is None or find_defect(reference) != defect):
        return defect
    if reference is not None and new.shape != reference.shape:
        (height, width), (old_height, old_width) = new.shape[:2], reference.shape[:2]
        return f"other size: {width}×{height} instead of {old_width}×{old_height}"
    return None
