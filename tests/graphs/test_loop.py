"""The loop, through the real clients: what models do, and how it always ends in the right label or unjudged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Reason, Unjudged, Verdict
from tests.drawn_pictures import edit_pair
from tests.graphs.conftest import Judging, only
from tests.scripted import (
    Request,
    Script,
    call,
    calls,
    empty,
    final,
    noise,
    say,
    think_and_call_text,
)

DIFFER = call("localize_differences", comparison_image_1="Source Image", comparison_image_2="Edited Image")
ZOOM = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
PROVIDERS = ("openai:gpt-4.1", "openai:qwen2.5-vl", "google_genai:gemini-3-pro")


def replies(request: Request) -> int:
    """How many replies the model has given in this conversation."""
    return sum(message.role == "assistant" for message in request.messages)


def first_then(first: Any, then: Any) -> Script:
    return lambda request: first if replies(request) == 0 else then


@pytest.mark.parametrize("spec", PROVIDERS)
def test_an_answer_at_once_is_a_verdict(judging: Judging, spec: str) -> None:
    judgement, server = judging(final("Flawless Execution", "All fine."), spec)
    verdict = only(judgement)
    assert isinstance(verdict, Verdict)
    assert (verdict.label, verdict.score, verdict.score_100) == ("Flawless Execution", 4, 100)
    assert verdict.rationale == "All fine."
    assert verdict.usage.input_tokens == 100
    assert server.served == 1


@pytest.mark.parametrize("spec", PROVIDERS)
def test_several_native_calls_of_one_turn_come_back_together(judging: Judging, spec: str) -> None:
    judgement, server = judging(first_then(calls(DIFFER, ZOOM), final("Wrong Action")), spec)
    assert only(judgement).label == "Wrong Action"
    step = judgement.traces[0].steps[0]
    assert [seen.tool for seen in step.observations] == ["localize_differences", "zoom_in_image"]
    assert all(seen.pictures for seen in step.observations)
    assert not server.refused
    second = server.requests[1]
    assert [result.name for m in second.messages for result in m.results] in (
        ["localize_differences", "zoom_in_image"],
        [None, None],
    )
    assert all(not m.images for m in second.messages if m.role == "tool")
    assert second.messages[-1].role == "user"
    assert len(second.messages[-1].images) == sum(len(seen.pictures) for seen in step.observations)


@pytest.mark.parametrize("spec", PROVIDERS)
@pytest.mark.parametrize("build", [calls, lambda *each: think_and_call_text("Look.", *each)])
def test_an_unknown_tool_among_several_calls_is_an_error_and_the_others_are_carried_out(
    judging: Judging, spec: str, build: Any
) -> None:
    turn = build(call("look_harder", image="Source Image"), ZOOM)
    judgement, server = judging(first_then(turn, final("Wrong Action")), spec)
    assert only(judgement).label == "Wrong Action"
    first = judgement.traces[0].steps[0]
    unknown, zoomed = first.observations
    assert (unknown.tool, unknown.failed, unknown.pictures) == ("look_harder", True, ())
    assert 'There is no tool called "look_harder"; the tools are:' in unknown.text
    assert zoomed.pictures
    assert not first.problem
    assert unknown.text in server.requests[1].text
    assert server.served == 2
    assert not server.refused


def test_a_tool_that_is_not_offered_for_this_edit_is_not_carried_out(judging: Judging) -> None:
    reading = call("read_text", target_image="Edited Image")
    judgement, _ = judging(first_then(calls(reading, ZOOM), final("Wrong Action")), "openai:gpt-4.1")
    read, zoomed = judgement.traces[0].steps[0].observations
    assert (read.failed, zoomed.failed) == (True, False)
    assert 'There is no tool called "read_text"' in read.text


@pytest.mark.parametrize("spec", PROVIDERS)
def test_calls_in_the_text_protocol_are_carried_out(judging: Judging, spec: str) -> None:
    judgement, server = judging(
        first_then(think_and_call_text("Look.", DIFFER, ZOOM), final("Over Modification")), spec
    )
    assert only(judgement).label == "Over Modification"
    assert len(judgement.traces[0].steps[0].observations) == 2
    assert server.requests[1].messages[-1].images
    assert not server.refused


def test_native_families_are_offered_functions_and_others_a_description(judging: Judging) -> None:
    _, native = judging(final("Wrong Action"), "openai:gpt-5.1")
    _, text = judging(final("Wrong Action"), "openai:qwen2.5-vl")
    assert {"zoom_in_image", "localize_differences"} <= set(native.requests[0].tools)
    assert text.requests[0].tools == ()
    assert "<tool_call>" in text.requests[0].system
    assert native.requests[0].temperature is None
    assert text.requests[0].temperature == 0


def test_pictures_are_announced_and_the_rubric_comes_first(judging: Judging, edit: Edit) -> None:
    _, server = judging(final("Wrong Action"))
    request = server.requests[0]
    assert request.system.index("Localization Failure") < request.system.index("How to answer")
    (user,) = request.messages
    assert user.texts[0] == "Source Image (160 × 120 pixels):"
    assert user.texts[1] == "Edited Image (160 × 120 pixels):"
    assert edit.instruction in user.texts[-1]
    assert [image.pixels for image in user.images] == [(160, 120), (160, 120)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (calls(DIFFER, text="<Start Final Answer>Wrong Action</Start Final Answer>"), "both"),
        (call("paint_image", colour="red"), "paint_image"),
        (say("Over Modification, I think."), "no final answer"),
        (say("<Start Final Answer>Over Modification, Wrong Action</Start Final Answer>"), "not one of the labels"),
        (empty(), "empty"),
    ],
)
@pytest.mark.parametrize("spec", PROVIDERS)
def test_a_malformed_reply_is_repaired_by_saying_what_was_wrong(
    judging: Judging, spec: str, bad: Any, word: str
) -> None:
    def script(request: Request) -> Any:
        told = any(word in text for m in request.messages if m.role == "user" for text in m.texts[-1:])
        return final("Flawless Execution") if told else bad

    judgement, server = judging(script, spec)
    assert only(judgement).label == "Flawless Execution"
    assert word in (judgement.traces[0].steps[0].problem or "")
    assert server.served == 2
    assert not server.refused


@pytest.mark.parametrize("spec", PROVIDERS)
def test_replies_that_stay_unreadable_end_unjudged_with_the_raw_text(judging: Judging, spec: str) -> None:
    judgement, server = judging(say("It is probably a Wrong Action."), spec)
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.UNREADABLE
    assert outcome.raw == "It is probably a Wrong Action."
    assert server.served == 3


@pytest.mark.long
@pytest.mark.parametrize("spec", PROVIDERS)
@pytest.mark.parametrize("ask", [DIFFER, think_and_call_text("More.", ZOOM)])
def test_a_model_that_asks_for_tools_for_ever_is_forbidden_them_at_last_and_gave_no_answer(
    judging: Judging, spec: str, ask: Any
) -> None:
    judgement, server = judging(ask, spec, settings={"max_turns": 3})
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.NO_ANSWER
    assert server.served == 4
    assert not server.refused
    first, last = server.requests[0], server.requests[-1]
    assert last.tools == first.tools
    assert (first.tool_choice, last.tool_choice) == (None, "none" if first.tools else None)
    assert last.body.get("tools") == first.body.get("tools")
    assert "turns are used up" in last.messages[-1].text


@pytest.mark.long
@pytest.mark.parametrize("spec", PROVIDERS)
def test_repairs_between_the_calls_do_not_change_how_endless_calls_end(judging: Judging, spec: str) -> None:
    def script(request: Request) -> Any:
        return call("paint_image", colour="red") if replies(request) in (1, 2) else DIFFER

    judgement, server = judging(script, spec, settings={"max_turns": 5})
    assert only(judgement).reason is Reason.NO_ANSWER
    assert server.served == 6
    assert not server.refused


@pytest.mark.parametrize("spec", PROVIDERS)
def test_an_empty_reply_to_the_last_request_is_no_answer(judging: Judging, spec: str) -> None:
    script: Script = lambda request: empty() if "used up" in request.messages[-1].text else ZOOM  # noqa: E731
    assert only(judging(script, spec, settings={"max_turns": 2})[0]).reason is Reason.NO_ANSWER


CUT = final("Flawless Execution").but(finish="length")


@pytest.mark.long
@pytest.mark.parametrize("spec", PROVIDERS)
@pytest.mark.parametrize(
    "cut", [CUT, empty(finish="length"), calls(DIFFER, finish="length")], ids=["text", "empty", "call"]
)
def test_a_reply_cut_off_by_the_length_limit_is_never_read_and_told_so(judging: Judging, spec: str, cut: Any) -> None:
    judgement, server = judging(cut, spec)
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.TRUNCATED
    assert "length limit" in outcome.detail
    assert "--max-output-tokens" in outcome.detail
    assert server.served == 3
    assert not server.refused
    assert not any(step.observations for step in judgement.traces[0].steps)
    assert "cut off by the length limit" in server.requests[-1].messages[-1].text


@pytest.mark.parametrize("spec", PROVIDERS)
def test_a_model_that_is_shorter_the_second_time_is_judged(judging: Judging, spec: str) -> None:
    judgement, server = judging([CUT, final("Wrong Action")], spec)
    assert only(judgement).label == "Wrong Action"
    assert server.served == 2


@pytest.mark.long
@pytest.mark.parametrize("spec", PROVIDERS)
def test_a_reply_a_filter_cut_short_is_refused_whatever_was_said_before(judging: Judging, spec: str) -> None:
    judgement, server = judging(final("Flawless Execution").but(finish="content_filter"), spec)
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.REFUSED
    assert judgement.traces[0].steps[0].answer is None
    assert server.served == 1


@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "openai:gpt-5.1", "openai:qwen2.5-vl", "google_genai:gemini-3-pro"])
def test_the_length_limit_goes_on_the_wire(judging: Judging, spec: str) -> None:
    _, server = judging(final("Wrong Action"), spec, settings={"max_output_tokens": 777})
    body = server.requests[0].body
    sent = [name for name, value in {**body, **(body.get("generationConfig") or {})}.items() if value == 777]
    named = {"openai:qwen2.5-vl": "max_tokens", "google_genai:gemini-3-pro": "maxOutputTokens"}
    assert sent == [named.get(spec, "max_completion_tokens")]


@pytest.mark.long
def test_a_reply_with_thousands_of_calls_is_neither_carried_out_nor_sent_back(judging: Judging) -> None:
    many = calls(*(call("zoom_in_image", bbox_2d=[i, 0, i + 9, 9], target_image="Edited Image") for i in range(2_000)))
    judgement, server = judging([many, final("Wrong Action")])
    assert only(judgement).label == "Wrong Action"
    assert not judgement.traces[0].steps[0].observations
    assert not any(m.calls for m in server.requests[1].messages)


def test_the_last_call_may_still_give_the_answer(judging: Judging) -> None:
    def script(request: Request) -> Any:
        return final("Wrong Action") if "used up" in request.messages[-1].text else DIFFER

    judgement, server = judging(script, settings={"max_turns": 2})
    assert only(judgement).label == "Wrong Action"
    assert server.served == 3


def test_empty_replies_end_unjudged_without_an_answer(judging: Judging) -> None:
    outcome = only(judging(empty())[0])
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.NO_ANSWER


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_noise_is_never_a_label(judging: Judging, seed: int) -> None:
    judgement, server = judging(lambda request: noise(seed + server_count(request)), criteria=None)
    assert all(isinstance(outcome, Unjudged) for outcome in judgement.verdicts)
    assert server.served <= 60


def server_count(request: Request) -> int:
    return len(request.messages) * 100


def test_a_tools_error_goes_back_as_a_sentence_and_the_loop_goes_on(judging: Judging) -> None:
    outside = call("zoom_in_image", bbox_2d=[900, 900, 950, 950], target_image="Edited Image")
    judgement, server = judging(
        first_then(calls(outside, call("zoom_in_image", target_image="x")), final("Wrong Action"))
    )
    assert only(judgement).label == "Wrong Action"
    assert [seen.failed for seen in judgement.traces[0].steps[0].observations] == [True, True]
    results = [result.text for m in server.requests[1].messages for result in m.results]
    assert len(results) == 2
    assert all(results)


def test_gemini_keeps_its_thought_signatures(judging: Judging) -> None:
    signed = DIFFER.but(signature="c2lnbmF0dXJl")
    judgement, server = judging(first_then(signed, final("Wrong Action")), "google_genai:gemini-3-pro")
    assert only(judgement).label == "Wrong Action"
    assert not server.refused


def test_both_criteria_are_judged_side_by_side(judging: Judging) -> None:
    def script(request: Request) -> Any:
        label = "Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution"
        return final(label).after(0.2)

    judgement, server = judging(script, criteria=None)
    assert [outcome.label for outcome in judgement.verdicts if isinstance(outcome, Verdict)] == [
        "Flawless Execution",
        "Perfect Consistency",
    ]
    assert server.peak == 2


def test_the_trace_says_what_was_sent_and_nothing_is_shrunk_silently(judging: Judging, tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path, (400, 300))
    big = Edit(source=before, edited=after, instruction="Change the color of the patch to red")
    judgement, server = judging(
        first_then(call("zoom_in_image", bbox_2d=[25, 17, 75, 75], target_image="Edited Image"), final("Wrong Action")),
        settings={"long_side": 200},
        edit=big,
    )
    first, second = judgement.traces[0].steps[0].sent
    assert (first.name, first.size, first.original_size, first.scale) == ("Source Image", (200, 150), (400, 300), 0.5)
    assert server.requests[0].messages[0].images[0].pixels == (200, 150)
    assert "200 × 150" in server.requests[0].messages[0].texts[0]
    assert first.bytes == server.requests[0].messages[0].images[0].size
    box = judgement.traces[0].steps[0].observations[0].data["asked"]
    assert list(box) == [50, 34, 150, 150]
    assert second.name == "Edited Image"


def test_positions_in_thousandths_are_mapped_to_pixels(judging: Judging) -> None:
    ask = call("zoom_in_image", bbox_2d=[250, 250, 750, 750], target_image="Source Image")
    judgement, server = judging(first_then(ask, final("Wrong Action")), "google_genai:gemini-2.5-pro")
    assert list(judgement.traces[0].steps[0].observations[0].data["asked"]) == [40, 30, 120, 90]
    assert "thousandths" in server.requests[0].messages[0].text
