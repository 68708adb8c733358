"""Six bundled edits for a first try, with good and bad edits of small targets.

The field `human` of the manifest holds labels, but no person gave them: the edits were drawn to show these outcomes
(`benchmarks/make_demo.py`). They are an illustration, not a measure of a judge's agreement with people.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from editloupe.types import UserError

__all__ = ["demo_manifest"]


def demo_manifest() -> Path:
    """Return the path of the demo's manifest; its pictures are in the same folder.

    Raises:
        UserError: If the package is not installed as files in a folder, but for instance as a zip archive.
    """
    manifest = Path(str(files(__name__) / "manifest.jsonl"))
    if not manifest.is_file():
        raise UserError("the demo edits are not on disk: install EditLoupe as a normal package, not from a zip archive")
    return manifest
