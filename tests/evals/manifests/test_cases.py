from pathlib import Path
from typing import Any

from editloupe.evals.manifests.cases import NOTHING_EDITED, case_key, copy_unedited, with_untouched
from editloupe.types import Edit


def edit(model: str | None, number: int = 0, **more: Any) -> Edit:
    values = {"source": Path(f"s{number}.png"), "edited": Path(f"{model}/{number}.png"), "instruction": "Paint it red"}
    return Edit(**{"id": f"e{number}", "model": model, **values, **more})


def test_the_source_is_handed_in_as_the_output_of_a_model_of_its_own() -> None:
    made = copy_unedited(edit("x", human={"instruction_following": "4"}, instruction_type="Change Color", turn=2))
    assert made.edited == made.source == Path("s0.png")
    assert made.model == NOTHING_EDITED
    assert (made.id, made.instruction_type, made.turn) == ("e0", "Change Color", 2)


def test_labels_and_a_missing_output_do_not_go_over_to_the_source() -> None:
    made = copy_unedited(
        edit("x", human={"instruction_following": "4"}, extra={"output": "missing", "style": "sketch"})
    )
    assert made.human == {}
    assert made.extra == {"style": "sketch"}


def test_every_case_gets_one_reference_however_many_models_there_are() -> None:
    given = [edit(model, number) for model in ("x", "y") for number in range(3)]
    found = list(with_untouched(given))
    assert [one for one in found if one.model != NOTHING_EDITED] == given
    added = [one for one in found if one.model == NOTHING_EDITED]
    assert [one.id for one in added] == ["e0", "e1", "e2"]


def test_other_targets_instructions_turns_or_inputs_are_other_cases() -> None:
    given = [
        edit("x"),
        edit("x", instruction="Paint it blue"),
        edit("x", target_boxes=((1, 1, 5, 5),)),
        edit("x", turn=2),
        edit("x", reference=Path("r.png")),
    ]
    assert sum(one.model == NOTHING_EDITED for one in with_untouched(given)) == 5


def test_a_reference_that_stands_in_the_manifest_is_not_made_again() -> None:
    given = [copy_unedited(edit("x")), edit("x")]
    assert list(with_untouched(given)) == given


def test_a_hint_does_not_separate_cases() -> None:
    given = [edit("x", hint="The patch is on the left."), edit("y")]
    assert case_key(given[0], {}) == case_key(given[1], {})
    assert sum(each.model == NOTHING_EDITED for each in with_untouched(given)) == 1
