"""A disk that is full while a batch writes: it stops at once with one sentence, and nothing that was kept is lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs import writer
from editloupe.evals.runs.store import Run
from editloupe.judge import Judge
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.faults.commands import batch_arguments, looks_then_answers, start

EDITS = 40


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that holds 700 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("a small file system can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_stops_the_batch_with_a_sentence_and_the_same_command_continues_on_a_larger_one(
    small_disk: Path, scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(looks_then_answers, delay=0.05, log=False)
    given = batch_arguments(server, write_manifest(tmp_path, EDITS, (96, 64)), small_disk / "run", "--mode", "tools")
    command = start(given, tmp_path / "log")
    assert command.ended(60) == 2, command.told
    assert "cannot be written" in command.told.splitlines()[-1]
    assert "Traceback" not in command.told
    asked = server.served
    time.sleep(0.5)
    assert server.served == asked, "nothing is paid for that cannot be kept"
    assert asked < EDITS * 6
    with Run.open(small_disk / "run") as run:
        kept = {(unit.edit_id, unit.criterion): unit.finished_at for unit in run.units()}
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    again = start(given, tmp_path / "log")
    assert again.ended(60) == 0, again.told
    with Run.open(small_disk / "run") as run:
        units = {(unit.edit_id, unit.criterion): unit.finished_at for unit in run.units()}
    assert len(units) == EDITS * 2
    assert kept.items() <= units.items()
    assert server.served <= EDITS * 6 + 6 + 32, "those under way and those whose reply could not be kept"


@pytest.mark.long
def test_a_write_ahead_log_that_cannot_be_moved_into_the_file_stops_the_batch(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(looks_then_answers, delay=0.02, log=False)
    write_manifest(tmp_path, 30)
    monkeypatch.setattr(writer, "CHECKPOINT_EVERY", 0.2)

    def full(self: Run) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr(Run, "checkpoint", full)
    from editloupe import load_manifest

    batch = Batch(
        edits=lambda: load_manifest(tmp_path / "manifest.jsonl"),
        out=tmp_path / "run",
        open_judge=lambda **hooks: Judge("openai:gpt-4.1", mode="plain", base_url=server.openai_url, **hooks),
        limits=Limits(concurrency=2),
    )
    with pytest.raises(UserError, match="the disk is full"):
        judge_batch(batch, quiet=True)
    assert server.served < 60
    monkeypatch.undo()
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert judge_batch(batch, quiet=True).complete
    assert server.served <= 60 + 2
