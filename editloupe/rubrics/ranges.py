"""Whether a formula has a finite value whatever is answered: shown by intervals, else by trying every answer."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from editloupe.rubrics.formula import FUNCTIONS, OPERATORS, Value

HIGHEST_POWER = 10.0
ROUNDING = 1e-12
"""How far a mean of equal values may lie beside them."""


class Range(NamedTuple):
    """The lowest and the highest value something takes where it applies; values in between may not occur."""

    low: float
    high: float


def range_of(tree: ast.expr, given: Mapping[str, Sequence[Value]]) -> Range | None:
    """Return bounds of a checked formula's value over all values its names may take; None where none can be shown.

    Every operation is monotone in each of its values within the bounds, and so is rounding: the ends decide.

    >>> range_of(ast.parse("mean(a, b) / (1 + a)", mode="eval").body, {"a": [0.0, 1.0], "b": [None, 2.0]})
    Range(low=0.0, high=2.000000000002)
    >>> range_of(ast.parse("1 / a", mode="eval").body, {"a": [0.0, 1.0]})
    """
    try:
        found = _range(tree, given)
    except (ArithmeticError, RecursionError):
        return None
    return found if found and all(map(math.isfinite, found)) else None


def _range(node: ast.expr, given: Mapping[str, Sequence[Value]]) -> Range | None:
    if isinstance(node, ast.Constant):
        value = float(node.value)  # type: ignore[arg-type]
        return Range(value, value)
    if isinstance(node, ast.Name):
        known = [value for value in given[node.id] if value is not None]
        return Range(min(known, default=0.0), max(known, default=0.0))
    if isinstance(node, ast.BinOp):
        left, right = _range(node.left, given), _range(node.right, given)
        return _operation(node.op, left, right) if left and right else None
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    parts = [_range(argument, given) for argument in node.args]
    inner = [part for part in parts if part]
    return _function(node.func.id, inner) if len(inner) == len(parts) else None


def _operation(operator: ast.operator, left: Range, right: Range) -> Range | None:
    if isinstance(operator, ast.Div) and right.low <= 0 <= right.high:
        return None
    if isinstance(operator, ast.Pow) and (
        left.low < 0 or (left.low == 0 and right.low < 0) or max(map(abs, right)) > HIGHEST_POWER
    ):
        return None
    return _ends([OPERATORS[type(operator)](a, b) for a in left for b in right])


def _function(name: str, inner: Sequence[Range]) -> Range | None:
    lows, highs = [part.low for part in inner], [part.high for part in inner]
    if name == "mean":
        # Any of the values may not apply; a mean of the others lies between the lowest and the highest, but for rounding.
        low, high = min(lows), max(highs)
        sums = sum(map(abs, lows)) + sum(map(abs, highs))
        return _ends([low - ROUNDING * abs(low), high + ROUNDING * abs(high)]) if math.isfinite(sums) else None
    if name == "product":
        ends = inner[0]
        for part in inner[1:]:
            ends = _ends([a * b for a in ends for b in part]) or Range(math.nan, math.nan)
        return _ends(list(ends))
    if name == "sqrt" and lows[0] < 0:
        return None
    return _ends([FUNCTIONS[name](lows), FUNCTIONS[name](highs)])


def _ends(values: Sequence[float]) -> Range | None:
    return Range(min(values), max(values)) if all(map(math.isfinite, values)) else None
