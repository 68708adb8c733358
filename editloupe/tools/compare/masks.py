"""Masks of the measured differences of two pictures, and their run-length encoding as COCO writes it.

>>> import numpy as np
>>> mask = np.zeros((3, 4), bool)
>>> mask[1:, 2] = True
>>> encode_rle(mask)
{'size': [3, 4], 'counts': '723'}
>>> bool((decode_rle(encode_rle(mask)) == mask).all())
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from editloupe.tools.compare.arrays import Mask
from editloupe.tools.compare.difference import Region

_BITS, _OFFSET = 5, 48
"""Bits of a number per character, and the code of the first character."""


def place_mask(region: Region, size: tuple[int, int]) -> Mask:
    """Return a region's mask in the whole picture.

    Args:
        region: A region of `compare(…, masks=True)`. A change of fine structure, of which only the box is known, has the whole
            box as its mask.
        size: Height and width of the first picture.
    """
    mask = np.zeros(size, np.bool_)
    x1, y1, x2, y2 = region.box
    inside = mask[y1:y2, x1:x2]
    inside[...] = True if region.mask is None else region.mask[: inside.shape[0], : inside.shape[1]]
    return mask


def join_masks(regions: Iterable[Region], size: tuple[int, int]) -> Mask:
    """Return the pixels that are in the mask of any region."""
    joined = np.zeros(size, np.bool_)
    for region in regions:
        joined |= place_mask(region, size)
    return joined


def encode_rle(mask: Mask) -> dict[str, Any]:
    """Return a mask as COCO's compressed run-length encoding: `size` (height, width) and `counts`.

    The counts are the lengths of runs in column order, the first one of pixels outside; from the fourth on, each is the
    difference to the one before the last. A number is written in groups of five bits, the lowest first.
    """
    flat = mask.ravel(order="F").view(np.uint8)
    edges = np.flatnonzero(np.diff(flat)) + 1
    bounds = np.concatenate([[0], edges, [flat.size]])
    runs = np.diff(bounds).tolist()
    if flat.size and flat[0]:
        runs.insert(0, 0)
    values = [run - runs[number - 2] if number > 2 else run for number, run in enumerate(runs)]
    return {"size": list(mask.shape), "counts": "".join(map(_write_number, values))}


def _write_number(value: int) -> str:
    text = ""
    while True:
        group, value = value & 31, value >> _BITS
        last = value == (-1 if group & 16 else 0)
        text += chr(_OFFSET + (group if last else group | 32))
        if last:
            return text


def decode_rle(record: Mapping[str, Any]) -> Mask:
    """Return the mask of a record of `encode_rle`."""
    height, width = record["size"]
    runs: list[int] = []
    value = shift = 0
    for code in (ord(character) - _OFFSET for character in record["counts"]):
        value |= (code & 31) << shift
        shift += _BITS
        if not code & 32:
            value -= (1 << shift) if code & 16 else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return np.asarray(flat.reshape((height, width), order="F"), np.bool_)
