"""The filter language as SQL on the index: its fields and functions, and the translation of a parsed filter."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from editloupe.evals.traces.filter_parser import (
    CONTAINS,
    Among,
    Call,
    Comparison,
    Condition,
    ExpressionError,
    Joined,
    Missing,
    Name,
    Not,
    Operand,
)
from editloupe.evals.traces.filter_parser import Literal as LiteralValue

Kind = Literal["text", "number", "truth", "time", "column"]
"""What a value is; a column of the manifest may hold anything."""


@dataclass(frozen=True)
class FilterField:
    """A value every verdict has, or has not."""

    kind: Kind
    sql: str
    """Where it stands: v is the verdict, e its edit, u what its trace amounts to, p the people, n the notes."""
    meaning: str


FIELDS: Mapping[str, FilterField] = {
    "label": FilterField("text", "v.label", "the judge's label; the number where a criterion takes numbers"),
    "score": FilterField("number", "v.score", "on the rubric's own scale"),
    "score_100": FilterField("number", "v.score_100", "from 0 to 100"),
    "confidence": FilterField("number", "v.confidence", "from 0 to 1, where the judge gave one"),
    "status": FilterField("text", "v.status", "judged or unjudged"),
    "reason": FilterField("text", "v.reason", "why it is unjudged, such as unreadable_answer"),
    "human": FilterField("text", "p.label", "what people said, by the rule of `editloupe agree`"),
    "human_score": FilterField("number", "p.score", "the same on the rubric's scale"),
    "people": FilterField("number", "p.count", "how many people labelled it"),
    "agrees": FilterField("truth", "(v.score = p.score)", "whether judge and people gave the same"),
    "criterion": FilterField("text", "v.criterion", "such as instruction_following"),
    "protocol": FilterField("text", "v.protocol", "the set of rubrics that was asked"),
    "model": FilterField("text", "e.model", "the editing model"),
    "judge": FilterField("text", "v.judge", "who judged"),
    "mode": FilterField("text", "v.mode", "tools, oracle or plain"),
    "configuration": FilterField("text", "v.configuration", "the run's name for judge and settings"),
    "edit": FilterField("text", "e.edit_id", "the edit's id"),
    "name": FilterField("text", "e.name", "the edit's name, unique in its run: the id, or id@model"),
    "instruction": FilterField("text", "e.instruction", "what was asked of the editing model"),
    "instruction_type": FilterField("text", "e.instruction_type", "such as Change Color"),
    "turn": FilterField("number", "e.turn", "of an edit that is one of a chain"),
    "rationale": FilterField("text", "u.rationale", "the reason the judge gave"),
    "turns": FilterField("number", "u.turns", "replies that could be used"),
    "repairs": FilterField("number", "u.repairs", "replies that could not"),
    "steps": FilterField("number", "v.steps", "all replies"),
    "cost": FilterField("number", "v.cost", "in dollars, where the price is known"),
    "seconds": FilterField("number", "v.seconds", "from the first request to the verdict"),
    "requests": FilterField("number", "v.requests", "requests that were made"),
    "input_tokens": FilterField("number", "v.input_tokens", "of all requests together"),
    "output_tokens": FilterField("number", "v.output_tokens", "of all replies together"),
    "cached_tokens": FilterField("number", "v.cached_tokens", "those of the input that the provider remembered"),
    "reasoning_tokens": FilterField("number", "v.reasoning_tokens", "those of the output that were thought"),
    "repeat": FilterField("number", "v.repeat", "counted from 0"),
    "finished_at": FilterField("time", "v.finished_at", 'when it was judged, as text: finished_at > "2026-11-01"'),
    "note": FilterField("text", "n.note", "what somebody noted about the trace in the studio"),
}
COUNTS: Mapping[str, tuple[str, str]] = {
    "tool": ("calls", 'how often a tool was called: tool("zoom_in_image"); tool() of any'),
    "failed": ("failed", "how often it failed"),
    "cached": ("cached", "how often its answer came from memory"),
}
"""Functions that count, with their column; a tool's name is given, or none."""
SEARCHES: Mapping[str, tuple[str, str]] = {
    "said": ("", "these words, one after the other, anywhere in the trace"),
    "thought": ("thought", "the same in the judge's thoughts"),
    "called": ("called", "in its calls: names and parameters"),
    "observed": ("observed", "in what the tools answered"),
    "replied": ("replied", "in the raw replies"),
}
"""Functions that search texts, with their column."""
COLUMN, TAGGED = "column", "tagged"
FUNCTIONS = (*COUNTS, *SEARCHES, COLUMN, TAGGED)
EXAMPLES: tuple[tuple[str, str], ...] = (
    ('label = "Over Modification" and tool("zoom_in_image") = 0 and human != label', "never looked closely, and erred"),
    ("human != label and confidence >= 0.9", "sure and wrong"),
    ("failed() > 0 or repairs > 0", "something went wrong on the way"),
    ('status = "unjudged" and reason in ("unreadable_answer", "truncated")', "no verdict for these reasons"),
    ('thought("looks identical") and not observed("no difference")', "words of the judge, not of a tool"),
    ('model ~ "flux" and instruction_type = "Remove Object" and turns > 5', "long stories about one model"),
)

_WORD = re.compile(r"\w+\*?")
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Scripts without spaces between words: each sign is a word, so that any part of a text is found."""
_KINDS = {"text": "a text", "number": "a number", "truth": "true or false", "time": "a text"}


@dataclass(frozen=True)
class FilterNames:
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
class FilterSql:
    """A condition in SQL, with its values in order."""

    sql: str = "1"
    values: list[Any] = field(default_factory=list)


def translate_filter(condition: Condition | None, known: FilterNames) -> FilterSql:
    """Return the SQL of a filter; a name that does not exist is told with the nearest one that does.

    A comparison with something unknown is false, and so its opposite by `not` is true.

    >>> from editloupe.evals.traces.filter_parser import parse
    >>> translate_filter(parse("label = 'x'"), FilterNames()).sql
    'v.label = ? COLLATE NOCASE'
    """
    if condition is None:
        return FilterSql()
    writer = _Writer(known)
    return FilterSql(writer.write(condition, exact=False), writer.values)


def separate_words(text: str) -> str:
    """Return a text as it is searched: signs of scripts without spaces stand apart."""
    return _UNSPACED.sub(r" \1 ", text)


def fts_query(words: str, column: str) -> str | None:
    """Return words as a query of SQLite's full-text search, None where there is no word among them.

    >>> fts_query('Over modif*', "thought"), fts_query("!?", "")
    ('{thought} : ("over" + "modif" *)', None)
    """
    found = _WORD.findall(separate_words(words).casefold().replace("_", " "))
    if not found:
        return None
    parts = [f'"{word.rstrip("*")}"' for word in found]
    phrase = " + ".join(parts) + (" *" if found[-1].endswith("*") else "")
    return f"{{{column}}} : ({phrase})" if column else phrase


class _Writer:
    def __init__(self, known: FilterNames) -> None:
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
        if isinstance(operand, LiteralValue):
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


CHECKED = {
    "label": "verdicts v",
    "human": "people p",
    "status": "verdicts v",
    "reason": "verdicts v",
    "criterion": "verdicts v",
    "protocol": "verdicts v",
    "judge": "verdicts v",
    "mode": "verdicts v",
    "model": "edits e",
    "instruction_type": "edits e",
}
"""Fields that take few values, and where they stand."""
MOST = 200


def find_unknown_values(index: sqlite3.Connection, condition: Condition | None) -> tuple[str, ...]:
    """Return a sentence for every value that is compared with a field and that the run has nowhere in it."""
    found: dict[str, None] = {}
    for name, value in dict.fromkeys(_asked(condition)):
        sql, table = FIELDS[name].sql, CHECKED[name]
        same = f"{sql} = ? COLLATE NOCASE" if value.isascii() else f"folded({sql}) = folded(?)"
        if index.execute(f"SELECT 1 FROM {table} WHERE {same} LIMIT 1", (value,)).fetchone():
            continue
        rows = index.execute(f"SELECT DISTINCT {sql} FROM {table} WHERE {sql} IS NOT NULL LIMIT {MOST}")
        there = sorted(str(row[0]) for row in rows)
        near = get_close_matches(value, there, 1, 0.6)
        known = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, there[:8])) or 'none at all'}"
        found[f"No verdict has {name} {value!r}; {known}"] = None
    return tuple(found)


def _asked(condition: Condition | None) -> Iterator[tuple[str, str]]:
    """Yield fields with the texts they are compared with."""
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _asked(part)
    elif isinstance(condition, Not):
        yield from _asked(condition.inner)
    elif isinstance(condition, Comparison) and condition.sign in ("=", "!="):
        for one, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if isinstance(one, Name) and isinstance(other, LiteralValue):
                yield from _texts(one, other)
    elif isinstance(condition, Among) and isinstance(condition.value, Name):
        for literal in condition.listed:
            yield from _texts(condition.value, literal)


def _texts(name: Name, literal: LiteralValue) -> Iterator[tuple[str, str]]:
    if name.name.lower() in CHECKED and isinstance(literal.value, str):
        yield name.name.lower(), literal.value
