"""A run as a log that `inspect view` opens: one sample a unit, written one after another into the zip that Inspect reads.

The layout is Inspect's own (`header.json`, `samples/`, `summaries.json`, a journal); its package is not needed to write it.
"""

from __future__ import annotations

import json
import math
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from editloupe._util.files import whole_file
from editloupe._util.storable import storable_text
from editloupe.evals.runs.export import each_once
from editloupe.evals.runs.inspect_sample import Json, sample_id, sample_of
from editloupe.evals.runs.records import Unit
from editloupe.evals.runs.store import Run
from editloupe.types import Edit, UserError

LOG_VERSION = 2
"""Of Inspect's log format."""


@dataclass
class _Tally:
    """What the header says of a criterion's scores."""

    scored: int = 0
    unscored: int = 0
    numbers: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Their count and sum."""

    def add(self, score: Json) -> None:
        value = score["value"]
        if isinstance(value, float) and math.isnan(value):
            self.unscored += 1
            return
        self.scored += 1
        if isinstance(value, (int, float)):
            self.numbers = [self.numbers[0] + 1, self.numbers[1] + value]

    def record(self, criterion: str) -> Json:
        count, total = self.numbers
        metrics = {"mean": {"name": "mean", "value": total / count, "params": {}}} if count else {}
        return {
            "name": criterion,
            "scorer": criterion,
            "scored_samples": self.scored,
            "unscored_samples": self.unscored,
            "params": {},
            "metrics": metrics,
        }


def to_inspect(run: Run, path: Path, configuration: str | None = None) -> int:
    """Write an `.eval` log of what one judge said; return how many samples. An unjudged unit is unscored, never 0."""
    name = _one_judge(run, configuration)
    started = _start(run, name)
    tallies: dict[str, _Tally] = {}
    count, ended = 0, started["eval"]["created"]
    with (
        whole_file(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as log,
        tempfile.TemporaryFile("w+", encoding="utf-8") as summaries,
    ):
        log.writestr("_journal/start.json", _dumped(started))
        summaries.write("[")
        for edit, unit in _units(run, name):
            traces = run.load_trace(unit.name, unit.criterion, unit.repeat, unit.asked)
            sample, summary = sample_of(run, edit, unit, traces)
            log.writestr(f"samples/{sample_id(unit)}_epoch_{unit.repeat + 1}.json", _dumped(sample))
            summaries.write(("," if count else "") + _dumped(summary))
            tallies.setdefault(unit.criterion, _Tally()).add(summary["scores"][unit.criterion])
            count, ended = count + 1, max(ended, str(summary["completed_at"]))
        summaries.write("]")
        summaries.seek(0)
        with log.open("summaries.json", "w") as out:
            while block := summaries.read(1 << 20):
                out.write(block.encode())
        log.writestr("header.json", _dumped(_header(started, ended, tallies, count)))
    return count


def _units(run: Run, configuration: str | None) -> Iterator[tuple[Edit | None, Unit]]:
    for name, units in groupby(each_once(run.units(configuration=configuration)), key=lambda unit: unit.name):
        try:
            edit: Edit | None = run.edit(name).edit
        except UserError:  # noted by the run as damaged
            edit = None
        for unit in units:
            yield edit, unit


def _one_judge(run: Run, wanted: str | None) -> str | None:
    """Return the configuration to write; a log has one model, so a run of several needs it named."""
    known = run.configurations()
    if wanted is not None and wanted not in [one.name for one in known]:
        have = ", ".join(one.name for one in known)
        raise UserError(f'the run {run.folder.name} has no configuration "{wanted}"; it has {have}')
    if wanted is None and len(known) > 1:
        have = ", ".join(f"{one.name} ({one.title})" for one in known)
        raise UserError(
            f"the run {run.folder.name} holds several judges, a log one; name it with --configuration: {have}"
        )
    if wanted is None and not known:
        raise UserError(f"the run {run.folder.name} holds no verdicts, so there is nothing to write")
    return wanted or known[0].name


def _start(run: Run, configuration: str | None) -> Json:
    about = run.about()
    known = next((one for one in run.configurations() if one.name == configuration), None)
    described: Json = next((one for one in about["configurations"] if one["name"] == configuration), {})
    protocol, judge = (known.protocol, known.judge) if known else ("", "")
    facts = {"mode": known.mode if known else None, "protocol": protocol, "configuration": configuration}
    return {
        "version": LOG_VERSION,
        "eval": {
            "eval_id": f"{run.folder.name}-{configuration}",
            "run_id": str(configuration),
            "created": str(about.get("created", "1970-01-01T00:00:00Z")).replace("Z", "+00:00"),
            "task": f"editloupe/{protocol}",
            "task_id": protocol,
            "task_version": 0,
            "task_attribs": {},
            "task_args": {name: value for name, value in facts.items() if value is not None},
            "task_args_passed": {},
            "solver_args_passed": {},
            "dataset": {"name": run.folder.name},
            "model": judge.replace(":", "/", 1),
            "model_generate_config": {},
            "model_args": {},
            "config": {},
            "packages": {"editloupe": version("editloupe")},
            "metadata": {"settings": described.get("settings", {}), "tools": described.get("tools", {})},
        },
        "plan": {"name": "editloupe", "steps": [], "config": {}},
    }


def _header(start: Json, ended: str, tallies: dict[str, _Tally], count: int) -> Json:
    scored = sum(tally.scored for tally in tallies.values())
    dataset = {**start["eval"]["dataset"], "samples": count}
    return {
        **start,
        "eval": {**start["eval"], "dataset": dataset},
        "status": "success",
        "results": {
            "total_samples": count,
            "completed_samples": scored,
            "scores": [tally.record(criterion) for criterion, tally in tallies.items()],
        },
        "stats": {"started_at": start["eval"]["created"], "completed_at": ended, "model_usage": {}, "role_usage": {}},
    }


def _dumped(value: Any) -> str:
    """Return JSON; what is unscored is NaN in it, as Inspect writes and reads it."""
    return storable_text(json.dumps(value, ensure_ascii=False, default=str))
