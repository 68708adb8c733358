"""Hashes that identify facts and texts. Kept apart from `json_safe`, which loads pydantic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def content_key(facts: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return a hash of facts that does not depend on the order of a mapping's keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def text_key(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
