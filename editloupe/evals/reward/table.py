"""The table of reward models: several runs and kept results of `reward`, one row a judge and way of asking."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from editloupe._util.files import read_text
from editloupe.evals.runs.run_folder import FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.comparison.preference_results import PairResult, pair_results, row_halves
from editloupe.evals.stats.scores.paper_tables import WAYS, Line, by_way, line_of
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.registry import pair_rules
from editloupe.types import UserError


def is_run(path: Path) -> bool:
    """True for the folder of a run."""
    return (path / FILE).is_file()


def lines_of(paths: Sequence[Path]) -> list[Line]:
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


def _of_run(folder: Path) -> list[tuple[Line, str]]:
    """Return a line for every configuration and way of asking, with the configuration's name."""
    with Run.open(folder) as run:
        tables = [read_run_table(run, one.protocol, one.name) for one in run.configurations()]
    lines = []
    for table in tables:
        halves = (half for row in table.rows for half in row_halves(table.protocol, row, table.criteria))
        results = pair_results(halves, pair_rules(table.protocol))
        judge = " + ".join(table.judges)
        lines += [(line_of(_name(judge, way), own), table.configuration) for way, own in by_way(results).items()]
    if not lines:
        raise UserError(f"the run {folder} holds no preference pairs; `editloupe reward PAIRS --out RUN` judges some")
    return lines


def _of_result(file: Path) -> Line:
    """Read what `reward --json` printed."""
    try:
        said = json.loads(read_text(file))
        results = [PairResult.model_validate(one) for one in said["results"]]
        return line_of(_name(str(said["judge"]), said["way"]), results)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    except (ValueError, ValidationError, LookupError, TypeError, RecursionError):
        raise UserError(f"{file} is neither a run nor what `editloupe reward --json` printed") from None


def _name(judge: str, way: str) -> str:
    return judge if way == "pointwise" else f"{judge} ({WAYS[way]})"
