"""Models that gave the same picture share a unit: it is asked once, counted for each of them, and replaced once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.batch.batch import dry_run
from editloupe.evals.batch.planner import RejudgePolicy
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.judge import JudgeSettings
from tests.conftest import StartServer
from tests.evals.batch.test_batch import answers, batch, run
from tests.evals.samples import write_picture
from tests.scripted import say

ONE_AT_A_TIME = Limits(concurrency=1)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Twenty edits of two models that share the picture of the first and the last one, far apart in the manifest."""
    lines = []
    for number in range(20):
        write_picture(tmp_path / f"img/{number}.png", number)
        write_picture(tmp_path / f"img/s{number}.png", 100 + number)
        shared = {"source": "img/s0.png", "edited": "img/0.png", "instruction": "Do 0"}
        own = {"source": f"img/s{number}.png", "edited": f"img/{number}.png", "instruction": f"Do {number}"}
        row = {"id": f"e{number % 10}", "model": "ab"[number // 10], **(shared if number in (0, 19) else own)}
        lines.append(json.dumps(row))
    written = tmp_path / "manifest.jsonl"
    written.write_text("\n".join(lines) + "\n", "utf-8")
    return written


def statuses(out: Path) -> list[tuple[str, str | None, str]]:
    with Run.open(out) as opened:
        return [(unit.edit_id, unit.model, unit.outcome.status) for unit in opened.units()]


@pytest.mark.long
def test_a_shared_unit_is_asked_once_more_where_everything_is_replaced(
    scripted: StartServer, manifest: Path, tmp_path: Path
) -> None:
    server = scripted(answers)
    run(batch(server, manifest, tmp_path / "run", limits=ONE_AT_A_TIME))
    assert server.served == 38
    again = run(batch(server, manifest, tmp_path / "run", limits=ONE_AT_A_TIME, again=RejudgePolicy(replace=True)))
    assert server.served == 76
    assert again.tally.missing == 0
    assert len(statuses(tmp_path / "run")) == 40


@pytest.mark.long
def test_a_shared_unit_that_stays_unreadable_is_asked_once_a_session(
    scripted: StartServer, manifest: Path, tmp_path: Path
) -> None:
    server = scripted(lambda request: say("I cannot tell."))
    settings = JudgeSettings(max_repairs=0)
    how: dict[str, Any] = {"limits": ONE_AT_A_TIME, "keep_going": True, "judge": {"settings": settings}}
    run(batch(server, manifest, tmp_path / "run", **how))
    asked = server.served
    again = run(batch(server, manifest, tmp_path / "run", again=RejudgePolicy(retry_unjudged=True), **how))
    assert server.served == 2 * asked
    assert again.tally.missing == 0
    assert sum(again.tally.unjudged.values()) == 38


@pytest.mark.long
def test_an_estimate_counts_a_shared_unit_once(scripted: StartServer, manifest: Path, tmp_path: Path) -> None:
    server = scripted(answers)
    assert dry_run(batch(server, manifest, tmp_path / "run")).units == 38
    with Run.write(tmp_path / "run"):
        pass
    assert dry_run(batch(server, manifest, tmp_path / "run")).units == 38, "also where there is a run already"
    assert server.served == 0


@pytest.mark.long
def test_what_waits_for_a_unit_that_a_cap_cut_short_is_missing_too(scripted: StartServer, tmp_path: Path) -> None:
    write_picture(tmp_path / "s.png", 1)
    write_picture(tmp_path / "e.png", 2)
    row = {"id": "e", "source": "s.png", "edited": "e.png", "instruction": "Do it"}
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps({**row, "model": model}) + "\n" for model in "abcd"), "utf-8")
    server = scripted(answers, delay=0.2)
    capped = Limits(concurrency=1, max_cost=1)
    ended = run(batch(server, manifest, tmp_path / "run", limits=capped, price=Price(input=10_000, output=0)))
    held = len(statuses(tmp_path / "run"))
    assert ended.tally.total == 8
    assert ended.tally.missing == 8 - held
