"""Pictures: opened safely, known by the hash of their content, encoded for requests, in a file or in memory."""

from __future__ import annotations

__all__: list[str] = []
