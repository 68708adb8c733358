"""What a rubric is: a question in ordered checks, the pictures it is asked about, and the kind of answer it takes.

The five answer kinds carry every protocol: labels, numbers on a scale, sets of binary or graded checks with gates, yes/no and
read-out text.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from editloupe.rubrics import formula
from editloupe.rubrics.formula import FUNCTIONS, OPERATORS, Value
from editloupe.rubrics.wording import Wording
from editloupe.types import Mode, Record

HIGHEST_POWER = 10.0
ROUNDING = 1e-12
"""How far a mean of equal values may lie beside them."""


class Range(NamedTuple):
    """The lowest and the highest value something takes where it applies; values in between may not occur."""

    low: float
    high: float


def find_range(tree: ast.expr, given: Mapping[str, Sequence[Value]]) -> Range | None:
    """Return bounds of a checked formula's value over all values its names may take; None where none can be shown.

    Every operation is monotone in each of its values within the bounds, and so is rounding: the ends decide.

    >>> range_of(ast.parse("mean(a, b) / (1 + a)", mode="eval").body, {"a": [0.0, 1.0], "b": [None, 2.0]})
    Range(low=0.0, high=2.000000000002)
    >>> range_of(ast.parse("1 / a", mode="eval").body, {"a": [0.0, 1.0]})
    """
    try:
        found = _find_range(tree, given)
    except (ArithmeticError, RecursionError):
        return None
    return found if found and all(map(math.isfinite, found)) else None


def _find_range(node: ast.expr, given: Mapping[str, Sequence[Value]]) -> Range | None:
    if isinstance(node, ast.Constant):
        value = float(node.value)  # type: ignore[arg-type]
        return Range(value, value)
    if isinstance(node, ast.Name):
        known = [value for value in given[node.id] if value is not None]
        return Range(min(known, default=0.0), max(known, default=0.0))
    if isinstance(node, ast.BinOp):
        left, right = _find_range(node.left, given), _find_range(node.right, given)
        return _range_of_operation(node.op, left, right) if left and right else None
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    parts = [_find_range(argument, given) for argument in node.args]
    inner = [part for part in parts if part]
    return _range_of_function(node.func.id, inner) if len(inner) == len(parts) else None


def _range_of_operation(operator: ast.operator, left: Range, right: Range) -> Range | None:
    if isinstance(operator, ast.Div) and right.low <= 0 <= right.high:
        return None
    if isinstance(operator, ast.Pow) and (
        left.low < 0 or (left.low == 0 and right.low < 0) or max(map(abs, right)) > HIGHEST_POWER
    ):
        return None
    return _finite_range([OPERATORS[type(operator)](a, b) for a in left for b in right])


def _range_of_function(name: str, inner: Sequence[Range]) -> Range | None:
    lows, highs = [part.low for part in inner], [part.high for part in inner]
    if name == "mean":
        # Any of the values may not apply; a mean of the others lies between the lowest and the highest, but for rounding.
        low, high = min(lows), max(highs)
        sums = sum(map(abs, lows)) + sum(map(abs, highs))
        return _finite_range([low - ROUNDING * abs(low), high + ROUNDING * abs(high)]) if math.isfinite(sums) else None
    if name == "product":
        ends = inner[0]
        for part in inner[1:]:
            ends = _finite_range([a * b for a in ends for b in part]) or Range(math.nan, math.nan)
        return _finite_range(list(ends))
    if name == "sqrt" and lows[0] < 0:
        return None
    return _finite_range([FUNCTIONS[name](lows), FUNCTIONS[name](highs)])


def _finite_range(values: Sequence[float]) -> Range | None:
    return Range(min(values), max(values)) if all(map(math.isfinite, values)) else None


Telling = Literal["instruction", "type", "hint"]
"""What of an edit's own text a rubric's question comes with."""
TargetCrop = Literal["adaptive", "each_end", "box"]
"""How much a crop shows round its target: λ(s) of each side in all, half at either end (DLEBench, Equation 1); the same at
either end; or nothing but the annotated box."""


OnScale = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
LISTED = "one difference a line, or the word none"
LARGEST = 1e9
"""What an answer of a check may count."""
MAX_TRIED = 20_000
"""Combinations of answers a formula is tried with where its bounds alone do not show that it has a value."""


class Label(Record):
    """One label of a label rubric, worst first in the list it stands in."""

    name: str
    score: OnScale
    meaning: str
    when: tuple[str, ...] = ()
    """Findings that lead to this label."""


class LabelAnswer(Record):
    """One label out of a set, between final-answer tags."""

    kind: Literal["label"] = "label"
    labels: Annotated[tuple[Label, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _are_told_apart(self) -> LabelAnswer:
        by_word: dict[str, str] = {}
        for label in self.labels:
            word = " ".join(label.name.split()).casefold()
            if not word:
                raise ValueError("a label has no name")
            if word in by_word:
                raise ValueError(f'the labels "{by_word[word]}" and "{label.name}" are read as the same word')
            by_word[word] = label.name
        if len({label.score for label in self.labels}) < 2:
            raise ValueError("all labels have the same score, so that there is no scale from the worst to the best")
        return self

    def score(self, name: str) -> int:
        """Return a label's score."""
        return next(label.score for label in self.labels if label.name == name)

    def score_100(self, name: str) -> float:
        """Return (score − lowest) / (highest − lowest) × 100; for four labels that is (score − 1) / 3 × 100."""
        scores = [label.score for label in self.labels]
        return (self.score(name) - min(scores)) / (max(scores) - min(scores)) * 100

    def worst(self, names: list[str]) -> str:
        """Return the label with the lowest score."""
        return min(names, key=self.score)


class Band(Record):
    """A stretch of a scale and what it takes to be there."""

    low: OnScale
    high: OnScale
    name: str
    meaning: str = ""


class NumberAnswer(Record):
    """A number on a scale, in a JSON object."""

    kind: Literal["number"] = "number"
    low: OnScale
    high: OnScale
    bands: tuple[Band, ...] = ()
    """From the best to the worst; together they cover the scale."""
    key: str = "score"
    reason_key: str | None = "reason"

    @model_validator(mode="after")
    def _is_a_scale(self) -> NumberAnswer:
        if self.high <= self.low:
            raise ValueError(f"the scale {self.low} to {self.high} has no room between its ends")
        stretches = sorted((band.low, band.high) for band in self.bands)
        begin = [self.low, *(high + 1 for _, high in stretches)]
        end = [*(low for low, _ in stretches), self.high + 1]
        if self.bands and (begin != end or any(low > high for low, high in stretches)):
            raise ValueError(f"the bands must cover every number from {self.low} to {self.high} once")
        return self

    def score_100(self, value: float) -> float:
        """Return the value's place on the scale, 0 to 100."""
        return (value - self.low) / (self.high - self.low) * 100


class Check(Record):
    """One item of a check list."""

    key: str
    question: str
    values: Mapping[str, float | None] = Field(default_factory=lambda: {"0": 0.0, "1": 1.0})
    """Allowed answers and what each counts; None means the item is left out (not applicable)."""
    only_if: Mapping[str, str] = Field(default_factory=dict)
    """Gate: the item counts as 0 unless these other items have these answers."""

    @model_validator(mode="after")
    def _answers_are_told_apart(self) -> Check:
        if not self.values:
            raise ValueError(f"check {self.key} has no answers")
        words = [answer.strip().casefold() for answer in self.values]
        if twice := [answer for answer in self.values if words.count(answer.strip().casefold()) > 1]:
            raise ValueError(f'the answers "{twice[0]}" and "{twice[1]}" of {self.key} are read as the same word')
        for answer, value in self.values.items():
            if value is not None and not abs(value) <= LARGEST:
                raise ValueError(f'the answer "{answer}" of {self.key} counts {value}, which is no number to add up')
        return self


class ChecksAnswer(Record):
    """A set of checks, in a JSON object with one key each."""

    kind: Literal["checks"] = "checks"
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    score: str = ""
    """How the items make up the criterion's score, 0 to 1; empty: their mean."""
    none_applies: float | None = Field(default=None, exclude_if=lambda value: value is None)
    """What the criterion scores where none of its items applies; None leaves it without a number."""
    reason_key: str | None = "reason"

    @model_validator(mode="after")
    def _gates_name_checks(self) -> ChecksAnswer:
        keys = [check.key for check in self.checks]
        if len(set(keys)) != len(keys) or self.reason_key in keys:
            raise ValueError("every check needs a key of its own")
        by_key = {check.key: check for check in self.checks}
        for check in self.checks:
            for other, wanted in check.only_if.items():
                if other not in by_key:
                    raise ValueError(f"check {check.key} depends on {other}, which is not in the list")
                if wanted not in by_key[other].values:
                    raise ValueError(f"check {check.key} waits for {other} to be {wanted}, which is no answer of it")
        self._check_formula(formula.parse(self.formula, keys))
        return self

    def _check_formula(self, tree: ast.expr) -> None:
        """Raise where some answers give the formula no finite value; the judge's replies are paid for by then."""
        possible = {c.key: [*c.values.values(), *([0.0] if c.only_if else [])] for c in self.checks}
        if find_range(tree, possible):
            return
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        asked = [c for c in self.checks if c.key in named or any(c.key in other.only_if for other in self.checks)]
        if math.prod(len(c.values) for c in asked) > MAX_TRIED:
            raise ValueError(
                f'the formula "{self.formula}" cannot be shown to have a finite value for all answers; '
                "see that nothing is divided by 0, and no root or power is taken of less than 0"
            )
        others = {c.key: next(iter(c.values)) for c in self.checks}
        for answers in itertools.product(*(c.values for c in asked)):
            value = formula.evaluate_tree(
                tree, self.values({**others, **dict(zip((c.key for c in asked), answers, strict=True))})
            )
            if value is not None and not math.isfinite(value):
                answered = ", ".join(f"{c.key} = {answer}" for c, answer in zip(asked, answers, strict=True))
                raise ValueError(f'the formula "{self.formula}" has no finite value where {answered}') from None

    @property
    def formula(self) -> str:
        """How the items make up the criterion's score."""
        return self.score or f"mean({', '.join(check.key for check in self.checks)})"

    def total(self, answers: Mapping[str, str]) -> float | None:
        """Return the criterion's score, gates applied; None where nothing that applies is left and the rubric does not say."""
        value = formula.evaluate(self.formula, self.values(answers))
        return self.none_applies if value is None else value

    def applies_nowhere(self, answers: Mapping[str, Any]) -> bool:
        """Say whether answers leave every item out."""
        return all(check.values.get(str(answers.get(check.key)), 0.0) is None for check in self.checks)

    def values(self, answers: Mapping[str, str]) -> dict[str, float | None]:
        """Return what each item counts, gates applied."""
        return {
            check.key: check.values[answers[check.key]]
            if all(answers[other] == wanted for other, wanted in check.only_if.items())
            else 0.0
            for check in self.checks
        }


class YesNoAnswer(Record):
    """Yes or no, in a JSON object; yes counts 1."""

    kind: Literal["yes_no"] = "yes_no"
    key: str = "answer"
    reason_key: str | None = "reason"


class TextAnswer(Record):
    """A text read off the picture, in a JSON object."""

    kind: Literal["text"] = "text"
    key: str = "text"
    shape: str = "the text, as it stands there"
    """What is expected under the key, in a few words."""


Answer = Annotated[LabelAnswer | NumberAnswer | ChecksAnswer | YesNoAnswer | TextAnswer, Field(discriminator="kind")]


class Example(Record):
    """A worked example: what was asked, what was seen, how it was decided."""

    instruction: str
    thought: str
    calls: tuple[Mapping[str, Any], ...] = ()
    """Tool calls with `name` and `parameters`; shown in modes with tools only."""
    answer: str | None = None
    modes: tuple[Mode, ...] = ("tools", "oracle", "plain")


class ModeText(Record):
    """What one mode adds to the base text."""

    setting: str
    """What the judge is shown in this mode."""
    images: tuple[str, ...]
    """Names of the pictures, in the order they are sent; `?` behind a name: only where the edit has one."""
    tools: bool = False
    notes: tuple[str, ...] = ()
    type_notes: bool = True
    """Whether the rubric's notes by type hold in this mode."""
    targets: Literal["whole", "crops", "white"] = "whole"
    """How annotated targets are shown: whole pictures, crops round each, or each painted white."""
    crop: TargetCrop = "adaptive"
    """How much such a crop shows."""


class PreliminaryQuestion(Record):
    """A question that is asked before the rubric's own; its answer, a text, is told with the rubric's question."""

    title: str
    question: str
    setting: str
    images: tuple[str, ...]
    notes: tuple[str, ...] = ()
    tells: tuple[Telling, ...] = ()
    key: str = "differences"
    """The answer's key, and the name of what is handed on."""
    introduction: str
    """The line under which the answer is told with the rubric's own question."""
    shape: str = Field(LISTED, exclude_if=lambda given: given == LISTED)
    """What is expected under the key, in a few words."""


class PartText(Record):
    """The words of a question that an engine asks about a part of an edit; names in braces are filled in, quoted."""

    title: str
    question: str
    notes: tuple[str, ...] = ()
    setting: str
    shape: str | None = None
    """What a text that is read off should be, in a few words."""


class Rubric(Record):
    """One criterion of a protocol, whole: everything the prompt says is in here."""

    protocol: str
    criterion: str
    variant: str = ""
    """Which of several wordings of the criterion this is; a protocol picks one for each edit."""
    title: str
    source: str
    """Where in the paper the facts stand."""
    question: str
    steps: tuple[str, ...] = ()
    """The checks in the order they must be made."""
    notes: tuple[str, ...] = ()
    type_notes: Mapping[str, str] = Field(default_factory=dict)
    """What holds for one instruction type only; given with the edits of that type and, where the type is unknown, all of them."""
    ours: tuple[Literal["steps", "notes", "type_notes", "examples"], ...] = ()
    """Parts that the paper does not have and that can be left out."""
    answer: Answer
    examples: tuple[Example, ...] = ()
    modes: Mapping[Mode, ModeText]
    tells: tuple[Telling, ...] = ("instruction", "type", "hint")
    """What of the edit's own text the judge is given."""
    stage: PreliminaryQuestion | None = None
    wording: Wording = Wording()
    """The sentences around the rubric."""
    parts: Mapping[str, PartText] = Field(default_factory=dict, exclude_if=lambda given: not given)
    """Other words for the questions that an engine asks in the rubric's place, by name; see `Protocol.parts`."""

    @property
    def name(self) -> str:
        """Criterion and variant in one word, unique in a protocol."""
        return f"{self.criterion}/{self.variant}" if self.variant else self.criterion

    def without_ours(self) -> Rubric:
        """Return the rubric with no more than its paper has."""
        return self.model_copy(update={part: {} if part == "type_notes" else () for part in self.ours})
