"""Formulas in text: what they compute, what they refuse."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.rubrics.formula import FormulaError, evaluate, list_names, parse

SHARE = st.floats(0, 1)


@pytest.mark.parametrize(
    ("formula", "values", "result"),
    [
        ("a", {"a": 0.25}, 0.25),
        ("mean(a, b, c)", {"a": 1.0, "b": 0.0, "c": 0.5}, 0.5),
        ("mean(a, b)", {"a": 1.0, "b": None}, 1.0),
        ("mean(a, b)", {"a": None, "b": None}, None),
        ("sqrt(mean(a, b) * c)", {"a": 1.0, "b": 0.0, "c": 1.0}, math.sqrt(0.5)),
        ("cbrt(a * b * c)", {"a": 1.0, "b": 0.5, "c": 0.25}, 0.5),
        ("min(a, b) + 2 * max(a, b) - 1", {"a": 0.5, "b": 1.0}, 1.5),
        ("product(a, b) / 4 ** 0.5", {"a": 2.0, "b": 3.0}, 3.0),
        ("a * b", {"a": 0.0, "b": None}, None),
    ],
)
def test_formulas_compute_what_they_say(formula: str, values: dict[str, float | None], result: float | None) -> None:
    assert evaluate(formula, values) == (None if result is None else pytest.approx(result))


@pytest.mark.parametrize(
    "formula",
    [
        "",
        "a +",
        "b",
        "open('x')",
        "a.real",
        "a if a else 1",
        "[a]",
        "lambda: a",
        "a < 1",
        "sqrt(a, a)",
        "mean()",
        "'a'",
    ],
)
def test_anything_but_arithmetic_on_known_names_is_refused(formula: str) -> None:
    with pytest.raises(FormulaError):
        parse(formula, ["a"])


def test_a_formula_without_a_finite_value_is_an_error_and_no_score() -> None:
    with pytest.raises(FormulaError, match="no finite value"):
        evaluate("a / b", {"a": 1.0, "b": 0.0})
    with pytest.raises(FormulaError):
        evaluate("sqrt(a - 1)", {"a": 0.5})


def test_names_are_listed_in_the_order_they_occur() -> None:
    assert list_names("sqrt(mean(path, collision) * context)") == ("path", "collision", "context")


@given(SHARE, SHARE, SHARE)
def test_a_geometric_mean_stays_between_its_least_and_its_greatest(a: float, b: float, c: float) -> None:
    value = evaluate("cbrt(a * b * c)", {"a": a, "b": b, "c": c})
    assert value is not None
    assert min(a, b, c) - 1e-9 <= value <= max(a, b, c) + 1e-9
