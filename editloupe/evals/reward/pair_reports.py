"""Judge preference pairs, report the accuracy, and build the table of reward models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from editloupe._util.files import read_text
from editloupe._util.text import for_json
from editloupe.evals.batch.planner import EditFiles
from editloupe.evals.manifests.pairs import Pair, Way, merge_pair_edits
from editloupe.evals.reward.edit_rewards import rewards
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.pair_measures import build_pair_report
from editloupe.evals.stats.comparison.preference_results import (
    NOT_YET,
    PairKey,
    PairMember,
    PairReport,
    PairResult,
    decide_pairs,
    find_set_rules,
    score_pair_members,
)
from editloupe.evals.stats.scores.paper_tables import WAYS, JudgeAccuracy, count_judge_accuracy, group_by_way
from editloupe.evals.stats.scores.passport import Passport, build_run_passport
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.judge import Judge
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.registry import find_pair_rules, find_protocol
from editloupe.types import Edit, Usage, UserError


def pair_edits(pairs: Iterable[Pair], protocol: str, way: Way = "pointwise") -> list[Edit]:
    """Return the edits to judge for these pairs. An edit shared by several pairs is listed once."""
    own_protocol = find_protocol(protocol)
    return merge_pair_edits(
        (edit for pair in pairs for edit in pair.edits(way, find_pair_rules(pair.layout or protocol).orders)),
        own_protocol is not None and own_protocol.pairs is not None,
    )


def judge_pairs(pairs: Iterable[Pair], judge: Judge, way: Way = "pointwise", concurrency: int = 32) -> PairReport:
    """Judge pairs and report the accuracy.

    Args:
        pairs: The preference pairs.
        judge: An open Judge, which stays open.
        way: `pointwise` judges each candidate, `pairwise` both at once in both orders.
        concurrency: The most concurrent requests to the model.
    """
    listed = list(pairs)
    edits = pair_edits(listed, judge.protocol, way)
    scores = rewards(edits, judge, concurrency=concurrency)
    members = [
        PairMember(edit, 0, None if reward.score is None else 100 * reward.score, reward.why)
        for edit, reward in zip(edits, scores, strict=True)
    ]
    about = {"judge": judge.spec, "protocol": judge.protocol, "mode": judge.mode}
    return _build_report(listed, members, way, sum((score.usage for score in scores), Usage()), about)


def report_pairs(
    pairs: Sequence[Pair], table: RunTable | None, way: Way, judge: str, protocol: str, mode: str
) -> PairReport:
    """Report on pairs whose edits were judged into a run.

    Args:
        pairs: The preference pairs.
        table: What the run holds, or None if nothing was judged.
        way: `pointwise` or `pairwise`.
        judge: The name of the judge.
        protocol: The protocol.
        mode: The mode of the judge.
    """
    members: list[PairMember] = []
    usage = Usage()
    if table is not None:
        for row in find_rows(table, pair_edits(pairs, protocol, way)).values():
            members += score_pair_members(protocol, row, table.criteria)
            usage = sum((unit.outcome.usage for units in row.units.values() for unit in units), usage)
    return _build_report(pairs, members, way, usage, {"judge": judge, "protocol": protocol, "mode": mode})


def _build_report(
    pairs: Sequence[Pair], members: Iterable[PairMember], way: Way, usage: Usage, about: dict[str, str]
) -> PairReport:
    layout = next((pair.layout for pair in pairs), None)
    rules = find_pair_rules(layout or about["protocol"])
    results_by_key = decide_pairs(members, rules)
    results = [
        results_by_key.get(PairKey(*pair.key, way)) or _unjudged_result(pair, about["protocol"], way) for pair in pairs
    ]
    return build_pair_report(results, rules, way, usage=usage, layout=layout, **about)


def _unjudged_result(pair: Pair, protocol: str, way: Way) -> PairResult:
    """Return the result of a pair without any judgement: not judged yet, or no metric applies."""
    own_protocol = find_protocol(protocol)
    is_asked = own_protocol is None or any(own_protocol.rubrics_for(edit) for edit in pair.edits(way))
    return PairResult(
        id=pair.id,
        dimension=pair.dimension,
        label=pair.label,
        task=pair.task,
        group=pair.group,
        candidates=pair.candidates,
        scores=(None, None),
        decision=None,
        correct=None,
        why=NOT_YET if is_asked else f"no metric of {pair.dimension} is asked of {pair.task}",
    )


def find_rows(table: RunTable, edits: Iterable[Edit]) -> dict[str, RunRow]:
    """Return the rows of a run that belong to these edits, by id. If several have an id, the pictures decide."""
    rows: dict[str, list[RunRow]] = {}
    for row in table.rows:
        rows.setdefault(row.edit.id, []).append(row)
    found_rows = {}
    for edit in edits:
        listed = rows.get(edit.id, [])
        if len(listed) > 1:
            wanted = EditFiles(edit).pictures
            listed = [row for row in listed if all(row.pictures.get(role) == shas for role, shas in wanted.items())]
        if listed:
            found_rows[edit.id] = RunRow(edit, listed[0].pictures, listed[0].units, listed[0].name)
    return found_rows


def list_assumptions(pairs: Iterable[Pair], protocol: str) -> list[str]:
    """Return the assumptions about pairs that are judged pointwise, with the number of pairs each applies to."""
    own_protocol = find_protocol(protocol)
    if own_protocol is None or own_protocol.pairs is None:
        return []
    rules = own_protocol.pairs
    sentences = Counter(sentence for pair in pairs if (sentence := rules.assumed(pair.candidate("winner"))))
    return [
        f"{count} pairs: {sentence}" if count > 1 else f"1 pair: {sentence}" for sentence, count in sentences.items()
    ]


def is_run(path: Path) -> bool:
    """Return whether a path is the folder of a run."""
    return (path / FILE).is_file()


@dataclass(frozen=True)
class _TableLine:
    """A row of the table of reward models, and what can tell it from rows with the same name."""

    line: JudgeAccuracy
    place: str
    """Name of its run or file."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Parameters that were sent to the model, such as `reasoning_effort`."""
    differs: str = ""
    """How its configuration differs from an earlier one of the run."""
    rules: PairRules = field(default_factory=find_pair_rules)
    """The rules of its set."""
    passport: Passport | None = None
    """What its numbers depend on; None if that is not known."""


class JudgeTable(NamedTuple):
    """The rows of a table of judges."""

    lines: Sequence[JudgeAccuracy]
    rules: PairRules
    passports: Mapping[str, Passport] = MappingProxyType({})
    """Passports by row."""


def build_table_lines(paths: Sequence[Path]) -> JudgeTable:
    """Return the table of reward models: a row per configuration and way of each run and per result file, and its rules.

    Rows of the same judge are named by the settings in which they differ, such as `reasoning_effort=high`; then by their run
    or file, and by what else their configuration asks differently, if that is not enough.

    Raises:
        UserError: Something is neither a run of pairs nor a result, or two are about different sets.
    """
    rows: list[_TableLine] = []
    for path in paths:
        rows += _read_run_lines(path) if is_run(path) else [_read_result_line(path)]
    if other := next((row for row in rows if row.rules.table != rows[0].rules.table), None):
        raise UserError(
            f"{rows[0].place} and {other.place} are about different sets of pairs ({rows[0].rules.table}; "
            f"{other.rules.table}); print a table for each"
        )
    names = [row.line.name for row in rows]
    for more in (_list_settings(rows), [row.place for row in rows], [row.differs for row in rows]):
        taken = Counter(names)
        names = [
            f"{name} · {word}" if taken[name] > 1 and word else name for name, word in zip(names, more, strict=True)
        ]
    lines = [row.line._replace(name=name) for row, name in zip(rows, names, strict=True)]
    passports = {name: row.passport for row, name in zip(rows, names, strict=True) if row.passport}
    return JudgeTable(lines, rows[0].rules, passports)


def _list_settings(rows: Sequence[_TableLine]) -> list[str]:
    """Return for each row the settings that differ between rows of its name, without those that it does not set."""
    words = []
    for row in rows:
        others = [other.settings for other in rows if other.line.name == row.line.name]
        differing = [name for name in row.settings if any(other.get(name) != row.settings[name] for other in others)]
        words.append(", ".join(f"{name}={row.settings[name]}" for name in sorted(differing)))
    return words


def _read_run_lines(folder: Path) -> list[_TableLine]:
    """Return a line per configuration and way."""
    with Run.open(folder) as run:
        listed = run.configurations()
        tables = [read_run_table(run, own.protocol, own.name) for own in listed]
        with run.reader() as reader:
            keys = dict(reversed(reader.questions_by_configuration()))
            settings = [_flatten(reader.question_facts(keys[own.name]).get("sampling", {})) for own in listed]
    lines = []
    for table, own, values in zip(tables, listed, settings, strict=True):
        members = [member for row in table.rows for member in score_pair_members(table.protocol, row, table.criteria)]
        rules = find_set_rules(members, table.protocol)
        results = decide_pairs(members, rules)
        judge = " + ".join(table.judges)
        passport = build_run_passport(table)
        lines += [
            _TableLine(
                count_judge_accuracy(_format_name(judge, way), results_of_way, rules, way),
                folder.stem,
                values,
                own.differs,
                rules,
                passport,
            )
            for way, results_of_way in group_by_way(results).items()
        ]
    if not lines:
        raise UserError(f"the run {folder} holds no preference pairs; `editloupe reward PAIRS --out RUN` judges some")
    return lines


def _flatten(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings by the name of the innermost value, such as `enable_thinking` in a request's extra body."""
    values: dict[str, str] = {}
    for name, value in settings.items():
        values |= _flatten(value) if isinstance(value, Mapping) else {name: for_json(value)}
    return {name: value.strip('"') for name, value in values.items()}


def _read_result_line(file: Path) -> _TableLine:
    """Read the output of `reward --json`."""
    try:
        content = json.loads(read_text(file))
        results = [PairResult.model_validate(result) for result in content["results"]]
        rules = find_pair_rules(content.get("layout") or content.get("protocol"))
        name = _format_name(str(content["judge"]), content["way"])
        known = content.get("passport")
        passport = Passport.model_validate(known) if known else None
        line = count_judge_accuracy(name, results, rules, content["way"])
        return _TableLine(line, file.stem, rules=rules, passport=passport)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, ValidationError, LookupError, TypeError, RecursionError):
        raise UserError(f"{file} is neither a run nor what `editloupe reward --json` printed") from None


def _format_name(judge: str, way: Way) -> str:
    return judge if way == "pointwise" else f"{judge} ({WAYS[way]})"
