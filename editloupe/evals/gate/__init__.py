"""Test whether a new editing model loses against a baseline on the same cases."""

from __future__ import annotations

__all__: list[str] = []
