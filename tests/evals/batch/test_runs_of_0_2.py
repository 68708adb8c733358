"""Runs made by version 0.2.0 are read as they are and continued; only units of the embedded judge are judged again.

Its thresholds have been fitted again since.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run

FIXTURE = Path(__file__).parents[2] / "fixtures" / "run_of_0_2"
SERVER = (FIXTURE / "server.txt").read_text().strip()
"""Where the model was when the runs were made; no server listens there now, so every request would fail."""
NATIVE = ["--mode", "tools", "--tool-calls", "native"]
RUNS = [
    ("tools", ["--judge", "openai:gpt-4.1", "--base-url", SERVER, *NATIVE], 6),
    ("plain", ["--judge", "openai:gpt-4.1", "--base-url", SERVER, "--mode", "plain", "--repeats", "2"], 12),
    ("rules", ["--judge", "rules", "--mode", "tools"], 6),
    ("panel", ["--judge", "panel:openai:gpt-4.1,rules", "--base-url", SERVER, *NATIVE], 6),
]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that may be written to."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    return Path(shutil.copytree(FIXTURE, tmp_path / "kept"))


@pytest.mark.long
@pytest.mark.parametrize(("run", "options", "held"), RUNS, ids=[name for name, *_ in RUNS])
def test_the_same_command_continues_the_run_and_judges_nothing_again(
    run: str, options: list[str], held: int, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["batch", str(kept / "manifest.jsonl"), "--out", str(kept / run), "--limit", "3", *options]
    of_rules = run in ("rules", "panel")
    assert command([*again, *(["--keep"] if of_rules else [])]) == 0
    printed = capsys.readouterr()
    assert f"0 judged, 0 unjudged in 0 s, {held} held before, 0 still to do" in printed.out
    assert "judged again" not in printed.err


@pytest.mark.long
@pytest.mark.parametrize(("run", "options", "held"), [row for row in RUNS if row[0] in ("rules", "panel")])
def test_units_of_the_embedded_judge_are_judged_again_by_its_new_thresholds_and_no_model_is_asked(
    run: str, options: list[str], held: int, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["batch", str(kept / "manifest.jsonl"), "--out", str(kept / run), "--limit", "3", *options]
    assert command(again) == 0
    printed = capsys.readouterr()
    assert f"{held} judged, 0 unjudged" in printed.out
    assert printed.err.count("judged again; --keep uses the old verdicts") == 2


@pytest.mark.long
@pytest.mark.parametrize(("run", "options", "held"), RUNS, ids=[name for name, *_ in RUNS])
def test_verdicts_traces_and_replies_are_readable(
    run: str, options: list[str], held: int, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run.open(kept / run) as opened:
        assert len(list(opened.units())) == held
        assert all(opened.load_trace(name) for *_, name in opened.edits())
        assert not opened.damage.sentences()
    assert command(["report", str(kept / run), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert command(["trace", str(kept / run), "e0"]) == 0
    assert command(["export", str(kept / run)]) == 0
    assert '"edit_id":"e2"' in capsys.readouterr().out.replace(" ", "")


def test_a_run_of_another_schema_version_is_refused_in_one_sentence(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(kept / "plain" / "run.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 1")
    for name in (["report"], ["run", "info"]):
        assert command([*name, str(kept / "plain")]) == 2
        assert "has schema version 1, this EditLoupe reads version 2" in capsys.readouterr().err
