"""Enlarge crops with Real-ESRGAN, in torch or in ncnn.

torch runs the network on a CUDA or Apple GPU. ncnn runs it on a Vulkan device, and on a CPU, where it is faster than torch.
Both read the same weights, so their results differ by rounding only.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from editloupe._util.text import shorten_error
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.models.batching import Batcher
from editloupe.tools.models.rrdbnet import WeightsError, build_network, read_convolutions
from editloupe.tools.models.upscalers import NETWORK_SHARE, Floats, Upscaler, blend_with_classical
from editloupe.tools.models.weights import (
    WeightsMissing,
    explain_missing_device,
    find_weights,
    import_optional,
    is_installed,
    may_have_gpu,
    pick_device,
    torch_dtype,
)
from editloupe.tools.settings import EnhancerPrecision

MODEL = "realesrgan-x4plus"
CHECKPOINTS = ("RealESRGAN_x4plus.safetensors", "RealESRGAN_x4plus.pth")
SCALE = 4
TILE = 128
PADDING = 10
"""Tiles of 128 pixels with 10 pixels of their neighbours: seams vanish and memory stays small."""
OUT_OF_RANGE = 100.0
"""Black is 0 and white 1 in the network's output; intact weights leave this range by less than 1."""
BATCH = 8
"""Most tiles of one pass on a GPU. If its memory is too small for them, they pass one by one."""
VULKAN_CPU = 3
"""The type of a Vulkan device that is a CPU."""
NVIDIA = 0x10DE
"""The Vulkan vendor number of NVIDIA, whose devices CUDA_VISIBLE_DEVICES restricts."""
NCNN_LINE = re.compile(rb"\[\d+ |dlopen failed|load vulkan driver failed|vk\w+ failed")
"""Lines that ncnn prints on stderr while it looks for Vulkan devices."""

EngineName = Literal["torch", "ncnn"]
Tiles = npt.NDArray[np.float32]
"""Tiles × channels × height × width, 0 to 1."""


@dataclass(frozen=True)
class EngineChoice:
    """What runs the network.

    Args:
        engine: `torch` or `ncnn`.
        device: `cpu`, a device of torch, or `vulkan:N`.
        precision: The number format of weights and activations.
    """

    engine: EngineName
    device: str
    precision: EnhancerPrecision

    def __str__(self) -> str:
        return f"{self.engine} on {self.device}, {self.precision}"


def find_weights_file(path: Path | None = None) -> Path:
    """Return the file of the weights: a `.param` file with its `.bin`, or a checkpoint, which only torch reads.

    Args:
        path: A folder or a file. Default: the weights on this machine.

    Raises:
        ToolError: If there are none. The sentence says what to do.
    """
    try:
        where = path.expanduser() if path else find_weights(MODEL)
    except WeightsMissing as error:
        raise ToolError(f"{error}, or set enhancer_weights to a folder that contains them") from error
    candidates = [where / name for name in (f"{MODEL}.param", *CHECKPOINTS)] if where.is_dir() else [where]
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None and where.is_dir():
        raise ToolError(f"the folder {where} has neither {MODEL}.param and {MODEL}.bin nor {' or '.join(CHECKPOINTS)}")
    if file is None:
        raise ToolError(f"the weights of the enhancer are not at {where}")
    if file.suffix == ".bin":
        file = file.with_suffix(".param")
    if file.suffix == ".param":
        for part in (file, file.with_suffix(".bin")):
            if not part.is_file():
                raise ToolError(f"the folder of the enhancer's weights lacks {part.name}")
    elif file.suffix not in (".pth", ".pt", ".safetensors"):
        raise ToolError(f"{file.name} is not a weights file of the enhancer: it takes .param, .pth or .safetensors")
    return file


def choose_engine(file: Path, device: str = "auto", precision: EnhancerPrecision | None = None) -> EngineChoice:
    """Choose what runs the network: a GPU through torch, one through ncnn, else a CPU through ncnn or torch.

    Args:
        file: The weights, from `find_weights_file`.
        device: `auto`, `cpu`, a device of torch such as `cuda:1`, or `vulkan:N`.
        precision: The number format. Default: float16 on a GPU, float32 on a CPU.

    Raises:
        ToolError: If the device cannot be used, or neither torch nor ncnn can. The sentence gives the reason.
    """
    gpu, reason = _find_gpu(file, device)
    if gpu is not None:
        return EngineChoice(*gpu, precision or "float16")
    if device not in ("auto", "cpu"):
        raise ToolError(
            f"the device {device} cannot be used for Real-ESRGAN: {reason}; use auto, cpu, cuda:N, mps or vulkan:N"
        )
    if file.suffix == ".param" and is_installed("ncnn") and precision != "float16":
        return EngineChoice("ncnn", "cpu", "float32")
    if is_installed("torch"):
        return EngineChoice("torch", "cpu", precision or "float32")
    if file.suffix == ".param" and precision != "float16":
        raise ToolError("Real-ESRGAN needs ncnn or torch: pip install '.[enhance]' for ncnn")
    reason = f"{file.name} is a checkpoint" if file.suffix != ".param" else "float16 is set"
    raise ToolError(f"Real-ESRGAN needs torch on a CPU, because {reason}: pip install '.[detect]'")


def explain_missing_gpu(file: Path, device: str) -> str | None:
    """Return why the network would not run on a GPU, naming what was looked for, or None if it would."""
    gpu, reason = _find_gpu(file, device)
    return None if gpu else reason


def _find_gpu(file: Path, device: str) -> tuple[tuple[EngineName, str] | None, str]:
    """Return engine and device of a GPU, or None with the reason that there is none."""
    if device == "cpu":
        return None, "the device is set to cpu"
    if device == "auto" and not may_have_gpu():
        return None, "this machine has no GPU device (/dev/nvidia*, /dev/kfd, /dev/dxg, /dev/dri)"
    reasons = []
    if not device.startswith("vulkan"):
        gpu, reason = _find_torch_gpu(device)
        if gpu is not None:
            return ("torch", gpu), ""
        reasons.append(reason)
    if device == "auto" or device.startswith("vulkan"):
        gpu, reason = _find_vulkan_gpu(file, device)
        if gpu is not None:
            return ("ncnn", gpu), ""
        reasons.append(reason)
    return None, ", ".join(reasons)


def _find_torch_gpu(device: str) -> tuple[str | None, str]:
    if not is_installed("torch"):
        return None, "torch is not installed"
    try:
        torch, picked = import_optional("torch"), pick_device(device)
        problem = explain_missing_device(picked)
    except (ImportError, OSError, RuntimeError) as error:  # a broken installation
        return None, f"torch refuses it ({shorten_error(error, 200)})"
    if problem is not None:
        return None, problem
    if picked == "cpu":
        return None, f"torch {torch.__version__} finds no CUDA or MPS device"
    return picked, ""


def _find_vulkan_gpu(file: Path, device: str) -> tuple[str | None, str]:
    if not is_installed("ncnn"):
        return None, "ncnn is not installed"
    if file.suffix != ".param":
        return None, f"ncnn cannot read {file.name}"
    devices = list_vulkan_devices()
    if device == "auto":
        usable = sorted(_visible(devices), key=lambda index: devices[index].type)
        return (f"vulkan:{usable[0]}", "") if usable else (None, "ncnn finds no Vulkan GPU")
    index = device.partition(":")[2] or "0"
    if index.isdigit() and int(index) < len(devices):
        return f"vulkan:{index}", ""
    return None, f"ncnn finds {len(devices) or 'no'} Vulkan device{'s' if len(devices) > 1 else ''}"


@dataclass(frozen=True)
class VulkanDevice:
    """A Vulkan device that ncnn finds. Types: 0 discrete, 1 integrated, 2 virtual, 3 CPU."""

    name: str
    type: int
    vendor: int


@cache
def list_vulkan_devices() -> tuple[VulkanDevice, ...]:
    """Return the Vulkan devices that ncnn finds, in its order."""
    ncnn = import_optional("ncnn")
    with _without_ncnn_lines():
        infos = [ncnn.get_gpu_info(index) for index in range(ncnn.get_gpu_count())]
        return tuple(VulkanDevice(info.device_name(), info.type(), info.vendor_id()) for info in infos)


def _visible(devices: Sequence[VulkanDevice]) -> list[int]:
    """Return the indices of the GPUs. NVIDIA's are limited to the numbers in CUDA_VISIBLE_DEVICES, if it is set."""
    gpus = [index for index, device in enumerate(devices) if device.type != VULKAN_CPU]
    numbers = os.environ.get("CUDA_VISIBLE_DEVICES")
    if numbers is None:
        return gpus
    nvidia = [index for index in gpus if devices[index].vendor == NVIDIA]
    visible = {number.strip() for number in numbers.split(",")}
    return [index for index in gpus if index not in nvidia or str(nvidia.index(index)) in visible]


@contextmanager
def _without_ncnn_lines() -> Iterator[None]:
    """Drop ncnn's lines about Vulkan devices from stderr. Lines of other threads are printed at the end."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            caught.seek(0)
            os.write(2, b"".join(line for line in caught if not NCNN_LINE.match(line)))


class EnlargingNetwork(Protocol):
    """A loaded network."""

    def infer(self, tiles: Tiles) -> Tiles:
        """Enlarge tiles of one size four times."""


class NcnnNetwork:
    """The network in ncnn. Not thread-safe.

    Args:
        file: A `.param` file with its `.bin` file in the same folder.
        choice: Device and precision.
        threads: Threads on a CPU. Default: half of the logical cores.
    """

    def __init__(self, file: Path, choice: EngineChoice, threads: int | None = None) -> None:
        self._ncnn = import_optional("ncnn")
        self._net = self._ncnn.Net()
        options = self._net.opt
        # Half of the logical cores are physical ones; more threads block each other when anything else runs.
        options.num_threads = threads or max(1, (os.cpu_count() or 2) // 2)
        # Sums stay in float32, as in torch; on some CPUs ncnn would use float16 by itself.
        options.use_fp16_packed = options.use_fp16_storage = choice.precision == "float16"
        options.use_fp16_arithmetic = options.use_bf16_packed = options.use_bf16_storage = False
        kind, _, index = choice.device.partition(":")
        options.use_vulkan_compute = kind == "vulkan"
        if options.use_vulkan_compute:
            list_vulkan_devices()  # ncnn looks for devices once, and prints what it finds
            self._net.set_vulkan_device(int(index))
        read_convolutions(file)  # ncnn itself checks neither the network nor the numbers
        if self._net.load_param(str(file)) != 0 or self._net.load_model(str(file.with_suffix(".bin"))) != 0:
            raise WeightsError(f"ncnn cannot load {file.name}")

    def infer(self, tiles: Tiles) -> Tiles:
        """Enlarge tiles of one size four times, one after another."""
        return np.stack([self._infer_one(np.ascontiguousarray(tile)) for tile in tiles])

    def _infer_one(self, tile: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        extractor = self._net.create_extractor()
        extractor.input("data", self._ncnn.Mat(tile))  # does not own its memory: `tile` must outlive the extractor
        code, out = extractor.extract("output")
        if code != 0:
            raise ToolError("The enhancer failed on this crop.")
        return np.array(out, dtype=np.float32)


class TorchNetwork:
    """The network in torch. Not thread-safe.

    Args:
        file: The weights in any format of `read_convolutions`.
        choice: Device and precision.
        threads: Threads on a CPU. Default: torch's choice.
    """

    def __init__(self, file: Path, choice: EngineChoice, threads: int | None = None) -> None:
        self._torch = import_optional("torch")
        on_cpu = choice.device == "cpu"
        if on_cpu and threads:
            self._torch.set_num_threads(threads)
        self._batch = 1 if on_cpu else BATCH  # on a CPU a larger batch takes more memory and no less time
        self._device, self._dtype = choice.device, torch_dtype(choice.precision)
        self._network = build_network(read_convolutions(file), self._device, self._dtype)

    def infer(self, tiles: Tiles) -> Tiles:
        """Enlarge tiles of one size four times."""
        try:
            with self._torch.inference_mode(), self._exact():
                passes = [tiles[start : start + self._batch] for start in range(0, len(tiles), self._batch)]
                return np.concatenate([self._pass(part) for part in passes])
        except RuntimeError as error:
            if "out of memory" in str(error):
                raise ToolError(f"The device {self._device} has too little free memory for the enhancer.") from error
            raise

    def _pass(self, tiles: Tiles) -> Tiles:
        output: Tiles = self._network(self._torch.from_numpy(tiles).to(self._device, self._dtype)).float().cpu().numpy()
        return output

    def _exact(self) -> AbstractContextManager[Any]:
        """Switch off TF32, which makes float32 on a GPU as coarse as float16."""
        if self._dtype != self._torch.float32:
            return nullcontext()
        cudnn = self._torch.backends.cudnn
        flags: AbstractContextManager[Any] = cudnn.flags(enabled=cudnn.enabled, allow_tf32=False)
        return flags


class RealESRGAN(Upscaler):
    """Real-ESRGAN x4plus. The weights are loaded once, at the first crop. Thread-safe.

    Tiles of one size share passes, also those of crops that several threads enlarge at the same time.

    Args:
        weights: A folder or file with the weights. Default: the weights on this machine.
        threads: Threads on a CPU. Default: the choice of the engine.
        share: The network's share in the result, from 0 to 1; the rest is the classical enlargement.
        device: `auto`, `cpu`, a device of torch such as `cuda:1`, or `vulkan:N`.
        precision: The number format. Default: float16 on a GPU, float32 on a CPU.
    """

    name = "realesrgan"
    method = "Real-ESRGAN, whose finest texture is a plausible guess"
    limit = 256
    costly = True

    def __init__(
        self,
        weights: Path | None = None,
        threads: int | None = None,
        share: float = NETWORK_SHARE,
        device: str = "auto",
        precision: EnhancerPrecision | None = None,
    ) -> None:
        self._weights, self._threads, self._share = weights, threads, share
        self._device, self._precision = device, precision
        self._choice: EngineChoice | None = None
        self._network: EnlargingNetwork | None = None
        self.queue = Batcher(self._infer, BATCH)
        """The tiles that wait for a pass of the network."""
        self.loads = 0

    @property
    def weights_file(self) -> Path:
        """The file of the weights.

        Raises:
            ToolError: If there is none.
        """
        return find_weights_file(self._weights)

    @property
    def engine(self) -> EngineChoice:
        """What runs the network here. Loads no weights.

        Raises:
            ToolError: If nothing can.
        """
        if self._choice is None:
            self._choice = choose_engine(self.weights_file, self._device, self._precision)
        return self._choice

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        try:
            _ = self.engine
        except ToolError as error:
            return str(error)
        return None

    def factor(self, long_side: int) -> float:
        """Return 4, the factor of the weights."""
        return float(SCALE)

    def upscale(self, pixels: Pixels, factor: float) -> Pixels:
        """Enlarge four times, tile by tile."""
        enlarged = self._enlarge(pixels) if self._share > 0 else None
        return blend_with_classical(enlarged, pixels, factor, self._share)

    def _enlarge(self, pixels: Pixels) -> Floats:
        height, width = pixels.shape[:2]
        mode = "reflect" if min(height, width) > PADDING else "edge"
        padded = np.pad(pixels, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), mode)  # type: ignore[call-overload]
        boxes = sorted(iterate_tiles(width, height), key=lambda box: box[2:])
        result = np.empty((height * SCALE, width * SCALE, 3), np.float32)
        edge = PADDING * SCALE
        for start in range(0, len(boxes), BATCH):
            batch = boxes[start : start + BATCH]
            tiles = [padded[y : y + h + 2 * PADDING, x : x + w + 2 * PADDING] for x, y, w, h in batch]
            enlarged = self.queue.process([(tile, None) for tile in tiles])
            for (x, y, w, h), large in zip(batch, enlarged, strict=True):
                inner = large[:, edge : edge + h * SCALE, edge : edge + w * SCALE]
                result[y * SCALE : (y + h) * SCALE, x * SCALE : (x + w) * SCALE] = inner.transpose(1, 2, 0) * 255
        return result

    def _infer(self, requests: Sequence[tuple[Pixels, None]]) -> list[Floats]:
        """Enlarge tiles of one size; called by one thread at a time."""
        tiles = np.stack([tile for tile, _ in requests]).transpose(0, 3, 1, 2)
        enlarged = self._load().infer(tiles.astype(np.float32) / np.float32(255))
        if not np.abs(enlarged).max() < OUT_OF_RANGE:  # also true of NaN
            raise ToolError(
                f"The output of the enhancer is out of range: {self.weights_file.name} is damaged, or "
                f"the range of {self.engine.precision} is too small for it."
            )
        return list(enlarged)

    def _load(self) -> EnlargingNetwork:
        if self._network is None:
            build = TorchNetwork if self.engine.engine == "torch" else NcnnNetwork
            try:
                self._network = build(self.weights_file, self.engine, self._threads)
            except WeightsError as error:
                raise ToolError(f"The weights of the enhancer could not be loaded: {error}.") from error
            self.loads += 1
        return self._network


def iterate_tiles(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield x, y, width and height of the tiles that cover a picture.

    >>> list(iterate_tiles(200, 100))
    [(0, 0, 128, 100), (128, 0, 72, 100)]
    """
    for y in range(0, height, TILE):
        for x in range(0, width, TILE):
            yield x, y, min(TILE, width - x), min(TILE, height - y)
