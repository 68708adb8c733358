"""Test judges on variants of edits whose right answer is known relative to the original."""

from __future__ import annotations

__all__: list[str] = []
