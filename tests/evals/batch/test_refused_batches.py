"""A batch that is refused before it asks anything leaves no run behind, and takes nothing away that was there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.run_folder import LOCK, RunLock, remove_if_empty_on_error
from editloupe.evals.runs.store import Run
from editloupe.types import UserError
from tests.evals.samples import judgement, write_manifest

RULES = ("--judge", "rules", "--mode", "plain", "--quiet")


def broken_manifest(folder: Path) -> Path:
    manifest = write_manifest(folder, 1)
    with manifest.open("a", encoding="utf-8") as file:
        file.write('{"id": "late", "source": "img/s0.png", "instruction": "There is no edited picture"}\n')
    return manifest


def test_a_refused_manifest_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs" / "first"
    assert command(["batch", str(broken_manifest(tmp_path)), "--out", str(out), *RULES]) == 2
    assert "edited" in capsys.readouterr().err
    assert not out.parent.exists()


def test_a_folder_that_was_there_stays_with_what_is_in_it(tmp_path: Path) -> None:
    empty, own = tmp_path / "empty", tmp_path / "own"
    empty.mkdir()
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    for out in (empty, own):
        assert command(["batch", str(broken_manifest(tmp_path)), "--out", str(out), *RULES]) == 2
    assert list(empty.iterdir()) == []
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


@pytest.mark.long
def test_a_run_that_was_there_stays_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # The rules leave something open here.
    assert command(["batch", str(write_manifest(tmp_path, 1)), "--out", str(out), *RULES]) == 3
    with Run.open(out) as run:
        before = [unit.outcome for unit in run.units()]
    assert len(before) == 2
    assert command(["batch", str(broken_manifest(tmp_path)), "--out", str(out), *RULES]) == 2
    with Run.open(out) as run:
        assert [unit.outcome for unit in run.units()] == before


def refused_after(out: Path, write: Callable[[], None]) -> None:
    with remove_if_empty_on_error(out):
        write()
        raise UserError("refused")


def test_a_run_with_anything_in_it_is_never_taken_away(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def save() -> None:
        with Run.write(out) as run:
            whole, album = judgement(tmp_path)
            run.save(whole, album=album)

    with pytest.raises(UserError, match="refused"):
        refused_after(out, save)
    with Run.open(out) as run:
        assert len(list(run.units())) == 2


def test_a_run_that_another_process_began_to_write_is_left_to_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    others: list[RunLock] = []

    def begin() -> None:
        Run.write(out).close()
        others.append(RunLock(out / LOCK))

    with pytest.raises(UserError, match="refused"):
        refused_after(out, begin)
    others[0].release()
    Run.open(out).close()
