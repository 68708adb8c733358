"""Packages that are not always there, and which device and number format the models in torch use."""

from __future__ import annotations

import importlib
from typing import Any


def module(name: str) -> Any:
    """Import a package of an extra at the moment it is needed, untyped: it may be absent where this is checked."""
    return importlib.import_module(name)


def pick_device(wanted: str) -> str:
    """Return the device to use: what was asked for, or the best this machine has."""
    if wanted != "auto":
        return wanted
    torch = module("torch")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def torch_dtype(precision: str) -> Any:
    """Return torch's number format of this name."""
    torch = module("torch")
    return {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}[precision]
