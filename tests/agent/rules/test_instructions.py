import pytest

from editloupe.agent.rules.instructions import ChangeRequest, parse_instruction


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("Changed attribute of white handbag to black", ChangeRequest("color", "white handbag", "black")),
        ("Change attribute of plastic stool to wood", ChangeRequest("material", "plastic stool", "wood")),
        (
            "Change the text content on the white bus from 'TR 7906 T' to 'TR 9067 T'",
            ChangeRequest("text", "white bus", "TR 9067 T", "TR 7906 T"),
        ),
        (
            "Change the count of people in the oil painting from 2 to 4",
            ChangeRequest("count", "people in the oil painting", old_count=2, new_count=4),
        ),
        ("Change spider to dog on the blue sail", ChangeRequest("replacement", "spider on the blue sail", "dog")),
        (
            "Remove the telephone located on the right side of the hand lamp",
            ChangeRequest("removal", "telephone located on the right side of the hand lamp"),
        ),
        (
            "Changed the color of the wheel on the yellow trailer from gray to red",
            ChangeRequest("color", "wheel on the yellow trailer", "red", "gray"),
        ),
    ],
)
def test_the_phrasings_quoted_in_the_papers_are_understood_without_a_type(
    instruction: str, expected: ChangeRequest
) -> None:
    assert parse_instruction(instruction) == expected


@pytest.mark.parametrize(
    ("instruction", "kind", "target", "new"),
    [
        ("Change the color of the owl to blue.", "color", "owl", "blue"),
        ("Change the bus's colour to green", "color", "bus", "green"),
        ("Make the car red", "color", "car", "red"),
        ("Please paint the door dark green!", "color", "door", "dark green"),
        ("Change the red car to blue", "color", "red car", "blue"),
        ("Change the material of the zebu to brick.", "material", "zebu", "brick"),
        ("Make the table out of glass", "material", "table", "glass"),
        ("Turn the chair into wood", "material", "chair", "wood"),
        ("Change the shape of the red sign from a rectangle to a circle.", "shape", "red sign", "circle"),
        (
            "Bend the pepper grinder on the left into a wavy, S-like shape.",
            "shape",
            "pepper grinder on the left",
            "wavy, S-like shape",
        ),
        ("Remove the give way sign.", "removal", "give way sign", ""),
        ("Make the cat disappear", "removal", "cat", ""),
        ("Replace the red gazania on the right with an abalone.", "replacement", "red gazania on the right", "abalone"),
        ("Change the red car to a blue bicycle", "replacement", "red car", "blue bicycle"),
        ('Change the text on the blue sign from "BOOKS" to "CLOSED".', "text", "blue sign", "CLOSED"),
        ("Replace the word ‘A’ on the cup with ‘B’", "text", "cup", "B"),
        ("Change the sign to read “OPEN”", "text", "sign", "OPEN"),
        ("Change the number on the jersey from 5 to 7", "text", "jersey", "7"),
    ],
)
def test_natural_variants_give_kind_target_and_value(instruction: str, kind: str, target: str, new: str) -> None:
    request = parse_instruction(instruction)
    assert request is not None
    assert (request.kind, request.target, request.new) == (kind, target, new)


@pytest.mark.parametrize(
    ("instruction", "old", "new"),
    [
        ("Change the number of firemen from 2 to 3.", 2, 3),
        ("Increase the number of cups from two to five", 2, 5),
        ("Change the two birds to three birds", 2, 3),
        ("Change the number of dogs to 4", None, 4),
    ],
)
def test_counts_are_read_from_digits_and_words(instruction: str, old: int | None, new: int) -> None:
    request = parse_instruction(instruction)
    assert request is not None
    assert (request.kind, request.old_count, request.new_count) == ("count", old, new)


@pytest.mark.parametrize("instruction", ["Make it nicer", "Add a dog", "让狗变成红色", "Improve the lighting", "?"])
def test_what_is_not_understood_is_none_and_not_a_guess(instruction: str) -> None:
    assert parse_instruction(instruction) is None


def test_the_manifests_type_wins_over_the_sentence() -> None:
    sentence = "Change the attribute of the bowl to gold"
    assert parse_instruction(sentence) == ChangeRequest("color", "bowl", "gold")
    assert parse_instruction(sentence, "Change Material") == ChangeRequest("material", "bowl", "gold")


def test_a_type_nobody_knows_is_not_understood() -> None:
    assert parse_instruction("Remove the lion.", "Background Change") is None


def test_a_color_that_has_no_name_here_is_not_understood() -> None:
    assert parse_instruction("Change the color of the car to something nice", "Change Color") is None


def test_a_place_beside_another_thing_is_not_a_place_in_the_picture() -> None:
    beside, side = (
        parse_instruction("Remove the cup on the left side of the lamp"),
        parse_instruction("Remove the cup on the left."),
    )
    assert beside is not None
    assert beside.place is None
    assert side is not None
    assert side.place == "left"
