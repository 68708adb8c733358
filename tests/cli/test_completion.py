"""Shell completion: commands, options, judges, protocols, presets and runs, from a stored table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from editloupe.cli import completion
from editloupe.cli.completion import build_table, load_table
from tests.cli.test_start import HEAVY, STACK, WHAT_IS_LOADED

PROGRAM = "import sys; sys.argv[0] = 'editloupe'; from editloupe.__main__ import main; main()"
WITH_MODULES = WHAT_IS_LOADED.replace("main()", "sys.argv[0] = 'editloupe'; main()")


def complete(line: str, folder: Path, shell: str = "zsh", program: str = PROGRAM) -> tuple[list[str], str]:
    """Return what a shell is offered for a line, and what was printed on stderr."""
    words = line.split(" ")
    ask = {"_EDITLOUPE_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        split = [part for word in words for part in word.replace(":", " : ").split(" ") if part or not word]
        ask |= {"COMP_WORDS": " ".join(split), "COMP_CWORD": str(len(split) - 1)}
    else:
        ask |= {"_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **ask},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if shell == "bash":
        return done.stdout.split(), done.stderr
    return [word.strip("\"'").replace("\\:", ":") for word in done.stdout.replace("(", " ").split()], done.stderr


@pytest.mark.long
def test_the_stored_table_is_up_to_date() -> None:
    assert build_table() == load_table(), "run: python -m editloupe.cli.completion"


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("editloupe jud", ["judge"]),
        ("editloupe batch --max-c", ["--max-cost"]),
        ("editloupe batch --protocol vi", ["vibe"]),
        ("editloupe batch --setup dle", ["dlebench-paper"]),
        ("editloupe batch --mode or", ["oracle"]),
        ("editloupe batch --set max_t", ["max_turns="]),
        ("editloupe settings tools.max", ["tools.max_regions", "tools.max_memory"]),
        ("editloupe tool zoom", ["zoom_in_image"]),
        ("editloupe report runs/gp", ["runs/gpt"]),
        ("editloupe report ru", ["runs/"]),
        ("editloupe edival repo", ["report"]),
    ],
)
def test_what_is_offered(line: str, offered: list[str], tmp_path: Path) -> None:
    for name in ("runs/gpt", "runs/gemini"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text("{}")
    (tmp_path / "rubbish").mkdir()
    assert complete(line, tmp_path, "bash")[0] == offered


@pytest.mark.long
def test_judges_are_offered_by_their_whole_specs(tmp_path: Path) -> None:
    assert "openai:" in complete("editloupe judge a b c --judge op", tmp_path, "bash")[0]
    after_colon, _ = complete("editloupe judge a b c --judge openai:gpt-5.", tmp_path, "bash")
    assert "gpt-5.1" in after_colon
    assert all(not word.startswith("openai") for word in after_colon)
    nothing_yet, _ = complete("editloupe judge a b c --judge openai:", tmp_path, "bash")
    assert "gpt-5.1" in nothing_yet


@pytest.mark.long
def test_hidden_options_are_not_offered(tmp_path: Path) -> None:
    offered, _ = complete("editloupe batch --", tmp_path, "bash")
    assert "--max-cost" in offered
    assert "--written-reasoning" not in offered


@pytest.mark.long
def test_completion_loads_neither_records_nor_a_model_stack(tmp_path: Path) -> None:
    offered, printed = complete("editloupe batch --judge open", tmp_path, "bash", WITH_MODULES)
    assert offered
    (line,) = [line for line in printed.splitlines() if line.startswith("loaded: ")]
    assert set(line.split()) & {*STACK, *HEAVY, "editloupe.types", "editloupe.judge"} == set()


@pytest.mark.long
def test_the_actions_of_protocols_are_offered(tmp_path: Path) -> None:
    assert complete("editloupe protocols ", tmp_path, "bash")[0] == ["list", "show"]
    assert "dlebench" in complete("editloupe protocols show ", tmp_path, "bash")[0]


@pytest.mark.parametrize("word", ["x", "-1", "", None])
def test_an_odd_position_of_the_cursor_offers_nothing(
    word: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_EDITLOUPE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "editloupe judge")
    monkeypatch.delenv("COMP_CWORD", raising=False)
    if word is not None:
        monkeypatch.setenv("COMP_CWORD", word)
    assert completion.complete() == 0
    assert capsys.readouterr() == ("", "")
