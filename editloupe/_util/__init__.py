"""Helpers for text, tables, JSON values, files, errors and event loops that do not depend on the rest of the package."""

from __future__ import annotations

__all__: list[str] = []
