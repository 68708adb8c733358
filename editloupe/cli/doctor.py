"""The command `editloupe doctor`, which describes what each tool runs with on this machine and measures one call."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import numpy as np
import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from editloupe._util.text import for_json, one_line, printable
from editloupe.agent.providers.registry import BROKEN, PROVIDERS
from editloupe.cli.output import AsJson
from editloupe.pictures.decode import Album
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import Tool, ToolError, View
from editloupe.tools.detect import DetectObject
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.models.real_esrgan import RealESRGAN
from editloupe.tools.models.weights import (
    WeightsMissing,
    find_cuda_device,
    find_weights,
    load_table,
    locate_weights,
    may_have_gpu,
    pick_device,
)
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
            "engine": f"torch {_version('torch') or ''}",
            "device": pick_device(settings.device),
            "precision": settings.precision,
            "weights": weights if local else f"downloaded from the hub at the first use: {weights}",
        }
    if isinstance(tool, ReadText):
        number = find_cuda_device(settings.device)
        return {
            "engine": f"onnxruntime {_version('onnxruntime') or _version('onnxruntime-gpu') or ''}",
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
        engine=f"{choice.engine} {_version(choice.engine) or ''}",
        device=choice.device,
        precision=choice.precision,
        weights=str(model.weights_file),
    )
    crop = _draw_pictures()[1][88 : 88 + CROP, 88 : 88 + CROP]
    return _time(status, lambda: model.upscale(crop, 4.0)) if timing else status


EXTRAS = {
    "text": ("rapidocr", "onnxruntime"),
    "detect": ("torch", "transformers"),
    "enhance": ("ncnn",),
    "ray": ("ray",),
    "studio": ("fastapi", "jinja2", "uvicorn"),
    "serve": ("fastapi", "uvicorn"),
    "mcp": ("mcp", "uvicorn"),
    "inspect": ("inspect_ai",),
    "data": ("pyarrow",),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
}
"""Packages of each extra that are looked for. Extras of providers are stated with the judges."""
SECTIONS = {
    "machine": "Machine",
    "judge": "Judges",
    "tool": "Tools",
    "weights": "Weights",
    "extra": "Extras",
}


def doctor(
    as_json: AsJson = False,
    timing: Annotated[
        bool, typer.Option("--timing/--no-timing", help="Time one call of each tool, which loads its model.")
    ] = True,
) -> None:
    """Check which judges, tools, weights and extras are ready, and say what to do for the others.

    Each tool is called on small pictures to measure its time. No server is contacted and nothing is downloaded.

    Example: editloupe doctor --no-timing
    """
    findings = [*_check_machine(), *_check_judges(), *_check_tools(timing), *_check_weights(), *_check_extras()]
    if as_json:
        print(for_json(findings, 2))
    else:
        _print(findings)


def _print(findings: list[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    for kind, title in SECTIONS.items():
        console.print(Text(title, style="bold"))
        table = Table(Column(width=21), Column(width=9), Column(overflow="fold"), box=None, show_header=False)
        for finding in findings:
            if finding["kind"] == kind:
                mark = Text("ready", style="green") if finding["ready"] else Text("not ready", style="yellow")
                table.add_row(Text(finding["name"]), mark, Text(printable(finding["detail"])))
        console.print(table)
        if kind == "weights":
            console.print(Text(" `editloupe weights fetch NAME` downloads weights that are not ready.", style="dim"))


def _finding(kind: str, name: str, ready: bool, detail: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "ready": ready, "detail": detail}


def _check_machine() -> list[dict[str, Any]]:
    python = f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores"
    machine = _finding("machine", f"editloupe {version('editloupe')}", sys.version_info >= (3, 11), python)
    return [machine, _check_device()]


def _check_judges() -> list[dict[str, Any]]:
    findings = [_finding("judge", "rules", True, "embedded, needs no key; a rule-based baseline, not an LMM")]
    for provider in PROVIDERS:
        variable = next((key for key in provider.keys if os.environ.get(key)), None)
        url = os.environ.get(provider.base_url)
        missing = [package for package in provider.packages if _version(package) is None]
        if missing:
            requirement = f"'.[{provider.extra}]'" if provider.extra else " ".join(missing)
            findings.append(_finding("judge", f"{provider.name}:NAME", False, f"pip install {requirement}"))
            continue
        ready = bool(variable or (url and provider.own_server) or not provider.needs_key)
        if variable or (url and provider.own_server):
            detail = " and ".join(
                filter(
                    None, (f"key in {variable}" if variable else "", f"server from {provider.base_url}" if url else "")
                )
            )
        elif not provider.needs_key:
            detail = provider.without_key
        else:
            instead = ", or name your own server with --base-url" if provider.own_server else ""
            detail = f"set {' or '.join(provider.keys)}{instead}"
        findings.append(_finding("judge", f"{provider.name}:NAME", ready, detail))
    broken = (_finding("judge", f"{name}:NAME", False, f"cannot be loaded: {why}") for name, why in BROKEN.items())
    return [*findings, *broken]


def _check_tools(timing: bool) -> list[dict[str, Any]]:
    statuses = describe_tools(ToolSettings.from_environment(), timing)
    return [
        {**_finding("tool", status.name, status.ready, _format_status(status)), **status.model_dump(exclude_none=True)}
        for status in statuses
    ]


def _format_status(status: ToolStatus) -> str:
    """Return a tool's engine, time, weights and what to do, one per line."""
    engine = " on ".join(filter(None, (status.engine, status.device)))
    engine = ", ".join(filter(None, (engine, status.precision, _format_time(status))))
    return "\n".join(filter(None, (engine, status.weights and f"weights: {status.weights}", status.to_do)))


def _format_time(status: ToolStatus) -> str:
    if status.milliseconds is None:
        return ""
    return f"{status.milliseconds:.0f} ms per call" if status.milliseconds >= 1 else "under 1 ms per call"


def _check_weights() -> list[dict[str, Any]]:
    findings = []
    for model in load_table().values():
        size = "in its package" if model.megabytes is None else f"{model.megabytes:.0f} MB"
        finding = _finding("weights", model.name, True, f"{model.used_by}, {size}, {model.license}")
        try:
            finding["weights"] = str(find_weights(model.name))
        except WeightsMissing as missing:
            finding |= {"ready": False, "to_do": str(missing)}
        findings.append(finding)
    return findings


def _check_extras() -> list[dict[str, Any]]:
    findings = []
    for extra, packages in EXTRAS.items():
        have = {package: _version(package) for package in packages}
        missing = [package for package, number in have.items() if number is None]
        detail = ", ".join(f"{p} {n}" for p, n in have.items() if n)
        if missing:
            detail = f"pip install '.[{extra}]'" + (f" (missing: {', '.join(missing)})" if detail else "")
        findings.append(_finding("extra", extra, not missing, detail))
    return findings


def _check_device() -> dict[str, Any]:
    if _version("torch") is None:
        return _finding("machine", "cpu", True, "torch is not installed, so no GPU is looked for")
    if not may_have_gpu():
        return _finding("machine", "cpu", True, "no GPU found; models run on the CPU")
    import torch

    if torch.cuda.is_available():
        return _finding("machine", "cuda", True, torch.cuda.get_device_name(0))
    if torch.backends.mps.is_available():
        return _finding("machine", "mps", True, "Apple GPU")
    return _finding("machine", "cpu", True, "no GPU found; models run on the CPU")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
