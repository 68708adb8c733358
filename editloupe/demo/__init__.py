"""Six bundled edits for the first minute: small targets, done well and badly, each with the labels it was made to show.

The labels stand in the manifest's field `human`, but nobody voted on them: the edits were painted to show exactly these
outcomes (`benchmarks/make_demo.py`). They are an illustration, not a measure of a judge's agreement with people.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from editloupe.types import UserError

__all__ = ["demo_manifest"]


def demo_manifest() -> Path:
    """Return the path of the demo's manifest, with its pictures beside it.

    Raises UserError where the package is not installed as files in a folder (a zip archive, for instance).
    """
    manifest = Path(str(files(__name__) / "manifest.jsonl"))
    if not manifest.is_file():
        raise UserError("the demo edits are not on disk: install editloupe as a normal package, not from a zip archive")
    return manifest
