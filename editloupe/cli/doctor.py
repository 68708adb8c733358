"""The command `editloupe doctor`."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from editloupe._util.text import for_json, printable
from editloupe.agent.providers.registry import PROVIDERS
from editloupe.tools.models.loading import may_have_gpu
from editloupe.tools.registry import build_toolbox
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


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check which judges, tools, packages and devices are ready, and say what to do for the others.

    No server is contacted and no model is loaded.

    Example: editloupe doctor
    """
    findings = [*_check_machine(), *_check_judges(), *_check_tools(), *_check_extras()]
    if as_json:
        print(for_json(findings, 2))
        return
    table = Table("", "what", "state", box=None, pad_edge=False)
    for finding in findings:
        mark = Text("ready", style="green") if finding["ready"] else Text("not ready", style="yellow")
        table.add_row(
            Text(finding["kind"], style="dim"), Text(finding["name"]), mark + Text(f"  {printable(finding['detail'])}")
        )
    Console(highlight=False).print(table)


def _finding(kind: str, name: str, ready: bool, detail: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, "ready": ready, "detail": detail}


def _check_machine() -> list[dict[str, Any]]:
    python = f"Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores"
    return [_finding("machine", f"editloupe {version('editloupe')}", sys.version_info >= (3, 11), python)]


def _check_judges() -> list[dict[str, Any]]:
    findings = [_finding("judge", "rules", True, "embedded, needs no key; a rule-based baseline, not an LMM")]
    for provider in PROVIDERS:
        named = next((key for key in provider.keys if os.environ.get(key)), None)
        url = os.environ.get(provider.base_url)
        missing = [package for package in provider.packages if _version(package) is None]
        if missing:
            findings.append(_finding("judge", f"{provider.name}:NAME", False, f"pip install '.[{provider.extra}]'"))
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
    return findings


def _check_tools() -> list[dict[str, Any]]:
    toolbox = build_toolbox(ToolSettings.from_environment())
    findings = [_finding("tool", name, True, _first_sentence(toolbox.tool(name).description)) for name in toolbox.names]
    findings += [_finding("tool", name, False, why) for name, why in toolbox.withheld.items()]
    findings += [_finding("tool", "enhancer", True, note) for note in toolbox.notes]
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
    return [*findings, _check_device()]


def _check_device() -> dict[str, Any]:
    if _version("torch") is None:
        return _finding("device", "cpu", True, "torch is not installed, so no GPU is looked for")
    if not may_have_gpu():
        return _finding("device", "cpu", True, "no GPU found; models run on the CPU")
    import torch

    if torch.cuda.is_available():
        return _finding("device", "cuda", True, torch.cuda.get_device_name(0))
    if torch.backends.mps.is_available():
        return _finding("device", "mps", True, "Apple GPU")
    return _finding("device", "cpu", True, "no GPU found; models run on the CPU")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".") + "."
