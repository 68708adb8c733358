"""The `editloupe` command."""

from __future__ import annotations

from editloupe.cli.main import main

__all__ = ["main"]
