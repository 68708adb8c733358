"""A sentence to the user beside what a command prints; by itself, since loading the options loads the judges' providers."""

from __future__ import annotations

import sys

from editloupe._util.text import one_line


def tell(sentence: str) -> None:
    """Say something to the user without disturbing what is piped."""
    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)
