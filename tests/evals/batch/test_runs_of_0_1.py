"""Runs made by version 0.1.0 are read as they are, migrated with nothing lost, and continued without paying twice."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.migration import KEPT as OLD_FILE
from editloupe.evals.runs.store import FILE, Run

KEPT = Path(__file__).parents[2] / "fixtures" / "run_of_0_1"
SERVER = (KEPT / "server.txt").read_text().strip()
"""Where the model was when the runs were made; nobody listens there any more."""
MODEL = ["--judge", "openai:gpt-4.1", "--base-url", SERVER]
RUNS = [
    ("tools", ["--mode", "tools", "--tool-calls", "native"], 6),
    ("plain", ["--mode", "plain", "--repeats", "2"], 12),
    ("rules", ["--mode", "tools"], 6),
]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that may be written to."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


def everything(folder: Path) -> dict[str, Any]:
    """All that a run tells: verdicts, traces, edits, replies and money."""
    with Run.open(folder) as run:
        units = sorted((u.edit_id, u.criterion, u.repeat, u.tries, u.outcome.model_dump_json()) for u in run.units())
        edits = [(edit.model_dump_json(), pictures) for edit, pictures, _ in run.edits()]
        names = [name for *_, name in run.edits()]
        traces = [trace.model_dump_json() for name in names for trace in run.load_trace(name)]
        replies = {name: run.replies_of(name) for name in names}
        return {"units": units, "edits": edits, "traces": sorted(traces), "replies": replies, "spent": run.spent()}


def judge_on(kept: Path, run: str, *options: str) -> list[str]:
    judge = ["--judge", "rules"] if run == "rules" else MODEL
    return ["batch", str(kept / "manifest.jsonl"), "--out", str(kept / run), *judge, "--limit", "3", *options]


@pytest.mark.parametrize(("run", "options", "held"), RUNS)
def test_nothing_is_lost_on_the_way_and_the_old_file_stays(
    run: str, options: list[str], held: int, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(kept / run)
    assert len(before["units"]) == held
    old = (kept / run / FILE).read_bytes()
    assert command(["run", "migrate", str(kept / run)]) == 0
    assert f"3 edits, {held} verdicts and {held} traces taken over" in capsys.readouterr().out
    assert everything(kept / run) == before
    assert (kept / run / OLD_FILE).read_bytes() == old
    assert command(["run", "migrate", str(kept / run)]) == 0
    assert "is of this version already" in capsys.readouterr().out


@pytest.mark.parametrize(("run", "options", "held"), RUNS)
def test_what_it_holds_is_used_on_a_word_although_the_type_was_told_then(
    run: str, options: list[str], held: int, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["run", "migrate", str(kept / run)]) == 0
    capsys.readouterr()
    assert command(judge_on(kept, run, *options, "--keep")) == 0
    told = capsys.readouterr()
    assert f"0 judged, 0 unjudged in 0 s, {held} held before, 0 missing" in told.out
    assert "what the judge is told of an edit" in told.err
    assert "the old verdicts are used" in told.err
    assert command(judge_on(kept, run, *options)) == 0
    again = capsys.readouterr()
    assert f"{held} held before, 0 missing" in again.out
    assert "changed" not in again.err, "what was kept once is kept"


def test_what_did_not_change_is_not_told_as_changed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["run", "migrate", str(kept / "plain")]) == 0
    capsys.readouterr()
    given = ["--mode", "plain", "--repeats", "2", "--tells", "instruction,type,hint", "--keep"]
    assert command(judge_on(kept, "plain", *given)) == 0
    told = capsys.readouterr()
    assert "12 held before, 0 missing" in told.out
    assert "the wording of instruction_following changed: 6 units" in told.err
    assert "what the judge is told" not in told.err


def test_what_is_missing_is_judged_into_it(kept: Path) -> None:
    assert command(["run", "migrate", str(kept / "rules")]) == 0
    given = ["batch", str(kept / "manifest.jsonl"), "--out", str(kept / "rules"), "--judge", "rules", "--keep"]
    assert command(given) == 0
    assert len(everything(kept / "rules")["units"]) == 6 + 8, "the old verdicts answer both questions"


def test_an_old_run_is_shown_as_it_is_and_not_written_before_it_is_migrated(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(kept / "plain")
    assert command(["report", run, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert command(["trace", run, "e0"]) == 0
    assert command(["export", run]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 12
    assert command(judge_on(kept, "plain", "--mode", "plain")) == 2
    said = capsys.readouterr().err
    assert f"editloupe run migrate {run}" in said
    assert not (kept / "plain" / OLD_FILE).exists()


def test_a_migration_that_was_stopped_is_begun_anew(kept: Path) -> None:
    before = everything(kept / "plain")
    (kept / "plain" / f".{FILE}.part").write_bytes(b"half of it")
    assert command(["run", "migrate", str(kept / "plain")]) == 0
    assert everything(kept / "plain") == before


def test_what_cannot_be_read_is_taken_over_as_it_is(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(kept / "plain" / FILE)) as connection, connection:
        connection.execute("UPDATE edits SET edit = '{half' WHERE edit_id = 'e1'")
    (kept / "plain" / "run.json").write_text("{")
    assert command(["run", "migrate", str(kept / "plain")]) == 0
    assert "3 edits, 12 verdicts" in capsys.readouterr().out
    with Run.open(kept / "plain") as run:
        assert len(list(run.units())) == 12
        assert [edit.id for edit, *_ in run.edits()] == ["e0", "e2"]
        assert "1 edit cannot be read" in " ".join(run.damage.sentences())


def test_a_run_that_is_open_elsewhere_is_left_alone(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(kept / "plain") as run:
        assert len(list(run.units())) == 12
        assert command(["run", "migrate", str(kept / "plain")]) == 2
        assert "is being read by another program" in capsys.readouterr().err
        assert len(list(run.units())) == 12
    assert command(["run", "migrate", str(kept / "plain")]) == 0


def test_a_migration_stopped_before_its_last_step_is_carried_on(kept: Path) -> None:
    before = everything(kept / "plain")
    (kept / "plain" / OLD_FILE).hardlink_to(kept / "plain" / FILE)
    assert command(["run", "migrate", str(kept / "plain")]) == 0
    assert everything(kept / "plain") == before
    assert not (kept / "plain" / OLD_FILE).samefile(kept / "plain" / FILE)


def test_verdicts_whose_edit_is_gone_are_taken_over_too(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(kept / "plain" / FILE)) as connection, connection:
        connection.execute("DELETE FROM edits WHERE edit_id = 'e1'")
    assert command(["run", "migrate", str(kept / "plain")]) == 0
    assert "12 verdicts" in capsys.readouterr().out
    with Run.open(kept / "plain") as run:
        assert len(list(run.units())) == 12


def test_a_file_that_cannot_be_read_to_its_end_stays_as_it_was(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(kept / "plain" / FILE)) as connection, connection:
        connection.execute("DROP TABLE steps")
    before = (kept / "plain" / FILE).read_bytes()
    assert command(["run", "migrate", str(kept / "plain")]) == 2
    assert "cannot be migrated (no such table: steps); it stays as it was" in capsys.readouterr().err
    assert (kept / "plain" / FILE).read_bytes() == before
