"""Translate parsed filters into SQL on the index, and filter the edits of a run. All fields and functions are listed here."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

from editloupe._util.text import number_of
from editloupe.evals.stats.scores.run_table import RunTable
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
    parse,
)
from editloupe.evals.traces.filter_parser import Literal as LiteralValue
from editloupe.types import Edit, UserError

Kind = Literal["text", "number", "truth", "time", "column"]
"""The type of a value; a column of the manifest may hold values of any type."""


@dataclass(frozen=True)
class FilterField:
    """A field of a verdict; it may be null."""

    kind: Kind
    sql: str
    """The column: v is the verdict, e its edit, u the facts of its trace, p the labels of people, c the claims, n the notes."""
    meaning: str


FIELDS: Mapping[str, FilterField] = {
    "label": FilterField("text", "v.label", "the judge's label, or its number if the criterion takes numbers"),
    "score": FilterField("number", "v.score", "on the rubric's own scale"),
    "score_100": FilterField("number", "v.score_100", "from 0 to 100"),
    "confidence": FilterField("number", "v.confidence", "from 0 to 1, if the judge gave one"),
    "status": FilterField("text", "v.status", "judged or unjudged"),
    "reason": FilterField("text", "v.reason", "the reason if it is unjudged, such as unreadable_answer"),
    "human": FilterField("text", "p.label", "the label of people, merged as by `editloupe agree`"),
    "human_score": FilterField("number", "p.score", "the score of this label on the rubric's scale"),
    "people": FilterField("number", "p.count", "how many people labelled it"),
    "agrees": FilterField("truth", "(v.score = p.score)", "whether judge and people gave the same score"),
    "apart": FilterField("number", "abs(v.score_100 - p.place)", "how far judge and people are apart, from 0 to 100"),
    "repeats_differ": FilterField(
        "truth",
        "EXISTS (SELECT 1 FROM cells o JOIN asked a USING (configuration) WHERE a.asked = v.asked AND o.edit = v.edit "
        "AND o.criterion = v.criterion AND o.differ)",
        "whether repeats of the verdict have different labels",
    ),
    "edit_labelled": FilterField(
        "truth", "EXISTS (SELECT 1 FROM people l WHERE l.edit = e.edit)", "whether people labelled the edit at all"
    ),
    "criterion": FilterField("text", "v.criterion", "such as instruction_following"),
    "protocol": FilterField("text", "v.protocol", "the protocol that was asked"),
    "model": FilterField("text", "e.model", "the editing model"),
    "judge": FilterField("text", "v.judge", "the judge"),
    "mode": FilterField("text", "v.mode", "tools, oracle or plain"),
    "configuration": FilterField("text", "v.configuration", "the run's name for judge and settings"),
    "edit": FilterField("text", "e.edit_id", "the edit's id"),
    "name": FilterField("text", "e.name", "the edit's name, unique in its run: the id, or id@model"),
    "instruction": FilterField("text", "e.instruction", "the instruction to the editing model"),
    "instruction_type": FilterField("text", "e.instruction_type", "such as Change Color"),
    "edit_text": FilterField("text", "e.search_text", "name, instruction, type and model of the edit"),
    "turn": FilterField("number", "e.turn", "the turn of an edit that is part of a chain"),
    "rationale": FilterField("text", "u.rationale", "the judge's rationale"),
    "turns": FilterField("number", "u.turns", "replies that could be read"),
    "repairs": FilterField("number", "u.repairs", "replies that could not be read"),
    "steps": FilterField("number", "v.steps", "all replies"),
    "cost": FilterField("number", "v.cost", "in US dollars, if the price is known"),
    "seconds": FilterField("number", "v.seconds", "from the first request to the verdict"),
    "requests": FilterField("number", "v.requests", "requests to the model"),
    "input_tokens": FilterField("number", "v.input_tokens", "sum over all requests"),
    "output_tokens": FilterField("number", "v.output_tokens", "sum over all replies"),
    "cached_tokens": FilterField("number", "v.cached_tokens", "input tokens from the provider's cache"),
    "reasoning_tokens": FilterField("number", "v.reasoning_tokens", "output tokens spent on reasoning"),
    "repeat": FilterField("number", "v.repeat", "counted from 0"),
    "finished_at": FilterField("time", "v.finished_at", 'the time of the verdict, as text: finished_at > "2026-11-01"'),
    "claims": FilterField("number", "c.claims", "claims of the judge that `editloupe verify` found"),
    "supported": FilterField("number", "c.supported", "of these, claims that the pixels support"),
    "contradicted": FilterField("number", "c.contradicted", "of these, claims that the pixels contradict"),
    "not_checkable": FilterField("number", "c.not_checkable", "of these, claims that the pixels do not settle"),
    "note": FilterField("text", "n.note", "the note on the trace from the studio"),
}
COUNTS: Mapping[str, tuple[str, str]] = {
    "tool": ("calls", 'calls of a tool: tool("zoom_in_image"), or tool() for any'),
    "failed": ("failed", "failed calls of a tool"),
    "cached": ("cached", "calls whose result came from the cache"),
}
"""Functions that count calls, with their column; the name of a tool is optional."""
SEARCHES: Mapping[str, tuple[str, str]] = {
    "said": ("", "this phrase anywhere in the trace"),
    "thought": ("thought", "in the judge's thoughts"),
    "called": ("called", "in the names and parameters of calls"),
    "observed": ("observed", "in the results of tools"),
    "replied": ("replied", "in the raw replies"),
}
"""Functions that search for a phrase, with their column."""
COLUMN, TAGGED = "column", "tagged"
FUNCTIONS = (*COUNTS, *SEARCHES, COLUMN, TAGGED)
EXAMPLES: tuple[tuple[str, str], ...] = (
    ('label = "Over Modification" and tool("zoom_in_image") = 0 and human != label', "wrong without zooming in"),
    ("human != label and confidence >= 0.9", "confident and wrong"),
    ("contradicted > 0 and confidence >= 0.9", "confident, and contradicted by the pixels"),
    ("failed() > 0 or repairs > 0", "with failed calls or repairs"),
    ('status = "unjudged" and reason in ("unreadable_answer", "truncated")', "unjudged for one of these reasons"),
    ('thought("looks identical") and not observed("no difference")', "a phrase of the judge, not of a tool"),
    ('model ~ "flux" and instruction_type = "Remove Object" and turns > 5', "long traces about one model"),
)

_WORD = re.compile(r"\w+\*?")
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Characters of scripts without spaces between words; each is indexed as a word, so that any part of a text is found."""
_KINDS = {"text": "a text", "number": "a number", "truth": "true or false", "time": "a text"}


@dataclass(frozen=True)
class FilterNames:
    """Names that a filter can use in addition to the fields, from the runs that are searched."""

    columns: Collection[str] = ()
    """Columns of the manifests."""
    tools: Collection[str] = ()
    fields: Collection[str] = tuple(FIELDS)
    """Fields that a message about an unknown name lists."""


@dataclass(frozen=True)
class _Value:
    kind: Kind
    sql: str
    values: tuple[Any, ...] = ()
    called: str = ""


@dataclass
class FilterSql:
    """A filter as an SQL condition, with its bound values."""

    sql: str = "1"
    values: list[Any] = field(default_factory=list)


def translate_filter(condition: Condition | None, names: FilterNames) -> FilterSql:
    """Return the SQL of a filter; raise ExpressionError if it uses an unknown name.

    Texts of the filter are bound values. A comparison with null is false, so its negation is true.

    >>> from editloupe.evals.traces.filter_parser import parse
    >>> translate_filter(parse("label = 'x'"), FilterNames()).sql
    'v.label = ? COLLATE NOCASE'
    """
    if condition is None:
        return FilterSql()
    writer = _Writer(names)
    return FilterSql(writer.write(condition, exact=False), writer.values)


def separate_words(text: str) -> str:
    """Return a text with spaces around the characters of scripts that have none."""
    return _UNSPACED.sub(r" \1 ", text)


def fts_query(words: str, column: str) -> str | None:
    """Return a phrase as a query of SQLite's full-text search, None if it has no words.

    >>> fts_query('Over modif*', "thought"), fts_query("!?", "")
    ('{thought} : ("over" + "modif" *)', None)
    """
    terms = _WORD.findall(separate_words(words).casefold().replace("_", " "))
    if not terms:
        return None
    parts = [f'"{word.rstrip("*")}"' for word in terms]
    phrase = " + ".join(parts) + (" *" if terms[-1].endswith("*") else "")
    return f"{{{column}}} : ({phrase})" if column else phrase


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions that the SQL of filters uses."""
    connection.create_function("folded", 1, _fold, deterministic=True)
    connection.create_function("as_number", 1, _to_number, deterministic=True)


def _fold(value: Any) -> str | None:
    return None if value is None else str(value).casefold()


def _to_number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


class _Writer:
    def __init__(self, names: FilterNames) -> None:
        self._names = names
        self.values: list[Any] = []

    def write(self, condition: Condition, exact: bool) -> str:
        """Return the SQL of a condition; if `exact`, null counts as false, as needed under NOT."""
        if isinstance(condition, Joined):
            return "(" + f" {condition.word.upper()} ".join(self.write(part, exact) for part in condition.parts) + ")"
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
            return f"{self._bind(self._value(condition.value))} IS {'NOT ' if condition.negated else ''}NULL"
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
            return f"{self._bind(value)} > 0"
        if value.kind != "truth":
            raise ExpressionError(
                f"{value.called} alone is not a condition; compare it, as in {value.called} = …", operand.position
            )
        return self._bind(value)

    def _search(self, call: Call) -> str:
        column = SEARCHES[call.name][0]
        query = fts_query(call.argument or "", column)
        if query is None:
            raise ExpressionError(f'{call.name}(…) needs a word to look for: {call.name}("red")', call.position)
        self.values.append(query)
        return "u.entry IN (SELECT rowid FROM words WHERE words MATCH ?)"

    def _comparison(self, comparison: Comparison) -> str:
        left, right = self._value(comparison.left), self._value(comparison.right)
        kinds = {left.kind, right.kind}
        if comparison.sign == CONTAINS:
            return self._contains(comparison, left, right)
        if "number" in kinds and kinds <= {"number", "column"}:
            return f"{self._bind(_as_number(left))} {comparison.sign} {self._bind(_as_number(right))}"
        if "truth" in kinds and kinds <= {"truth", "column"}:
            if comparison.sign not in ("=", "!="):
                sentence = f"true and false are compared with = and !=, not with {comparison.sign}"
                raise ExpressionError(sentence, comparison.position)
            return f"{self._bind(left)} {comparison.sign} {self._bind(right)}"
        if kinds <= {"text", "time", "column"}:
            if comparison.sign not in ("=", "!=") and "time" not in kinds and kinds != {"column"}:
                raise ExpressionError(
                    f"texts are compared with =, != and ~, not with {comparison.sign}", comparison.position
                )
            left, right = (_as_text(value) if kinds & {"text", "time"} else value for value in (left, right))
            if _needs_folding(left, right):
                return f"folded({self._bind(left)}) {comparison.sign} folded({self._bind(right)})"
            return f"{self._bind(left)} {comparison.sign} {self._bind(right)} COLLATE NOCASE"
        raise self._kinds_error(comparison.position, left, right)

    def _contains(self, comparison: Comparison, left: _Value, right: _Value) -> str:
        if not {left.kind, right.kind} <= {"text", "time", "column"}:
            raise ExpressionError(f"{CONTAINS} looks for a text in a text", comparison.position)
        fold = "lower" if all(isinstance(v, str) and v.isascii() for v in right.values) and right.values else "folded"
        return f"instr({fold}({self._bind(left)}), {fold}({self._bind(right)})) > 0"

    def _among(self, among: Among) -> str:
        value = self._value(among.value)
        listed = [self._value(item) for item in among.listed]
        kinds = {item.kind for item in listed}
        if len(kinds) > 1 or (value.kind != "column" and kinds != {"text" if value.kind == "time" else value.kind}):
            raise self._kinds_error(among.position, value, *listed)
        value = _as_number(value) if kinds == {"number"} else _as_text(value) if kinds == {"text"} else value
        fold = kinds == {"text"} and _needs_folding(*listed)
        collate = " COLLATE NOCASE" if kinds == {"text"} and not fold else ""
        left, *marks = (f"folded({self._bind(item)})" if fold else self._bind(item) for item in (value, *listed))
        return f"{left}{collate} {'NOT ' if among.negated else ''}IN ({', '.join(marks)})"

    def _kinds_error(self, position: int, *values: _Value) -> ExpressionError:
        kinds = " and ".join(
            dict.fromkeys(f"{value.called} is {_KINDS.get(value.kind, 'a column')}" for value in values)
        )
        return ExpressionError(f"{kinds}; the two cannot be compared", position)

    def _value(self, operand: Operand) -> _Value:
        if isinstance(operand, LiteralValue):
            kind: Kind = (
                "truth" if isinstance(operand.value, bool) else "text" if isinstance(operand.value, str) else "number"
            )
            value = int(operand.value) if isinstance(operand.value, bool) else operand.value
            text = f'"{value}"' if isinstance(value, str) else f"{operand.value}".lower().removesuffix(".0")
            return _Value(kind, "?", (value,), text)
        if isinstance(operand, Call):
            return self._call_value(operand)
        name = operand.name
        if (own := FIELDS.get(name) or FIELDS.get(name.lower())) is not None:
            return _Value(own.kind, own.sql, (), name)
        if name in self._names.columns:
            return _column(name)
        raise ExpressionError(self._describe_unknown(name), operand.position)

    def _call_value(self, call: Call) -> _Value:
        if call.name in COUNTS:
            counted = COUNTS[call.name][0]
            if call.argument is None:
                every = f"(SELECT coalesce(sum({counted}), 0) FROM tool_counts t WHERE t.unit = v.unit)"
                return _Value("number", every, (), f"{call.name}()")
            if call.argument not in self._names.tools and call.argument not in (tools := self._all_tools()):
                near = get_close_matches(call.argument, tools, 1, 0.4)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(tools))}"
                raise ExpressionError(f'there is no tool "{call.argument}"; {hint}', call.position)
            query = f"SELECT {counted} FROM tool_counts t WHERE t.unit = v.unit AND t.tool = ?"
            return _Value("number", f"coalesce(({query}), 0)", (call.argument,), f"{call.name}(…)")
        if call.name == COLUMN:
            return self._column(call)
        if call.name in SEARCHES or call.name == TAGGED:
            raise ExpressionError(
                f"{call.name}(…) is itself a condition; write it alone, or `not {call.name}(…)`", call.position
            )
        near = get_close_matches(call.name, FUNCTIONS, 1, 0.4)
        hint = f"did you mean {near[0]}(…)?" if near else f"there are {', '.join(f'{n}(…)' for n in FUNCTIONS)}"
        raise ExpressionError(f"there is no function {call.name}(…); {hint}", call.position)

    def _column(self, call: Call) -> _Value:
        if not call.argument:
            raise ExpressionError(f'{COLUMN}(…) needs the name of a column: {COLUMN}("style")', call.position)
        columns = sorted(self._names.columns)
        if columns and call.argument not in columns:
            near = get_close_matches(call.argument, columns, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(columns)}"
            raise ExpressionError(f"the manifest has no column {call.argument!r}; {hint}", call.position)
        return _column(call.argument)

    def _all_tools(self) -> set[str]:
        """Return the tools of the runs and of this version; loading these takes time."""
        from editloupe.tools.registry import BUILT_IN

        return {*self._names.tools, *(tool.name for tool in BUILT_IN)}

    def _describe_unknown(self, name: str) -> str:
        if name in FUNCTIONS:
            return f'{name} is a function: {name}("…")'
        return f'there is no field "{name}"{self._suggest(name)}'

    def _suggest(self, name: str) -> str:
        names = [*self._names.fields, *self._names.columns]
        near = get_close_matches(name, names, 1, 0.6) or get_close_matches(name.lower(), names, 1, 0.6)
        if near:
            return f"; did you mean {near[0]}?"
        more = f", and of the manifest {', '.join(sorted(self._names.columns))}" if self._names.columns else ""
        return f"; texts must be quoted, and the fields are {', '.join(self._names.fields)}{more}"

    def _bind(self, value: _Value) -> str:
        self.values += value.values
        return value.sql


def _column(name: str) -> _Value:
    if not set(name) & set('"\\'):
        return _Value("column", "json_extract(e.extra, ?)", (f'$."{name}"',), name)
    return _Value("column", "(SELECT x.value FROM json_each(e.extra) x WHERE x.key = ?)", (name,), name)


def _needs_folding(*values: _Value) -> bool:
    """True unless all typed texts are ASCII; for those SQLite's own case folding is enough, and faster."""
    typed = [text for value in values for text in value.values if isinstance(text, str)]
    return not typed or not all(map(str.isascii, typed))


def _as_text(value: _Value) -> _Value:
    """Cast a column to text: it may hold a number."""
    return _Value("text", f"CAST({value.sql} AS TEXT)", value.values, value.called) if value.kind == "column" else value


def _as_number(value: _Value) -> _Value:
    """Cast a column to a number: it may hold it as text, as from a CSV file."""
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
"""Fields with few values, and their tables."""
MOST = 200


def find_unknown_values(index: sqlite3.Connection, condition: Condition | None) -> tuple[str, ...]:
    """Return a sentence for every value of the filter that does not occur in the run."""
    sentences: dict[str, None] = {}
    for name, value in dict.fromkeys(_compared_texts(condition)):
        sql, table = FIELDS[name].sql, CHECKED[name]
        same = f"{sql} = ? COLLATE NOCASE" if value.isascii() else f"folded({sql}) = folded(?)"
        if index.execute(f"SELECT 1 FROM {table} WHERE {same} LIMIT 1", (value,)).fetchone():
            continue
        rows = index.execute(f"SELECT DISTINCT {sql} FROM {table} WHERE {sql} IS NOT NULL LIMIT {MOST}")
        values = sorted(str(row[0]) for row in rows)
        near = get_close_matches(value, values, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, values[:8])) or 'none at all'}"
        sentences[f"No verdict has {name} {value!r}; {hint}"] = None
    return tuple(sentences)


def _compared_texts(condition: Condition | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of CHECKED with the texts they are compared with."""
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _compared_texts(part)
    elif isinstance(condition, Not):
        yield from _compared_texts(condition.inner)
    elif isinstance(condition, Comparison) and condition.sign in ("=", "!="):
        for name, value in ((condition.left, condition.right), (condition.right, condition.left)):
            if isinstance(name, Name) and isinstance(value, LiteralValue):
                yield from _texts(name, value)
    elif isinstance(condition, Among) and isinstance(condition.value, Name):
        for literal in condition.listed:
            yield from _texts(condition.value, literal)


def _texts(name: Name, literal: LiteralValue) -> Iterator[tuple[str, str]]:
    if name.name.lower() in CHECKED and isinstance(literal.value, str):
        yield name.name.lower(), literal.value


EDIT_FIELDS = tuple(name for name, field in FIELDS.items() if field.sql.startswith("e."))
"""Fields of the filter language that belong to an edit, not to a verdict."""


def filter_edits(table: RunTable, where: str) -> RunTable:
    """Return the table with the edits that match a filter; a note states the filter and the number of edits.

    The filter language is that of `find_traces`, with the fields of edits and the columns of the manifest. Fields of verdicts
    are refused: scores of edits that were chosen by their scores say nothing about the others.

    Args:
        table: The run.
        where: The filter, such as `instruction_type = "Change Color" and style != "sketch"`. An empty one keeps all edits.

    Raises:
        ExpressionError: The filter has a mistake, or uses a field of verdicts.
        UserError: No edit matches.
    """
    condition = parse(where)
    if condition is None:
        return table
    columns = {name for edit in _list_edits(table) for name in edit.extra}
    for operand in _list_operands(condition):
        _check_operand(operand, columns)
    query = translate_filter(condition, FilterNames(columns, fields=EDIT_FIELDS))
    with closing(sqlite3.connect(":memory:")) as index:
        add_functions(index)
        index.execute(
            "CREATE TABLE edits (edit, name, edit_id, model, instruction, instruction_type, turn, extra, search_text)"
        )
        index.executemany(
            "INSERT INTO edits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (_build_record(number, edit, name) for number, (edit, name) in enumerate(_list_named(table))),
        )
        matches = {row[0] for row in index.execute(f"SELECT e.edit FROM edits e WHERE {query.sql}", query.values)}
        unknown = find_unknown_values(index, condition)
    rows = [row for number, row in enumerate(table.rows) if number in matches]
    if not rows:
        raise UserError(f"no edit of {table.name} matches --where. {' '.join(unknown)}".rstrip(". ") + ".")
    count = len(table.rows)
    waiting = [edit for number, edit in enumerate(table.waiting, start=count) if number in matches]
    note = f"Only edits with {where.strip()}: {len(rows)} of {number_of(count, 'edit')}."
    return replace(table.with_rows(rows).with_waiting(waiting), notes=(*table.notes, note, *unknown))


def _list_edits(table: RunTable) -> Iterator[Edit]:
    yield from (row.edit for row in table.rows)
    yield from table.waiting


def _list_named(table: RunTable) -> Iterator[tuple[Edit, str]]:
    yield from ((row.edit, row.name) for row in table.rows)
    yield from ((edit, edit.id) for edit in table.waiting)


def _build_record(number: int, edit: Edit, name: str) -> tuple[object, ...]:
    extra = json.dumps(dict(edit.extra), default=str)
    texts = (name, edit.instruction, edit.instruction_type, edit.model)
    search = "\n".join(text for text in texts if text).casefold()
    return (number, name, edit.id, edit.model, edit.instruction, edit.instruction_type, edit.turn, extra, search)


def _check_operand(operand: Operand, columns: set[str]) -> None:
    """Raise if an operand is a field of verdicts or a function on traces."""
    field = FIELDS.get(operand.name) or FIELDS.get(operand.name.lower()) if isinstance(operand, Name) else None
    if field is not None and not field.sql.startswith("e."):
        name = operand.name if isinstance(operand, Name) else ""
    elif isinstance(operand, Call) and operand.name != COLUMN:
        name = f"{operand.name}(…)"
    else:
        return
    own = ", ".join((*EDIT_FIELDS, *sorted(columns)))
    raise ExpressionError(f"{name} is about a verdict; edits are chosen by {own}", operand.position)


def _list_operands(condition: Condition) -> Iterator[Operand]:
    if isinstance(condition, Joined):
        for part in condition.parts:
            yield from _list_operands(part)
    elif isinstance(condition, Not):
        yield from _list_operands(condition.inner)
    elif isinstance(condition, Comparison):
        yield from (condition.left, condition.right)
    elif isinstance(condition, (Among, Missing)):
        yield condition.value
    else:
        yield condition
