"""Check what a judge says against the pixels: read its claims, measure the pictures, compare."""

from __future__ import annotations

__all__: list[str] = []
