"""The looks of one picture: luminance by hand, and HPSv3 as its package is called."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from editloupe.tools.contract import ToolError
from editloupe.tools.models.quality import HpsV3, luminance_quantiles

PACKAGE = """
class HPSv3RewardInferencer:
    def __init__(self, device):
        self.device = device

    def reward(self, prompts, image_paths):
        assert len(prompts) == len(image_paths) == 1
        return [[image_paths[0].getpixel((0, 0))[0] / 10, 99.0]]
"""


@pytest.mark.parametrize(("color", "luma"), [((255, 0, 0), 0.2126), ((0, 255, 0), 0.7152), ((0, 0, 255), 0.0722)])
def test_luminance_weighs_the_channels_by_rec_709(color: tuple[int, int, int], luma: float) -> None:
    pixels = np.empty((8, 8, 3), np.uint8)
    pixels[:] = color
    assert luminance_quantiles(pixels) == pytest.approx((luma, luma))


def test_quantiles_see_a_bright_hundredth_and_a_bright_thousandth() -> None:
    pixels = np.zeros((100, 100, 3), np.uint8)
    assert luminance_quantiles(pixels) == (0, 0)
    pixels[0, :50] = 255
    assert luminance_quantiles(pixels) == pytest.approx((0, 1)), "half a hundredth: above the 99.9 %, below the 99 %"
    pixels[0:2] = 255
    assert luminance_quantiles(pixels) == pytest.approx((1, 1))


def test_hpsv3_is_used_through_its_own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hpsv3.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    quality = HpsV3(device="cpu")
    try:
        assert quality.unavailable() is None
        assert quality.score(np.full((4, 4, 3), 65, np.uint8)) == pytest.approx(6.5)
    finally:
        sys.modules.pop("hpsv3", None)


def test_without_the_package_it_says_how_to_get_it() -> None:
    assert "pip install hpsv3" in str(HpsV3().unavailable())
    with pytest.raises(ToolError, match="pip install hpsv3"):
        HpsV3().score(np.zeros((2, 2, 3), np.uint8))
