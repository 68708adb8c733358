"""Helpers that know nothing of edits, judges or runs: text, JSON values, files, errors, event loops."""

from __future__ import annotations

__all__: list[str] = []
