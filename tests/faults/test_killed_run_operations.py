"""`kill -9` at any moment of `run prune` and `run merge` on larger runs: nothing is lost, and the command can be run again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.evals.runs.merging import merge_runs
from editloupe.evals.runs.pruning import prune
from editloupe.evals.runs.store import Run
from tests.evals.sample_runs import Line, make_run
from tests.evals.samples import judgement
from tests.faults.commands import needs_proc

pytestmark = [needs_proc, pytest.mark.long]
EDITS, UNUSED = 1000, 600


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large") / "run"
    make_run(folder, [Line(f"e{number}", follows=1 + number % 4) for number in range(EDITS)])
    whole, album = judgement(folder.parent, "with pictures")
    with Run.write(folder) as run:
        run.save(whole, album=album)
    return folder


def add_unused(folder: Path) -> None:
    """Add pictures that nothing refers to, and units that answer no edit."""
    for number in range(UNUSED):
        name = f"{number:032x}"
        path = folder / "pictures" / name[:2] / f"{name[::-1]}.png"
        path = folder / "pictures" / path.name[:2] / path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"unused")
    with Run.write(folder) as run, run.transaction() as connection:
        connection.execute("DELETE FROM answers WHERE rowid % 7 = 0 AND rowid < 1900")


def facts(folder: Path) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Return what a run must not lose: its verdicts, and the pictures that they refer to."""
    with Run.open(folder) as run:
        units = sorted((unit.name, unit.criterion, str(unit.outcome)) for unit in run.units())
        _, roles, _ = run.edit("with pictures")
        shown = [sha for shas in roles.values() for sha in shas]
        shown += [
            sha
            for trace in run.load_trace("with pictures")
            for step in trace.steps
            for seen in step.observations
            for sha in seen.pictures
        ]
        return units, [sha for sha in sorted(set(shown)) if run.pictures.find(sha)]


def kill_after(seconds: float, work: Callable[[], object]) -> bool:
    """Start the work in a process of its own and kill it; return whether it had not ended before."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    time.sleep(seconds)
    is_running = process.is_alive()
    if is_running:
        os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    return is_running


def test_a_killed_prune_loses_nothing_and_is_done_again(large: Path) -> None:
    add_unused(large)
    before = facts(large)
    assert len(before[1]) == 3
    started = time.monotonic()
    dry = prune(large, dry_run=True)
    scale = max(0.02, time.monotonic() - started)
    kills = sum(kill_after(scale * share, lambda: prune(large)) for share in (0.05, 0.4, 0.8, 1.2, 1.6))
    assert kills
    assert facts(large) == before
    assert prune(large).pictures <= dry.pictures
    assert facts(large) == before
    left = prune(large, dry_run=True)
    assert (left.units, left.pictures) == (0, 0)


def test_a_killed_merge_leaves_its_sources_and_nothing_half_done(large: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", [Line(f"o{number}") for number in range(EDITS)])
    out = tmp_path / "new" / "both"
    before = facts(large)
    for share in (0.02, 0.1, 0.3, 0.6):
        if not kill_after(share, lambda: merge_runs([large, other], out)):
            break
        assert not out.exists()
        assert facts(large) == before
    if not out.exists():
        merge_runs([large, other], out)
    assert [path.name for path in out.parent.iterdir()] == ["both"]
    with Run.open(out) as run:
        assert len(list(run.edits())) == 2 * EDITS + 1
    assert set(before[0]) <= set(facts(out)[0])
