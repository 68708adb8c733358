"""Reads one page of a run's list, by edit or by verdict, with filter, order and counts, all in SQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode

from editloupe.evals.traces.filter_parser import (
    CONTAINS,
    Comparison,
    Condition,
    ExpressionError,
    Literal,
    Missing,
    Name,
    join_conditions,
    parse,
    quote_text,
    split_conditions,
)
from editloupe.evals.traces.filter_sql import FilterSql, find_unknown_values, translate_filter
from editloupe.evals.traces.index_update import DAMAGED
from editloupe.evals.traces.trace_search import JOINS, ORDERS, VERDICT_ORDERS, read_names
from editloupe.rubrics.tables import NO_MODEL
from editloupe.types import UNJUDGED

PAGE_SIZE = 50
BY: Mapping[str, str] = {"edit": "By edit", "verdict": "By verdict"}
"""What a row of the list is."""
COLUMNS: Mapping[str, str] = {
    "label": "Label",
    "people": "People",
    "confidence": "Confidence",
    "steps": "Steps",
    "cost": "Cost",
    "seconds": "Seconds",
    "tags": "Tags",
}
"""Columns that can be chosen."""
AGREEMENTS: Mapping[str, tuple[str, str]] = {
    "people": ("Judge and people differ", "agrees = false"),
    "agree": ("Judge and people agree", "agrees = true"),
    "repeats": ("Repeats differ", "repeats_differ = true"),
    "none": ("No human label", "edit_labelled = false"),
}
"""Choices about agreement, with their conditions."""
_FIELDS = {"type": "instruction_type", "model": "model", "criterion": "criterion", "label": "label"}
"""Choices that ask for one value of a field."""
CHOICES = ("text", "type", "model", "criterion", "label", "apart")
"""What the fields above the list choose; each writes a condition of the filter."""
_OLD_ORDERS = {
    "id": "edit",
    "worst": "label",
    "best": "-label",
    "unsure": "confidence",
    "confident": "-confidence",
    "apart": "-people",
    "turns": "-steps",
    "steps": "-steps",
    "slow": "-seconds",
    "costly": "-cost",
}
"""Orders in addresses of earlier versions."""
_ORDER = re.compile(rf"-?(?:{'|'.join(VERDICT_ORDERS)})(?:\.\w{{1,100}})?", re.ASCII)
_IN_ORDER = "e.position, e.edit_id, e.name"
_OF_EDIT = "c.edit = e.edit AND c.configuration = :configuration"
_EDIT_ORDERS: Mapping[str, str] = {
    "edit": "e.edit_id",
    "model": "e.model",
    "type": "e.instruction_type",
    "label": f"(SELECT min(c.place) FROM cells c WHERE {_OF_EDIT} {{of}})",
    "people": (
        "(SELECT max(abs(c.place - l.place)) FROM cells c JOIN people l USING (edit, criterion, protocol) "
        f"WHERE {_OF_EDIT} {{of}})"
    ),
    "confidence": f"(SELECT min(c.confidence) FROM cells c WHERE {_OF_EDIT} {{of}})",
    "steps": f"(SELECT sum(c.steps) FROM cells c WHERE {_OF_EDIT} {{of}})",
    "cost": f"(SELECT sum(c.cost) FROM cells c WHERE {_OF_EDIT} {{of}})",
    "seconds": f"(SELECT sum(c.seconds) FROM cells c WHERE {_OF_EDIT} {{of}})",
    "tags": "(SELECT min(t.tag) FROM tags t JOIN verdicts o USING (answer) WHERE o.edit = e.edit)",
    "criterion": "NULL",
}
_COLUMNS = (
    f"e.edit, e.name, e.edit_id, e.position, e.instruction_type AS type, e.model, coalesce(e.instruction, '{DAMAGED}') "
    "AS instruction, e.source, e.edited"
)
_ABOUT_VERDICTS = re.compile(r"\b[vupnc]\.")


@dataclass(frozen=True)
class ListQuery:
    """Filter, order and page of a list, as they are in its address."""

    where: str = ""
    """A filter; see docs/reference/filters.md."""
    by: str = "edit"
    """A key of `BY`. By edit, an edit is listed if one of its verdicts matches."""
    order: str = ""
    """A column, with a minus sign for descending order; `label.CRITERION` is the label on one criterion; empty for the
    manifest's order."""
    page: int = 1
    configuration: str = ""
    """The configuration whose verdicts are listed. By edit it is the run's first if this is empty: verdicts of two judges are
    never mixed in a row. By verdict all are listed if this is empty."""
    columns: str = ""
    """The columns that are shown, separated by commas; empty for those chosen last, or all."""

    def link(self, **changes: Any) -> str:
        """Return the query string of this query with some changes; it leads to the first page unless `page` is changed."""
        changed = replace(self, **({"page": 1} | changes))
        plain = ListQuery()
        values = {name: value for name, value in vars(changed).items() if value != getattr(plain, name)}
        return "?" + urlencode(values, errors="replace")

    @classmethod
    def parse(cls, text: str) -> ListQuery:
        """Return the query of a query string. Unknown names and values are ignored; choices become conditions of the filter.

        >>> ListQuery.parse("?label=Wrong+Action&order=worst&colour=red")
        ListQuery(where='label = "Wrong Action"', by='edit', order='label', page=1, configuration='', columns='')
        """
        values = dict(parse_qsl(text.removeprefix("?"), keep_blank_values=True))
        where = values.get("where", "")
        if values.get("status") in ("judged", UNJUDGED):
            where = change_choice(where, "label", values["status"])
        for name in CHOICES:
            if values.get(name) or (name in values and name in read_choices(where)):
                where = change_choice(where, name, values[name])
        order = values.get("order", "")
        order = _OLD_ORDERS.get(order, order)
        page = values.get("page", "")
        return cls(
            where=where,
            by=values["by"] if values.get("by") in BY else "edit",
            order=order if _ORDER.fullmatch(order) else "",
            page=min(int(page), 10**9) if page.isascii() and page.isdecimal() and int(page) else 1,
            configuration=values.get("configuration", ""),
            columns=",".join(name for name in COLUMNS if name in values.get("columns", "").split(",")),
        )

    @property
    def choices(self) -> dict[str, str]:
        """What is chosen by conditions of the filter, by the name of the choice."""
        return read_choices(self.where)

    def choose(self, **choices: str) -> str:
        """Return the query string with other choices; an empty one is taken back."""
        where = self.where
        for name, value in choices.items():
            where = change_choice(where, name, value)
        return self.link(where=where)

    def sort(self, column: str) -> str:
        """Return the query string of a click on a column's head: its order, then the reverse, then the manifest's order."""
        name = column.partition(".")[0]
        ascends_first = name in ("label", "edit", "model", "type", "tags", "criterion")
        first, second = (column, f"-{column}") if ascends_first else (f"-{column}", column)
        return self.link(order=second if self.order == first else "" if self.order == second else first)

    @property
    def cleared(self) -> str:
        """The query string without a filter."""
        return self.link(where="", order="")


def read_choices(where: str) -> dict[str, str]:
    """Return what a filter chooses, by the name of the choice; nothing if the filter has a mistake.

    >>> read_choices('label = "Wrong Action" and score < 3 and model is null')
    {'label': 'Wrong Action', 'model': '(no model)'}
    """
    choices: dict[str, str] = {}
    for text in _split(where) or ():
        choice = _read_choice(parse(text))
        if choice is not None:
            choices.setdefault(*choice)
    return choices


def change_choice(where: str, name: str, value: str) -> str:
    """Return a filter with another choice; conditions that are no choice stay as they are.

    >>> change_choice('label = "Wrong Action" and score < 3', "label", "unjudged")
    'score < 3 and status = "unjudged"'
    """
    conditions = _split(where)
    if conditions is None:
        return where
    others = [text for text in conditions if (_read_choice(parse(text)) or ("", ""))[0] != name]
    return join_conditions([*others, _write_choice(name, value)] if value else others)


def _split(where: str) -> list[str] | None:
    try:
        return split_conditions(where)
    except ExpressionError:
        return None


def _write_choice(name: str, value: str) -> str:
    if name == "apart":
        return AGREEMENTS[value][1] if value in AGREEMENTS else ""
    if name == "text":
        return f"edit_text {CONTAINS} {quote_text(value.strip())}"
    if name == "model" and value == NO_MODEL:
        return "model is null"
    if name == "label" and value in ("judged", UNJUDGED):
        return f"status = {quote_text(value)}"
    return f"{_FIELDS[name]} = {quote_text(value)}"


def _read_choice(condition: Condition | None) -> tuple[str, str] | None:
    """Return name and value of the choice that writes a condition; None if there is none."""
    if isinstance(condition, Missing):
        is_model = isinstance(condition.value, Name) and condition.value.name == "model" and not condition.negated
        return ("model", NO_MODEL) if is_model else None
    if not isinstance(condition, Comparison) or not isinstance(condition.left, Name):
        return None
    if not isinstance(condition.right, Literal):
        return None
    field, sign, value = condition.left.name, condition.sign, condition.right.value
    if isinstance(value, bool):
        text = f"{field} {sign} {str(value).lower()}"
        return next((("apart", name) for name, (_, own) in AGREEMENTS.items() if own == text), None)
    if not isinstance(value, str):
        return None
    if sign == CONTAINS and field == "edit_text":
        return "text", value
    if sign == "=" and field == "status" and value in ("judged", UNJUDGED):
        return "label", value
    return next(((name, value) for name, own in _FIELDS.items() if sign == "=" and field == own), None)


@dataclass(frozen=True)
class EditTableRow:
    """One edit of a list, with the judge's cell and people's label per criterion."""

    edit: Mapping[str, Any]
    cells: Mapping[str, Mapping[str, Any]]
    people: Mapping[str, Mapping[str, Any]]
    tags: tuple[str, ...] = ()
    criterion: str = ""
    """The criterion of the matching verdict that is furthest from people; empty without a filter on verdicts."""

    def sum(self, name: str) -> float | None:
        """Return the sum of a value over the cells; None if no cell has one."""
        values = [cell[name] for cell in self.cells.values() if cell[name] is not None]
        return sum(values) if values else None

    @property
    def confidence(self) -> float | None:
        """The lowest confidence of the cells."""
        return min((cell["confidence"] for cell in self.cells.values() if cell["confidence"] is not None), default=None)


class Paged:
    """The position of a page in a list."""

    total: int
    number: int

    @property
    def last(self) -> int:
        """The number of the last page."""
        return max(1, -(-self.total // PAGE_SIZE))

    @property
    def first_row(self) -> int:
        """The position of the first row on this page among all rows, from 1."""
        return (self.number - 1) * PAGE_SIZE + 1


@dataclass(frozen=True)
class EditPage(Paged):
    """One page of a list by edit."""

    rows: tuple[EditTableRow, ...]
    total: int
    """Rows of all pages."""
    number: int


class EditList:
    """The edits of a run that match a query.

    Args:
        index: The index of the run.
        query: The query; it is read by edit.

    Raises:
        ExpressionError: The filter has a mistake.
    """

    def __init__(self, index: sqlite3.Connection, query: ListQuery) -> None:
        self._index = index
        names = [row[0] for row in index.execute("SELECT configuration FROM configurations ORDER BY place")]
        self._several = len(names) > 1
        configuration = query.configuration if query.configuration in names else next(iter(names), "")
        self.query = replace(query, configuration=configuration)
        condition = parse(query.where)
        self._filter = translate_filter(condition, read_names(index)) if condition is not None else FilterSql()
        self.notes = find_unknown_values(index, condition)
        """Values of the filter that do not occur in the run."""

    @property
    def needs_traces(self) -> bool:
        """True if the filter asks for steps of traces or for checked claims, which only a search brings up to date."""
        return re.search(r"\b[uc]\.|tool_counts|words", self._filter.sql) is not None

    def count(self) -> int:
        """Return the number of edits."""
        return int(self._index.execute(f"SELECT count(*) {self._source}", self._values).fetchone()[0])

    def names(self) -> list[tuple[str, str]]:
        """Return all edits in order: the name, and the criterion of the verdict that matches, or an empty text."""
        statement = f"SELECT e.name, {self._criterion} {self._source} {self._ordering}"
        return [(row[0], row[1] or "") for row in self._index.execute(statement, self._values)]

    def statement(self) -> str:
        """Return the SQL of one page."""
        columns = f"{_COLUMNS}, {self._criterion} AS matching"
        return f"SELECT {columns} {self._source} {self._ordering} LIMIT :size OFFSET :skipped"

    def page(self) -> EditPage:
        """Return the query's page; the last one if the page is past the end."""
        total = self.count()
        number = max(1, min(self.query.page, -(-total // PAGE_SIZE)))
        limits = {"size": PAGE_SIZE, "skipped": (number - 1) * PAGE_SIZE}
        edits = self._index.execute(self.statement(), {**self._values, **limits}).fetchall()
        return EditPage(self._rows(edits), total, number)

    def _rows(self, edits: list[sqlite3.Row]) -> tuple[EditTableRow, ...]:
        marks, numbers = ", ".join("?" * len(edits)), [edit["edit"] for edit in edits]
        cells: dict[int, dict[str, Mapping[str, Any]]] = {}
        people: dict[int, dict[str, Mapping[str, Any]]] = {}
        tags: dict[int, dict[str, None]] = {}
        own = f"SELECT * FROM cells WHERE edit IN ({marks}) AND configuration = ?"
        for row in self._index.execute(own, (*numbers, self.query.configuration)):
            cells.setdefault(row["edit"], {})[row["criterion"]] = dict(row)
        for row in self._index.execute(f"SELECT * FROM people WHERE edit IN ({marks})", numbers):
            cell = cells.get(row["edit"], {}).get(row["criterion"])
            if cell is None or cell["protocol"] == row["protocol"]:
                people.setdefault(row["edit"], {})[row["criterion"]] = dict(row)
        tagged = f"SELECT edit, tag FROM tags JOIN verdicts USING (answer) WHERE edit IN ({marks}) ORDER BY tag"
        for edit, tag in self._index.execute(tagged, numbers):
            tags.setdefault(edit, {})[tag] = None
        return tuple(
            EditTableRow(
                dict(edit),
                cells.get(edit["edit"], {}),
                people.get(edit["edit"], {}),
                tuple(tags.get(edit["edit"], ())),
                edit["matching"] or "",
            )
            for edit in edits
        )

    @property
    def _criterion(self) -> str:
        return "NULL" if self._filter.sql == "1" else "listed.criterion"

    @cached_property
    def _source(self) -> str:
        """FROM and WHERE of the edits that match; the filter is evaluated only once."""
        if self._filter.sql == "1":
            return f"FROM edits e WHERE {self._asked}" if self._several else "FROM edits e"
        self._index.execute("DROP TABLE IF EXISTS temp.listed")
        self._index.execute("CREATE TEMP TABLE listed (edit INTEGER PRIMARY KEY, criterion, apart)")
        # Named and positional values cannot be mixed.
        where = f"({self._filter.sql})" + (f" AND {self._asked}" if self._several else "")
        where = where.replace(":configuration", "?")
        values = [*self._filter.values, *([self.query.configuration] if self._several else [])]
        if _ABOUT_VERDICTS.search(self._filter.sql):
            joins, joined = self._joins()
            select = f"SELECT e.edit, v.criterion, max(abs(v.score_100 - p.place)) FROM edits e {joins}"
            self._index.execute(f"INSERT INTO listed {select} WHERE {where} GROUP BY e.edit", [*joined, *values])
        else:
            self._index.execute(f"INSERT INTO listed SELECT e.edit, NULL, NULL FROM edits e WHERE {where}", values)
        return "FROM listed CROSS JOIN edits e ON e.edit = listed.edit"

    def _joins(self) -> tuple[str, list[str]]:
        """Return the joins to an edit's verdicts and what is known about them; an edit without a verdict has a row, too."""
        own = "AND v.asked IN (SELECT asked FROM asked WHERE configuration = ?)" if self._several else ""
        joins = f"LEFT JOIN verdicts v ON v.edit = e.edit AND v.twin = 0 {own} {JOINS}"
        return joins, [self.query.configuration] if self._several else []

    @property
    def _asked(self) -> str:
        """The test that leaves out edits that only other configurations judged. Those that none judged are in all lists."""
        judged = "EXISTS (SELECT 1 FROM cells c WHERE c.edit = e.edit{})"
        return f"({judged.format(' AND c.configuration = :configuration')} OR NOT {judged.format('')})"

    @property
    def _ordering(self) -> str:
        column, _, criterion = self.query.order.removeprefix("-").partition(".")
        if column not in _EDIT_ORDERS:
            return f"ORDER BY {_IN_ORDER}"
        of = "AND c.criterion = :criterion" if criterion or self._values["criterion"] else ""
        down = " DESC" if self.query.order.startswith("-") else ""
        return f"ORDER BY {_EDIT_ORDERS[column].format(of=of)}{down} NULLS LAST, {_IN_ORDER}"

    @cached_property
    def _values(self) -> dict[str, Any]:
        """Values of the statements; texts of a request are never part of SQL."""
        criterion = self.query.order.partition(".")[2] or self.query.choices.get("criterion", "")
        return {"configuration": self.query.configuration, "criterion": criterion}


def find_order(query: ListQuery) -> str:
    """Return the order of a list by verdict, as `RunSearch.hits` takes it."""
    name = query.order.partition(".")[0]
    return name if name.removeprefix("-") in VERDICT_ORDERS else next(iter(ORDERS))
