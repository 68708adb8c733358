"""Check the claims of a run's verdicts against the pixels, and sum the results up."""

from __future__ import annotations

__all__: list[str] = []
