"""The records everything else speaks in."""

from __future__ import annotations

from pathlib import Path

from editloupe.types import Edit

BEFORE, AFTER, RIGHT, MARKED, OTHER = (Path(f"{name}.png") for name in ("before", "after", "right", "marked", "other"))


def test_the_files_of_an_edit_are_found_by_role() -> None:
    edit = Edit(source=BEFORE, edited=AFTER, instruction="Remove it", more_images={"annotated": (MARKED, OTHER)})
    assert edit.files == {"source": (BEFORE,), "edited": (AFTER,), "annotated": (MARKED, OTHER)}
    assert edit.paths == (BEFORE, AFTER, MARKED, OTHER)


def test_a_role_with_a_field_of_its_own_is_that_fields() -> None:
    """The judge is shown the field's picture, so keys, budgets and stored pictures are about that one too."""
    more = {"reference": (OTHER,), "source": (OTHER,)}
    edit = Edit(source=BEFORE, edited=AFTER, reference=RIGHT, instruction="Remove it", more_images=more)
    assert edit.files == {"source": (BEFORE,), "edited": (AFTER,), "reference": (RIGHT,)}
    without = edit.model_copy(update={"reference": None})
    assert without.files["reference"] == (OTHER,)
