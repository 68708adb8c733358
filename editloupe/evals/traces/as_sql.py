"""A filter's tree as SQL over the index: names are looked up in a list, everything a user typed is a bound value."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from editloupe.evals.traces.expression import (
    CONTAINS,
    Among,
    Call,
    Comparison,
    Condition,
    ExpressionError,
    Joined,
    Literal,
    Missing,
    Not,
    Operand,
)
from editloupe.evals.traces.vocabulary import COLUMN, COUNTS, FIELDS, FUNCTIONS, SEARCHES, TAGGED, Kind

_WORD = re.compile(r"\w+\*?")
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Scripts without spaces between words: each sign is a word, so that any part of a text is found."""
_KINDS = {"text": "a text", "number": "a number", "truth": "true or false", "time": "a text"}


@dataclass(frozen=True)
class Known:
    """What there is to ask about in the runs that are searched."""

    columns: Collection[str] = ()
    """Of the manifests."""
    tools: Collection[str] = ()


@dataclass(frozen=True)
class _Value:
    kind: Kind
    sql: str
    values: tuple[Any, ...] = ()
    called: str = ""


@dataclass
class Query:
    """A condition in SQL, with its values in order."""

    sql: str = "1"
    values: list[Any] = field(default_factory=list)


def as_sql(condition: Condition | None, known: Known) -> Query:
    """Return the SQL of a filter; a name that does not exist is told with the nearest one that does.

    A comparison with something unknown is false, and so its opposite by `not` is true.

    >>> from editloupe.evals.traces.expression import parse
    >>> as_sql(parse("label = 'x'"), Known()).sql
    'v.label = ? COLLATE NOCASE'
    """
    if condition is None:
        return Query()
    writer = _Writer(known)
    return Query(writer.write(condition, exact=False), writer.values)


def spaced(text: str) -> str:
    """Return a text as it is searched: signs of scripts without spaces stand apart."""
    return _UNSPACED.sub(r" \1 ", text)


def fts_query(words: str, column: str) -> str | None:
    """Return words as a query of SQLite's full-text search, None where there is no word among them.

    >>> fts_query('Over modif*', "thought"), fts_query("!?", "")
    ('{thought} : ("over" + "modif" *)', None)
    """
    found = _WORD.findall(spaced(words).casefold().replace("_", " "))
    if not found:
        return None
    parts = [f'"{word.rstrip("*")}"' for word in found]
    phrase = " + ".join(parts) + (" *" if found[-1].endswith("*") else "")
    return f"{{{column}}} : ({phrase})" if column else phrase


class _Writer:
    def __init__(self, known: Known) -> None:
        self._known = known
        self.values: list[Any] = []

    def write(self, condition: Condition, exact: bool) -> str:
        """Return a condition; `exact` where what is unknown must count as false, because it is turned around."""
        if isinstance(condition, Joined):
            return "(" + f" {condition.word.upper()} ".join(self.write(one, exact) for one in condition.parts) + ")"
        if isinstance(condition, Not):
            return f"NOT ({self.write(condition.inner, True)})"
        sql = self._single(condition)
        return f"(({sql}) IS TRUE)" if exact else sql

    def _single(self, condition: Comparison | Among | Missing | Operand) -> str:
        if isinstance(condition, Comparison):
            return self._comparison(condition)
        if isinstance(condition, Among):
            return self._among(condition)
        if isinstance(condition, Missing):
            return f"{self._put(self._value(condition.value))} IS {'NOT ' if condition.negated else ''}NULL"
        return self._alone(condition)

    def _alone(self, operand: Operand) -> str:
        if isinstance(operand, Call) and operand.name in SEARCHES:
            return self._search(operand)
        if isinstance(operand, Call) and operand.name == TAGGED:
            same = "" if operand.argument is None else "AND folded(tag) = folded(?)"
            self.values += [] if operand.argument is None else [operand.argument]
            return f"EXISTS (SELECT 1 FROM tags WHERE tags.answer = v.answer {same})"
        value = self._value(operand)
        if isinstance(operand, Call) and operand.name in COUNTS:
            return f"{self._put(value)} > 0"
        if value.kind != "truth":
            raise ExpressionError(
                f"{value.called} alone is no condition; compare it, as in {value.called} = …", operand.place
            )
        return self._put(value)

    def _search(self, call: Call) -> str:
        column = SEARCHES[call.name][0]
        query = fts_query(call.argument or "", column)
        if query is None:
            raise ExpressionError(f'{call.name}(…) needs a word to look for: {call.name}("red")', call.place)
        self.values.append(query)
        return "u.entry IN (SELECT rowid FROM words WHERE words MATCH ?)"

    def _comparison(self, one: Comparison) -> str:
        left, right = self._value(one.left), self._value(one.right)
        kinds = {left.kind, right.kind}
        if one.sign == CONTAINS:
            return self._contains(one, left, right)
        if "number" in kinds and kinds <= {"number", "column"}:
            return f"{self._put(_as_number(left))} {one.sign} {self._put(_as_number(right))}"
        if "truth" in kinds and kinds <= {"truth", "column"}:
            if one.sign not in ("=", "!="):
                raise ExpressionError(f"true and false are compared with = and !=, not with {one.sign}", one.place)
            return f"{self._put(left)} {one.sign} {self._put(right)}"
        if kinds <= {"text", "time", "column"}:
            if one.sign not in ("=", "!=") and "time" not in kinds and kinds != {"column"}:
                raise ExpressionError(f"texts are compared with =, != and ~, not with {one.sign}", one.place)
            left, right = (_as_text(value) if kinds & {"text", "time"} else value for value in (left, right))
            if _needs_folding(left, right):
                return f"folded({self._put(left)}) {one.sign} folded({self._put(right)})"
            return f"{self._put(left)} {one.sign} {self._put(right)} COLLATE NOCASE"
        raise self._mixed(one.place, left, right)

    def _contains(self, one: Comparison, left: _Value, right: _Value) -> str:
        if not {left.kind, right.kind} <= {"text", "time", "column"}:
            raise ExpressionError(f"{CONTAINS} looks for a text in a text", one.place)
        fold = "lower" if all(isinstance(v, str) and v.isascii() for v in right.values) and right.values else "folded"
        return f"instr({fold}({self._put(left)}), {fold}({self._put(right)})) > 0"

    def _among(self, one: Among) -> str:
        value = self._value(one.value)
        listed = [self._value(item) for item in one.listed]
        kinds = {item.kind for item in listed}
        if len(kinds) > 1 or (value.kind != "column" and kinds != {"text" if value.kind == "time" else value.kind}):
            raise self._mixed(one.place, value, *listed)
        value = _as_number(value) if kinds == {"number"} else _as_text(value) if kinds == {"text"} else value
        fold = kinds == {"text"} and _needs_folding(*listed)
        collate = " COLLATE NOCASE" if kinds == {"text"} and not fold else ""
        left, *marks = (f"folded({self._put(item)})" if fold else self._put(item) for item in (value, *listed))
        return f"{left}{collate} {'NOT ' if one.negated else ''}IN ({', '.join(marks)})"

    def _mixed(self, place: int, *values: _Value) -> ExpressionError:
        said = " and ".join(
            dict.fromkeys(f"{value.called} is {_KINDS.get(value.kind, 'a column')}" for value in values)
        )
        return ExpressionError(f"{said}; the two cannot be compared", place)

    def _value(self, operand: Operand) -> _Value:
        if isinstance(operand, Literal):
            kind: Kind = (
                "truth" if isinstance(operand.value, bool) else "text" if isinstance(operand.value, str) else "number"
            )
            value = int(operand.value) if isinstance(operand.value, bool) else operand.value
            shown = f'"{value}"' if isinstance(value, str) else f"{operand.value}".lower().removesuffix(".0")
            return _Value(kind, "?", (value,), shown)
        if isinstance(operand, Call):
            return self._called(operand)
        name = operand.name
        if (found := FIELDS.get(name) or FIELDS.get(name.lower())) is not None:
            return _Value(found.kind, found.sql, (), name)
        if name in self._known.columns:
            return _column(name)
        raise ExpressionError(self._unknown(name), operand.place)

    def _called(self, call: Call) -> _Value:
        if call.name in COUNTS:
            counted = COUNTS[call.name][0]
            if call.argument is None:
                every = f"(SELECT coalesce(sum({counted}), 0) FROM tool_counts t WHERE t.unit = v.unit)"
                return _Value("number", every, (), f"{call.name}()")
            if call.argument not in self._known.tools and call.argument not in (known := self._all_tools()):
                near = get_close_matches(call.argument, known, 1, 0.4)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
                raise ExpressionError(f'there is no tool "{call.argument}"; {hint}', call.place)
            one = f"SELECT {counted} FROM tool_counts t WHERE t.unit = v.unit AND t.tool = ?"
            return _Value("number", f"coalesce(({one}), 0)", (call.argument,), f"{call.name}(…)")
        if call.name == COLUMN:
            return self._column(call)
        if call.name in SEARCHES or call.name == TAGGED:
            raise ExpressionError(
                f"{call.name}(…) is a condition by itself; write it alone, or `not {call.name}(…)`", call.place
            )
        near = get_close_matches(call.name, FUNCTIONS, 1, 0.4)
        hint = f"did you mean {near[0]}(…)?" if near else f"there are {', '.join(f'{n}(…)' for n in FUNCTIONS)}"
        raise ExpressionError(f"there is no function {call.name}(…); {hint}", call.place)

    def _column(self, call: Call) -> _Value:
        if not call.argument:
            raise ExpressionError(f'{COLUMN}(…) needs the name of a column: {COLUMN}("style")', call.place)
        known = sorted(self._known.columns)
        if known and call.argument not in known:
            near = get_close_matches(call.argument, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ExpressionError(f"the manifest has no column {call.argument!r}; {hint}", call.place)
        return _column(call.argument)

    def _all_tools(self) -> set[str]:
        """Return the tools of the runs and those of this version, which load the vision packages."""
        from editloupe.tools.registry import BUILT_IN

        return {*self._known.tools, *(tool.name for tool in BUILT_IN)}

    def _unknown(self, name: str) -> str:
        if name in FUNCTIONS:
            return f'{name} is a function: {name}("…")'
        return f'there is no field "{name}"{self._near(name)}'

    def _near(self, name: str) -> str:
        known = [*FIELDS, *self._known.columns]
        near = get_close_matches(name, known, 1, 0.6) or get_close_matches(name.lower(), known, 1, 0.6)
        if near:
            return f"; did you mean {near[0]}?"
        more = f", and of the manifest {', '.join(sorted(self._known.columns))}" if self._known.columns else ""
        return f"; texts stand in quotes, and the fields are {', '.join(FIELDS)}{more}"

    def _put(self, value: _Value) -> str:
        self.values += value.values
        return value.sql


def _column(name: str) -> _Value:
    if not set(name) & set('"\\'):
        return _Value("column", "json_extract(e.extra, ?)", (f'$."{name}"',), name)
    return _Value("column", "(SELECT x.value FROM json_each(e.extra) x WHERE x.key = ?)", (name,), name)


def _needs_folding(*values: _Value) -> bool:
    """True unless a text was typed that is all ASCII: SQLite's own upper and lower case know no more, and are quicker."""
    typed = [text for value in values for text in value.values if isinstance(text, str)]
    return not typed or not all(map(str.isascii, typed))


def _as_text(value: _Value) -> _Value:
    """A column may hold a number where a text is asked for."""
    return _Value("text", f"CAST({value.sql} AS TEXT)", value.values, value.called) if value.kind == "column" else value


def _as_number(value: _Value) -> _Value:
    """A column may hold a number as text, as every CSV file does."""
    if value.kind != "column":
        return value
    return _Value("number", f"as_number({value.sql})", value.values, value.called)
