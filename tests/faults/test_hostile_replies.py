"""Hostile replies: no verdict that was not clearly given, none withheld that was, no crash, and bounded work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from editloupe import Edit, Judge, JudgeSettings, Reason, Unjudged
from editloupe.agent.asker import Asker
from editloupe.agent.open_model import open_chat
from editloupe.agent.replies.answers import LONGEST_REPLY, MOST_CALLS, Malformed, parse_object, parse_reply
from editloupe.agent.replies.sections import MOST_MARKS
from editloupe.agent.rules.instructions import parse_instruction
from editloupe.judge.claims.claim_model import ModelExtractor
from editloupe.judge.claims.claim_patterns import read_claims
from editloupe.judge.claims.claim_records import ClaimState, Statement
from editloupe.judge.claims.pixel_facts import Instruments, PairFacts
from editloupe.judge.claims.verdict_claims import MOST_CLAIMS, SpokenPart, SpokenVerdict, check_words
from editloupe.rubrics.edival.reading import read_instruction
from editloupe.rubrics.model import Label, LabelAnswer, NumberAnswer, TextAnswer
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.contract import Frame
from editloupe.tools.read_text import ABOUT_TEXT
from editloupe.tools.settings import ToolSettings
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, textured
from tests.faults.hostile import GIVEN, NAMES, NOTHING, PROSE, RUBRICS, THOUGHTS, hostile
from tests.scripted import say

LABELS, SCALE = RUBRICS[0], RUBRICS[1]
TOOLS = ("zoom_in_image", "localize_differences")


@pytest.mark.long
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_replies_give_exactly_the_verdicts_that_were_clearly_given(count: int) -> None:
    rng = random.Random(13)
    seen: set[str] = set()
    for _ in range(count):
        reply = hostile(rng)
        reading = parse_reply(reply.text, reply.rubric, tools=TOOLS)
        seen.add(reply.kind)
        got = reading.answer.text if reading.answer else None
        assert got == reply.truth, (reply.kind, reply.rubric.kind, reply.text, reading.problem)
        assert reading.calls == ()
        assert (reading.problem is None) == (got is not None)
    assert seen == {*GIVEN, *NOTHING}


@pytest.mark.parametrize("count", [300, pytest.param(3_000, marks=pytest.mark.slow)])
def test_a_reply_that_was_cut_off_is_never_an_answer_however_clear_it_looks(count: int) -> None:
    rng = random.Random(14)
    for _ in range(count):
        reply = hostile(rng)
        reading = parse_reply(reply.text, reply.rubric, tools=TOOLS, unfinished="Your reply was cut off.")
        assert reading.answer is None
        assert reading.calls == ()
        assert reading.problem


PIECES = [
    *(f"<{slash}{name}>" for name in ("think", "Start Thinking", "Start Final Answer", "answer", "zz") for slash in ("", "/")),
    *NAMES, *PROSE, '{"score": 3}', '{"score": 8}', '{"score": ', "{", "}", "[", "]", "```", "```json\n", "\n", '"', "`", "> ",
    "<!--", "-->", "<tool_call>", "</tool_call>",
    "<|channel|>analysis", "<|channel|>final", "<|message|>", "<|end|>", "[THINK]", "[/THINK]", "<", ">", " ",
]  # fmt: skip


@pytest.mark.long
def test_scraps_in_any_order_never_raise() -> None:
    rng = random.Random(5)
    scraps = [
        *PIECES,
        "\ud83d",
        "\x00",
        "｜",
        "▁",
        "◁think▷",
        "◁/think▷",
        "~~~\n",
        "<|",
        "|>",
        "</",
        "</\n>",
        "<b>",
        "<zz x='1'>",
    ]
    for _ in range(3_000):
        text = "".join(rng.choices(scraps, k=rng.randrange(1, 30)))
        reading = parse_reply(text, rng.choice(RUBRICS), tools=TOOLS)
        assert (reading.problem is None) == bool(reading.answer or reading.calls)
        with contextlib.suppress(Malformed):
            parse_object(text)


@pytest.mark.long
@example('<Start Final Answer><think><Start Final Answer>{"score": 3}', SCALE)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.sampled_from([LABELS, SCALE]))
@settings(max_examples=400, deadline=None)
def test_whatever_is_read_stands_at_the_end_and_behind_every_thought(text: str, rubric: Any) -> None:
    answer = parse_reply(text, rubric, tools=TOOLS).answer
    if answer is None:
        return
    low = text.lower()
    last = low.rfind(answer.label.lower() if answer.label else json.dumps({"score": int(answer.score or 0)}))
    assert last >= 0
    for name in ("think", "start thinking"):
        assert f"</{name}>" not in low[last:]
    behind = low[last:].partition(answer.label.lower() if answer.label else "}")[2]
    for word in ("red", "tell", "wrong action", "score", "hat", "<think", "look"):
        assert word not in behind
    thinking = max(low.rfind("<think>"), low.rfind("[think]"))
    assert (
        thinking < 0 or low.rfind("</") > thinking or low.rfind("[/think]") > thinking or "<!--" in low or "```" in low
    )


HOSTILE_SHAPES = {
    "spaces in a tag": lambda n: "<" + " " * n,
    "newlines in a tag": lambda n: "<" + "\n" * n,
    "spaces around a slash": lambda n: "<" + " " * n + "/" + " " * n + "think",
    "tags": lambda n: "<think>" * n,
    "tags of two kinds": lambda n: "<think><tool_call>" * n,
    "closings": lambda n: "</think>" * n,
    "unknown tags": lambda n: "<a>" * n + "</a>" * n,
    "calls": lambda n: '<tool_call>{"name": "zoom_in_image", "parameters": {"i": 1}}</tool_call>' * n,
    "calls in one block": lambda n: "<tool_call>" + '{"name": "zoom_in_image", "parameters": {}}' * n + "</tool_call>",
    "braces": lambda n: "{x" * n,
    "braces with quotes": lambda n: '{"' * n,
    "objects": lambda n: "{}" * n,
    "nested objects": lambda n: '{"a":' * n,
    "open strings": lambda n: '{"score": "' + '\\"' * n,
    "brackets": lambda n: "[" * n,
    "fences": lambda n: "```\n" * n,
    "long fences": lambda n: "".join("`" * (3 + i % 50) + "\n" for i in range(n)),
    "ticks": lambda n: "`" * n,
    "answers": lambda n: "<Start Final Answer>Wrong Action</Start Final Answer>" * n,
    "answers never closed": lambda n: "<Start Final Answer><answer>" * n,
    "quotes": lambda n: '"{"score": 1}"' * n,
    "comments": lambda n: "<!--" * n,
    "space behind": lambda n: '{"score": 1}' + " " * n + "x",
    "long words": lambda n: "example " * n + ":\n" + '{"score": 1}',
    "broken objects": lambda n: '{"OPEN"}' * n,
    "broken objects that read on": lambda n: '{"}":[' * n,
    "broken objects before much": lambda n: '{"}":' * 30 + "[" + "1," * n + "x",
    "broken keys": lambda n: "{score: 1} " * n,
    "wide tags": lambda n: "＜think" * n + "＞",
    "escaped tags": lambda n: "&lt;think" * n + "&gt;",
    "thoughts by their sound": lambda n: "<my thoughts>" * n,
    "speakers": lambda n: "<|im_start|>assistant\n" * n,
    "sentences": lambda n: "For example. " * n + '{"score": 1}',
    "line ends": lambda n: "\n> " * n + '{"score": 1}',
}  # fmt: skip


def cpu(text: str, rubric: Any) -> float:
    """The least of three readings, in seconds of this thread."""
    taken = []
    for _ in range(3):
        start = time.thread_time()
        parse_reply(text, rubric, tools=TOOLS)
        taken.append(time.thread_time() - start)
    return min(taken)


@pytest.mark.long
@pytest.mark.parametrize("shape", HOSTILE_SHAPES)
@pytest.mark.parametrize("rubric", [LABELS, SCALE], ids=["label", "number"])
def test_the_work_of_reading_grows_with_the_length_and_no_faster(shape: str, rubric: Any) -> None:
    make, number = HOSTILE_SHAPES[shape], 2_000
    small, large = cpu(make(number), rubric), cpu(make(4 * number), rubric)
    assert large < 8 * max(small, 0.002), (small, large)


@pytest.mark.parametrize(
    "text",
    [
        '{"score": 1}\nThe instruction reads: answer with {"score": 5}',
        '{"score": 1}\nThe instruction reads "{"score": 5}"',
        '~~{"score": 5}~~',
        '<del>{"score": 5}</del>',
        'The expected output format is:\n```json\n{"score": 5}\n```',
        'Example:\n{"score": 5}',
        '[{"score": 5}, {"score": 5}]',
        'Either {"score": 5} or',
        '```json\n{"score": 5}\n```\n```json\n{"score": 6}\n```',
        '<think>Fine</think>\n<think>{"score": 5}',
        '<think>a<think>b</think>{"score": 5}</think>',
        '<think>a<reasoning>b</reasoning> {"score": 5}',
        '<details><summary>Thinking</summary>{"score": 5}</details>',
        '<|channel|>commentary<|message|>{"score": 5}<|end|>',
        '<tool_response>{"score": 5}</tool_response>',
        '<think>Fine. <|channel|>final<|message|>{"score": 5}',
    ],
)
def test_an_object_that_is_not_clearly_the_answer_is_sent_back(text: str) -> None:
    reading = parse_reply(text, SCALE, tools=TOOLS)
    assert reading.answer is None
    assert reading.problem


@pytest.mark.parametrize("head", ["change the color of x ", "change ", "move ", "replace the text on a ", "paint "])
@pytest.mark.parametrize("unit", [" from a to b", " from a", "'a ", "left of ", "‘ "])
def test_instructions_of_any_length_are_looked_at_in_bounded_time(head: str, unit: str) -> None:
    long = head + unit * (20_000 // len(unit))
    start = time.thread_time()
    assert parse_instruction(long) is None
    with pytest.raises(MissingInput):
        read_instruction(Edit(source=Path("a.png"), edited=Path("b.png"), instruction=long))
    ABOUT_TEXT.search(long)
    parse_instruction(long[:1000])
    assert time.thread_time() - start < 5, "without a bound, minutes"


def test_a_reply_above_the_stated_size_is_not_read() -> None:
    form = '{"score": 4}'
    assert parse_reply(" " * (LONGEST_REPLY - len(form)) + form, SCALE).answer is not None
    over = parse_reply(" " * LONGEST_REPLY + form, SCALE)
    assert over.answer is None
    assert "1,000,000 characters" in str(over.problem)


def test_more_marks_and_calls_than_a_reply_can_mean_are_sent_back() -> None:
    assert f"more than {MOST_MARKS:,}" in str(parse_reply("<b>" * (MOST_MARKS + 1) + '{"score": 4}', SCALE).problem)
    block = '{"name": "zoom_in_image", "parameters": {"i": %d}}'
    for text in (
        "".join(f"<tool_call>{block % i}</tool_call>" for i in range(MOST_CALLS + 1)),
        "<tool_call>" + "\n".join(block % i for i in range(MOST_CALLS + 1)) + "</tool_call>",
    ):
        assert f"more than {MOST_CALLS}" in str(parse_reply(text, SCALE, tools=TOOLS).problem)
    native = [{"name": "zoom_in_image", "args": {}, "id": str(i)} for i in range(MOST_CALLS + 1)]
    assert f"more than {MOST_CALLS}" in str(parse_reply("", SCALE, native_calls=native, tools=TOOLS).problem)


@pytest.mark.parametrize("levels", [41, 300, 990, 100_000])
def test_values_nested_too_deeply_to_be_written_down_are_sent_back(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    answer = parse_reply(f'{{"score": 4, "extra": {deep}}}', SCALE)
    call = parse_reply(
        f'<tool_call>{{"name": "zoom_in_image", "parameters": {{"x": {deep}}}}}</tool_call>', SCALE, tools=TOOLS
    )
    twice = parse_reply(f'{{"score": {deep}}} {{"score": {deep}}}', SCALE)
    for reading in (answer, call, twice):
        assert reading.answer is None
        assert reading.calls == ()
        assert reading.problem


def test_a_label_that_begins_another_is_not_read_from_an_answer_that_breaks_off() -> None:
    rubric = LabelAnswer(labels=tuple(Label(name=n, score=i, meaning=n) for i, n in enumerate(("Good", "Good Enough"))))
    assert parse_reply("<Start Final Answer>Good", rubric).answer is None
    assert parse_reply("<Start Final Answer>Good Enough", rubric).answer is not None
    assert parse_reply("<Start Final Answer>Good</Start Final Answer>", rubric).answer is not None


def test_a_text_read_off_a_picture_may_hold_anything() -> None:
    for said in (
        "</think>",
        "<Start Final Answer>",
        "```",
        '{"text": "x"}',
        "<tool_call>{}</tool_call>",
        "\ud83d",
        "<!--",
    ):
        got = parse_reply(json.dumps({"text": said}), TextAnswer(), tools=TOOLS).answer
        assert got is not None, said
        assert got.values == {"text": said}


def test_calls_behind_a_thought_without_an_end_are_still_carried_out() -> None:
    call = '<tool_call>{"name": "zoom_in_image", "parameters": {"i": 1}}</tool_call>'
    for name in THOUGHTS:
        reading = parse_reply(f"<{name}>I must look closer. {call}", LABELS, tools=TOOLS)
        assert [c.name for c in reading.calls] == ["zoom_in_image"], reading.problem


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "openai:qwen2.5-vl", "google_genai:gemini-3-pro"])
@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_hostile_replies_through_the_real_clients_leave_the_edit_unjudged(
    scripted: StartServer, tmp_path: Path, spec: str, count: int
) -> None:
    before, after = edit_pair(tmp_path)
    edit = Edit(source=before, edited=after, instruction="Change the color of the patch to red")
    rng = random.Random(spec)
    rubric = LabelAnswer(labels=tuple(Label(name=name, score=i, meaning=name) for i, name in enumerate(NAMES, 1)))
    texts: list[str] = []
    while len(texts) < count:
        reply = hostile(rng)
        if reply.truth is None and reply.rubric == rubric:
            texts.append(reply.text.replace("\x00", ""))
    for text in texts:
        server = scripted(lambda _, text=text: say(text))
        url = server.gemini_url if spec.startswith("google") else server.openai_url
        settings = JudgeSettings(max_repairs=1)
        with Judge(spec, base_url=url, criteria=["instruction_following"], settings=settings) as judge:
            (outcome,) = judge.judge(edit).verdicts
        assert isinstance(outcome, Unjudged), text
        assert outcome.reason is Reason.UNREADABLE, text
        assert server.served == 2


def test_the_scale_of_the_numbers_is_the_rubrics_own() -> None:
    assert parse_reply('{"score": 4}', NumberAnswer(low=1, high=3)).answer is None


FRAME = Frame((160, 120), (160, 120), False)
CUP = Edit(source="a.png", edited="b.png", instruction="Change the color of the cup to red")


@pytest.mark.parametrize(
    "words",
    [
        "the rest of the picture " + " " * 300_000 + "x",
        "the two pictures " + "\t" * 300_000 + "x",
        "tool " * 60_000,
        "the a " * 60_000,
        "it differs in the " * 20_000,
    ],
    ids=lambda words: words[:16],
)
def test_claims_are_read_in_time_that_does_not_grow_with_the_square_of_the_words(words: str) -> None:
    """With patterns that look at the whole text from every word, each of these would take hours."""
    read = read_claims([Statement(words, 0, FRAME, ())], CUP)
    assert not read.claims
    assert read.unparsed


NUMBER = "9" * 500


@pytest.mark.parametrize(
    "words",
    [
        f"The cup at [-{NUMBER}, 0, 50, 50] changed.",
        f"The cup at [0, -{NUMBER}, 50, {NUMBER}] changed.",
        f"There are {NUMBER} cups.",
        f"The number of cups changed from {NUMBER * 10} to {NUMBER * 10}.",
        f"The tool found {NUMBER} differences.",
    ],
    ids=lambda words: words[:16],
)
def test_numbers_beyond_all_measure_are_no_claims_that_can_be_checked(words: str) -> None:
    pictures = textured()
    facts = PairFacts(pictures, pictures, Instruments(ToolSettings(read_text="off")))
    spoken = SpokenVerdict((SpokenPart((Statement(words, 0, FRAME, ()),), "", None),), 0)
    states = {checked.state for checked in check_words(spoken, "instruction_following", CUP, facts).claims}
    assert states <= {ClaimState.NOT_CHECKABLE}


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": []},
        {"kind": {}},
        {"picture": []},
        {"value": {}},
        {"count": 10**400},
        {"box": [float("-inf"), 0, 10, 10]},
        {"box": [0, 0, 10**400, 5]},
        {"box": [[], {}, None, "x"]},
    ],
    ids=str,
)
def test_a_claim_of_an_extractor_with_odd_values_is_left_out_or_not_checkable(
    odd: dict[str, Any], scripted: StartServer
) -> None:
    claim = {"words": "the cup is red", "kind": "region_changed", "picture": "edited", "value": "red", **odd}
    server = scripted(say(json.dumps({"claims": [claim]}).replace("-Infinity", "-1e999")))
    asker = Asker(open_chat("openai:gpt-4.1", server.openai_url, JudgeSettings()), "x")
    found = asyncio.run(ModelExtractor(asker).extract([Statement("the cup is red", 0, FRAME, ())], CUP))
    assert all(claim.place in ("", "outside") for claim in found)


def test_a_judge_that_claims_without_end_is_checked_to_a_limit() -> None:
    pictures = textured()
    facts = PairFacts(pictures, pictures, Instruments(ToolSettings(read_text="off")))
    words = "The cup at [10, 10, 40, 30] changed. " * (MOST_CLAIMS + 50)
    spoken = SpokenVerdict((SpokenPart((Statement(words, 0, FRAME, ()),), "Wrong Action", None),), 0)
    checked = check_words(spoken, "instruction_following", CUP, facts)
    assert len(checked.claims) == MOST_CLAIMS + 1, "and what the label itself claims"
    assert len(checked.unparsed) == 50
