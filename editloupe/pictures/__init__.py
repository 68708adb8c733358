"""Decode, hash and encode pictures from files and from memory."""

from __future__ import annotations

__all__: list[str] = []
