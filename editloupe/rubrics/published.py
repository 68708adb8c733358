"""Rules of public evaluation scripts, which `editloupe report --as-published` applies to stored verdicts.

Where a benchmark's public script computes something else than the paper's text says, the difference is a named rule with a value
for each. A paper's `PUBLISHED` holds its rules and the function that computes the script's tables under any choice of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from editloupe._util.text import number_of
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.tables import Cell, PrintedTable
from editloupe.types import Edit, UserError

ABSENT_RULE = "absent_subset"
"""Name, without the paper's, of the rule on subsets without any output, with the values `zero` and `leave_out`."""


@dataclass(frozen=True)
class Rule:
    """A choice in how a paper's numbers are computed.

    Args:
        name: Name of the paper and of the choice, such as `paper.rounding`.
        published: The value that the public script implements.
        text: The value that the paper's text asks for; reports use it by default.
        values: Every value, with a sentence that says what it does.
        asks: Values that change what is asked, each with the function that changes the protocol. Such a rule is set by a
            preset before anything is judged; reports only print its value.
    """

    name: str
    published: str
    text: str
    values: Mapping[str, str]
    asks: Mapping[str, Callable[[Protocol], Protocol]] = field(default_factory=dict)


@dataclass(frozen=True)
class RawAnswer:
    """The stored answer to one criterion.

    Args:
        status: Whether there is a verdict.
        value: Score on the rubric's own scale; None if unjudged, or if the answer has no number.
        score_100: Score from 0 to 100; None if unjudged, or if the answer has no number.
        checks: The answers of a rubric with checks, by key. Filled in only if `Published.reads_checks` is set.
        label: The label, if the rubric has labels.
        reason: Why the criterion is unjudged.
        raw: The reply that could not be read. Filled in only if `Published.reads_checks` is set.
    """

    status: Literal["judged", "unjudged"]
    value: float | None = None
    checks: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    reason: str | None = None
    raw: str = ""
    score_100: float | None = None


@dataclass(frozen=True)
class RawEdit:
    """One edit in one repeat, with its stored answers.

    Args:
        edit: The edit.
        repeat: Index of the repeat, from 0.
        answers: Answer per criterion. A criterion that was not asked, or is not judged yet, is not listed.
        missing: Whether the editing model produced no picture. Answers that a rule of the paper settled are then left out.
    """

    edit: Edit
    repeat: int
    answers: Mapping[str, RawAnswer]
    missing: bool = False

    def value(self, criterion: str) -> float | None:
        """Return the score on the rubric's own scale, or None if there is no verdict with a number."""
        answer = self.answers.get(criterion)
        return answer.value if answer else None

    def values(self, criteria: Sequence[str]) -> dict[str, float] | None:
        """Return the score of each of these criteria, or None if one of them has none."""
        values = {criterion: self.value(criterion) for criterion in criteria}
        scores = {criterion: value for criterion, value in values.items() if value is not None}
        return scores if len(scores) == len(values) else None


@dataclass(frozen=True)
class PublishedTable:
    """One table of the public script.

    Args:
        title: Title of the table.
        columns: Column titles, without the first one, which is the model.
        rows: Cells per model.
        concerned: What each rule changed, by its name, such as `"5 cases of A"`. Rules that changed nothing may be left out.
        irreproducible: A sentence for every cell or row that the script fills in at random, or never prints.
        notes: Further sentences below the table.
        digits: Decimals in print.
    """

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Cell]]
    concerned: Mapping[str, str] = field(default_factory=dict)
    irreproducible: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digits: int = 2


Models = Mapping[str, Sequence[RawEdit]]
"""The edits of each model, by the model's name."""
Choices = Mapping[str, str]
"""The value of every rule, by the rule's name."""


def describe_concerned(
    counts: Mapping[str, Mapping[str, int]], noun: str, other_nouns: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what each rule concerns, for `PublishedTable.concerned`. Rules that concern nothing are left out.

    Args:
        counts: Per model, how many cases each rule concerns, by the rule's name.
        noun: What is counted, such as `case`.
        other_nouns: What is counted for single rules, by the rule's name.

    >>> describe_concerned({"A": {"paper.cap": 2, "paper.gate": 0}, "B": {"paper.cap": 1}}, "edit")
    {'paper.cap': '2 edits of A, 1 edit of B'}
    """
    clauses: dict[str, list[str]] = {}
    for model, own in counts.items():
        for rule, count in own.items():
            if count:
                counted = number_of(count, (other_nouns or {}).get(rule, noun))
                clauses.setdefault(rule, []).append(f"{counted} of {model}")
    return {rule: ", ".join(each) for rule, each in clauses.items()}


@dataclass(frozen=True)
class Published:
    """The public script of a paper.

    Args:
        source: Repository, commit and files of the script.
        rules: Its rules.
        tables: Computes the script's tables under any choice of rules.
        reads_checks: Whether `tables` needs `RawAnswer.checks` or `RawAnswer.raw`, which take longer to read than scores.
    """

    source: str
    rules: tuple[Rule, ...]
    tables: Callable[[Models, Choices], Iterable[PublishedTable]]
    reads_checks: bool = False

    def choose(self, changes: Mapping[str, Any], published: bool = False) -> dict[str, str]:
        """Return the value of every rule.

        Args:
            changes: Values that differ, by the name of the rule with or without the paper's.
            published: Whether the other rules have the script's value instead of the text's. Rules that change what is asked
                keep the text's.

        Raises:
            UserError: If a rule or a value does not exist.
        """
        chosen = {rule.name: rule.published if published and not rule.asks else rule.text for rule in self.rules}
        for name, value in changes.items():
            rule = self.find(name)
            if rule is None:
                raise UserError(f'there is no rule "{name}"; there are: {", ".join(chosen)}')
            if not isinstance(value, str) or value not in rule.values:
                raise UserError(f'{rule.name} is {" or ".join(rule.values)}, not "{value}"')
            chosen[rule.name] = value
        return chosen

    def reword(self, protocol: Protocol, changes: Mapping[str, Any]) -> Protocol:
        """Return the protocol as the rules have it that change what is asked.

        Args:
            protocol: The paper's protocol.
            changes: Values of rules, by name. Names that are not rules of the script are ignored.
        """
        for name, value in changes.items():
            rule = self.find(name)
            if rule and value in rule.asks:
                protocol = rule.asks[value](protocol)
        return protocol

    def find(self, name: str) -> Rule | None:
        """Return a rule by its name, with or without the paper's; None if there is no such rule."""
        return next((rule for rule in self.rules if name in (rule.name, rule.name.partition(".")[2])), None)

    def print(self, table: PublishedTable, choices: Choices) -> PrintedTable:
        """Return a table with its notes: every rule with its value and what it changed, and what cannot be reproduced."""
        notes = [*table.notes, *(f"Cannot be reproduced: {sentence}" for sentence in table.irreproducible)]
        for rule in self.rules:
            value = choices[rule.name]
            origin = [word for word, own in (("script", rule.published), ("text", rule.text)) if own == value]
            changed = table.concerned.get(rule.name)
            origins = f" ({' and '.join(origin)})" if origin else ""
            notes.append(
                f"{rule.name}={value}{origins}: {rule.values[value]}{f' Concerned: {changed}.' if changed else ''}"
            )
        rows = tuple((model, *cells) for model, cells in table.rows.items())
        digits = {} if table.digits == 2 else dict.fromkeys(table.columns, table.digits)
        return PrintedTable(table.title, ("model", *table.columns), rows, tuple(notes), digits=digits)
