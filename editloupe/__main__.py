"""`python -m editloupe`."""

from __future__ import annotations

from editloupe.cli import main

main()
