"""Judge preference pairs or take any model's scores of them, report the accuracy, and build the table of reward models."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from editloupe._util.files import read_text
from editloupe._util.text import for_json, number_of
from editloupe.evals.batch.planner import EditFiles
from editloupe.evals.manifests.pairs import Pair, Way, merge_pair_edits, read_set_rows
from editloupe.evals.manifests.readers import READERS, Row
from editloupe.evals.reward.edit_rewards import rewards
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.pair_measures import NO_VERDICT, build_pair_report
from editloupe.evals.stats.comparison.preference_results import (
    NOT_YET,
    PairKey,
    PairMember,
    PairReport,
    PairResult,
    decide_by_verdicts,
    decide_pairs,
    find_set_rules,
    score_pair_members,
)
from editloupe.evals.stats.scores.paper_tables import WAYS, JudgeAccuracy, count_judge_accuracy, group_by_way
from editloupe.evals.stats.scores.passport import Passport, build_run_passport
from editloupe.evals.stats.scores.run_table import RunRow, RunTable, read_run_table
from editloupe.judge import Judge
from editloupe.pictures.memory import PictureSource
from editloupe.rubrics.pairs import PairRules, is_right
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, find_pair_rules, find_protocol
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
    pairs = list(pairs)
    edits = pair_edits(pairs, judge.protocol, way)
    scores = rewards(edits, judge, concurrency=concurrency)
    members = [
        PairMember(edit, 0, None if reward.score is None else 100 * reward.score, reward.why)
        for edit, reward in zip(edits, scores, strict=True)
    ]
    about = {"judge": judge.spec, "protocol": judge.protocol, "mode": judge.mode}
    return _build_report(pairs, members, way, sum((score.usage for score in scores), Usage()), about)


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
    why = NOT_YET if is_asked else f"no metric of {pair.dimension} is asked of {pair.task}"
    return PairResult(**_describe_pair(pair), scores=(None, None), decision=None, correct=None, why=why)


def find_rows(table: RunTable, edits: Iterable[Edit]) -> dict[str, RunRow]:
    """Return the rows of a run that belong to these edits, by id. If several have an id, the pictures decide."""
    rows: dict[str, list[RunRow]] = {}
    for row in table.rows:
        rows.setdefault(row.edit.id, []).append(row)
    row_of_edit = {}
    for edit in edits:
        alike = rows.get(edit.id, [])
        if len(alike) > 1:
            pictures = EditFiles(edit).pictures.items()
            alike = [row for row in alike if all(row.pictures.get(role) == shas for role, shas in pictures)]
        if alike:
            row_of_edit[edit.id] = RunRow(edit, alike[0].pictures, alike[0].units, alike[0].name)
    return row_of_edit


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
        counts = Counter(names)
        names = [
            f"{name} · {word}" if counts[name] > 1 and word else name for name, word in zip(names, more, strict=True)
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
        configurations = run.configurations()
        tables = [read_run_table(run, own.protocol, own.name) for own in configurations]
        with run.reader() as reader:
            keys = dict(reversed(reader.questions_by_configuration()))
            settings = [_flatten(reader.question_facts(keys[own.name]).get("sampling", {})) for own in configurations]
    lines = []
    for table, own, values in zip(tables, configurations, settings, strict=True):
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
        passport = Passport.model_validate(content["passport"]) if content.get("passport") else None
        line = count_judge_accuracy(name, results, rules, content["way"])
        return _TableLine(line, file.stem, rules=rules, passport=passport)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, ValidationError, LookupError, TypeError, RecursionError):
        raise UserError(f"{file} is neither a run nor what `editloupe reward --json` printed") from None


def _format_name(judge: str, way: Way) -> str:
    return judge if way == "pointwise" else f"{judge} ({WAYS[way]})"


PAIR, PICTURE, SCORE = ("pair", "id", "pair_id"), ("picture", "image", "edited"), "score"
SIDES = (("winner", "winner_score"), ("loser", "loser_score"))
ORDERS = ("forward", "reverse")
"""Fields of a row with verdicts: in the order of the file of pairs, and in the other one."""
MODE = "scores"
"""The mode in a report, in place of a judge's mode."""


@dataclass
class ExternalScores:
    """The scores of a file, by pair, and by picture and dimension."""

    by_pair: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    by_picture: dict[tuple[str, str | None], float | None] = field(default_factory=dict)
    """The picture is its absolute path. The dimension is None if the score applies to all dimensions."""
    verdicts: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Verdicts by pair: what was answered in the order of the file, and in the other one."""
    strangers: list[str] = field(default_factory=list)
    """Pairs and pictures of the file that are not among the pairs."""


def judge_by_scores(pairs: Sequence[Pair], file: str | Path, name: str | None = None) -> tuple[PairReport, list[str]]:
    """Report how often a reward model's scores put the winner first.

    The winner must be strictly higher; in a tie the scores must be equal. A pair without both scores is not judged.

    Args:
        pairs: The preference pairs.
        file: A JSONL, CSV or Parquet file of scores.
        name: The name of the reward model. Default: the file's name.

    Returns:
        The report, and notes about unused lines of the file.

    Raises:
        UserError: If the file cannot be read, or no pair has both scores.
    """
    file, layout = Path(file), next((pair.layout for pair in pairs), None)
    rules = find_pair_rules(layout)
    scores_of_file = read_scores(file, pairs, rules)
    way: Way = "pairwise" if scores_of_file.verdicts else "pointwise"
    build = _build_verdict_result if scores_of_file.verdicts else _build_result
    report = build_pair_report(
        [build(pair, scores_of_file, rules) for pair in pairs],
        rules,
        way,
        judge=name or file.stem,
        protocol=layout or DEFAULT_FOR_PAIRS.name,
        mode=MODE,
        layout=layout,
    )
    if not report.overall.judged:
        content = "a verdict" if way == "pairwise" else "both numbers"
        raise UserError(f"{file.name} has {content} of none of the {number_of(len(pairs), 'pair')}")
    notes = []
    if scores_of_file.strangers:
        lines = f"{len(scores_of_file.strangers)} lines" if len(scores_of_file.strangers) > 1 else "a line"
        notes.append(
            f"{file.name} has {lines} on what is not in these pairs, for instance {scores_of_file.strangers[0]}"
        )
    return report, notes


def read_scores(file: Path, pairs: Sequence[Pair], rules: PairRules) -> ExternalScores:
    """Read a file of scores: JSONL, CSV or Parquet in one of the documented forms, or the results of the set's script."""
    ids = {pair.id for pair in pairs}
    pictures = {str(path) for pair in pairs for path in (pair.winner, pair.loser)}
    roots = _find_roots(pairs)
    scores_of_file = ExternalScores()
    for row in _read_rows(file, rules):
        if any(name in row.values for name in ORDERS):
            _add_verdicts(row, ids, scores_of_file)
        elif (pair := _find_first(row.values, PAIR)) is not None:
            _add_pair(row, pair, pairs, ids, scores_of_file)
        elif (picture := _find_first(row.values, PICTURE)) is not None:
            _add_picture(row, str(picture), [*roots, file.parent.resolve()], pictures, rules, scores_of_file)
        else:
            raise row.error(f'a line names a pair ("{PAIR[0]}") or a picture ("{PICTURE[0]}"); this one names neither')
    if scores_of_file.verdicts and (scores_of_file.by_pair or scores_of_file.by_picture):
        raise UserError(f"{file.name} has both scores and verdicts; write a file for each")
    return scores_of_file


def _read_rows(file: Path, rules: PairRules) -> Iterator[Row]:
    """Yield the rows of a file of scores; results of the set's script are turned into such rows."""
    if not file.exists():
        raise UserError(f"there is no file of scores at {file}")
    reader = READERS.get(file.suffix.lower()) if file.is_file() else None
    if rules.results is None:
        if reader is None:
            raise UserError(f"{file.name}: scores are a {', '.join(READERS)} file")
        yield from reader(file)
        return
    own = reader(file) if reader else iter(())
    first = next(own, None)
    if first is not None and (_find_first(first.values, PAIR[:1]) or _find_first(first.values, PICTURE)):
        yield first
        yield from own
        return
    for row in read_set_rows(file):
        for where, values in rules.results(row):
            yield Row(where, values)


def _add_verdicts(row: Row, ids: set[str], scores_of_file: ExternalScores) -> None:
    name = str(row.values.get(PAIR[0]))
    verdicts = tuple(row.values.get(order) for order in ORDERS)
    if name not in ids:
        scores_of_file.strangers.append(f"the pair {name}")
    elif scores_of_file.verdicts.setdefault(name, (verdicts[0], verdicts[1])) != verdicts:
        raise row.error(f"the pair {name} is listed twice with different verdicts")


def _find_roots(pairs: Sequence[Pair]) -> list[Path]:
    """Return the folders of the pair files, to which the paths of pictures are relative."""
    return list(dict.fromkeys(pair.root for pair in pairs if pair.root is not None))


def _add_pair(row: Row, pair: Any, pairs: Sequence[Pair], ids: set[str], scores_of_file: ExternalScores) -> None:
    if not any(name in row.values for names in SIDES for name in names):
        raise row.error('a line on a pair has the numbers "winner" and "loser"; this one has neither')
    numbers = tuple(_read_number(row, names) for names in SIDES)
    name = str(pair)
    if name not in ids:
        if isinstance(pair, int) or name.isdigit():
            number = int(pair)
            if number == 0:
                raise row.error("pairs are counted from 1 in the order of their file, so there is no pair 0")
            name = pairs[number - 1].id if number <= len(pairs) else ""
        if name not in ids:
            scores_of_file.strangers.append(f"the pair {pair}")
            return
    scores = (numbers[0], numbers[1])
    if scores_of_file.by_pair.setdefault(name, scores) != scores:
        raise row.error(f"the pair {pair} is listed twice with different numbers")


def _add_picture(
    row: Row, picture: str, roots: Sequence[Path], pictures: set[str], rules: PairRules, scores_of_file: ExternalScores
) -> None:
    dimension = row.values.get("dimension")
    if dimension is not None and dimension not in rules.dimensions:
        raise row.error(f'"dimension" is {json.dumps(dimension)}, not one of {", ".join(rules.dimensions)}')
    columns: dict[str | None, str] = {name: name for name in rules.dimensions if name in row.values}
    if SCORE in row.values or not columns:
        columns[dimension] = SCORE
    if not any(column in row.values for column in columns.values()):
        raise row.error(f'a line on a picture has a number, "{SCORE}" or one for each of {", ".join(rules.dimensions)}')
    numbers = {meant: _read_number(row, (column,)) for meant, column in columns.items()}
    try:
        paths = [path for root in roots if (path := str((root / picture).resolve())) in pictures]
    except (OSError, RuntimeError, ValueError):
        raise row.error(f"{picture!r} is not a path") from None
    if not paths:
        scores_of_file.strangers.append(f"the picture {picture}")
        return
    for meant, number in numbers.items():
        if scores_of_file.by_picture.setdefault((paths[0], meant), number) != number:
            raise row.error(f"the picture {picture} is listed twice with different numbers")


def _find_first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def _read_number(row: Row, names: Sequence[str]) -> float | None:
    """Return the number under one of these names, or None if there is none.

    Raises:
        UserError: If the value is not a finite number.
    """
    value, name = _find_first(row.values, names), names[0]
    if value is None:
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise row.error(f'"{name}" is {json.dumps(value, default=str)}, not a number')
    return number


def _describe_pair(pair: Pair) -> dict[str, Any]:
    """Return the fields of a pair's result that do not depend on scores."""
    names = ("id", "dimension", "label", "task", "group", "candidates")
    return {name: getattr(pair, name) for name in names}


def _build_verdict_result(pair: Pair, scores_of_file: ExternalScores, rules: PairRules) -> PairResult:
    """Return the result of a pair with verdicts of a file. Anything but A or B is a wrong verdict for a preference."""
    about = _describe_pair(pair)
    if pair.id not in scores_of_file.verdicts:
        return decide_by_verdicts(about, (None, None), rules, "the file does not have the pair")
    forward, reverse = scores_of_file.verdicts[pair.id]
    own, other = ("A", "B") if pair.first == "winner" else ("B", "A")
    in_order = {own: 1.0, other: 0.0}.get(forward, 0.5) if forward else None
    turned = {other: 1.0, own: 0.0}.get(reverse, 0.5) if reverse else None
    shares = (in_order, turned) if pair.first == "winner" else (turned, in_order)
    return decide_by_verdicts(about, shares, rules, NO_VERDICT)


def _build_result(pair: Pair, scores_of_file: ExternalScores, rules: PairRules) -> PairResult:
    scores = scores_of_file.by_pair.get(pair.id) or (
        _find_score(pair.winner, pair.dimension, scores_of_file),
        _find_score(pair.loser, pair.dimension, scores_of_file),
    )
    about = _describe_pair(pair)
    winner, loser = scores
    if winner is None or loser is None:
        lacking = "both" if winner is loser else "the winner" if winner is None else "the loser"
        return PairResult(**about, scores=scores, decision=None, correct=None, why=f"no number for {lacking}")
    decision = rules.by_numbers(winner, loser, pair.label)
    return PairResult(**about, scores=scores, decision=decision, correct=is_right(decision, pair.label))


def _find_score(path: PictureSource, dimension: str, scores_of_file: ExternalScores) -> float | None:
    number = scores_of_file.by_picture.get((str(path), dimension))
    return scores_of_file.by_picture.get((str(path), None)) if number is None else number
