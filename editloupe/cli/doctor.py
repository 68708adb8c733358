"""The command `editloupe doctor`."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from editloupe._util.text import for_json, printable
from editloupe.agent.providers.registry import BROKEN, PROVIDERS
from editloupe.cli.doctor_tools import ToolStatus, describe_tools
from editloupe.tools.models.loading import may_have_gpu
from editloupe.tools.models.weights import WeightsMissing, find_weights, load_table
from editloupe.tools.settings import ToolSettings

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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
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
        named = next((key for key in provider.keys if os.environ.get(key)), None)
        url = os.environ.get(provider.base_url)
        missing = [package for package in provider.packages if _version(package) is None]
        if missing:
            wanted = f"'.[{provider.extra}]'" if provider.extra else " ".join(missing)
            findings.append(_finding("judge", f"{provider.name}:NAME", False, f"pip install {wanted}"))
            continue
        ready = bool(named or (url and provider.own_server) or not provider.needs_key)
        if named or (url and provider.own_server):
            detail = " and ".join(
                filter(None, (f"key in {named}" if named else "", f"server from {provider.base_url}" if url else ""))
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
