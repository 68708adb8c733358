"""The small language that filters traces: words, signs and the tree they make. Nothing of it is ever evaluated as Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from editloupe._util.text import one_line, shorten
from editloupe.types import UserError

LONGEST = 5000
"""Characters of an expression."""
DEEPEST = 50
"""Parentheses inside parentheses."""
MOST = 200
"""Conditions and values of one expression."""
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
    """A filter that cannot be understood: one sentence with the place, counted in characters from 1."""

    def __init__(self, sentence: str, place: int) -> None:
        super().__init__(one_line(f"the filter, at character {place + 1}: {sentence}"))
        self.place = place


@dataclass(frozen=True)
class Literal:
    """A text in quotes, a number, true or false."""

    value: str | float | bool
    place: int


@dataclass(frozen=True)
class Name:
    """A field of a verdict, or a column of the manifest."""

    name: str
    place: int


@dataclass(frozen=True)
class Call:
    """A function with the text given to it, or with nothing."""

    name: str
    argument: str | None
    place: int


Operand = Literal | Name | Call


@dataclass(frozen=True)
class Comparison:
    """Two values and the sign between them."""

    sign: str
    left: Operand
    right: Operand
    place: int


@dataclass(frozen=True)
class Among:
    """A value that is, or is not, in a list."""

    value: Operand
    listed: tuple[Literal, ...]
    negated: bool
    place: int


@dataclass(frozen=True)
class Missing:
    """A value that is, or is not, known."""

    value: Operand
    negated: bool
    place: int


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

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
    place: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f"`{shorten(self.text, 40)}`"


def parse(text: str) -> Condition | None:
    """Return the tree of an expression, None for an empty one; what cannot be understood raises ExpressionError.

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
        place := next((place for place, letter in enumerate(text) if "\ud800" <= letter <= "\udfff"), None)
    ) is not None:
        raise ExpressionError("there is something that is no text in UTF-8", place)
    tokens = _tokens(text)
    return _Parser(tokens).whole() if len(tokens) > 1 else None


def _tokens(text: str) -> list[_Token]:
    found, place = [], 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise ExpressionError(_strange(text, place), place)
        kind = str(match.lastgroup)
        if kind == "name" and match[0].lower() in _WORDS:
            found.append(_Token("word", match[0].lower(), place))
        elif kind != "space":
            found.append(_Token(kind, _SAME.get(match[0], match[0]), place))
        place = match.end()
    return [*found, _Token("end", "", place)]


def _strange(text: str, place: int) -> str:
    if text[place] in "\"'":
        return f"the text that begins with {text[place]} has no end"
    if text[place] in "“”„‘’":
        return f"{text[place]} is no quotation mark of this language; write \"…\" or '…'"
    if text[place] in "&|":
        return f"`{text[place]}` is not known; write `and` or `or`"
    if text[place] == "!":
        return "`!` is not known by itself; write `not` or `!=`"
    return f"`{text[place : place + 10].split(maxsplit=1)[0]}` cannot be read"


class _Parser:
    """Reads tokens from left to right: `or` binds least, then `and`, then `not`, then comparisons."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._count = 0

    def whole(self) -> Condition:
        found = self._either()
        if (left := self._next).kind != "end":
            hint = "" if left.text != ")" else "; there is a parenthesis too many"
            raise ExpressionError(
                f"{left.shown} is not expected here; `and` or `or` joins conditions{hint}", left.place
            )
        return found

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> _Token | None:
        token = self._next
        if token.kind in ("word", "sign") and token.text in texts:
            self._at += 1
            return token
        return None

    def _either(self) -> Condition:
        return self._joined("or", self._both)

    def _both(self) -> Condition:
        return self._joined("and", self._negated)

    def _joined(self, word: str, read: object) -> Condition:
        assert callable(read)
        parts = [read()]
        while self._take(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _negated(self) -> Condition:
        turned = 0
        while self._take("not"):
            turned += 1
        found = self._single()
        return Not(found) if turned % 2 else found

    def _single(self) -> Condition:
        self._counted()
        if opened := self._take("("):
            self._depth += 1
            if self._depth > DEEPEST:
                raise ExpressionError(f"more than {DEEPEST} parentheses stand inside each other", opened.place)
            found = self._either()
            self._depth -= 1
            if not self._take(")"):
                raise ExpressionError(f"`)` is missing for the parenthesis at {opened.place + 1}", self._next.place)
            return found
        return self._comparison(self._operand("a condition"))

    def _comparison(self, left: Operand) -> Condition:
        token = self._next
        if sign := self._take(*ORDER, CONTAINS):
            right = self._operand()
            if (again := self._next).kind == "sign" and again.text in (*ORDER, CONTAINS):
                raise ExpressionError("a comparison has two sides; join several with `and`", again.place)
            return Comparison(sign.text, left, right, sign.place)
        if self._take("is"):
            negated = self._take("not") is not None
            if not self._take("null"):
                raise ExpressionError("`is` goes with null: `is null` or `is not null`", self._next.place)
            return Missing(left, negated, token.place)
        negated = token.text == "not" and token.kind == "word" and self._tokens[self._at + 1].text == "in"
        if negated:
            self._at += 1
        if self._take("in"):
            return Among(left, self._list(), negated, token.place)
        return left

    def _list(self) -> tuple[Literal, ...]:
        if not self._take("("):
            raise ExpressionError('`in` is followed by a list: in ("a", "b")', self._next.place)
        found = []
        while True:
            self._counted()
            value = self._operand()
            if not isinstance(value, Literal):
                raise ExpressionError("a list holds texts in quotes and numbers", value.place)
            found.append(value)
            if self._take(")"):
                return tuple(found)
            if not self._take(","):
                raise ExpressionError(f"`,` or `)` is missing in the list before {self._next.shown}", self._next.place)

    def _operand(self, what: str = "a value") -> Operand:
        token = self._next
        if token.kind == "number":
            self._at += 1
            return Literal(float(token.text), token.place)
        if token.kind == "text":
            self._at += 1
            return Literal(_unquoted(token.text), token.place)
        if truth := self._take("true", "false"):
            return Literal(truth.text == "true", truth.place)
        if token.text == "null" and token.kind == "word":
            raise ExpressionError("nothing is compared with null; write `is null` or `is not null`", token.place)
        if token.kind != "name":
            raise ExpressionError(f"{what} is missing before {token.shown}", token.place)
        self._at += 1
        return self._call(token) if self._take("(") else Name(token.text, token.place)

    def _call(self, name: _Token) -> Call:
        argument = None
        if self._next.kind == "text":
            argument = _unquoted(self._next.text)
            self._at += 1
        if not self._take(")"):
            raise ExpressionError(f'{name.text}(…) takes one text in quotes: {name.text}("…")', self._next.place)
        return Call(name.text, argument, name.place)

    def _counted(self) -> None:
        self._count += 1
        if self._count > MOST:
            raise ExpressionError(f"it has more than {MOST} conditions and values", self._next.place)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
