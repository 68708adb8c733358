"""Hashes that identify facts and texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def content_key(facts: Mapping[str, Any]) -> str:
    """Return a hash of facts: the same facts have the same key, whatever their order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def text_key(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
