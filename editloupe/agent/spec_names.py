"""The fixed words of judge specs.

This module imports nothing, so that light modules can compare specs."""

from __future__ import annotations

RULES = "rules"
"""Spec of the embedded judge."""
PANEL, CASCADE = "panel:", "cascade:"
"""Prefixes of the specs of several judges that answer together."""
