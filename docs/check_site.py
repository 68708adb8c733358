"""Check the built site: every public name is on the reference page, and no page loads anything from elsewhere.

python docs/check_site.py site
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from prepare_site import public_names, shadowed_names

LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=\"?(https?:)?//|<link[^>]+rel=\"?stylesheet[^>]+href=\"?(https?:)?//"
)


def find_mistakes(site: Path) -> list[str]:
    """Return one sentence per mistake."""
    anchors = set(re.findall(r'id="([^"]+)"', (site / "reference" / "python.html").read_text("utf-8")))
    wanted = []
    for package, names in public_names().items():
        hidden = {full.rpartition(".")[2]: full for full in shadowed_names(package)}
        wanted += [hidden.get(name, f"{package}.{name}") for name in names]
    pages = sorted(site.rglob("*.html"))
    return [f"{name} is not in the reference" for name in wanted if name not in anchors] + [
        f"{page.relative_to(site)} loads something from elsewhere"
        for page in pages
        if LOADED.search(page.read_text("utf-8"))
    ]


if __name__ == "__main__":
    sys.exit("\n".join(find_mistakes(Path(sys.argv[1]))) or None)
