"""Keeps keys off the pages: whatever a run, a model or an error says passes here on its way to the browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from editloupe.evals.runs.redact import Redactor


class Redaction:
    """Takes the secrets of this process out of texts and of everything that holds texts."""

    def __init__(self) -> None:
        self._redact = Redactor()

    def __call__(self, value: Any) -> Any:
        """Return the value without secrets; what a template has escaped stays escaped."""
        if isinstance(value, Markup):
            return Markup(self._redact(str(value)))
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, Mapping):
            return {self(name): self(inner) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(inner) for inner in value]
        return value
