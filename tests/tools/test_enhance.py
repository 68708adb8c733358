from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

from editloupe.pictures.pixels import Pixels
from editloupe.tools.enhance import Enhancer, build_enhancer
from editloupe.tools.models import real_esrgan
from editloupe.tools.models.upscalers import FastUpscaler, NoUpscaler, blend_with_classical
from editloupe.tools.registry import build_toolbox
from editloupe.tools.result_cache import ToolResultCache
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError
from tests.tools.tiny_rrdbnet import make_convolutions, save_ncnn


def psnr(a: Pixels, b: Pixels) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b.astype(float)) ** 2)))


def shrunken(x: int, y: int, side: int) -> tuple[Pixels, Pixels]:
    """A detail of a photograph and the same four times smaller."""
    truth = np.ascontiguousarray(data.coffee()[y : y + 4 * side, x : x + 4 * side])
    return truth, np.asarray(cv2.resize(truth, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def bicubic(small: Pixels) -> Pixels:
    return np.asarray(cv2.resize(small, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC), np.uint8)


def back(large: Pixels, small: Pixels) -> Pixels:
    return np.asarray(cv2.resize(large, small.shape[1::-1], interpolation=cv2.INTER_AREA), np.uint8)


@pytest.mark.parametrize("place", [(200, 100), (60, 150), (320, 40)])
def test_the_fast_enhancer_is_closer_to_the_truth_than_bicubic(place: tuple[int, int]) -> None:
    truth, small = shrunken(*place, 60)

    assert psnr(FastUpscaler().upscale(small, 4.0), truth) > psnr(bicubic(small), truth)


def test_the_fast_enhancer_keeps_the_colour_of_every_original_pixel() -> None:
    _, small = shrunken(200, 100, 60)

    assert np.abs(back(FastUpscaler().upscale(small, 4.0), small).astype(int) - small).mean() < 1.0


def test_an_enhancer_asked_for_by_name_that_cannot_run_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="realesrgan cannot be used"):
        build_toolbox(ToolSettings(enhancer="realesrgan", enhancer_weights=tmp_path))


@pytest.fixture
def tiny_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights of Real-ESRGAN in the folder of fetched weights, where no others are found."""
    folder = save_ncnn(tmp_path, make_convolutions())
    monkeypatch.setattr(real_esrgan, "find_weights", lambda name: folder)
    monkeypatch.setattr(real_esrgan, "is_installed", lambda name: True)


def test_auto_without_a_gpu_is_fast_and_says_what_was_looked_for(
    tiny_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_esrgan, "may_have_gpu", lambda: False)

    enhancer, note = build_enhancer(ToolSettings())

    assert enhancer.fingerprint == "fast/512"
    assert note == (
        "crops are enlarged with the fast enhancer, because Real-ESRGAN has no GPU: this machine has no GPU device "
        "(/dev/nvidia*, /dev/kfd, /dev/dxg, /dev/dri); `--enhancer realesrgan` runs it on the CPU, in seconds per crop"
    )


def test_auto_without_weights_says_so_and_nothing_of_the_device(tmp_path: Path) -> None:
    enhancer, note = build_enhancer(ToolSettings(enhancer_weights=tmp_path))

    assert enhancer.backend.name == "fast"
    assert "has neither realesrgan-x4plus.param" in str(note)
    assert "GPU" not in str(note)


def test_the_enhancer_and_precision_that_the_device_leads_to_are_part_of_the_facts(
    tiny_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(gpu: bool, **settings: Any) -> Any:
        found = (("torch", "cuda") if gpu else None, "no GPU")
        monkeypatch.setattr(real_esrgan, "_find_gpu", lambda file, device: found)
        return build_toolbox(ToolSettings(plugins=False, **settings)).facts()["zoom_in_image"]["enhancer"]

    named: dict[str, Any] = {"enhancer": "realesrgan"}
    half = "realesrgan/256/enhancer_precision=float16"
    assert [of(False), of(True)] == ["fast/512", half]
    assert [of(False, **named), of(True, **named)] == ["realesrgan/256", half]
    assert of(True, enhancer_precision="float32") == "realesrgan/256"


def test_crops_of_a_pair_are_enlarged_at_the_same_time() -> None:
    class Meeting(FastUpscaler):
        costly = True
        both = threading.Barrier(2, timeout=30)

        def upscale(self, pixels: Pixels, factor: float) -> Pixels:
            self.both.wait()
            return super().upscale(pixels, factor)

    pair = [np.full((10, 10, 3), level, np.uint8) for level in (50, 200)]
    pictures = Enhancer(Meeting()).enhance(pair, ToolResultCache(10**8)).pictures
    assert [int(picture.mean()) for picture in pictures] == [50, 200]


def test_large_crops_are_left_alone() -> None:
    large = np.zeros((100, 700, 3), np.uint8)

    shown = Enhancer(FastUpscaler()).enhance([large])

    assert shown.factor == 1
    assert shown.pictures[0] is large
    assert "not enlarged" in shown.note


def test_a_pair_gets_one_factor_even_when_one_side_is_small() -> None:
    small, large = np.zeros((40, 40, 3), np.uint8), np.zeros((600, 600, 3), np.uint8)

    apart = Enhancer(FastUpscaler()).enhance([small])
    together = Enhancer(FastUpscaler()).enhance([small, large])

    assert apart.factor > 1
    assert together.factor == 1
    assert together.pictures[0] is small


def test_the_limit_is_a_setting() -> None:
    crop = np.zeros((100, 100, 3), np.uint8)

    assert Enhancer(FastUpscaler(), up_to=99).enhance([crop]).factor == 1
    assert Enhancer(FastUpscaler(), up_to=100).enhance([crop]).factor > 1


def test_none_enlarges_nothing() -> None:
    crop = np.zeros((10, 10, 3), np.uint8)

    assert Enhancer(NoUpscaler()).enhance([crop]).pictures == (crop,)


def test_a_costly_enlargement_is_made_once() -> None:
    class Counting(FastUpscaler):
        costly = True
        made = 0

        def upscale(self, pixels: Pixels, factor: float) -> Pixels:
            self.made += 1
            return super().upscale(pixels, factor)

    backend, memory = Counting(), ToolResultCache(10**8)
    crop = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    for _ in range(3):
        Enhancer(backend).enhance([crop.copy()], memory)

    assert backend.made == 1


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_the_share_of_the_network_goes_from_none_to_the_network_alone(share: float) -> None:
    small = np.full((8, 8, 3), 100, np.uint8)
    enlarged = np.full((32, 32, 3), 200, np.float32)

    blended = blend_with_classical(enlarged, small, 4.0, share)
    assert int(blended.mean()) == (200 if share == 1 else 100)  # a blend shrinks back to the pixels it was made from
