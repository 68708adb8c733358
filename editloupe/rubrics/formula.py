"""Evaluation of the formulas that rubrics and protocols state as text.

A value may be None if it does not apply. `mean` leaves such values out; the result of any other operation on them is None.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

Value = float | None

OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b if b else math.nan,
    ast.Pow: lambda a, b: float(a**b) if a >= 0 and abs(b) <= 10 and (a or b >= 0) else math.nan,
}
FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "product": math.prod,
    "sqrt": lambda values: math.sqrt(values[0]) if values[0] >= 0 else math.nan,
    "cbrt": lambda values: math.cbrt(values[0]),
}
ONE_ARGUMENT = ("sqrt", "cbrt")
LONGEST = 20_000
LARGEST = 1e100
"""Largest number in a formula, so that results do not overflow."""


class FormulaError(ValueError):
    """A formula is invalid or has no finite value."""


def evaluate(formula: str, values: Mapping[str, Value]) -> Value:
    """Evaluate a formula. The result is None if it depends on a value that does not apply.

    Raises:
        FormulaError: If the formula is invalid or its value is not finite.

    >>> evaluate("sqrt(mean(a, b) * c)", {"a": 1.0, "b": 0.0, "c": 0.5})
    0.5
    >>> evaluate("mean(a, b)", {"a": 1.0, "b": None})
    1.0
    """
    result = evaluate_tree(parse(formula, values), values)
    if result is not None and not math.isfinite(result):
        raise FormulaError(f'the formula "{formula}" has no finite value for {dict(values)}')
    return result


def evaluate_tree(tree: ast.expr, values: Mapping[str, Value]) -> Value:
    """Evaluate a checked expression. The result is infinite or NaN if it has no finite value."""
    try:
        return _evaluate(tree, values)
    except OverflowError:
        return math.inf


def parse(formula: str, names: Iterable[str]) -> ast.expr:
    """Parse and check a formula over some names; raise FormulaError if it is invalid."""
    if len(formula) > LONGEST:
        raise FormulaError(f"a formula has at most {LONGEST} characters, not {len(formula)}")
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
        _check(tree, formula, tuple(names))
    except FormulaError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f'"{formula}" is not a formula; write for instance mean(a, b) * c') from None
    return tree


def list_names(formula: str) -> tuple[str, ...]:
    """Return the names in a formula, in order of first occurrence.

    >>> list_names("cbrt(a * b * mean(c, a))")
    ('a', 'b', 'c')
    """
    tree = ast.parse(formula.strip(), mode="eval")
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in (*FUNCTIONS, "mean")]
    return tuple(dict.fromkeys(node.id for node in sorted(nodes, key=lambda node: node.col_offset)))


def _check(node: ast.expr, formula: str, names: Sequence[str]) -> None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        if abs(node.value) > LARGEST:
            raise FormulaError(f'the formula "{formula}" has a number beyond {LARGEST:g}')
        return
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise FormulaError(
                f'the formula "{formula}" uses the unknown name {node.id}; there are: {", ".join(names)}'
            )
        return
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        _check(node.left, formula, names)
        _check(node.right, formula, names)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords and node.args:
        name = node.func.id
        if name != "mean" and name not in FUNCTIONS:
            raise FormulaError(
                f'the formula "{formula}" uses the unknown function {name}; there are: mean, {", ".join(FUNCTIONS)}'
            )
        if name in ONE_ARGUMENT and len(node.args) > 1:
            raise FormulaError(f'in the formula "{formula}", {name} takes one value')
        for argument in node.args:
            _check(argument, formula, names)
        return
    raise FormulaError(
        f'the formula "{formula}" may contain only names, numbers, + - * / ** and mean, {", ".join(FUNCTIONS)}'
    )


def _evaluate(node: ast.expr, values: Mapping[str, Value]) -> Value:
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, values), _evaluate(node.right, values)
        return None if left is None or right is None else OPERATORS[type(node.op)](left, right)
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    arguments = [_evaluate(argument, values) for argument in node.args]
    applicable = [value for value in arguments if value is not None]
    if node.func.id == "mean":
        return sum(applicable) / len(applicable) if applicable else None
    return FUNCTIONS[node.func.id](applicable) if len(applicable) == len(arguments) else None
