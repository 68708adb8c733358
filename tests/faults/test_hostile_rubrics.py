"""Whatever a rubric file says: a rubric every answer of which has a finite score, or one sentence when it is loaded."""

from __future__ import annotations

import itertools
import math
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from editloupe.rubrics import formula
from editloupe.rubrics.model import ChecksAnswer, LabelAnswer, NumberAnswer, find_range
from editloupe.rubrics.user_rubrics import with_files
from editloupe.types import UserError

LABELS = "name: fit\nquestion: Does it fit?\nanswer:\n  kind: label\n  labels:\n"
TWO = f"{LABELS}    - {{name: a, score: 1, meaning: x}}\n    - {{name: b, meaning: x, score: "
CHECKS = "name: fit\nquestion: Does it fit?\nanswer:\n  kind: checks\n"


def load(folder: Path, text: str | bytes) -> Any:
    file = folder / "rubric.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    (rubric,) = with_files(None, [file]).rubrics
    return rubric.answer


@pytest.mark.parametrize(
    "words", [("Yes", "No"), ("on", "off"), ("yes", "no"), ("y", "n"), ("2024-01-01", "1:30"), ("1", "2")]
)
def test_labels_stay_the_words_they_are(words: tuple[str, str], tmp_path: Path) -> None:
    answer = load(tmp_path, f"{LABELS}    {words[0]}: the worse one\n    {words[1]}: the better one\n")
    assert [label.name for label in answer.labels] == list(words)
    listed = "".join(f"    - {{name: {word!r}, score: {n}, meaning: x}}\n" for n, word in enumerate(words))
    assert [label.name for label in load(tmp_path, LABELS + listed).labels] == list(words)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{LABELS}    true: a\n    false: b\n", "true is not a text in YAML; write the label in quotes"),
        (f"{LABELS}    ~: a\n    b: b\n", "is not a text in YAML"),
        (
            f"{LABELS}    - {{name: true, score: 1, meaning: x}}\n    - {{name: b, score: 2, meaning: x}}\n",
            "write it in quotes",
        ),
        (f"{LABELS}    good: a\n    Good: b\n", 'the labels "good" and "Good" are read as the same word'),
        (f"{LABELS}    very  good: a\n    Very good: b\n", "read as the same word"),
        (f"{LABELS}    Wow!: a\n    b: b\n", "without marks around it"),
        (f"{LABELS}    a<b: a\n    b: b\n", "without < or >"),
        (f"{LABELS}    ' ': a\n    b: b\n", "has no name"),
        (f"{LABELS}    a: a\n    a: b\n", '"a" is listed twice'),
        (
            f"{LABELS}    - {{name: a, score: 1, meaning: x}}\n    - {{name: b, score: 1, meaning: x}}\n",
            "all labels have the same score",
        ),
        (
            TWO + f"1{'0' * 15}}}",
            "less than or equal to 1000000",
        ),
        ("name: fit\nquestion: x\nanswer: {kind: number, low: 3, high: 3}\n", "must exceed the lowest"),
        ("name: fit\nquestion: x\nanswer: {kind: number, low: 0, high: 999999999}\n", "less than or equal to 1000000"),
        (
            "name: fit\nquestion: x\nanswer: {kind: number, low: 1, high: 3, bands: {1-2: a, 2-3: b}}\n",
            "must cover every number",
        ),
        (
            "name: fit\nquestion: x\nanswer: {kind: number, low: 1, high: 3, bands: {3-1: a}}\n",
            "must cover every number",
        ),
        (f"{CHECKS}  checks: {{a: x}}\n  score: 1 / a\n", "no finite value if a = 0"),
        (f"{CHECKS}  checks: {{a: x}}\n  score: a ** (0 - 1)\n", "no finite value if a = 0"),
        (f"{CHECKS}  checks: {{a: x}}\n  score: sqrt(a - 1)\n", "no finite value if a = 0"),
        (f"{CHECKS}  checks: {{a: x, b: x}}\n  score: 1 / (a - b)\n", "no finite value if a = 0, b = 0"),
        (f"{CHECKS}  checks: {{a: x}}\n  score: {' * '.join(['1e99'] * 5)} * a\n", "no finite value"),
        (f"{CHECKS}  checks: {{a: x}}\n  score: 1e400 * a\n", "a number beyond"),
        (f"{CHECKS}  checks: {{a: x}}\n  score: 1{'0' * 400} * a\n", "a number beyond"),
        (
            f"{CHECKS}  checks: {{a: x}}\n  score: {' + '.join(['a'] * 9000)}\n",
            "at most 20000 characters|is not a formula",
        ),
        (f"{CHECKS}  checks: {{a: x}}\n  score: {'(' * 300}a{')' * 300}\n", "is not a formula"),
        (f"{CHECKS}  checks: {{a: x}}\n  score: a.__class__\n", "may contain only names"),
        (f"{CHECKS}  checks:\n    - {{key: a, question: x, values: {{'0': .inf}}}}\n", "use a number up to"),
        (
            f"{CHECKS}  checks:\n    - {{key: a, question: x, values: {{'yes': 0, 'Yes': 1}}}}\n",
            "read as the same word",
        ),
        (f"{CHECKS}  checks:\n    - {{key: a, question: x, values: {{}}}}\n", "has no answers"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ("[" * 100_000, "nested too deeply"),
        ("- " * 50_000, "nested too deeply"),
        ("a: &a [*a]", "aliases counted as often as they are used"),
        (
            "a0: &a0 [x, x]\n" + "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)),
            "aliases",
        ),
        ("!!python/object/apply:os.system [id]", "is not valid YAML"),
        ("x" * 400_000, "larger than the limit"),
        ("", "must contain fields"),
        ("just words", "must contain fields"),
    ],
)
def test_a_rubric_that_cannot_be_used_is_told_when_it_is_loaded(
    text: str | bytes, sentence: str, tmp_path: Path
) -> None:
    started = time.monotonic()
    with pytest.raises(UserError, match=sentence) as told:
        load(tmp_path, text)
    assert "\n" not in str(told.value)
    assert time.monotonic() - started < 8


@pytest.mark.parametrize(
    "score",
    [
        "",
        "sqrt(a * b)",
        "mean(a, b) / (1 + c)",
        "1 / max(a, 0.5)",
        "cbrt(a - b)",
        "a ** b",
        "1 / (2 - a)",
        "min(a, b, c) ** 0.5",
    ],
)
def test_formulas_that_always_have_a_value_are_taken(score: str, tmp_path: Path) -> None:
    text = f"{CHECKS}  checks: {{a: x, b: x, c: x}}\n" + (f"  score: {score}\n" if score else "")
    assert isinstance(load(tmp_path, text), ChecksAnswer)


def test_a_formula_over_many_checks_is_shown_by_its_bounds_without_trying_all_answers(tmp_path: Path) -> None:
    checks = ", ".join(f"c{i}: x" for i in range(60))
    names = ", ".join(f"c{i}" for i in range(60))
    started = time.monotonic()
    assert load(tmp_path, f"{CHECKS}  checks: {{{checks}}}\n  score: sqrt(mean({names}))\n")
    with pytest.raises(UserError, match="cannot be shown to have a finite value"):
        load(tmp_path, f"{CHECKS}  checks: {{{checks}}}\n  score: 1 / mean({names})\n")
    assert time.monotonic() - started < 5


@pytest.mark.timeout(20)
def test_a_pipe_for_a_rubric_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rubric.yaml")
    with pytest.raises(UserError, match="a pipe, not a file"):
        with_files(None, [tmp_path / "rubric.yaml"])


NAMES = ("a", "b", "c")
VALUES = st.sampled_from([0.0, 1.0, 0.5, -1.0, 2.0, 1e9, 1e-9, None])
LEAVES = st.sampled_from([*NAMES, "0", "1", "2", "0.5", "1e9", "10"])


def _deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "**"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    one = st.tuples(st.sampled_from(["sqrt", "cbrt"]), inner).map(lambda t: f"{t[0]}({t[1]})")
    many = st.tuples(st.sampled_from(["mean", "min", "max", "product"]), st.lists(inner, min_size=1, max_size=3))
    return two | one | many.map(lambda t: f"{t[0]}({', '.join(t[1])})")


@pytest.mark.long
@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.recursive(LEAVES, _deeper, max_leaves=8),
    st.lists(st.lists(VALUES, min_size=1, max_size=3), min_size=3, max_size=3),
)
def test_a_formula_that_is_let_through_has_a_finite_value_for_all_answers(
    text: str, values: list[list[float | None]]
) -> None:
    possible = dict(zip(NAMES, values, strict=True))
    tree = formula.parse(text, NAMES)
    bounds = find_range(tree, possible)
    found = [formula.evaluate_tree(tree, dict(zip(NAMES, one, strict=True))) for one in itertools.product(*values)]
    known = [value for value in found if value is not None]
    if bounds is not None:
        assert all(math.isfinite(value) and bounds.low <= value <= bounds.high for value in known), (bounds, found)
    checks = [
        {"key": k, "question": "x", "values": {str(i): v for i, v in enumerate(vs)}} for k, vs in possible.items()
    ]
    try:
        answer = ChecksAnswer.model_validate({"checks": checks, "score": text})
    except ValueError:
        assert not all(map(math.isfinite, known))
    else:
        for given_answers in itertools.product(*(map(str, range(len(vs))) for vs in values)):
            total = answer.total(dict(zip(NAMES, given_answers, strict=True)))
            assert total is None or math.isfinite(total)


def _value(rng: random.Random, depth: int = 0) -> Any:
    simple = (
        "",
        "a",
        "Yes",
        "half \ud83d",
        "1-2",
        "x" * 300,
        0,
        1,
        -5,
        10**30,
        1.5,
        float("inf"),
        float("nan"),
        None,
        True,
    )
    if depth > 2 or rng.random() < 0.6:
        return rng.choice(simple)
    if rng.random() < 0.5:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {
        rng.choice(("a", "b", "Yes", 1, True, None, "labels", "key")): _value(rng, depth + 1)
        for _ in range(rng.randrange(4))
    }


FIELDS = (
    *("name", "question", "pictures", "steps", "notes", "tells", "answer", "examples"),
    *("labels", "low", "high", "bands", "checks", "score", "key"),
)
BASES: tuple[dict[str, Any], ...] = (
    {"kind": "label", "labels": {"Bad": "x", "Good": "y"}},
    {
        "kind": "label",
        "labels": [{"name": "Bad", "score": 1, "meaning": "x"}, {"name": "Good", "score": 2, "meaning": "y"}],
    },
    {"kind": "number", "low": 1, "high": 5, "bands": {"1-3": "bad: x", "4-5": "good: y"}},
    {"kind": "checks", "checks": {"a": "x?", "b": "y?"}, "score": "mean(a, b)"},
    {
        "kind": "checks",
        "checks": [{"key": "a", "question": "x", "values": {"0": 0, "1": 1, "n": None}}],
        "score": "a / 2",
    },
    {"kind": "yes_no"},
    {"kind": "text"},
)


@pytest.mark.long
@pytest.mark.parametrize("count", [200, pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_hostile_rubric_is_loaded_or_told_in_one_sentence(count: int, tmp_path: Path) -> None:
    loaded = refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        content: dict[str, Any] = {"name": "fit", "question": "Does it fit?", "answer": dict(rng.choice(BASES))}
        for _ in range(rng.choice((0, 1, 1, 2))):
            place = rng.choice((content, content["answer"])) if isinstance(content["answer"], dict) else content
            place[
                rng.choice(
                    (
                        "name",
                        "question",
                        "pictures",
                        "steps",
                        "notes",
                        "tells",
                        "answer",
                        "labels",
                        "low",
                        "high",
                        "bands",
                        "checks",
                        "score",
                        "key",
                        "examples",
                    )
                )
            ] = _value(rng)
        data = yaml.safe_dump(content, allow_unicode=True).encode("utf-8", "surrogatepass")
        if rng.random() < 0.3:
            changed = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] = rng.choice(b"\x00\xff:-[]{}&*!|>'\"%@`\n\t #,?a")
            data = bytes(changed)
        try:
            answer = load(tmp_path, data)
        except UserError as error:
            refused += "\n" not in str(error)
            continue
        loaded += 1
        if isinstance(answer, LabelAnswer):
            assert all(0 <= answer.score_100(label.name) <= 100 for label in answer.labels)
        elif isinstance(answer, NumberAnswer):
            assert answer.score_100(answer.high) == 100
    assert loaded + refused == count
    assert min(loaded, refused) > count * 0.1
