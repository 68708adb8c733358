"""The fixed words of judge specs. They load nothing, so that tables and stores can compare specs without a model stack."""

from __future__ import annotations

RULES = "rules"
"""The spec of the embedded judge."""
PANEL, CASCADE = "panel:", "cascade:"
"""How the specs of several judges that answer together begin."""
