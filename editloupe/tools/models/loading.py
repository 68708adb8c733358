"""Load optional packages and model weights, and choose the device they run on."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from editloupe.tools.models.weights import WeightsMissing, find_weights
from editloupe.types import UserError

GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu", "/dev/dri")
"""Device files that drivers create on Linux: NVIDIA and its small boards, AMD, Windows (WSL), Intel."""

CUDA_PROVIDER = "CUDAExecutionProvider"
"""The name of onnxruntime for its CUDA engine."""


def import_optional(name: str) -> Any:
    """Import a package of an optional extra when it is needed. It is untyped: type checkers may not have it."""
    if name == "torch":
        # Some virtual machines announce AMX but refuse its instructions, which kills the process at the first
        # multiplication in bfloat16. oneDNN reads this variable once. Users with working AMX can set another value.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    return importlib.import_module(name)


def may_have_gpu() -> bool:
    """Return False if this machine surely has no GPU, so that torch need not be loaded to find out."""
    return sys.platform != "linux" or any(Path(device).exists() for device in GPU_DEVICES)


def pick_device(wanted: str) -> str:
    """Return `wanted`, or for `auto` the best device of this machine."""
    if wanted != "auto":
        return wanted
    if not may_have_gpu():
        return "cpu"
    torch = import_optional("torch")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def explain_missing_device(device: str) -> str | None:
    """Return why torch cannot use a device of `pick_device` on this machine, or None if it can."""
    torch = import_optional("torch")
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        return f"torch refuses it ({' '.join(str(error).split())[:200]})"
    if wanted.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (wanted.index or 0) >= count:
            return f"torch {torch.__version__} finds {count or 'no'} CUDA device{'s' if count > 1 else ''}"
    elif wanted.type == "mps":
        return None if torch.backends.mps.is_available() else f"torch {torch.__version__} finds no MPS device"
    elif wanted.type != "cpu":
        try:
            torch.empty(0, device=wanted)
        except (RuntimeError, NotImplementedError, AssertionError) as error:
            return f"torch refuses it ({' '.join(str(error).split())[:200]})"
    return None


def find_cuda_device(device: str) -> int | None:
    """Return the number of the CUDA device on which onnxruntime runs models, or None if it runs them on the CPU.

    Args:
        device: A device setting; `auto` is CUDA if this machine and its onnxruntime have it.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" and not (device == "auto" and may_have_gpu()):
        return None
    if CUDA_PROVIDER not in import_optional("onnxruntime").get_available_providers():
        return None
    return int(number) if number.isdigit() else 0


def release_memory() -> None:
    """Return free memory to the system if the C library can. It keeps the memory of each thread for that thread."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def torch_dtype(precision: str) -> Any:
    """Return the torch dtype of a precision setting."""
    torch = import_optional("torch")
    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[precision]


def locate_weights(model: str, download: bool) -> tuple[str, bool]:
    """Return where transformers finds a model's weights, and whether it must not use the network.

    Args:
        model: A folder, or a model id of the hub. Weights that `editloupe weights fetch` downloaded come first.
        download: Whether the weights may be downloaded.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder), True
    try:
        return str(find_weights(model)), True
    except UserError:  # missing, or another model than those of the table
        return model, not download


def explain_missing_weights(model_id: str, *files: str) -> str | None:
    """Return that a model's weights are not on this machine and what to do, or None if they are. Does not use the network.

    Args:
        model_id: A model id of the hub.
        files: The files of which one is enough, for models that are not in the table of weights.
    """
    if is_in_hub_cache(model_id, "config.json") and any(is_in_hub_cache(model_id, file) for file in files):
        return None
    try:
        find_weights(model_id)
    except WeightsMissing as missing:
        return str(missing)
    except UserError:
        return f'the weights of "{model_id}" are not on this machine: fetch them with `hf download {model_id}`'
    return None


def is_in_hub_cache(model_id: str, file: str) -> bool:
    """Return whether the hub's cache on this disk holds a file of a model. Does not use the network."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return False
    # Without a folder for the model, the whole package need not be loaded.
    cache = Path(import_optional("huggingface_hub.constants").HF_HUB_CACHE)
    if not (cache / f"models--{model_id.replace('/', '--')}").is_dir():
        return False
    hub = import_optional("huggingface_hub")
    try:
        return isinstance(hub.try_to_load_from_cache(model_id, file), str)
    except hub.errors.HFValidationError:  # not the form of a model id
        return False


@contextmanager
def without_progress_bars(transformers: Any) -> Iterator[None]:
    """Hide the progress bars of loading weights; a download still shows its own."""
    log = transformers.utils.logging
    enabled = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            log.enable_progress_bar()
