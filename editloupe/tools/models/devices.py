"""Packages that are not always there, and which device and number format the models in torch use."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu", "/dev/dri")
"""What drivers of GPUs that torch works with leave on Linux: of NVIDIA and its small boards, of AMD, under Windows, of Intel."""


def import_optional(name: str) -> Any:
    """Import a package of an extra at the moment it is needed, untyped: it may be absent where this is checked."""
    if name == "torch":
        # Some virtual machines announce AMX and then refuse its instructions, which ends the whole process at the first
        # multiplication in bfloat16. oneDNN reads this once; whoever is sure of AMX sets another value.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    return importlib.import_module(name)


def may_have_gpu() -> bool:
    """Return whether it is worth a second to load torch and ask: not on Linux if no driver has left a device."""
    return sys.platform != "linux" or any(Path(device).exists() for device in GPU_DEVICES)


def pick_device(wanted: str) -> str:
    """Return the device to use: what was asked for, or the best this machine has."""
    if wanted != "auto":
        return wanted
    if not may_have_gpu():
        return "cpu"
    torch = import_optional("torch")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def torch_dtype(precision: str) -> Any:
    """Return torch's number format of this name."""
    torch = import_optional("torch")
    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[precision]
