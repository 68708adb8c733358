"""Keeps secrets out of files: the values of key-like environment variables are replaced before anything is written."""

from __future__ import annotations

import os
import re

_KEY_LIKE = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s\"']+@")
SHORTEST = 8
"""Shorter values are words such as `none` or `EMPTY`, which local servers take for a key."""
PLACEHOLDER = "[secret]"


class Redactor:
    """Takes every key this process knew when the run was opened, and every `user:password@`, out of texts."""

    def __init__(self) -> None:
        values = {value for name, value in os.environ.items() if _KEY_LIKE.search(name) and len(value) >= SHORTEST}
        self._secrets = sorted(values, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, PLACEHOLDER)
        return _USER_IN_ADDRESS.sub("", text) if "://" in text and "@" in text else text
