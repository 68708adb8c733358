"""interim"""

from __future__ import annotations

from typing import Any


def shown_facts(protocol: Any, rubric: Any, mode: Any, edit: Any, tells: Any = None) -> dict[str, Any]:
    """Interim."""
    if protocol.settle(edit, rubric):
        return {"settled": True}
    fields = edit.model_dump(mode="json", include={"instruction", "instruction_type", "target_boxes", "hint", "extra"})
    return {"pictures": {r: list(p) for r, p in edit.files.items()}, **fields}
