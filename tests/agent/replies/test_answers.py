"""The answer grammar reads every slip of published transcripts and never guesses."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.agent.replies.answers import ParsedReply, normalize_label, parse_reply
from editloupe.agent.replies.sections import split_sections
from editloupe.rubrics.model import Check, ChecksAnswer, Label, LabelAnswer, NumberAnswer, TextAnswer, YesNoAnswer
from editloupe.types import NOT_APPLICABLE

NAMES = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
LABELS = LabelAnswer(labels=tuple(Label(name=name, score=i, meaning=name) for i, name in enumerate(NAMES, 1)))
TOOLS = ("zoom_in_image", "localize_differences", "detect_object")
DIFFER = (
    '{"name": "localize_differences", '
    '"parameters": {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}}'
)


def reading(text: str) -> ParsedReply:
    return parse_reply(text, LABELS, tools=TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "<Start Thinking>Seen.</Start Thinking>\n<Start Final Answer>Over Modification</Start Final Answer>",
        "<Start Thinking>Seen.<Start Thinking><Start Final Answer>Over Modification</Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>Over Modification<Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer >\nOver Modification\n</Start Final Answer>",
        "<Start Thinking >Seen.< /Start Thinking>< Start Final Answer>Over Modification</ Start Final Answer >",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>  over   MODIFICATION  \n\n</Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>**Over Modification**</Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>**Over Modification.**</Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>Over Modification.</Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>“Over Modification”</Start Final Answer>",
        "<start thinking>Seen.</start thinking><START FINAL ANSWER>Over Modification</START FINAL ANSWER>",
        "<Start Thinking>Seen.</Start Thinking><Start Final Answer>Over Modification",
        "Seen.</Start Thinking><Start Final Answer>Over Modification</Start Final Answer>",
        "<think>Seen.</think><Start Final Answer>Over Modification</Start Final Answer>",
        "Seen.\n<Start Final Answer>Over Modification</Start Final Answer>",
        "<Start Thinking>Seen.</Start Thinking>" + 2 * "<Start Final Answer>Over Modification</Start Final Answer>",
    ],
)
def test_a_label_is_read_through_every_slip(text: str) -> None:
    got = reading(text)
    assert got.problem is None
    assert got.answer is not None
    assert (got.answer.label, got.answer.score) == ("Over Modification", 3)
    assert got.thought == "Seen."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Over Modification",
        "I would say Over Modification, since the handle is red.",
        "<Start Thinking>Over Modification it is.</Start Thinking>",
        "<Start Final Answer>Over Modification or Wrong Action</Start Final Answer>",
        "<Start Final Answer>Not Flawless Execution</Start Final Answer>",
        "<Start Final Answer>Over</Start Final Answer>",
        "<Start Final Answer>3</Start Final Answer>",
        "<Start Final Answer></Start Final Answer>",
        "<Start Final Answer>Flawless Exec",
        "<Start Final Answer>Wrong Action</Start Final Answer><Start Final Answer>Over Modification</Start Final Answer>",
        "<Start Thinking>The rubric lists <Start Final Answer>Wrong Action</Start Final Answer>.</Start Thinking>",
        "<Start Thinking>Seen. <Start Final Answer>Over Modification</Start Final Answer>",
        "<Start Final Answer>Over Modification</Start Final Answer> Or is it Wrong Action?",
        "<Start Final Answer>Wrong Action<Start Final Answer>Over Modification</Start Final Answer></Start Final Answer>",
        "<Start Final Answer><answer>Over Modification</answer></Start Final Answer>",
    ],
)
def test_an_answer_without_exactly_one_label_is_malformed_not_guessed(text: str) -> None:
    got = reading(text)
    assert got.answer is None
    assert got.calls == ()
    assert got.problem


def test_a_label_spoken_of_inside_a_closed_thought_is_no_answer() -> None:
    text = (
        "<Start Thinking>Not yet <Start Final Answer>Wrong Action</Start Final Answer>.</Start Thinking>"
        "<Start Final Answer>Over Modification</Start Final Answer>"
    )
    answer = reading(text).answer
    assert answer is not None
    assert answer.label == "Over Modification"


@pytest.mark.parametrize(
    ("block", "number"),
    [
        (DIFFER, 1),
        (f"{DIFFER}\n{DIFFER.replace('Edited', 'Reference')}", 2),
        (f"{DIFFER},{DIFFER.replace('Edited', 'Reference')}", 2),
        (f"[{DIFFER}]", 1),
        (f"```json\n{DIFFER}\n```", 1),
        (DIFFER.replace('"', "“", 1).replace('"', "”", 1).replace('"', "“"), 1),
        (DIFFER.replace("parameters", "arguments"), 1),
    ],
)
def test_tool_calls_are_read_from_text(block: str, number: int) -> None:
    for opening, closing in (
        ("<tool_call>", "</tool_call>"),
        ("<tool_call>", "<tool_call>"),
        ("<tool_call >", "</ tool_call>"),
    ):
        got = reading(f"<Start Thinking>Look.</Start Thinking>{opening}{block}{closing}")
        assert got.problem is None
        assert [call.name for call in got.calls] == ["localize_differences"] * number
        assert got.calls[0].parameters["comparison_image_1"] == "Source Image"


def test_curly_quotes_inside_a_straight_string_stay() -> None:
    block = '{"name": "detect_object", "parameters": {"target_image": "Source Image", "detect_object_name": "the “Open” sign"}}'
    assert reading(f"<tool_call>{block}</tool_call>").calls[0].parameters["detect_object_name"] == "the “Open” sign"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"<tool_call>{DIFFER}</tool_call><Start Final Answer>Wrong Action</Start Final Answer>", "both"),
        ('<tool_call>{"name": "paint", "parameters": {}}</tool_call>', '"paint"'),
        ('<tool_call>{"name": "zoom_in_image", "parameters": {</tool_call>', "JSON"),
        ("<tool_call></tool_call>", "empty"),
        ('<tool_call>{"parameters": {}}</tool_call>', '"name"'),
        ('<tool_call>{"name": "zoom_in_image", "parameters": [1]}</tool_call>', '"parameters"'),
        ("<tool_call>zoom please</tool_call>", "JSON"),
    ],
)
def test_a_malformed_call_says_what_is_wrong(text: str, word: str) -> None:
    got = reading(text)
    assert got.calls == ()
    assert got.answer is None
    assert word in (got.problem or "")


def test_native_calls_are_read_and_unknown_or_broken_ones_told() -> None:
    call = {"name": "zoom_in_image", "args": {"target_image": "Source Image"}, "id": "x"}
    assert parse_reply("", LABELS, native_calls=[call], tools=TOOLS).calls[0].id == "x"
    assert "paint" in (parse_reply("", LABELS, native_calls=[{**call, "name": "paint"}], tools=TOOLS).problem or "")
    assert "JSON" in (parse_reply("", LABELS, broken_calls=[{"name": "zoom_in_image"}], tools=TOOLS).problem or "")
    answered = "<Start Final Answer>Wrong Action</Start Final Answer>"
    assert "both" in (parse_reply(answered, LABELS, native_calls=[call], tools=TOOLS).problem or "")


def test_a_call_where_there_are_no_tools_is_malformed() -> None:
    assert "no tools" in (parse_reply(f"<tool_call>{DIFFER}</tool_call>", LABELS).problem or "")


@pytest.mark.long
@given(st.text(alphabet=string.ascii_letters + " <>/_{}\"'*.\n", max_size=200))
def test_noise_never_becomes_a_label(text: str) -> None:
    got = reading(text)
    assert got.answer is None
    assert got.problem or got.calls


def test_labels_shuffled_among_noise_never_become_a_label_outside_tags() -> None:
    rng = random.Random(0)
    pieces = [*NAMES, "<Start Thinking>", "</Start Thinking>", "maybe", "\n", "**", "."]
    for _ in range(500):
        assert reading(" ".join(rng.choices(pieces, k=8))).answer is None


SCALE = NumberAnswer(low=1, high=10)
ITEMS = ChecksAnswer(
    checks=(
        Check(key="hit", question="?"),
        Check(key="arm", question="?", values={"MATCH": 1.0, "MISMATCH": 0.0, "N/A": None}),
        Check(key="clean", question="?", values={"0": 0, "0.5": 0.5, "1": 1}, only_if={"hit": "1"}),
    )
)


def test_json_answers_are_read_fenced_and_behind_prose() -> None:
    for text in (
        '{"reason": "ok", "score": 7}',
        'Well.\n```json\n{"reason": "ok", "score": 7}\n```',
        '{"bbox_2d": [1, 2, 3, 4]} is where I looked. {"reason": "ok", "score": 7}',
        '<Start Final Answer>{"reason": "ok", "score": 7}</Start Final Answer>',
    ):
        answer = parse_reply(text, SCALE).answer
        assert answer is not None
        assert (answer.score, answer.reason) == (7.0, "ok")
        assert answer.score_100 == pytest.approx(66.6667, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    ["7", "Score: 7/10", '{"score": 11}', '{"score": "7/10"}', '{"score": 7.5}', '{"score": true}', '{"rating": 7}',
     '{"score": 7, "score": 8}', '{"score": NaN}', '{"score": 7} {"score": ', "{score: 7}",
     '{"score": 2} is what I first thought. {"score": 7}', '{"score": 7} is my answer.', '[{"score": 7}, {"score": 8}]'],
)  # fmt: skip
def test_a_number_that_is_not_exactly_given_is_never_taken(text: str) -> None:
    got = parse_reply(text, SCALE)
    assert got.answer is None
    assert got.problem


def test_checks_of_which_none_applies_are_not_applicable_and_have_no_score() -> None:
    arms = ChecksAnswer(checks=(ITEMS.checks[1],))
    answer = parse_reply('{"arm": "N/A", "reason": "hidden"}', arms).answer
    assert answer is not None
    assert (answer.label, answer.score, answer.score_100) == (NOT_APPLICABLE, None, None)


def test_checks_read_numbers_and_words_and_gates_apply() -> None:
    answer = parse_reply('{"hit": 0, "arm": "n/a", "clean": 0.5, "reason": "r"}', ITEMS).answer
    assert answer is not None
    assert answer.values == {"hit": "0", "arm": "N/A", "clean": "0.5"}
    assert ITEMS.values(answer.values) == {"hit": 0.0, "arm": None, "clean": 0.0}
    for text in (
        '{"hit": 1, "arm": "MATCH"}',
        '{"hit": 2, "arm": "MATCH", "clean": 1}',
        '{"hit": true, "arm": "MATCH", "clean": 1}',
    ):
        assert parse_reply(text, ITEMS).answer is None


def test_yes_no_and_text_are_read() -> None:
    yes = parse_reply('{"answer": "Yes"}', YesNoAnswer()).answer
    assert yes is not None
    assert yes.score == 1
    assert parse_reply('{"answer": "perhaps"}', YesNoAnswer()).answer is None
    shown = parse_reply('{"text": " TR 9067 T "}', TextAnswer()).answer
    assert shown is not None
    assert shown.values == {"text": "TR 9067 T"}


def test_what_stands_outside_the_tags_is_kept_apart() -> None:
    parts = split_sections("before <tool_call>{}</tool_call> after")
    assert parts.calls == ("{}",)
    assert parts.outside == "before\nafter"


def test_what_a_model_says_is_kept_with_its_tags_and_fences() -> None:
    text = "Look: <script>alert(1)</script>\n```\ncode\n```"
    assert split_sections(text).thought == "Look:\n<script>alert(1)</script>\n```\ncode\n```"


def test_plain_strips_marks_only_at_the_ends() -> None:
    assert normalize_label('"**Scene  Collapse**".') == "Scene Collapse"
    assert normalize_label("Scene. Collapse") == "Scene. Collapse"


GIVEN = "<Start Final Answer>Wrong Action</Start Final Answer>"


@pytest.mark.parametrize(
    "text",
    [
        "<Start Final Answer><s>Wrong Action</s></Start Final Answer>",
        "<Start Final Answer><s>Wrong</s> Action</Start Final Answer>",
        "<Start Final Answer><S class='x'>Wrong Action</S ></Start Final Answer>",
        "<Start Final Answer>~~Wrong Action~~</Start Final Answer>",
        f"At first I thought <s>{GIVEN}</s>",
        f"~~{GIVEN}~~",
        f"// {GIVEN}",
        f"/* {GIVEN} */",
        f"/*\nnot this:\n{GIVEN}\n*/",
        f"```\n// {GIVEN}\n```",
        f"```python\nx = 1\n# {GIVEN}\n```",
        f"I see it.\n```sql\n-- {GIVEN}\n```",
        f"<!-- {GIVEN} -->",
        f"<!--\nnot this:\n{GIVEN}\n-->\nI am not sure.",
        f"```html\n<!-- {GIVEN} -->\n```",
        "<Start Final Answer><!-- Wrong Action --></Start Final Answer>",
    ],
)
def test_a_label_that_is_struck_out_or_in_a_comment_is_not_an_answer(text: str) -> None:
    got = reading(text)
    assert got.answer is None
    assert got.problem


@pytest.mark.parametrize(
    "text",
    [
        f"{GIVEN}</s>",
        f"<s>{GIVEN}</s>",
        f"<s>[INST]Judge.[/INST] {GIVEN}</s>\n",
        f"<s>{GIVEN}",
        "<Start Final Answer>Wrong Action</s>",
        f"Not <s>Over Modification</s>: {GIVEN}",
        f"<s><Start Final Answer>Over Modification</Start Final Answer></s>\n{GIVEN}",
        f"// my verdict\n{GIVEN}",
        f"<!-- my verdict -->\n{GIVEN}",
        f"<!-- <Start Final Answer>Over Modification</Start Final Answer> -->\n{GIVEN}",
        f"/* seen */ {GIVEN}",
        f"/* seen */\n{GIVEN}",
        f"The type is image/* here.\n{GIVEN}",
        f"# {GIVEN}",
        f"```markdown\n# {GIVEN}\n```",
        f"```python\n# my verdict\n{GIVEN}\n```",
    ],
)
def test_end_tokens_headings_and_finished_comments_do_not_hide_a_label(text: str) -> None:
    answer = reading(text).answer
    assert answer is not None
    assert answer.label == "Wrong Action"


OBJECT = '{"score": 7}'


@pytest.mark.parametrize(
    "text",
    [
        f"// {OBJECT}",
        f"```json\n// {OBJECT}\n```",
        f"```python\n# {OBJECT}\n```",
        f"```js\n/* {OBJECT} */\n```",
        f"Seen.\n```js\n/*\n{OBJECT}\n*/\n```",
        f"<answer>// {OBJECT}</answer>",
        f"<answer><s>{OBJECT}</s></answer>",
        f"So: <s>{OBJECT}</s>",
        f"<!-- {OBJECT} -->",
        f"```xml\n<!--\n{OBJECT}\n-->\n```",
        f"<answer><!-- {OBJECT} --></answer>",
    ],
)
def test_an_object_that_is_struck_out_or_in_a_comment_is_not_an_answer(text: str) -> None:
    got = parse_reply(text, SCALE)
    assert got.answer is None
    assert got.problem


@pytest.mark.parametrize(
    "text",
    [
        f"{OBJECT}</s>",
        f"<s>{OBJECT}</s>",
        f"```json\n// the score\n{OBJECT}\n```",
        f"```python\n# the score\n{OBJECT}\n```",
        f"## {OBJECT}",
        f"```\n# {OBJECT}\n```",
        '<s>{"score": 2}</s>\n{"score": 7}',
        '// {"score": 2}\n{"score": 7}',
    ],
)
def test_end_tokens_headings_and_finished_comments_do_not_hide_an_object(text: str) -> None:
    answer = parse_reply(text, SCALE).answer
    assert answer is not None
    assert answer.score == 7
