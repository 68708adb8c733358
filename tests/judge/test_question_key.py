"""A unit is identified by what is asked and what is shown, and by nothing else."""

from __future__ import annotations

from pathlib import Path

from editloupe.judge import Judge
from editloupe.types import Edit

IF = "instruction_following"
SOURCE, EDITED = Path("a.png"), Path("b.png")
HASHES = {SOURCE: "1" * 32, EDITED: "2" * 32}


def edit(**changes: str) -> Edit:
    return Edit(**{"id": "cup", "source": SOURCE, "edited": EDITED, "instruction": "Make the cup red", **changes})


def test_the_key_of_a_question_joins_what_is_asked_and_what_is_shown() -> None:
    with Judge("rules", mode="plain") as judge:
        key = judge.question_key(edit(), IF, HASHES)
        assert key.asked == judge.question_spec(edit(), IF).key
        assert key.shown == judge.inputs_key(edit(), IF, HASHES)
        assert {judge.question_key(edit(), name, HASHES).asked for name in judge.criteria} == {
            asked.key for asked in judge.question_specs()
        }


def test_an_id_and_a_path_do_not_change_the_key_but_pixels_and_words_do() -> None:
    with Judge("rules", mode="plain") as judge:
        key = judge.question_key(edit(), IF, HASHES)
        moved = edit(id="mug", source="c.png")
        assert judge.question_key(moved, IF, {Path("c.png"): HASHES[SOURCE], EDITED: HASHES[EDITED]}) == key
        assert judge.question_key(edit(), IF, {**HASHES, EDITED: "3" * 32}) != key
        assert judge.question_key(edit(instruction="Make the cup blue"), IF, HASHES) != key


def test_a_picture_that_cannot_be_read_leaves_what_is_shown_open() -> None:
    with Judge("rules", mode="plain") as judge:
        assert judge.question_key(edit(), IF, {SOURCE: HASHES[SOURCE]}).shown is None
