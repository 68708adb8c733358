"""Results stay below their limit by shrinking pictures and shortening texts, and say so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from editloupe.agent.transport.secrets import remember_secrets
from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels, hash_pixels
from editloupe.servers.mcp.results import LookResult, ShownPicture, build_result, error_result
from tests.servers.mcp.asking import pictures_of, size_of, text_of

LIMIT = 1_000_000


def noise(side: int, seed: int = 0) -> Pixels:
    """A picture that no encoding makes small."""
    return np.random.default_rng(seed).integers(0, 255, (side, side, 3), dtype=np.uint8)


def shown(side: int, seed: int = 0) -> ShownPicture:
    pixels = noise(side, seed)
    return ShownPicture(Picture(hash_pixels(pixels), pixels), f"noise {seed}")


def told(**fields: object) -> LookResult:
    return LookResult.model_validate({"tool": "zoom_in_image", "text": "Seen.", **fields})


def test_a_small_result_is_left_as_it_is() -> None:
    result = build_result("Seen.", told(), [shown(32)], LIMIT)
    (picture,) = pictures_of(result)
    assert picture.size == (32, 32)
    assert result.structured_content["pictures"] == [{"caption": "noise 0", "size": [32, 32], "shown_size": [32, 32]}]
    assert result.structured_content["notes"] == []
    assert text_of(result).startswith("Seen.\nPicture 1: noise 0 (32 × 32)")


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3])
def test_large_pictures_are_shrunk_and_that_is_said(count: int) -> None:
    result = build_result("Seen.", told(), [shown(900, seed) for seed in range(count)], LIMIT)
    assert size_of(result) < LIMIT
    for number, picture in enumerate(pictures_of(result), 1):
        assert 100 < picture.width < 900
        size = f"{picture.width} × {picture.height}"
        assert f"picture {number} was shrunk from 900 × 900 to {size} pixels, so that the result" in text_of(result)
        assert result.structured_content["pictures"][number - 1]["shown_size"] == list(picture.size)


def test_structured_content_holds_no_picture() -> None:
    result = build_result("Seen.", told(), [shown(64)], LIMIT)
    assert len(json.dumps(result.structured_content)) < 1000


def test_more_pictures_than_a_result_takes_are_left_out_and_that_is_said() -> None:
    result = build_result("Seen.", told(), [shown(16, seed) for seed in range(12)], LIMIT)
    assert len(pictures_of(result)) == 8
    assert "the first 8 of 12 pictures are shown" in text_of(result)


@pytest.mark.parametrize("letter", ["a", "“", '"', "\x07"])
def test_long_texts_are_shortened_and_that_is_said(letter: str) -> None:
    long = told(data={"lines": [{"text": letter * 400_000}] * 3})
    result = build_result(letter * 2_000_000, long, [shown(900)], LIMIT)
    assert size_of(result) < LIMIT
    assert "long texts were shortened" in text_of(result)
    assert pictures_of(result)[0].width > 100


@pytest.mark.long
def test_endless_lists_are_cut_and_that_is_said() -> None:
    result = build_result("Seen.", told(data={"lines": [{"text": f"line {n}"} for n in range(20_000)]}), [], LIMIT)
    assert size_of(result) < LIMIT
    assert len(result.structured_content["data"]["lines"]) == 40
    assert "cut to 40 entries" in text_of(result)


def test_secrets_are_in_no_part_of_a_result() -> None:
    secret = "sk-of-this-very-test-and-no-other"
    remember_secrets(secret)
    small = shown(16)
    result = build_result(f"Key {secret}", told(data={"deep": [{"key": secret}]}, notes=[secret]), [small], LIMIT)
    failed = error_result(f"it said {secret}\nand more")
    assert secret not in result.model_dump_json() + failed.model_dump_json()
    assert failed.is_error
    assert "\n" not in text_of(failed)
