"""JSON answers are parsed strictly: of ten thousand broken ones none becomes a score."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from editloupe.agent.replies.answers import build_answer_schema, parse_reply
from editloupe.rubrics.model import Answer, Check, ChecksAnswer, NumberAnswer, TextAnswer, YesNoAnswer
from editloupe.rubrics.registry import PROTOCOLS
from tests.rubrics.samples import good_reply

ANSWERS: list[Answer] = [
    *{
        rubric.name + known.name: rubric.answer
        for known in PROTOCOLS
        for rubric in known.rubrics
        if build_answer_schema(rubric.answer) is not None
    }.values(),
    YesNoAnswer(),
]
NUMBERS = [answer for answer in ANSWERS if isinstance(answer, NumberAnswer)]
CHECKS = [answer for answer in ANSWERS if isinstance(answer, ChecksAnswer)]


def keys(answer: Answer) -> list[str]:
    schema = build_answer_schema(answer)
    assert schema is not None
    return [name for name in schema["required"] if name != getattr(answer, "reason_key", None)]


def wrong_value(answer: Answer, key: str, rng: random.Random) -> Any:
    """Return something that is no answer under this key."""
    anything: list[Any] = [
        None,
        True,
        False,
        [],
        {},
        [1],
        {"score": 1},
        "",
        "maybe",
        "NaN",
        "1 or 0",
        -1,
        11,
        99,
        1e999,
    ]
    anything += [5.5, 0.25, "five", "10/10", float("nan"), 10**400]
    if isinstance(answer, NumberAnswer):
        anything += [f"{answer.high}.5", f"{answer.high}/{answer.high}", str(answer.high + 1), f"{answer.high + 1}."]
        anything += [answer.high + 1, answer.low - 1, [answer.high]]
    value = rng.choice(anything)
    while _is_allowed(answer, key, value):
        value = rng.choice(anything)
    return value


def _is_allowed(answer: Answer, key: str, value: Any) -> bool:
    if isinstance(value, bool):
        values = next((c.values for c in answer.checks if c.key == key), {}) if isinstance(answer, ChecksAnswer) else {}
        return "yes" in values or isinstance(answer, YesNoAnswer)
    if isinstance(answer, ChecksAnswer):
        check = next(c for c in answer.checks if c.key == key)
        text = f"{value:g}" if isinstance(value, (int, float)) and abs(value) < 1e300 else value
        return isinstance(text, str) and text.casefold() in map(str.casefold, check.values)
    if isinstance(answer, NumberAnswer):
        return type(value) in (int, float) and answer.low <= value <= answer.high and value == int(value)
    return False


def without_a_key(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    del good[rng.choice(keys(answer))]
    return json.dumps(good)


def with_a_misspelt_key(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    key = rng.choice(keys(answer))
    good[rng.choice([key.upper(), key + "s", f" {key}", key[:-1]])] = good.pop(key)
    return json.dumps(good)


def with_a_wrong_value(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    key = rng.choice(keys(answer))
    good[key] = wrong_value(answer, key, rng)
    return json.dumps(good)


def cut_off(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    text = json.dumps(good)
    return text[: rng.randrange(1, len(text))]


def with_a_key_twice(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    key = rng.choice(keys(answer))
    return json.dumps(good)[:-1] + f", {json.dumps(key)}: {json.dumps(good[key])}}}"


def in_other_quotes(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return json.dumps(good).replace('"', rng.choice(["'", "“", "”", "`"]))


def with_something_broken_behind(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return json.dumps(good) + rng.choice(["\nOr rather {", '\n{"score": ', "\n{score: 3}", "\n```json\n{"])


def wrapped(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return json.dumps({rng.choice(["result", "answer_", "json"]): good})


def nested(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return "{" * rng.randrange(50, 3000) + json.dumps(good) + rng.choice(["", "}"])


def deep(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return '{"reason": ' + "[" * 100_000


def in_prose(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    key = rng.choice(keys(answer))
    return f"I would say {key} is {good[key]}. Score: {rng.randrange(1, 11)}/10, {key}: {good[key]}"


def in_a_thought(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return f"<Start Thinking>{json.dumps(good)}</Start Thinking>" + rng.choice(["", "Done.", "{}"])


def with_two_commas(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return json.dumps(good)[:-1] + ",,}"


def with_a_comment(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return json.dumps(good)[:-1] + " // sure\n}"


def changed_of_mind(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    return json.dumps(good) + "\nNo, wait: " + json.dumps({"reason": "second thoughts"})


def noise(good: dict[str, Any], answer: Answer, rng: random.Random) -> str:
    """Return a good reply with one of its structural characters knocked out."""
    text = json.dumps(good)
    places = [i for i, c in enumerate(text) if c in '{}":,']
    place = rng.choice(places)
    return text[:place] + rng.choice("~\x00 ;") + text[place + 1 :]


BREAKERS: list[Callable[[dict[str, Any], Answer, random.Random], str]] = [
    without_a_key,
    with_a_misspelt_key,
    with_a_wrong_value,
    with_a_wrong_value,
    with_a_wrong_value,
    cut_off,
    cut_off,
    with_a_key_twice,
    in_other_quotes,
    with_something_broken_behind,
    wrapped,
    in_prose,
    in_a_thought,
    with_two_commas,
    with_a_comment,
    changed_of_mind,
    noise,
]


@pytest.mark.long
def test_ten_thousand_broken_replies_and_none_becomes_a_score() -> None:
    rng = random.Random(7)
    for number in range(10_000):
        answer = rng.choice(ANSWERS)
        breaker = rng.choice(BREAKERS) if number % 500 else rng.choice([nested, deep])
        text = breaker(json.loads(good_reply(answer)), answer, rng)
        if rng.random() < 0.3:
            text = rng.choice(["Let me see.\n", "```json\n", "{ } "]) + text + rng.choice(["\n```", "", " "])
        reading = parse_reply(text, answer)
        assert reading.answer is None, (breaker.__name__, text, reading.answer)
        assert reading.problem, (breaker.__name__, text)
        assert reading.problem[0].isupper() or reading.problem.startswith('"')


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: a.kind)
def test_a_good_reply_is_read_fenced_or_not_and_behind_prose(answer: Answer) -> None:
    good = good_reply(answer)
    for text in (
        good,
        f"```json\n{good}\n```",
        f"The hat is on.\n\n{good}",
        f"<Start Thinking>Let me see {{}}.</Start Thinking>\n{good}",
        f'The crop {{"bbox": [1, 2]}} shows it: {good}',
        json.dumps(json.loads(good), indent=2),
    ):
        reading = parse_reply(text, answer)
        assert reading.problem is None, text
        assert reading.answer is not None
        assert reading.answer.score_100 == 100


def test_a_number_close_to_an_allowed_one_is_not_rounded_to_it() -> None:
    answer = next(a for a in CHECKS if a.checks[0].key == "direction")
    good = json.loads(good_reply(answer))
    for value, known in ((1, True), (1.0, True), (0.5, True), ("0.5", True), (0.9999999, False), (0.49999999, False)):
        reading = parse_reply(json.dumps({**good, "direction": value}), answer)
        assert (reading.answer is not None) is known, value


def test_numbers_as_text_and_truth_values_are_read_in_checks() -> None:
    answer = next(a for a in CHECKS if a.checks[0].key == "direction")
    good = json.loads(good_reply(answer))
    for value, chosen in (("1.", "1"), ("1.0", "1"), ("0.50", "0.5"), ("0.75", None), (True, None), ("1.0.", None)):
        reading = parse_reply(json.dumps({**good, "direction": value}), answer).answer
        assert (reading.values["direction"] if reading else None) == chosen, value
    flag = ChecksAnswer(checks=(Check(key="turned", question="Was it turned?", values={"yes": 1.0, "no": 0.0}),))
    for form in (flag, YesNoAnswer(key="turned")):
        for value, score in ((True, 1.0), (False, 0.0), (1, None), ("true", None), (None, None)):
            given = parse_reply(json.dumps({"reason": "x", "turned": value}), form).answer
            assert (given.score if given else None) == score, (form.kind, value)


def test_objects_that_differ_are_told_and_the_same_decision_twice_is_read() -> None:
    answer = NumberAnswer(low=1, high=5)
    twice = parse_reply('{"reason": "a", "score": 2}\n{"reason": "b", "score": 4}', answer)
    assert twice.answer is None
    assert "differ" in str(twice.problem)
    same = parse_reply('{"reason": "a", "score": 4}\nIn short:\n{"reason": "b", "score": 4}', answer).answer
    assert same is not None
    assert (same.score, same.reason) == (4, "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"reason": "x"}', 'no "score"'),
        ('{"reason": "x", "score": "four"}', "whole number from 1 to 5"),
        ('{"reason": "x", "score": "4/5"}', 'not "4/5"'),
        ('{"reason": "x", "score": 6}', "not 6"),
        ('{"reason": "x", "score": "6"}', 'not "6"'),
        ('{"reason": "x", "score": 3.5}', "not 3.5"),
        ('{"reason": "x", "score": "3.5"}', 'not "3.5"'),
        ("Rated 4/5 because the order is carried out.", "does not end in a valid JSON object"),
        ('{"reason": 3, "score": 3}', '"reason" must be a string'),
        ("no object", "does not end in a valid JSON object"),
    ],
)
def test_the_model_is_told_exactly_what_is_wrong(text: str, words: str) -> None:
    assert words in str(parse_reply(text, NumberAnswer(low=1, high=5)).problem)


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "x", "score": "4"}',
        '{"reason": "x", "score": " 4\\n"}',
        '{"reason": "x", "score": "4."}',
        '{"reason": "x", "score": "4.0"}',
        '{"reason": "x", "score": 4.}',
        '{"score": 4. , "reason": "7., {5.}"}',
        '{"reason": "x", "score": 4,}',
        '{"reason": "x,}", "detail": {"a": [1., 2.,],}, "score": 4.,\n}',
        'It shows 3 cups, so:\n```json\n{"reason": "x", "score": 4.}\n```',
    ],
)
def test_a_number_that_is_clearly_given_is_read(text: str) -> None:
    answer = parse_reply(text, NumberAnswer(low=1, high=5)).answer
    assert answer is not None
    assert answer.score == 4


@pytest.mark.parametrize("value", ["0.5", '"0.5"', "2", "1.5", "-0.5"])
def test_an_item_of_0_or_1_has_no_half(value: str) -> None:
    answer = ChecksAnswer(checks=(Check(key="hit", question="?"),))
    reading = parse_reply(f'{{"hit": {value}}}', answer)
    assert reading.answer is None
    assert '"hit" must be one of 0, 1' in str(reading.problem)
    point = parse_reply('{"hit": 1.}', answer).answer
    assert point is not None
    assert point.score == 1


@pytest.mark.parametrize(
    "slip", ['{"score": 4.5.}', '{"score": .4}', '{"score": 4..}', '{,"score": 4}', '{"score": 4.e1}']
)
def test_a_slip_that_leaves_the_number_open_is_not_mended(slip: str) -> None:
    assert parse_reply(slip, NumberAnswer(low=1, high=5)).answer is None


def test_a_schema_allows_what_the_reader_reads_and_nothing_else() -> None:
    for answer in [*ANSWERS, TextAnswer(key="differences")]:
        schema = build_answer_schema(answer)
        assert schema is not None
        good = json.loads(good_reply(answer))
        assert set(good) == set(schema["required"]) == set(schema["properties"])
        assert schema["additionalProperties"] is False
    assert all(build_answer_schema(r.answer) is None for r in PROTOCOLS[0].rubrics)
