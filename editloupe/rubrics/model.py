"""Pydantic models of a rubric, its modes and its kind of answer.

There are six kinds of answer: a label, a number on a scale, a set of binary or graded checks with gates, yes or no, a text
read off the picture, and a number that is measured without a judge.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from editloupe.rubrics import formula
from editloupe.rubrics.formula import FUNCTIONS, OPERATORS, Value
from editloupe.rubrics.wording import Wording
from editloupe.types import Mode, Record

HIGHEST_POWER = 10.0
ROUNDING = 1e-12
"""Largest relative rounding error of a mean of equal values."""


class Range(NamedTuple):
    """Lower and upper bound of a value that may not apply. Not every value in between need occur."""

    low: float
    high: float


def find_range(tree: ast.expr, values: Mapping[str, Sequence[Value]]) -> Range | None:
    """Return bounds of a checked formula over all values of its names, or None if no bounds can be proved.

    Within the bounds, every operation is monotone in each of its operands, and so is rounding. The ends therefore decide.

    >>> find_range(ast.parse("mean(a, b) / (1 + a)", mode="eval").body, {"a": [0.0, 1.0], "b": [None, 2.0]})
    Range(low=0.0, high=2.000000000002)
    >>> find_range(ast.parse("1 / a", mode="eval").body, {"a": [0.0, 1.0]})
    """
    try:
        bounds = _find_range(tree, values)
    except (ArithmeticError, RecursionError):
        return None
    return bounds if bounds and all(map(math.isfinite, bounds)) else None


def _find_range(node: ast.expr, values: Mapping[str, Sequence[Value]]) -> Range | None:
    if isinstance(node, ast.Constant):
        value = float(node.value)  # type: ignore[arg-type]
        return Range(value, value)
    if isinstance(node, ast.Name):
        applicable = [value for value in values[node.id] if value is not None]
        return Range(min(applicable, default=0.0), max(applicable, default=0.0))
    if isinstance(node, ast.BinOp):
        left, right = _find_range(node.left, values), _find_range(node.right, values)
        return _range_of_operation(node.op, left, right) if left and right else None
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    parts = [_find_range(argument, values) for argument in node.args]
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
        # Any of the values may not apply. Up to rounding, a mean of the others is between the lowest and the highest.
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
"""A text of the edit that the judge is shown together with the rubric's question."""
TargetCrop = Literal["adaptive", "each_end", "box"]
"""Context of a crop around its target.

`adaptive` extends each side by λ(s) of itself, half at either end (DLEBench, Equation 1); `each_end` extends it by λ(s) at
either end; `box` shows the annotated box alone.
"""


OnScale = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]
LISTED = "one difference a line, or the word none"
LARGEST = 1e9
"""Largest absolute value that an answer of a check may count."""
MAX_TRIED = 20_000
"""Largest number of answer combinations that are tried if bounds cannot prove that a formula has a finite value."""


class Label(Record):
    """One label of a label rubric. Labels are listed from worst to best."""

    name: str
    score: OnScale
    meaning: str
    when: tuple[str, ...] = ()
    """Findings that lead to this label."""


class LabelAnswer(Record):
    """One label out of a set, written between final-answer tags.

    Args:
        labels: At least two labels, worst first. Their names must differ in more than case and white space, and their
            scores must not all be equal.

    Raises:
        ValidationError: If the labels do not form a scale.
    """

    kind: Literal["label"] = "label"
    labels: Annotated[tuple[Label, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _check_distinct(self) -> LabelAnswer:
        by_word: dict[str, str] = {}
        for label in self.labels:
            word = " ".join(label.name.split()).casefold()
            if not word:
                raise ValueError("a label has no name")
            if word in by_word:
                raise ValueError(f'the labels "{by_word[word]}" and "{label.name}" are read as the same word')
            by_word[word] = label.name
        if len({label.score for label in self.labels}) < 2:
            raise ValueError("all labels have the same score; a scale from worst to best needs at least two scores")
        return self

    def score(self, name: str) -> int:
        """Return the score of the label with this name."""
        return next(label.score for label in self.labels if label.name == name)

    def score_100(self, name: str) -> float:
        """Return (score − lowest) / (highest − lowest) × 100, which is (score − 1) / 3 × 100 for scores 1 to 4."""
        scores = [label.score for label in self.labels]
        return (self.score(name) - min(scores)) / (max(scores) - min(scores)) * 100

    def worst(self, names: list[str]) -> str:
        """Return the name with the lowest score."""
        return min(names, key=self.score)


class Band(Record):
    """A section of a scale, from `low` to `high` inclusive, with its name and meaning."""

    low: OnScale
    high: OnScale
    name: str
    meaning: str = ""


class NumberAnswer(Record):
    """A whole number on a scale, in a JSON object.

    Args:
        low: Worst value.
        high: Best value; larger than `low`.
        bands: Named sections that together cover every number of the scale once; empty if the scale has none.
        key: Key of the number in the JSON object.
        reason_key: Key of the explanation, or None if no explanation is requested.

    Raises:
        ValidationError: If `high` is not larger than `low`, or the bands leave a gap or overlap.
    """

    kind: Literal["number"] = "number"
    low: OnScale
    high: OnScale
    bands: tuple[Band, ...] = ()
    """From best to worst. Together they cover the scale."""
    key: str = "score"
    reason_key: str | None = "reason"

    @model_validator(mode="after")
    def _check_scale(self) -> NumberAnswer:
        if self.high <= self.low:
            raise ValueError(
                f"the highest value of a scale must exceed the lowest; this one is {self.low} to {self.high}"
            )
        intervals = sorted((band.low, band.high) for band in self.bands)
        begin = [self.low, *(high + 1 for _, high in intervals)]
        end = [*(low for low, _ in intervals), self.high + 1]
        if self.bands and (begin != end or any(low > high for low, high in intervals)):
            raise ValueError(f"the bands must cover every number from {self.low} to {self.high} once")
        return self

    def score_100(self, value: float) -> float:
        """Map a value of the scale linearly to 0 to 100."""
        return (value - self.low) / (self.high - self.low) * 100


class Check(Record):
    """One item of a check list."""

    key: str
    question: str
    values: Mapping[str, float | None] = Field(default_factory=lambda: {"0": 0.0, "1": 1.0})
    """Value of each allowed answer; None if the answer means that the item does not apply."""
    only_if: Mapping[str, str] = Field(default_factory=dict)
    """Gate: the item counts 0 unless these other items have these answers."""

    @model_validator(mode="after")
    def _check_answers(self) -> Check:
        if not self.values:
            raise ValueError(f"check {self.key} has no answers")
        words = [answer.strip().casefold() for answer in self.values]
        if twice := [answer for answer in self.values if words.count(answer.strip().casefold()) > 1]:
            raise ValueError(f'the answers "{twice[0]}" and "{twice[1]}" of {self.key} are read as the same word')
        for answer, value in self.values.items():
            if value is not None and not abs(value) <= LARGEST:
                raise ValueError(f'the answer "{answer}" of {self.key} counts {value}; use a number up to {LARGEST:g}')
        return self


class ChecksAnswer(Record):
    """A set of checks, answered in a JSON object with one key per check.

    Args:
        checks: The checks, each with a key of its own.
        score: Formula over the checks' keys; see `editloupe.rubrics.formula`. Empty for their mean.
        none_applies: Score if no check applies, or None if the criterion then has no score.
        reason_key: Key of the explanation, or None if no explanation is requested.

    Raises:
        ValidationError: If keys are not unique, a gate names an unknown check or answer, or some answers give the
            formula no finite value.
    """

    kind: Literal["checks"] = "checks"
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    score: str = ""
    """Formula of the criterion's score, 0 to 1; empty for the mean of the items."""
    none_applies: float | None = Field(default=None, exclude_if=lambda value: value is None)
    """Score if none of the items applies; None leaves the criterion without a number."""
    reason_key: str | None = "reason"

    @model_validator(mode="after")
    def _check_gates(self) -> ChecksAnswer:
        keys = [check.key for check in self.checks]
        if len(set(keys)) != len(keys) or self.reason_key in keys:
            raise ValueError("two checks, or a check and the reason, have the same key")
        by_key = {check.key: check for check in self.checks}
        for check in self.checks:
            for other, answer in check.only_if.items():
                if other not in by_key:
                    raise ValueError(f"check {check.key} depends on {other}, which is not in the list")
                if answer not in by_key[other].values:
                    raise ValueError(
                        f"check {check.key} requires {other} to be {answer}, which is not one of its answers"
                    )
        self._check_formula(formula.parse(self.formula, keys))
        return self

    def _check_formula(self, tree: ast.expr) -> None:
        """Raise ValueError if some answers give the formula no finite value.

        Otherwise the error would only appear after the judge's replies were paid for.
        """
        possible = {c.key: [*c.values.values(), *([0.0] if c.only_if else [])] for c in self.checks}
        if find_range(tree, possible):
            return
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        relevant = [c for c in self.checks if c.key in names or any(c.key in other.only_if for other in self.checks)]
        if math.prod(len(c.values) for c in relevant) > MAX_TRIED:
            raise ValueError(
                f'the formula "{self.formula}" cannot be shown to have a finite value for all answers; '
                "avoid division by 0, and roots and powers of negative numbers"
            )
        others = {c.key: next(iter(c.values)) for c in self.checks}
        for answers in itertools.product(*(c.values for c in relevant)):
            value = formula.evaluate_tree(
                tree, self.values({**others, **dict(zip((c.key for c in relevant), answers, strict=True))})
            )
            if value is not None and not math.isfinite(value):
                example = ", ".join(f"{c.key} = {answer}" for c, answer in zip(relevant, answers, strict=True))
                raise ValueError(f'the formula "{self.formula}" has no finite value if {example}') from None

    @property
    def formula(self) -> str:
        """The formula of the criterion's score, written out."""
        return self.score or f"mean({', '.join(check.key for check in self.checks)})"

    def total(self, answers: Mapping[str, str]) -> float | None:
        """Return the criterion's score after gates, or None if no item applies and `none_applies` is not set."""
        value = formula.evaluate(self.formula, self.values(answers))
        return self.none_applies if value is None else value

    def applies_nowhere(self, answers: Mapping[str, Any]) -> bool:
        """Return whether every item is answered as not applicable."""
        return all(check.values.get(str(answers.get(check.key)), 0.0) is None for check in self.checks)

    def values(self, answers: Mapping[str, str]) -> dict[str, float | None]:
        """Return the value of every item after gates."""
        return {
            check.key: check.values[answers[check.key]]
            if all(answers[other] == answer for other, answer in check.only_if.items())
            else 0.0
            for check in self.checks
        }


class YesNoAnswer(Record):
    """Yes or no, in a JSON object. Yes counts 1.

    Args:
        key: Key of the answer in the JSON object.
        reason_key: Key of the explanation, or None if no explanation is requested.
    """

    kind: Literal["yes_no"] = "yes_no"
    key: str = "answer"
    reason_key: str | None = "reason"


class TextAnswer(Record):
    """A text read off the picture, in a JSON object.

    Args:
        key: Key of the text in the JSON object.
        shape: Short description of the expected text, shown to the judge.
    """

    kind: Literal["text"] = "text"
    key: str = "text"
    shape: str = "the text, as it stands there"
    """Short description of the expected text."""


MeasureName = Literal["l1", "l2", "outside_mask", "clip_image", "clip_text", "clip_direction", "dino"]
"""The measures of `editloupe/tools/measures.py`."""


class MeasuredAnswer(Record):
    """A number that is computed from the rubric's pictures. No judge is asked.

    Args:
        measure: Name of the measure. It takes the rubric's pictures in their order.
        texts: Fields of `Edit.extra` with the texts that the measure takes, such as captions.
        worst: Value that scores 0.
        best: Value that scores 100.

    Raises:
        ValidationError: If `worst` and `best` are equal.
    """

    kind: Literal["measured"] = "measured"
    measure: MeasureName
    texts: tuple[str, ...] = ()
    worst: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    best: Annotated[float, Field(allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _check_scale(self) -> MeasuredAnswer:
        if self.best == self.worst:
            raise ValueError(f"the best value of a measure must differ from the worst; both are {self.worst:g}")
        return self

    def score_100(self, value: float) -> float:
        """Map a value linearly from `worst` to `best` to 0 to 100.

        >>> MeasuredAnswer(measure="l1", worst=1, best=0).score_100(0.25)
        75.0
        """
        return (value - self.worst) / (self.best - self.worst) * 100

    def value(self, score_100: float) -> float:
        """Return the measured value of a score from 0 to 100."""
        return self.worst + score_100 / 100 * (self.best - self.worst)


Answer = Annotated[
    LabelAnswer | NumberAnswer | ChecksAnswer | YesNoAnswer | TextAnswer | MeasuredAnswer, Field(discriminator="kind")
]
"""Any of the six kinds of answer; the field `kind` says which."""


class Example(Record):
    """A worked example of an edit, the judge's reasoning and its answer."""

    instruction: str
    thought: str
    calls: tuple[Mapping[str, Any], ...] = ()
    """Tool calls with `name` and `parameters`, shown only in modes with tools."""
    answer: str | None = None
    modes: tuple[Mode, ...] = ("tools", "oracle", "plain")


class ModeText(Record):
    """The part of a rubric that depends on the mode."""

    setting: str
    """Sentence that tells the judge which pictures it sees."""
    images: tuple[str, ...]
    """Names of the pictures in the order they are sent. A `?` after a name marks a picture that the edit may lack."""
    tools: bool = False
    notes: tuple[str, ...] = ()
    type_notes: bool = True
    """Whether the rubric's notes by instruction type apply in this mode."""
    targets: Literal["whole", "crops", "white"] = "whole"
    """How annotated targets are shown: whole pictures, a crop around each target, or targets painted white."""
    crop: TargetCrop = "adaptive"
    """Context of each crop."""


class PreliminaryQuestion(Record):
    """A question that is asked before the rubric's own. Its answer, a text, is added to the rubric's question."""

    title: str
    question: str
    setting: str
    images: tuple[str, ...]
    notes: tuple[str, ...] = ()
    tells: tuple[Telling, ...] = ()
    key: str = "differences"
    """Key of the answer in the reply."""
    introduction: str
    """Line before the answer where it is quoted in the rubric's question."""
    shape: str = Field(LISTED, exclude_if=lambda value: value == LISTED)
    """Short description of the expected answer."""


class PartText(Record):
    """Text of a question that an engine asks about a part of an edit. Names in braces are replaced by quoted values."""

    title: str
    question: str
    notes: tuple[str, ...] = ()
    setting: str
    shape: str | None = None
    """Short description of the expected text; None if the answer is not a text."""
    tells: tuple[Telling, ...] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Texts of the edit that the judge is shown; None for those of the usual question."""
    ours: tuple[str, ...] = Field(default=(), exclude_if=lambda value: not value)
    """Notes that are not in the paper: `notes` for all of them, or words of single ones."""

    def without_ours(self) -> PartText:
        """Return the text without the notes that are not in the paper."""
        notes = () if "notes" in self.ours else (n for n in self.notes if not any(words in n for words in self.ours))
        return self.model_copy(update={"notes": tuple(notes), "ours": ()}) if self.ours else self


OUR_PARTS = ("steps", "notes", "type_notes", "examples")
"""Parts of a rubric that `Rubric.ours` may name as a whole."""


class Rubric(Record):
    """One criterion of a protocol with the complete text of its prompt.

    A rubric is usually loaded from YAML by `load_rubric`. It is immutable, and its content is hashed into the key of every
    verdict. Every field is described below it.
    """

    protocol: str
    """Name of the protocol."""
    criterion: str
    """Name of the criterion, as used in runs and on the command line."""
    variant: str = ""
    """Name of this wording if the criterion has several. The protocol picks one per edit."""
    title: str
    source: str
    """Section, table or box of the paper that the text follows."""
    question: str
    steps: tuple[str, ...] = ()
    """Checks in the order the judge must make them."""
    notes: tuple[str, ...] = ()
    type_notes: Mapping[str, str] = Field(default_factory=dict)
    """Notes by instruction type. The prompt has the note of the edit's type, or all of them if the type is unknown."""
    ours: tuple[str, ...] = ()
    """What is not in the paper and can be left out: names of parts (`OUR_PARTS`), and words of single texts."""
    answer: Answer
    """Kind of answer and how it is scored."""
    examples: tuple[Example, ...] = ()
    modes: Mapping[Mode, ModeText]
    """Text and pictures of every mode that the rubric supports."""
    tells: tuple[Telling, ...] = ("instruction", "type", "hint")
    """Texts of the edit that the judge is shown."""
    stage: PreliminaryQuestion | None = None
    """A question that is asked first; None if there is no such question."""
    wording: Wording = Wording()
    """The sentences around the rubric."""
    parts: Mapping[str, PartText] = Field(default_factory=dict, exclude_if=lambda value: not value)
    """Replacements of questions that an engine asks about parts of an edit, by name. See `Protocol.parts`."""

    @property
    def measured(self) -> MeasuredAnswer | None:
        """The answer if it is computed from the pictures, else None."""
        return self.answer if isinstance(self.answer, MeasuredAnswer) else None

    @property
    def name(self) -> str:
        """Criterion, or `criterion/variant`; unique within a protocol."""
        return f"{self.criterion}/{self.variant}" if self.variant else self.criterion

    def without_ours(self) -> Rubric:
        """Return the rubric without what is not in its paper. A text of which nothing is left is removed."""
        parts = [part for part in self.ours if part in OUR_PARTS]
        rubric = self.model_copy(update={part: {} if part == "type_notes" else () for part in parts})
        excerpts = [words for words in self.ours if words not in OUR_PARTS]
        if not excerpts:
            return rubric
        return Rubric.model_validate({**_remove_words(rubric.model_dump(), excerpts), "ours": parts})

    def texts_with(self, words: str) -> set[str]:
        """Return the texts of the rubric that contain these words."""
        return {text for text in _iter_texts(self.model_dump(exclude={"ours"})) if words in text}


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _iter_texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _iter_texts(inner)


def _remove_words(value: Any, excerpts: Sequence[str]) -> Any:
    """Return a dumped record without these words. Items of a list that consist of nothing else are removed."""
    if isinstance(value, str):
        for words in excerpts:
            value = value.replace(words, "")
        return value
    if isinstance(value, Mapping):
        return {name: _remove_words(inner, excerpts) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        pairs = ((inner, _remove_words(inner, excerpts)) for inner in value)
        return [rest for inner, rest in pairs if rest == inner or not isinstance(rest, str) or rest.strip()]
    return value
