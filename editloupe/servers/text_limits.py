"""Limit the texts of requests."""

from __future__ import annotations

from typing import Any

from editloupe.types import UserError

LONGEST = 20_000
"""Maximum length of a text of an edit, such as its instruction or hint."""


def check_text_lengths(**texts: Any) -> None:
    """Raise UserError if a text is longer than `LONGEST`.

    Args:
        texts: The texts by their names in an edit. Other values than texts are not checked.
    """
    for name, text in texts.items():
        if isinstance(text, str) and len(text) > LONGEST:
            raise UserError(f"the {name[:100].replace('_', ' ')} has more than {LONGEST} letters")
