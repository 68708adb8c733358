"""Runs made by version 0.1.0 are continued: what they hold is not judged again, and what is missing is judged into them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run

pytest.importorskip(
    "rapidocr", reason="the keys say which tools there were, and the runs were made where text could be read"
)
pytestmark = pytest.mark.models
KEPT = Path(__file__).parents[2] / "fixtures" / "run_of_0_1"
SERVER = (KEPT / "server.txt").read_text().strip()
"""Where the model was when the runs were made; nobody listens there any more."""
MODEL = ["--judge", "openai:gpt-4.1", "--base-url", SERVER]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


def units(folder: Path) -> dict[tuple[str, str, int], str]:
    with Run.open(folder) as run:
        return {(unit.edit_id, unit.criterion, unit.repeat): unit.key for unit in run.units()}


@pytest.mark.parametrize(
    ("run", "options", "held"),
    [
        ("tools", ["--mode", "tools", "--tool-calls", "native"], 6),
        ("plain", ["--mode", "plain", "--repeats", "2"], 12),
        ("rules", ["--mode", "tools"], 6),
    ],
)
def test_nothing_it_holds_is_judged_again(
    run: str,
    options: list[str],
    held: int,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    before = units(kept / run)
    judge = ["--judge", "rules"] if run == "rules" else MODEL
    given = ["batch", str(kept / "manifest.jsonl"), "--out", str(kept / run), *judge, *options, "--limit", "3"]
    assert command(given) == 0
    assert f"0 judged, 0 unjudged in 0 s, {held} held before, 0 missing" in capsys.readouterr().out
    assert units(kept / run) == before


def test_what_is_missing_is_judged_into_it(kept: Path) -> None:
    before = units(kept / "rules")
    given = ["batch", str(kept / "manifest.jsonl"), "--out", str(kept / "rules"), "--judge", "rules", "--mode", "tools"]
    assert command(given) == 0
    after = units(kept / "rules")
    assert len(after) == 8
    assert after.items() > before.items()
