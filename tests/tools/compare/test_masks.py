"""Masks of measured differences, and their run lengths."""

import numpy as np
import pytest

from editloupe.tools.compare.difference import compare, decode_rle, encode_rle, join_masks, place_mask

SHAPES = ((1, 1), (7, 5), (64, 33), (300, 220))


def draw_masks() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    noisy = [random.random(shape) > share for shape in SHAPES for share in (0.0, 0.3, 0.97, 1.0)]
    block = np.zeros((400, 300), bool)
    block[100:350, 40:41] = block[:, 200:] = True
    return [*noisy, block]


def test_run_lengths_are_read_back_as_the_same_mask() -> None:
    for mask in draw_masks():
        assert np.array_equal(decode_rle(encode_rle(mask)), mask)


def test_run_lengths_are_those_of_coco() -> None:
    coco = pytest.importorskip("pycocotools.mask")
    for mask in draw_masks():
        record = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert encode_rle(mask) == {"size": record["size"], "counts": record["counts"].decode()}


@pytest.mark.parametrize("factor", [1, 3])
def test_the_mask_of_a_painted_disc_is_that_disc(factor: int) -> None:
    height, width = 240 * factor, 320 * factor
    rows, columns = np.mgrid[:height, :width]
    base = np.stack([rows / height * 90 + 60, columns / width * 90 + 60, np.full((height, width), 110)], axis=-1)
    first = (base + np.random.default_rng(1).normal(0, 2, base.shape)).clip(0, 255).astype(np.uint8)
    disc = (rows - height // 2) ** 2 + (columns - width // 3) ** 2 < (40 * factor) ** 2
    second = first.copy()
    second[disc] = (220, 40, 40)
    comparison = compare(first, second, masks=True)
    mask = join_masks(comparison.regions, (height, width))
    assert (mask & disc).sum() / (mask | disc).sum() > 0.9
    assert np.array_equal(mask, place_mask(comparison.regions[0], (height, width)))
    assert all(region.mask is None for region in compare(first, second).regions)
