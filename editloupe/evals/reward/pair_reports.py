"""Preference pairs judged: in memory for a program, or as the edits of a run that can be continued and traced."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from editloupe._util.files import read_text
from editloupe.evals.batch.planner import EditFiles
from editloupe.evals.manifests.pairs import Pair, Way, merge_pair_edits
from editloupe.evals.reward.edit_rewards import rewards
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.preference_results import (
    NOT_YET,
    PairKey,
    PairMember,
    PairReport,
    PairResult,
    decide_pairs,
    score_pair_members,
)
from editloupe.evals.stats.scores.paper_tables import WAYS, JudgeAccuracy, count_judge_accuracy, group_by_way
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.judge import Judge
from editloupe.rubrics.registry import known_protocol, pair_rules
from editloupe.types import Edit, Usage, UserError


def pair_edits(pairs: Iterable[Pair], protocol: str, way: Way = "pointwise") -> list[Edit]:
    """Return the edits that are judged for these pairs; one that several pairs share stands there once."""
    known = known_protocol(protocol)
    return merge_pair_edits(
        (edit for pair in pairs for edit in pair.edits(way)), known is not None and known.pairs is not None
    )


def judge_pairs(pairs: Iterable[Pair], judge: Judge, way: Way = "pointwise", concurrency: int = 32) -> PairReport:
    """Judge pairs, candidate by candidate or both at once in both orders, and report the accuracy."""
    listed = list(pairs)
    edits = pair_edits(listed, judge.protocol, way)
    found = rewards(edits, judge, concurrency=concurrency)
    halves = [
        PairMember(edit, 0, None if reward.score is None else 100 * reward.score, reward.why)
        for edit, reward in zip(edits, found, strict=True)
    ]
    about = {"judge": judge.spec, "protocol": judge.protocol, "mode": judge.mode}
    return _report(listed, halves, way, sum((one.usage for one in found), Usage()), about)


def report_pairs(
    pairs: Sequence[Pair], table: RunTable | None, way: Way, judge: str, protocol: str, mode: str
) -> PairReport:
    """Report on pairs whose edits were judged into a run, of which `table` is what there is; None where nothing is."""
    halves: list[PairMember] = []
    usage = Usage()
    if table is not None:
        for row in find_rows(table, pair_edits(pairs, protocol, way)).values():
            halves += score_pair_members(protocol, row, table.criteria)
            usage = sum((unit.outcome.usage for units in row.units.values() for unit in units), usage)
    return _report(pairs, halves, way, usage, {"judge": judge, "protocol": protocol, "mode": mode})


def _report(
    pairs: Sequence[Pair], halves: Iterable[PairMember], way: Way, usage: Usage, about: dict[str, str]
) -> PairReport:
    rules = pair_rules(about["protocol"])
    found = decide_pairs(halves, rules)
    results = [found.get(PairKey(*pair.key, way)) or _left(pair, about["protocol"], way) for pair in pairs]
    return PairReport.of(results, rules, way=way, usage=usage, **about)


def _left(pair: Pair, protocol: str, way: Way) -> PairResult:
    """Return the result of a pair nothing was judged of: not its turn yet, or there is nothing to ask."""
    known = known_protocol(protocol)
    asked = known is None or any(known.rubrics_for(edit) for edit in pair.edits(way))
    return PairResult(
        id=pair.id,
        dimension=pair.dimension,
        label=pair.label,
        scores=(None, None),
        decision=None,
        correct=None,
        why=NOT_YET if asked else f"no metric of {pair.dimension} is asked of {pair.task}",
    )


def find_rows(table: RunTable, edits: Iterable[Edit]) -> dict[str, RunRow]:
    """Return the rows of a run that belong to these edits, by id; where several have an id, the one with the same pictures."""
    rows: dict[str, list[RunRow]] = {}
    for row in table.rows:
        rows.setdefault(row.edit.id, []).append(row)
    found = {}
    for edit in edits:
        listed = rows.get(edit.id, [])
        if len(listed) > 1:
            wanted = EditFiles(edit).pictures
            listed = [row for row in listed if all(row.pictures.get(role) == shas for role, shas in wanted.items())]
        if listed:
            found[edit.id] = RunRow(edit, listed[0].pictures, listed[0].units, listed[0].name)
    return found


def list_assumptions(pairs: Iterable[Pair], protocol: str) -> list[str]:
    """Say what is taken for granted about pairs that are judged candidate by candidate, and of how many of them."""
    known = known_protocol(protocol)
    if known is None or known.pairs is None:
        return []
    rules = known.pairs
    told = Counter(sentence for pair in pairs if (sentence := rules.assumed(pair.candidate("winner"))))
    return [f"{count} pairs: {sentence}" if count > 1 else f"1 pair: {sentence}" for sentence, count in told.items()]


def is_run(path: Path) -> bool:
    """True for the folder of a run."""
    return (path / FILE).is_file()


def build_table_lines(paths: Sequence[Path]) -> list[JudgeAccuracy]:
    """Return the rows of the table: of every run one a configuration and way of asking, of every kept result one.

    Rows that would have one name go by their run or file as well, and by their configuration where that is not enough.
    """
    found = [(*one, path) for path in paths for one in (_of_run(path) if is_run(path) else [(_of_result(path), "")])]
    names = Counter(line.name for line, _, _ in found)
    places = Counter((line.name, path.stem) for line, _, path in found)
    lines = []
    for line, configuration, path in found:
        more = [path.stem] if names[line.name] > 1 else []
        more += [configuration[:8]] if places[line.name, path.stem] > 1 else []
        lines.append(line._replace(name=" · ".join((line.name, *more))))
    return lines


def _of_run(folder: Path) -> list[tuple[JudgeAccuracy, str]]:
    """Return a line for every configuration and way of asking, with the configuration's name."""
    with Run.open(folder) as run:
        tables = [read_run_table(run, one.protocol, one.name) for one in run.configurations()]
    lines = []
    for table in tables:
        halves = (half for row in table.rows for half in score_pair_members(table.protocol, row, table.criteria))
        results = decide_pairs(halves, pair_rules(table.protocol))
        judge = " + ".join(table.judges)
        lines += [
            (count_judge_accuracy(_name(judge, way), own), table.configuration)
            for way, own in group_by_way(results).items()
        ]
    if not lines:
        raise UserError(f"the run {folder} holds no preference pairs; `editloupe reward PAIRS --out RUN` judges some")
    return lines


def _of_result(file: Path) -> JudgeAccuracy:
    """Read what `reward --json` printed."""
    try:
        said = json.loads(read_text(file))
        results = [PairResult.model_validate(one) for one in said["results"]]
        return count_judge_accuracy(_name(str(said["judge"]), said["way"]), results)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, ValidationError, LookupError, TypeError, RecursionError):
        raise UserError(f"{file} is neither a run nor what `editloupe reward --json` printed") from None


def _name(judge: str, way: str) -> str:
    return judge if way == "pointwise" else f"{judge} ({WAYS[way]})"
