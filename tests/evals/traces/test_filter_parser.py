"""The language of filters: what it takes, and that every mistake is one sentence with its place."""

from __future__ import annotations

import pytest

from editloupe.evals.traces.filter_parser import Comparison, ExpressionError, Joined, Not, parse
from editloupe.evals.traces.filter_sql import EXAMPLES, FIELDS, FilterNames, translate_filter

KNOWN = FilterNames({"style", "language"}, {"zoom_in_image"})


def test_or_binds_less_than_and_and_both_less_than_not() -> None:
    tree = parse('not score = 1 and turns > 2 or label = "x"')
    assert isinstance(tree, Joined)
    assert tree.word == "or"
    both, last = tree.parts
    assert isinstance(both, Joined)
    assert isinstance(both.parts[0], Not)
    assert isinstance(last, Comparison)


def test_an_empty_filter_asks_for_nothing() -> None:
    assert parse("  ") is None
    assert translate_filter(None, FilterNames()).sql == "1"


@pytest.mark.parametrize("text", [text for text, _ in EXAMPLES])
def test_every_example_is_understood(text: str) -> None:
    assert translate_filter(parse(text), KNOWN).sql


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_can_be_asked_for(name: str) -> None:
    assert FIELDS[name].sql in translate_filter(parse(f"{name} is not null"), FilterNames()).sql


@pytest.mark.parametrize(
    ("text", "place", "sentence"),
    [
        ('lable = "x"', 1, 'there is no field "lable"; did you mean label?'),
        ("label = Flawless", 9, "texts must be quoted"),
        ("stile = 1", 1, "did you mean style?"),
        ('column("stile") = 1', 1, "did you mean style?"),
        ("label = ", 9, "a value is missing before the end"),
        ('label = "x" or', 15, "a condition is missing before the end"),
        ("label in ()", 11, "a value is missing before `)`"),
        ("label = Over", 9, "texts must be quoted"),
        ("column() = 1", 1, 'column(…) needs the name of a column: column("style")'),
        ('column("label") = 1', 1, "the manifest has no column 'label'"),
        ('failed() = "x"', 10, 'failed() is a number and "x" is a text'),
        ("label", 1, "label alone is not a condition"),
        ("and label = 1", 1, "a condition is missing before `and`"),
        ('label = "x" label', 13, "`and` or `or` joins conditions"),
        ('label = "x")', 12, "one parenthesis too many"),
        ('(label = "x"', 13, "`)` is missing for the parenthesis at 1"),
        ('label = "x', 9, "has no end"),
        ("label = “x”", 9, "not a quotation mark of the filter language"),
        ("score = 1 && turns = 2", 11, "write `and` or `or`"),
        ("score = 1 = 2", 11, "a comparison has two sides"),
        ("score = null", 9, "write `is null`"),
        ("score is 3", 10, "`is` goes with null"),
        ('label in "x"', 10, "followed by a list"),
        ("label in (score)", 11, "a list holds texts in quotes and numbers"),
        ('label in ("x" "y")', 15, "`,` or `)` is missing"),
        ('score = "3"', 7, 'score is a number and "3" is a text'),
        ("label in (1, 2)", 7, "cannot be compared"),
        ('label < "x"', 7, "texts are compared with =, != and ~"),
        ("score ~ 3", 7, "looks for a text in a text"),
        ('said("x") = 1', 1, "said(…) is itself a condition"),
        ('said("?!")', 1, "needs a word to look for"),
        ("said(x)", 6, "takes one text in quotes"),
        ('sayd("x")', 1, "did you mean said(…)?"),
        ("tool = 0", 1, 'tool is a function: tool("…")'),
        ('tool("zoom_in_imge") = 0', 1, "did you mean zoom_in_image?"),
        ("agrees > true", 8, "compared with = and !="),
        ("(" * 60 + "score = 1" + ")" * 60, 51, "more than 50 parentheses"),
        (" or ".join(["score = 1"] * 300), None, "more than 200 conditions"),
        ("x" * 6000, 5001, "5000 are the most"),
        ('label = "\udcff"', 10, "not valid in UTF-8"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(text: str, place: int | None, sentence: str) -> None:
    with pytest.raises(ExpressionError) as told:
        translate_filter(parse(text), KNOWN)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)
    if place is not None:
        assert f"at character {place}:" in str(told.value)
        assert told.value.position == place - 1


def test_what_a_user_types_is_never_part_of_the_sql() -> None:
    nasty = "x' OR 1=1; DROP TABLE verdicts; --"
    asked = translate_filter(
        parse(f'label = "{nasty}" or said("{nasty}") or tool("zoom_in_image") = 1 or style ~ "{nasty}"'), KNOWN
    )
    assert "DROP" not in asked.sql
    assert nasty in asked.values
