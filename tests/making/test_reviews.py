"""Reviews only grow, all who decide must agree, and how well they do is worked out."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.making.export import format_card, write_card, write_manifest
from editloupe.making.folder import Ledger, MakingFolder, boxes_key, question_key, reference_key, update_settings
from editloupe.making.paste import PasteFacts
from editloupe.making.records import Boxes, Metadata, PictureQuestion, ReferenceImage
from editloupe.making.reviews import draw_boxes, review, review_agreement
from editloupe.types import Box, UserError
from tests.making.demo_questions import METADATA, lines

GOOD = {"box": True, "metadata": True, "reference": True}
BAD = {"box": True, "metadata": True, "reference": False}
FACTS = PasteFacts(
    returned=(9, 9), shift=(0, 0), gain=(1, 1, 1), offset=(0, 0, 0), band=3, outside_difference=0, seam=0, changed=9
)


def a_folder(path: Path, *names: str, reviewers: int = 1) -> MakingFolder:
    """A folder whose samples all wait for review."""
    update_settings(path, [f"reviewers={reviewers}"])
    folder = MakingFolder(path, create=True)
    for name in names:
        question = PictureQuestion(
            id=name,
            picture=f"sources/{name}.png",
            sha=name,
            size=(100, 80),
            question="Which?",
            options=("a", "b"),
            answer="a",
        )
        folder.questions.add(question)
        metadata = Metadata(
            id=name,
            key=question_key(question),
            **METADATA["cat-eye"],
            instruction_type="Change Color",
            by="m",
            at="now",
        )
        folder.metadata.add(metadata)
        boxes = Boxes(
            id=name,
            key=boxes_key(question, metadata),
            boxes=(Box(x1=1, y1=1, x2=9, y2=9),),
            confirmed=True,
            by="x",
            at="now",
        )
        folder.boxes.add(boxes)
        folder.references.add(
            ReferenceImage(
                id=name,
                key=reference_key(question, metadata, boxes),
                attempt=1,
                crop=Box(x1=0, y1=0, x2=30, y2=30),
                edited_crop="e",
                reference="r",
                sha=name,
                by="e",
                at="now",
                facts=FACTS,
            )
        )
    return folder


def test_a_second_look_of_the_same_person_replaces_the_first_and_both_stay_on_file(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a")
    review(folder, "a", "ann", "discard", BAD, "blurred")
    assert folder.sample("a").step == "discarded"
    assert folder.sample("a").why == "blurred"
    review(folder, "a", "ann", "accept", GOOD)
    assert MakingFolder(tmp_path).sample("a").step == "accepted"
    assert [one["decision"] for one in lines(tmp_path / "reviews.jsonl")] == ["discard", "accept"]
    assert all(one["reviewer"] == "ann" and one["at"] for one in lines(tmp_path / "reviews.jsonl"))


def test_two_reviewers_must_both_accept_and_a_third_settles_a_quarrel(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a", "b", "c", reviewers=2)
    review(folder, "a", "ann", "accept", GOOD)
    assert folder.sample("a").step == "review"
    review(folder, "a", "bob", "accept", GOOD)
    assert folder.sample("a").step == "accepted"
    review(folder, "b", "ann", "accept", GOOD)
    review(folder, "b", "bob", "discard", BAD)
    assert folder.sample("b").step == "disputed"
    before = review_agreement(folder)
    review(folder, "b", "cy", "accept", GOOD)
    assert review_agreement(folder) == before, "a third one sees disputed samples alone"
    assert folder.sample("b").step == "accepted"
    review(folder, "c", "ann", "accept", GOOD)
    for name in ("bob", "cy"):
        assert folder.sample("c").step != "discarded"
        review(folder, "c", name, "discard", BAD)
    assert folder.sample("c").step == "discarded"


def test_agreement_is_of_samples_that_two_decided_about_as_they_stood(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a", "b", "c", "d")
    for name in ("a", "b", "c"):
        review(folder, name, "ann", "accept", GOOD)
    review(folder, "a", "bob", "accept", GOOD)
    review(folder, "b", "bob", "discard", BAD)
    review(folder, "d", "bob", "accept", GOOD)

    found = review_agreement(folder)

    assert (found.samples, found.pairs) == (2, 2)
    assert found.decision == 0.5
    assert found.checks == {"box": 1.0, "metadata": 1.0, "reference": 0.5}
    assert found.alpha is not None


def test_the_card_says_how_many_of_what_and_how_reviewers_agree(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a", "b")
    review(folder, "a", "ann", "discard", BAD, "not | feasible")
    write_manifest(folder)
    facts = write_card(folder, Ledger(tmp_path))
    assert facts["samples"] == 0
    assert facts["left_out"] == {"not | feasible": 1}
    assert facts["waiting"]["review"] == 1
    text = format_card(facts)
    assert "not \\| feasible" in text
    assert "No sample was reviewed by two people" in text


def test_a_correction_changes_what_it_says_and_the_sample_is_looked_at_again(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a")
    captions = {"prompt_adv": "There is a cat's eye on the left side of the picture that is sky blue."}
    review(folder, "a", "ann", "correct", {**GOOD, "metadata": False}, "", captions)
    again = folder.sample("a")
    assert again.step == "review", "the reference still stands, but nobody has looked at the sample as it is now"
    assert again.metadata is not None
    assert again.metadata.prompt_adv == captions["prompt_adv"]
    review(folder, "a", "ann", "correct", GOOD, "", {"q_type": "material"})
    changed = folder.sample("a").metadata
    assert changed is not None
    assert changed.instruction_type == "Change Material"


def test_what_a_reviewer_saw_must_still_stand(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a")
    seen = folder.sample("a").key
    draw_boxes(MakingFolder(tmp_path), "a", [Box(x1=2, y1=2, x2=20, y2=20)], "bob")
    with pytest.raises(UserError, match="not ready for review"):
        review(folder, "a", "ann", "accept", GOOD, key=seen)
    assert not (tmp_path / "reviews.jsonl").exists()


@pytest.mark.parametrize(
    ("decision", "checks", "corrected", "sentence"),
    [
        ("accept", BAD, None, "confirm box, metadata and reference"),
        ("accept", {}, None, "confirm box, metadata and reference"),
        ("correct", GOOD, None, "needs corrected metadata or boxes"),
        ("correct", GOOD, {"colour": "x"}, "cannot be corrected"),
        ("correct", GOOD, {"q_type": "size"}, "a question's type is one of"),
        ("correct", GOOD, {"edit_instruction": " "}, "cannot be empty"),
    ],
)
def test_a_decision_that_makes_no_sense_is_not_written(
    tmp_path: Path, decision: str, checks: dict[str, bool], corrected: dict[str, str] | None, sentence: str
) -> None:
    folder = a_folder(tmp_path, "a")
    with pytest.raises(UserError, match=sentence):
        review(folder, "a", "ann", decision, checks, "", corrected)  # type: ignore[arg-type]
    assert not (tmp_path / "reviews.jsonl").exists()


def test_boxes_are_drawn_inside_the_picture_eight_at_most_and_none_ends_the_sample(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, "a")
    with pytest.raises(UserError, match="at most 8"):
        draw_boxes(folder, "a", [Box(x1=1, y1=1, x2=5, y2=5)] * 9, "ann")
    with pytest.raises(UserError, match="outside the picture"):
        draw_boxes(folder, "a", [Box(x1=200, y1=1, x2=205, y2=5)], "ann")
    draw_boxes(folder, "a", [], "ann")
    assert folder.sample("a").step == "left out"
    assert folder.sample("a").why == "the target is not in the picture"
    draw_boxes(folder, "a", [Box(x1=90, y1=70, x2=105, y2=90)], "bob")
    boxes = folder.sample("a").boxes
    assert boxes is not None
    assert boxes.boxes == (Box(x1=90, y1=70, x2=100, y2=80),)


def test_a_line_that_is_no_record_is_told_with_its_place(tmp_path: Path) -> None:
    a_folder(tmp_path, "a")
    with (tmp_path / "boxes.jsonl").open("a") as file:
        file.write('{"id": "a"}\n')
    with pytest.raises(UserError, match=r"boxes.jsonl, line 2: not a valid record"):
        MakingFolder(tmp_path)
