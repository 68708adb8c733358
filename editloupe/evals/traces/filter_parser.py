"""Parses filters on traces into a tree. Nothing in a filter is evaluated as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from editloupe._util.text import one_line, shorten
from editloupe.types import UserError

LONGEST = 5000
"""The most characters of a filter."""
DEEPEST = 50
"""The most nested parentheses."""
MOST = 200
"""The most conditions and values of a filter."""
ORDER = ("=", "!=", "<", "<=", ">", ">=")
CONTAINS = "~"
_TOKENS = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign><=|>=|!=|<>|==|[=<>~(),])""",
    re.VERBOSE | re.DOTALL,
)
_SAME = {"==": "=", "<>": "!="}
_WORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))


class ExpressionError(UserError):
    """A mistake in a filter. The message is one sentence with the character at which it is, counted from 1.

    Args:
        sentence: The mistake.
        position: The character, counted from 0.
    """

    def __init__(self, sentence: str, position: int) -> None:
        super().__init__(one_line(f"the filter, at character {position + 1}: {sentence}"))
        self.position = position


@dataclass(frozen=True)
class Literal:
    """A quoted text, a number, true or false."""

    value: str | float | bool
    position: int


@dataclass(frozen=True)
class Name:
    """A field of a verdict, or a column of the manifest."""

    name: str
    position: int


@dataclass(frozen=True)
class Call:
    """A function with its argument, if it has one."""

    name: str
    argument: str | None
    position: int


Operand = Literal | Name | Call


@dataclass(frozen=True)
class Comparison:
    """Two values and an operator."""

    sign: str
    left: Operand
    right: Operand
    position: int


@dataclass(frozen=True)
class Among:
    """A test whether a value is in a list."""

    value: Operand
    listed: tuple[Literal, ...]
    negated: bool
    position: int


@dataclass(frozen=True)
class Missing:
    """A test whether a value is null."""

    value: Operand
    negated: bool
    position: int


@dataclass(frozen=True)
class Not:
    """A negated condition."""

    inner: Condition


@dataclass(frozen=True)
class Joined:
    """Conditions joined by `and` or by `or`."""

    word: str
    parts: tuple[Condition, ...]


Condition = Comparison | Among | Missing | Not | Joined | Operand


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def quoted(self) -> str:
        return "the end" if self.kind == "end" else f"`{shorten(self.text, 40)}`"


def parse(text: str) -> Condition | None:
    """Return the tree of a filter, None if it is empty; raise ExpressionError if it has a mistake.

    >>> parse('score < 3 and not said("red")').word
    'and'
    >>> parse("label = ")
    Traceback (most recent call last):
    ...
    editloupe.evals.traces.filter_parser.ExpressionError: the filter, at character 9: a value is missing before the end
    """
    if len(text) > LONGEST:
        raise ExpressionError(f"it has {len(text)} characters, and {LONGEST} are the most", LONGEST)
    if (
        position := next((position for position, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"), None)
    ) is not None:
        raise ExpressionError("there is a character that is not valid in UTF-8", position)
    tokens = _tokens(text)
    return _Parser(tokens).parse() if len(tokens) > 1 else None


def split_conditions(text: str) -> list[str]:
    """Return the conditions of a filter that are joined by `and` outside of parentheses, each as it was typed.

    >>> split_conditions('label = "a and b" and (score < 3 or repairs > 0)'), split_conditions("score < 3 or repairs > 0")
    (['label = "a and b"', '(score < 3 or repairs > 0)'], ['score < 3 or repairs > 0'])
    """
    if parse(text) is None:
        return []
    ends, depth = [], 0
    for token in _tokens(text):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth == 0 and token.kind == "word" and token.text == "or":
            return [text.strip()]
        if depth == 0 and token.kind == "word" and token.text == "and":
            ends.append(token.position)
    starts = [0, *(end + len("and") for end in ends)]
    return [text[start:end].strip() for start, end in zip(starts, [*ends, len(text)], strict=True)]


def join_conditions(conditions: Sequence[str]) -> str:
    """Return the filter that asks for all of some conditions.

    >>> join_conditions(["score < 3 or repairs > 0", 'label = "x"'])
    '(score < 3 or repairs > 0) and label = "x"'
    """
    if len(conditions) < 2:
        return "".join(conditions)
    return " and ".join(f"({text})" if _is_alternative(text) else text for text in conditions)


def _is_alternative(text: str) -> bool:
    tree = parse(text)
    return (
        isinstance(tree, Joined) and tree.word == "or" and len(split_conditions(text)) == 1 and not _is_enclosed(text)
    )


def _is_enclosed(text: str) -> bool:
    """True if the parenthesis a text begins with ends it."""
    depth = 0
    tokens = _tokens(text)[:-1]
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth == 0:
            return token is tokens[-1]
    return False


def quote_text(text: str) -> str:
    r"""Return a text as it is written in a filter.

    >>> print(quote_text('the "best"'))
    "the \"best\""
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise ExpressionError(_describe_problem(text, position), position)
        kind = str(match.lastgroup)
        if kind == "name" and match[0].lower() in _WORDS:
            tokens.append(_Token("word", match[0].lower(), position))
        elif kind != "space":
            tokens.append(_Token(kind, _SAME.get(match[0], match[0]), position))
        position = match.end()
    return [*tokens, _Token("end", "", position)]


def _describe_problem(text: str, position: int) -> str:
    if text[position] in "\"'":
        return f"the text that begins with {text[position]} has no end"
    if text[position] in "“”„‘’":
        return f"{text[position]} is not a quotation mark of the filter language; write \"…\" or '…'"
    if text[position] in "&|":
        return f"`{text[position]}` is not known; write `and` or `or`"
    if text[position] == "!":
        return "`!` is not known by itself; write `not` or `!=`"
    return f"`{text[position : position + 10].split(maxsplit=1)[0]}` cannot be read"


class _Parser:
    """Recursive descent; `or` binds least, then `and`, `not` and comparisons."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._count = 0

    def parse(self) -> Condition:
        condition = self._or_condition()
        if (token := self._next).kind != "end":
            hint = "" if token.text != ")" else "; there is one parenthesis too many"
            raise ExpressionError(
                f"{token.quoted} is not expected here; `and` or `or` joins conditions{hint}", token.position
            )
        return condition

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> _Token | None:
        token = self._next
        if token.kind in ("word", "sign") and token.text in texts:
            self._at += 1
            return token
        return None

    def _or_condition(self) -> Condition:
        return self._join("or", self._and_condition)

    def _and_condition(self) -> Condition:
        return self._join("and", self._negation)

    def _join(self, word: str, read: Callable[[], Condition]) -> Condition:
        parts = [read()]
        while self._take(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _negation(self) -> Condition:
        negations = 0
        while self._take("not"):
            negations += 1
        condition = self._single()
        return Not(condition) if negations % 2 else condition

    def _single(self) -> Condition:
        self._count_part()
        if opened := self._take("("):
            self._depth += 1
            if self._depth > DEEPEST:
                raise ExpressionError(f"more than {DEEPEST} parentheses are nested", opened.position)
            condition = self._or_condition()
            self._depth -= 1
            if not self._take(")"):
                raise ExpressionError(
                    f"`)` is missing for the parenthesis at {opened.position + 1}", self._next.position
                )
            return condition
        return self._comparison(self._operand("a condition"))

    def _comparison(self, left: Operand) -> Condition:
        token = self._next
        if sign := self._take(*ORDER, CONTAINS):
            right = self._operand()
            if (again := self._next).kind == "sign" and again.text in (*ORDER, CONTAINS):
                raise ExpressionError("a comparison has two sides; join several with `and`", again.position)
            return Comparison(sign.text, left, right, sign.position)
        if self._take("is"):
            negated = self._take("not") is not None
            if not self._take("null"):
                raise ExpressionError("`is` goes with null: `is null` or `is not null`", self._next.position)
            return Missing(left, negated, token.position)
        negated = token.text == "not" and token.kind == "word" and self._tokens[self._at + 1].text == "in"
        if negated:
            self._at += 1
        if self._take("in"):
            return Among(left, self._list(), negated, token.position)
        return left

    def _list(self) -> tuple[Literal, ...]:
        if not self._take("("):
            raise ExpressionError('`in` is followed by a list: in ("a", "b")', self._next.position)
        values = []
        while True:
            self._count_part()
            value = self._operand()
            if not isinstance(value, Literal):
                raise ExpressionError("a list holds texts in quotes and numbers", value.position)
            values.append(value)
            if self._take(")"):
                return tuple(values)
            if not self._take(","):
                raise ExpressionError(
                    f"`,` or `)` is missing in the list before {self._next.quoted}", self._next.position
                )

    def _operand(self, role: str = "a value") -> Operand:
        token = self._next
        if token.kind == "number":
            self._at += 1
            return Literal(float(token.text), token.position)
        if token.kind == "text":
            self._at += 1
            return Literal(_unquote(token.text), token.position)
        if truth := self._take("true", "false"):
            return Literal(truth.text == "true", truth.position)
        if token.text == "null" and token.kind == "word":
            raise ExpressionError("nothing is compared with null; write `is null` or `is not null`", token.position)
        if token.kind != "name":
            raise ExpressionError(f"{role} is missing before {token.quoted}", token.position)
        self._at += 1
        return self._call(token) if self._take("(") else Name(token.text, token.position)

    def _call(self, name: _Token) -> Call:
        argument = None
        if self._next.kind == "text":
            argument = _unquote(self._next.text)
            self._at += 1
        if not self._take(")"):
            raise ExpressionError(f'{name.text}(…) takes one text in quotes: {name.text}("…")', self._next.position)
        return Call(name.text, argument, name.position)

    def _count_part(self) -> None:
        self._count += 1
        if self._count > MOST:
            raise ExpressionError(f"it has more than {MOST} conditions and values", self._next.position)


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
