from editloupe.agent.rules.instruction_following import TextReading, compare_text, read_tool_result
from editloupe.agent.rules.instructions import ChangeRequest
from editloupe.types import Box

ASKED = ChangeRequest("text", "white bus", "TR 9067 T", "TR 7906 T")


def test_case_spaces_and_punctuation_do_not_count() -> None:
    assert compare_text(ASKED, ["tr-9067t."]).new == 1


def test_the_old_text_is_not_taken_for_the_asked_one() -> None:
    reading = compare_text(ASKED, ["TR 7906 T"])
    assert reading.old == 1
    assert reading.new < 1


def test_text_over_several_lines_counts_as_one() -> None:
    assert compare_text(ChangeRequest("text", "sign", "OPEN ALL DAY"), ["OPEN", "ALL DAY"]).new == 1


def test_letters_beside_the_asked_text_are_noticed() -> None:
    assert compare_text(ChangeRequest("text", "sign", "MILK"), ["MILK", "SALE"]).more == 1
    assert compare_text(ChangeRequest("text", "sign", "MILK"), ["MILK"]).more == 0


def test_where_the_target_is_known_lines_elsewhere_do_not_count() -> None:
    data = {"lines": [{"text": "MILK", "box": [300, 10, 340, 30]}, {"text": "TICKETS", "box": [20, 20, 60, 40]}]}
    sign = Box.model_validate([10, 10, 70, 50])
    assert read_tool_result(ChangeRequest("text", "sign", "MILK"), data, [sign]).lines == ("TICKETS",)


def test_without_a_reader_the_thought_says_so() -> None:
    assert "could not be read" in TextReading().say(ASKED)


def test_what_was_read_at_differing_places_counts_unless_it_was_read_already() -> None:
    request = ChangeRequest("text", "sign", "MILK", "SALE")
    places = [{"first": {"text": "SALE", "confidence": 0.9}, "second": {"text": "MILK", "confidence": 0.9}}]

    assert read_tool_result(request, {"lines": []}, places=places).new == 1
    seen = read_tool_result(request, {"lines": [{"text": "Milk!", "box": [0, 0, 40, 10]}]}, places=places)
    assert seen.lines == ("Milk!",)
    assert seen.more == 0


def test_a_place_whose_text_is_gone_says_nothing() -> None:
    places = [{"first": {"text": "SALE", "confidence": 0.9}, "second": None}]

    assert read_tool_result(ChangeRequest("text", "sign", "MILK", "SALE"), {"lines": []}, places=places).lines == ()
