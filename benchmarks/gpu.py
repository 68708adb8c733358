"""Measure how fast the models of the tools run on a device, how full their batches are, and how much memory they take.

python -m benchmarks.gpu [--device cuda:1] [--precision float16] [--detector FOLDER] [--features FOLDER] [--seconds 10]

Runs on every device of torch. Without weights, tiny random ones are used: the figures then show the cost of our own code.
Calls come from as many threads as there are concurrent edits. Memory is the peak of the device, or of the process on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from skimage import data

from benchmarks.tools import table
from editloupe.pictures.pixels import Pixels
from editloupe.tools.detect import build_detector
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.models.batching import Batcher
from editloupe.tools.models.features import DinoFeatures, FeatureSettings
from editloupe.tools.models.weights import import_optional, pick_device
from editloupe.tools.settings import ToolSettings

Call = Callable[[int], object]
"""A call of a model on the picture of this number; other numbers are other pictures."""


@dataclass(frozen=True)
class Part:
    """A model and how it is called."""

    name: str
    call: Call
    queue: Batcher | None = None
    """Its queue, whose batches are the forward passes of concurrent calls."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps…")
    parser.add_argument("--precision", default="float32", help="of detector and features: float32, float16 or bfloat16")
    parser.add_argument("--detector", help="a folder or hub id of Grounding DINO, or nanodet")
    parser.add_argument("--features", help="a folder or hub id of DINO")
    parser.add_argument("--enhancer", default="auto", choices=("auto", "fast", "realesrgan"))
    parser.add_argument("--edits", type=int, nargs="+", default=[1, 4, 16], help="concurrent edits")
    parser.add_argument("--batch-size", type=int, default=4, help="views per forward pass of the detector")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure")
    options = parser.parse_args()
    device = pick_device(options.device)
    print(f"Device: {describe_device(device)}, {options.precision}, batches of {options.batch_size} in the detector.\n")
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_weights(Path(folder))
        print(table(["model", "concurrent edits", "calls per s", "CPU s per call", "batch fill", "memory, MB"], []))
        for part in build_parts(options, Path(folder)):
            for edits in options.edits:
                row = [part.name, str(edits), *measure(part, edits, options.seconds, device)]
                print(f"| {' | '.join(row)} |", flush=True)


def save_tiny_weights(folder: Path) -> None:
    """Write random weights of a detector and of features."""
    from tests.tools.tiny_grounding import save_tiny_grounding_dino
    from tests.tools.tiny_models import save_tiny_dino

    save_tiny_grounding_dino(folder / "detector")
    save_tiny_dino(folder / "features")


def build_parts(options: argparse.Namespace, folder: Path) -> Iterator[Part]:
    """Build the models one after another."""
    settings = ToolSettings(
        detector=options.detector or str(folder / "detector"),
        device=options.device,
        precision=options.precision,
        enhancer=options.enhancer,
        batch_size=options.batch_size,
    )
    photo: Pixels = np.ascontiguousarray(data.astronaut())  # type: ignore[no-untyped-call]
    model = build_detector(settings)
    name = f"detector {options.detector or 'with tiny weights'}"
    yield Part(name, lambda number: model.detect(vary(photo, number), "person"), model.queue)
    backend: Any = build_enhancer(settings)[0].backend
    crop = photo[60:124, 190:254]
    yield Part(
        f"enhancer {backend.name}, 64 × 64",
        lambda number: backend.upscale(vary(crop, number), backend.factor(64)),
        getattr(backend, "queue", None),
    )
    chosen = FeatureSettings(options.features or str(folder / "features"), False, options.device, options.precision)
    features = DinoFeatures(chosen)
    name = f"features {options.features or 'with tiny weights'}, a pair"
    yield Part(name, lambda number: features.embed([photo, vary(photo, number)]))


def vary(pixels: Pixels, number: int) -> Pixels:
    """Return a picture that differs with the number, so that no call equals another."""
    changed = pixels.copy()
    changed[0, 0] = number % 256, number // 256 % 256, number // 65536 % 256
    return changed


def measure(part: Part, edits: int, seconds: float, device: str) -> list[str]:
    """Call a part from as many threads as there are edits; return the figures of a row."""
    part.call(-1)  # loads the weights
    numbers = itertools.count()
    if part.queue:
        part.queue.batches.clear()
    with memory_of(device) as memory:
        cpu, began = time.process_time(), time.perf_counter()

        def work(_: int) -> int:
            calls = 0
            while not calls or time.perf_counter() - began < seconds:
                part.call(next(numbers))
                calls += 1
            return calls

        with ThreadPoolExecutor(edits) as threads:
            calls = sum(threads.map(work, range(edits)))
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
    fill = f"{100 * part.queue.fill:.0f} %" if part.queue else "no queue"
    return [f"{calls / elapsed:.1f}", f"{cpu / calls:.3f}", fill, f"{memory[0] / 2**20:.0f}"]


@contextmanager
def memory_of(device: str) -> Iterator[list[float]]:
    """Fill in the most bytes that were in use: of the device, or of this process on a CPU."""
    torch = import_optional("torch")
    used = [0.0]
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
    yield used
    if device.startswith("cuda"):
        used[0] = torch.cuda.max_memory_allocated(device)
    elif device.startswith("mps"):
        used[0] = torch.mps.driver_allocated_memory()
    else:  # the peak since the process began, in kilobytes, on macOS in bytes
        used[0] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def describe_device(device: str) -> str:
    """Name the device."""
    if device.startswith("cuda"):
        return f"{device} ({import_optional('torch').cuda.get_device_name(device)})"
    return device


if __name__ == "__main__":
    main()
