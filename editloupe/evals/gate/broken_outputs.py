"""Find broken outputs of an editing model by their pixels, compared with the outputs of a baseline on the same cases.

An output is broken if it is missing, unreadable, of another size than the baseline's, of one colour, noise, or changed nearly
everywhere outside the targets, if these are known. What the baseline's output is as well, such as black, may be what the
instruction asks for and is not a defect. Nothing is judged for this, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from editloupe.agent.rules.pixels import distance, resize, soft_lab
from editloupe.evals.gate.sides import GateSide, Pair, is_identical
from editloupe.evals.runs.run_folder import PictureFolder
from editloupe.evals.stats.scores.run_table import RunRow
from editloupe.pictures.decode import open_picture
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.pictures.table_cells import find_file
from editloupe.types import Box, Reason, Record

Floats32 = NDArray[np.float32]
MISSING, UNREADABLE = "missing", "unreadable"
BLACK_LEVEL = 8
"""The highest value of a channel, of 255, in a picture that counts as black."""
FLAT_DEVIATION = 1.0
"""Standard deviation of each channel, of 255, up to which a picture has one colour."""
MIN_NOISE_SIDE = 16
"""Pixels per side below which a picture is never called noise."""
MAX_NOISE_CORRELATION = 0.2
"""Correlation of neighbouring pixels below which a picture is noise; that of photographs and drawings is above 0.8."""
MIN_NOISE_DEVIATION = 10.0
"""Standard deviation of noise, of 255."""
LATENT_CELL = 8
"""Pixels per side that share a value in the noise of a latent picture: the scale of usual autoencoders."""
SMALL_SIDE = 256
"""Longest side at which changes outside the targets are measured."""
CLEAR_CHANGE = 20.0
"""Difference of two pixels, in CIELAB units, from which it is clear."""
MOST_CHANGED, LEAST_CHANGED = 0.6, 0.2
"""Shares of the pixels outside the targets: an output is broken above the first, if the baseline's is below the second."""
MIN_OUTSIDE = 0.2
"""Share of the picture that must be outside the targets."""
WORKERS = 4
"""Threads that decode pictures."""


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
    """Return what is visibly wrong with a picture: `all black`, `one colour`, `noise` or None.

    >>> find_defect(np.zeros((32, 32, 3), np.uint8)), find_defect(np.full((32, 32, 3), 200, np.uint8))
    ('all black', 'one colour')
    """
    if int(pixels.max(initial=0)) <= BLACK_LEVEL:
        return "all black"
    if max(float(pixels[..., channel].std()) for channel in range(3)) <= FLAT_DEVIATION:
        return "one colour"
    grey = pixels.mean(2, dtype=np.float32)
    return "noise" if _is_noise(grey) or _is_noise(_average_cells(grey)) else None


def _average_cells(grey: Floats32) -> Floats32:
    height, width = (side // LATENT_CELL for side in grey.shape)
    cells = grey[: height * LATENT_CELL, : width * LATENT_CELL]
    return np.asarray(cells.reshape(height, LATENT_CELL, width, LATENT_CELL).mean((1, 3)))


def _is_noise(grey: Floats32) -> bool:
    if min(grey.shape) < MIN_NOISE_SIDE or float(grey.std()) < MIN_NOISE_DEVIATION:
        return False
    pairs = ((grey[:, 1:], grey[:, :-1]), (grey[1:], grey[:-1]))
    return all(_correlate(first, second) < MAX_NOISE_CORRELATION for first, second in pairs)


def _correlate(first: Floats32, second: Floats32) -> float:
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).mean() * (second**2).mean()))
    return float((first * second).mean()) / scale if scale else 1.0


def measure_outside_change(source: Pixels, output: Pixels, targets: Sequence[Box]) -> float | None:
    """Return the share of pixels outside the targets that clearly changed; None if nearly nothing is outside.

    Pixels are compared as the judge `rules` does: in CIELAB, blurred, and a shift of one pixel is tolerated.

    Args:
        source: The source picture.
        output: The edited picture.
        targets: The targets, in pixels of the source.
    """
    height, width = source.shape[:2]
    scale = min(1.0, SMALL_SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    outside = np.ones(size[::-1], bool)
    for box in targets:
        grown = (
            (box.x1 - 0.1 * (box.x2 - box.x1), box.y1 - 0.1 * (box.y2 - box.y1)),
            (
                box.x2 + 0.1 * (box.x2 - box.x1),
                box.y2 + 0.1 * (box.y2 - box.y1),
            ),
        )
        (x1, y1), (x2, y2) = ((max(0, int(x * scale)), max(0, int(y * scale))) for x, y in grown)
        outside[y1 : y2 + 1, x1 : x2 + 1] = False
    if outside.mean() < MIN_OUTSIDE:
        return None
    gap = distance(*(soft_lab(resize(pixels, size)) for pixels in (source, output)))
    return float((gap[outside] > CLEAR_CHANGE).mean())


def find_broken(first: GateSide, second: GateSide, pairs: Sequence[Pair]) -> tuple[list[BrokenOutput], list[Pair]]:
    """Return the broken outputs of the first side, and the pairs of which neither output is broken."""
    folders = first.pictures, second.pictures

    def check(pair: Pair) -> str | None:
        """Return what is wrong with the first output; empty if the pair cannot be compared, None if it is sound."""
        if is_identical(pair):
            return None
        new, old = (read_output(folder, row) for folder, row in zip(folders, pair, strict=True))
        if reason := compare_outputs(new, old):
            return reason
        if isinstance(new, str) or isinstance(old, str):
            return ""
        if new is None or old is None or not pair[1].edit.target_boxes:
            return None
        return _compare_outside(_open(pair[1].edit.source), new, old, pair[1].edit.target_boxes)

    with ThreadPoolExecutor(WORKERS) as threads:
        reasons = list(threads.map(check, pairs))
    broken = [name_broken(pair[0], reason) for pair, reason in zip(pairs, reasons, strict=True) if reason]
    return broken, [pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]


def name_missing(rows: Iterable[RunRow]) -> list[BrokenOutput]:
    """Return the outputs of cases that only the baseline has, as missing ones."""
    return [name_broken(row, MISSING) for row in rows]


def name_broken(row: RunRow, reason: str) -> BrokenOutput:
    """Return a row's output as a broken one."""
    return BrokenOutput(edit_id=row.edit.id, reason=reason, instruction=row.edit.instruction)


def _open(source: PictureSource) -> Pixels | None:
    try:
        return open_picture(source).pixels
    except ImageError:
        return None


def _compare_outside(source: Pixels | None, new: Pixels, baseline: Pixels, targets: Sequence[Box]) -> str | None:
    if source is None:
        return None
    changed = measure_outside_change(source, new, targets)
    if changed is None or changed < MOST_CHANGED:
        return None
    before = measure_outside_change(source, baseline, targets) or 0.0
    if before > LEAST_CHANGED:
        return None
    return f"changed outside the targets: {changed:.0%} of the pixels, {before:.0%} in the baseline's output"


def read_output(folder: PictureFolder | None, row: RunRow) -> Pixels | str | None:
    """Return the pixels of an edited picture, what is wrong with its file, or None if the picture is no longer available.

    A picture that was judged and is gone since then is not a broken output.

    Args:
        folder: The pictures of the run; None if the output is not in a run.
        row: The output.
    """
    shas = row.pictures.get("edited")
    path = (folder.find(shas[0]) if shas and folder else None) or row.edit.edited
    is_memory = isinstance(path, MemoryPicture)
    is_here = path.has_content or bool(path.problem) if isinstance(path, MemoryPicture) else find_file(path).exists()
    if not is_here:
        refused = any(unit.kind.reason == Reason.BAD_IMAGE for units in row.units.values() for unit in units)
        return MISSING if folder is None or (refused and not shas and not is_memory) else None
    try:
        return open_picture(path).pixels
    except ImageError:
        return UNREADABLE


def compare_outputs(new: Pixels | str | None, baseline: Pixels | str | None) -> str | None:
    """Return the defect of an output that the baseline's output does not have; None if there is no such defect.

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
