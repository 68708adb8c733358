"""Describe what each tool runs with on this machine, and measure one call, for `editloupe doctor`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from pydantic import BaseModel

from editloupe._util.text import one_line
from editloupe.pictures.decode import Album
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import Tool, ToolError, View
from editloupe.tools.detect import DetectObject
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.models.loading import find_cuda_device, locate_weights, pick_device
from editloupe.tools.models.real_esrgan import RealESRGAN
from editloupe.tools.models.weights import find_weights
from editloupe.tools.read_text import ReadText
from editloupe.tools.registry import BUILT_IN, Toolbox, build_toolbox
from editloupe.tools.settings import ToolSettings

SIDE = 256
"""Side of the pictures that the tools are timed on."""
CROP = 32
"""Side of the crop that Real-ESRGAN is timed on: on a CPU it takes seconds for a larger one."""
ENHANCER = "enhancer"


class ToolStatus(BaseModel):
    """What a tool runs with, and how long one call took."""

    name: str
    ready: bool
    to_do: str = ""
    """What is missing and what to do, or why a fallback is used."""
    engine: str = ""
    device: str = ""
    precision: str = ""
    weights: str = ""
    """The folder or file of the weights."""
    milliseconds: float | None = None
    """Duration of a call, after one that loaded the model."""


def describe_tools(settings: ToolSettings, timing: bool = True) -> list[ToolStatus]:
    """Return the state of every tool and of the enhancer.

    Args:
        settings: The settings of the tools.
        timing: Whether to call each tool that is ready, which loads its model.
    """
    toolbox = build_toolbox(replace(settings, enhancer="none"))
    try:
        statuses = [_describe_tool(toolbox, name, timing) for name in toolbox.names]
    finally:
        toolbox.close()
    order = [tool.name for tool in BUILT_IN]
    statuses += [ToolStatus(name=name, ready=False, to_do=why) for name, why in toolbox.withheld.items()]
    statuses.sort(key=lambda status: order.index(status.name) if status.name in order else len(order))
    return [*statuses, *_describe_enhancers(settings, timing)]


def _describe_tool(toolbox: Toolbox, name: str, timing: bool) -> ToolStatus:
    tool = toolbox.tool(name)
    status = ToolStatus.model_validate({"name": name, "ready": True, **_describe_engine(tool, toolbox.settings)})
    call = _build_call(tool) if timing and name in {built_in.name for built_in in BUILT_IN} else None
    return status if call is None else _time(status, call)


def _describe_engine(tool: Tool, settings: ToolSettings) -> dict[str, str]:
    if isinstance(tool, DetectObject):
        weights, local = locate_weights(settings.detector, settings.detector_download)
        return {
            "engine": f"torch {_version('torch')}",
            "device": pick_device(settings.device),
            "precision": settings.precision,
            "weights": weights if local else f"downloaded from the hub at the first use: {weights}",
        }
    if isinstance(tool, ReadText):
        number = find_cuda_device(settings.device)
        return {
            "engine": f"onnxruntime {_version('onnxruntime') or _version('onnxruntime-gpu')}",
            "device": "cpu" if number is None else f"cuda:{number}",
            "to_do": tool.note() or "",
            "precision": "float32",
            "weights": str(find_weights("rapidocr")),
        }
    if tool.name in {built_in.name for built_in in BUILT_IN}:
        return {"engine": "OpenCV", "device": "cpu"}
    return {"engine": "plug-in"}


def _build_call(tool: Tool) -> Callable[[], Any]:
    """Return a call of a built-in tool on two small pictures."""
    first, second = _draw_pictures()
    album = Album()
    shas = {"Source Image": album.add(first).sha, "Edited Image": album.add(second).sha}
    view = View(album, shas, "Paint the cup red.")
    parameters: dict[str, Any] = {
        "zoom_in_image": {"target_image": "Source Image", "bbox_2d": [0, 0, SIDE // 2, SIDE // 2]},
        "localize_differences": {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"},
        "detect_object": {"target_image": "Source Image", "detect_object_name": "cup"},
        "read_text": {"target_image": "Edited Image"},
    }
    return lambda: tool.run(parameters[tool.name], view)  # not through the toolbox, which caches results


def _draw_pictures() -> tuple[Pixels, Pixels]:
    """Return a smooth picture, and the same with a bright square in it."""
    ramp = np.linspace(40, 200, SIDE, dtype=np.uint8)
    first = np.stack([np.broadcast_to(ramp, (SIDE, SIDE)), np.broadcast_to(ramp[:, None], (SIDE, SIDE))] * 2, axis=-1)
    first = np.ascontiguousarray(first[..., :3])
    second = first.copy()
    second[96:160, 96:160] = 250
    return first, second


def _time(status: ToolStatus, call: Callable[[], Any]) -> ToolStatus:
    """Return the status with the duration of a second call, or not ready if a call fails. The first one loads the model."""
    try:
        call()
        started = time.perf_counter()
        call()
    except Exception as error:  # a model may fail in any way; the other tools are still described
        reason = str(error) if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
        return status.model_copy(update={"ready": False, "to_do": one_line(reason)})
    return status.model_copy(update={"milliseconds": round(1000 * (time.perf_counter() - started), 1)})


def _describe_enhancers(settings: ToolSettings, timing: bool) -> list[ToolStatus]:
    """Return the enhancer of the settings and, if that is another one, Real-ESRGAN."""
    enhancer, note = build_enhancer(settings)
    backend = enhancer.backend
    chosen = ToolStatus(name=ENHANCER, ready=True, engine=f"{backend.name}, OpenCV", device="cpu", to_do=note or "")
    if isinstance(backend, RealESRGAN):
        return [_describe_real_esrgan(backend, ENHANCER, timing)]
    if backend.name == "none":
        chosen = ToolStatus(name=ENHANCER, ready=True, engine="none: crops are not enlarged")
    elif timing:
        chosen = _time(chosen, lambda: backend.upscale(_draw_pictures()[1], 2.0))
    real, _ = build_enhancer(replace(settings, enhancer="realesrgan"))
    assert isinstance(real.backend, RealESRGAN)
    return [chosen, _describe_real_esrgan(real.backend, "realesrgan", timing)]


def _describe_real_esrgan(model: RealESRGAN, name: str, timing: bool) -> ToolStatus:
    problem = model.unavailable()
    if problem:
        return ToolStatus(name=name, ready=False, to_do=problem)
    choice = model.engine
    status = ToolStatus(
        name=name,
        ready=True,
        engine=f"{choice.engine} {_version(choice.engine)}",
        device=choice.device,
        precision=choice.precision,
        weights=str(model.weights_file),
    )
    crop = _draw_pictures()[1][88 : 88 + CROP, 88 : 88 + CROP]
    return _time(status, lambda: model.upscale(crop, 4.0)) if timing else status


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
