"""Compute the tables of a paper's public script from the stored verdicts of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from editloupe._util.text import number_of
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.evals.stats.scores.run_units import RunUnit
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import MISSING_OUTPUT, OUTPUT
from editloupe.rubrics.published import ABSENT_RULE, Published, RawAnswer, RawEdit
from editloupe.rubrics.registry import find_paper, papers
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import Edit, Unjudged, UserError, Verdict

Changes = Mapping[str, str]
"""Values of single rules, by name."""


ABSENT_VALUES: Mapping[str, str] = {"count": "zero", "leave-out": "leave_out"}
"""Values of the rule on subsets without any output, by the values of `report --absent`."""


def check_absent(table: RunTable) -> Callable[[Edit], tuple[str, ...]]:
    """Return the function that finds an edit's part of the benchmark; raise UserError if missing outputs do not count."""
    paper = find_paper(table.protocol)
    if paper is None or paper.part is None or paper.missing_output is None:
        raise UserError(
            f"--absent: missing outputs do not count in {table.protocol}, so there is nothing to count or leave out"
        )
    return paper.part


def leave_out_absent(table: RunTable) -> tuple[RunTable, tuple[str, ...]]:
    """Return a run without the parts of its benchmark in which a model has no output, and a sentence for every model.

    Raises:
        UserError: If the paper has no rule for missing outputs, or nothing is left.
    """
    find_part = check_absent(table)
    parts: dict[tuple[str, ...], list[RunRow]] = {}
    for row in table.rows:
        parts.setdefault((row.model, *find_part(row.edit)), []).append(row)
    absent = {part: rows for part, rows in parts.items() if all(map(_is_missing, rows))}
    out = {id(row) for rows in absent.values() for row in rows}
    sentences = []
    for model in table.models:
        own = {part[1:]: rows for part, rows in absent.items() if part[0] == model}
        if own:
            count = number_of(sum(map(len, own.values())), "case")
            names = ", ".join(" ".join(filter(None, part)) for part in own)
            sentences.append(f"Left out, because {model} has no output there: {count} of {names}.")
    if len(out) == len(table.rows):
        raise UserError(f"--absent leave-out: no model of the run {table.name} has any output")
    return table.with_rows(row for row in table.rows if id(row) not in out), tuple(sentences)


def _is_missing(row: RunRow) -> bool:
    return row.edit.extra.get(OUTPUT) == MISSING_OUTPUT


def choose_rules(
    table: RunTable, published: bool = False, changes: Changes | None = None, absent: str | None = None
) -> dict[str, str] | None:
    """Return the value of every rule for a run; None if it is reported by the paper's text without any change.

    Args:
        table: The run. Rules that its preset recorded hold unless `published` is set.
        published: Whether to take the values of the public script.
        changes: Values of single rules, which go before all others. Rules of other papers are ignored.
        absent: How parts without any output count, if that was chosen; sets the rule on them, if the script has one.

    Raises:
        UserError: If `published` is set for a paper whose script is not known, or a value does not exist.
    """
    paper = find_paper(table.protocol)
    script = paper.published if paper else None
    if script is None:
        if published:
            names = ", ".join(paper.name for paper in papers() if paper.published)
            raise UserError(f"--as-published: no public script is known for {table.protocol}; it is for: {names}")
        return None
    own = {name: value for name, value in (changes or {}).items() if script.find(name)}
    recorded = {name: value for name, value in find_recorded_rules(table).items() if script.find(name)}
    judged = {name: value for name, value in recorded.items() if (rule := script.find(name)) and rule.asks}
    if not (published or own or len(recorded) > len(judged)):
        return None
    own |= {ABSENT_RULE: ABSENT_VALUES[absent]} if absent and script.find(ABSENT_RULE) else {}
    return script.choose({**(judged if published else recorded), **own}, published)


def check_rules(changes: Changes, tables: Sequence[RunTable]) -> None:
    """Raise UserError if a rule belongs to the paper of none of the runs, or changes what is asked."""
    papers_of_runs = [find_paper(name) for name in dict.fromkeys(table.protocol for table in tables)]
    scripts = [paper.published for paper in papers_of_runs if paper and paper.published]
    for name in changes:
        if not any(script.find(name) for script in scripts):
            names = ", ".join(rule.name for script in scripts for rule in script.rules)
            raise UserError(f'--rule: there is no rule "{name}" here; there are: {names or "none"}')
        if any(rule.asks for script in scripts if (rule := script.find(name))):
            raise UserError(f"--rule: {name} changes what is asked; set it in a preset (rules:) and judge with that")


def find_recorded_rules(table: RunTable) -> Mapping[str, Any]:
    """Return the rules of the preset that a run was judged with."""
    setup = table.entry.get("setup")
    rules = setup.get("rules") if isinstance(setup, dict) and setup.get("protocol") == table.protocol else None
    return rules if isinstance(rules, dict) else {}


def find_asked_rules(table: RunTable) -> dict[str, str]:
    """Return the rules of the paper's script that changed what was asked, with their values."""
    paper = find_paper(table.protocol)
    if paper is None or paper.published is None:
        return {}
    recorded = ((paper.published.find(name), str(value)) for name, value in find_recorded_rules(table).items())
    return {rule.name: value for rule, value in recorded if rule and value in rule.asks}


def build_published_tables(tables: Sequence[RunTable], paper: Paper, rules: Changes) -> Iterator[PrintedTable]:
    """Yield the tables of a paper's public script, one row per model. Counts of verdicts are of the model's whole part.

    Args:
        tables: Runs of the paper's protocol.
        paper: The paper; it must have a public script.
        rules: The value of every rule, from `choose_rules`.
    """
    script = paper.published
    assert script is not None
    parts = dict(_list_models(tables))
    models = {label: list_raw_edits(part, paper, script) for label, part in parts.items()}
    for table in script.tables(models, rules):
        printed = script.print(table, rules)
        counts = [
            (int(parts[str(row[0])].unit_columns.judged.sum()), parts[str(row[0])].expected()) for row in printed.rows
        ]
        rows = tuple((*row, *count) for row, count in zip(printed.rows, counts, strict=True))
        yield replace(printed, columns=(*printed.columns, "judged", "expected"), rows=rows)


def _list_models(tables: Sequence[RunTable]) -> Iterator[tuple[str, RunTable]]:
    counts = Counter(model for table in tables for model in table.models)
    names = Counter(table.name for table in tables)
    for table in tables:
        run = table.name if names[table.name] == 1 else str(table.folder)
        for model in table.models:
            yield model if counts[model] == 1 else f"{model} ({run})", table.of_model(model)


def list_raw_edits(table: RunTable, paper: Paper, script: Published) -> list[RawEdit]:
    """Return every edit and repeat of a run with its answers as they are stored.

    Args:
        table: The run, or a model's part of it.
        paper: The paper, whose rule for missing outputs marks settled answers.
        script: The public script, which says whether it needs the answers to single checks.
    """
    edits = []
    for row in table.rows:
        units = [unit for name, own in row.units.items() if name not in table.own for unit in own]
        by_rule = paper.missing_output is not None and any(u.kind.label == paper.missing_output for u in units)
        missing = by_rule or (_is_missing(row) and not any(u.judged for u in units))
        for repeat in sorted({unit.repeat for unit in units}):
            answers = {
                unit.criterion: _read_answer(unit, script.reads_checks)
                for unit in units
                if unit.repeat == repeat and not (missing and unit.judged)
            }
            edits.append(RawEdit(row.edit, repeat, answers, missing))
    return edits


def _read_answer(unit: RunUnit, checks: bool) -> RawAnswer:
    outcome = unit.outcome if checks else None
    return RawAnswer(
        status="judged" if unit.judged else "unjudged",
        value=unit.score,
        checks=outcome.values if isinstance(outcome, Verdict) else {},
        label=unit.kind.label,
        reason=unit.kind.reason,
        raw=outcome.raw if isinstance(outcome, Unjudged) else "",
        score_100=unit.score_100,
    )
