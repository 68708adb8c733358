"""The checked claims of a run can be read on any disk, and what is damaged is made again."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from editloupe.evals.runs.claim_store import FILE, ClaimReplies, ClaimStore, read_counts
from editloupe.evals.runs.store import Run
from editloupe.types import UserError
from tests.evals.sample_runs import Line, make_run

RECORD = {"claims": [{"state": "supported"}, {"state": "not checkable"}]}


def verify(folder: Path) -> None:
    with Run.open(folder) as run, ClaimStore(folder, write=True) as store:
        for unit in run.units():
            store.put(unit, ("setup", ""), "key", 0, RECORD)


def overwrite(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / FILE) as database:
        database.execute(statement)
    database.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be made read-only; skipped where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_claims_on_a_read_only_disk_are_read_unless_the_last_ones_are_hidden(disk: Path) -> None:
    run = make_run(disk / "run", [Line("x")])
    verify(run)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert {count.supported for count in read_counts(run).values()} == {1}
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    (run / f"{FILE}-wal").write_bytes(b"a log that was never read")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(UserError, match="write-ahead log cannot be used"):
        read_counts(run)


def test_a_damaged_check_is_replaced_and_a_damaged_reply_is_asked_for_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [Line("x")])
    verify(run)
    with ClaimStore(run, write=True) as store:
        ClaimReplies(store).put("request", {"text": "a reply"})
    overwrite(run, "UPDATE checks SET record = '{'")
    overwrite(run, "UPDATE asked_replies SET reply = '{'")
    with ClaimStore(run, write=True) as store:
        assert store.record("key") is None
        assert ClaimReplies(store).get("request") is None
    verify(run)
    with ClaimStore(run) as store:
        assert store.record("key") == RECORD
