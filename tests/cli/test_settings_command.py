"""`editloupe settings` lists every key of `--set`, and every option that `--help` does not list."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from editloupe.cli.judge_options import set_keys
from editloupe.cli.main import MORE_SETTINGS, run
from editloupe.cli.settings import list_hidden_options, list_settings
from tests.cli.commands import command_names, find_command

MOST_VISIBLE = 29
"""Options that the help of a judging command may list."""


def test_every_key_has_a_meaning_and_says_what_it_takes() -> None:
    rows = list_settings()
    assert [row.key for row in rows] == list(set_keys())
    for row in rows:
        assert row.about.endswith((".", "…")), row.key
        assert row.takes, row.key


def test_a_preset_is_named_with_its_value() -> None:
    rows = {row.key: row for row in list_settings()}
    assert rows["tells"].presets == {"dlebench-paper": ["instruction"]}
    assert rows["tools.max_regions"].presets == {"dlebench-paper": 3}
    assert rows["max_turns"].option == "--max-turns"
    assert rows["max_turns"].default == 8


def test_every_hidden_option_is_listed() -> None:
    listed = {name for row in list_hidden_options() for name in row.option.split("/")}
    listed |= {row.option for row in list_settings() if row.option} | {"--tool-set"}
    for name in command_names():
        hidden = [option for option in find_command(name).params if getattr(option, "hidden", False)]
        for option in hidden:
            assert max(option.opts, key=len) in listed, f"{name} {option.opts}"


@pytest.mark.long
@pytest.mark.parametrize("name", command_names())
def test_the_help_is_short_and_names_the_other_settings(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = find_command(name)
    visible = [option for option in command.params if option.opts[0].startswith("-") and not option.hidden]
    assert len(visible) <= MOST_VISIBLE
    if any(option.name == "set_values" for option in command.params):
        assert run([*name.split(), "--help"]) == 0
        assert " ".join(capsys.readouterr().out.split()).endswith(MORE_SETTINGS)


def test_the_table_has_a_row_per_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    firsts = {line.split(" ")[0] for line in lines}
    assert set(set_keys()) <= firsts
    assert "--price" in firsts


@pytest.mark.parametrize("spelling", [["--format", "json"], ["--json"]])
def test_json_has_the_same_rows(spelling: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", *spelling]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["key"] for row in shown["settings"]] == list(set_keys())
    assert set(shown["settings"][0]) == {"key", "option", "takes", "default", "about", "presets"}
    assert {"option", "commands", "about"} == set(shown["options"][0])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("max_turns", ["takes: a whole number of at least 1", "default: 8", "option: --max-turns"]),
        ("max-turns", ["--set max_turns=VALUE"]),
        ("max_regions", ["tools.max_regions", "preset dlebench-paper: 3"]),
        ("price", ["--price", "commands: batch"]),
    ],
)
def test_one_key_or_option(key: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", key]) == 0
    shown = capsys.readouterr().out
    for word in words:
        assert word in shown


def test_an_unknown_key_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "max_trns"]) == 2
    assert "did you mean max_turns" in capsys.readouterr().err


@pytest.mark.long
def test_a_closed_pipe_ends_it_quietly() -> None:
    command = f"{sys.executable} -m editloupe settings | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "Settings of the judge\n"
    assert done.stderr == ""


def test_a_group_lists_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["settings", "tools"]) == 0
    keys = [line for line in capsys.readouterr().out.splitlines() if line and not line.startswith(" ")]
    assert len(keys) > 10
    assert all(key.startswith("tools.") for key in keys)


def test_a_narrow_terminal_gets_key_default_and_meaning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("editloupe.cli.settings.WIDE", 80)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["settings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["key", "default", "meaning"]
    assert max(map(len, lines[:60])) <= 80
    assert any("retry.longest_retry_after" in line for line in lines), "no key is cut"
