"""Every command that asks a model offers the same options for it, with the same defaults and the same words."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from editloupe.cli.main import build_app, run
from editloupe.evals.batch.traffic import Limits
from editloupe.judge import JudgeSettings
from tests.evals.sample_runs import Line, make_run

LISTS_ALL = ("judge", "batch", "ablate", "serve", "mcp")
"""Commands that offer every option about a judge."""
LEFT_OUT = {
    "fork": {"--criterion"},  # one trace is forked
    "reward": {
        "--criterion",
        "--seed",
    },  # the protocol says which criteria make up a reward; its seed has no effect
    "edival evaluate": {  # crops and no tools: nothing to choose about protocols, modes and calls
        "--protocol",
        "--mode",
        "--differences",
        "--tells",
        "--target-crop",
        "--our-notes",
        "--max-turns",
        "--tool-calls",
        "--coordinates",
        "--min-confidence",
        "--enhancer",
        "--overview",
        "--read-text",
        "--tools",
        "--max-memory",
    },
}
PARTS = {
    "edival decompose": {
        "--judge",
        "--setup",
        "--set",
        "--base-url",
        "--max-output-tokens",
        "--timeout",
        "--detector",
        "--detector-download",
        "--device",
        "--tool-set",
    },
    "edival instruct": {"--judge", "--setup", "--set", "--base-url", "--max-output-tokens", "--timeout"},
    "make dlebench": {
        "--judge",
        "--setup",
        "--base-url",
        "--max-output-tokens",
        "--timeout",
        "--detector",
        "--detector-download",
        "--device",
        "--tool-set",
    },
    "make sizes": {
        "--judge",
        "--setup",
        "--base-url",
        "--max-output-tokens",
        "--timeout",
        "--detector",
        "--detector-download",
        "--device",
        "--tool-set",
    },
    "demo": {"--judge", "--base-url", "--mode", "--set"},
    "tool": {"--enhancer", "--detector", "--detector-download", "--device", "--overview", "--tool-set", "--max-memory"},
}
OWN_MEANING = {
    ("fork", "--criterion"),
    ("edival evaluate", "--mode"),
    ("edival instruct", "--seed"),
    ("reward", "--seed"),
    ("make dlebench", "--set"),
}
"""The mode of results is multi or complex; other seeds are those of chains or have no effect; `make` sets its own settings."""
PANELS = {"How the model is asked", "What is judged", "How the tools look"}
ABOUT_THE_EDIT = {"--target", "--reference", "--type", "--image", "--hint"}


@cache
def options(command: str) -> dict[str, Any]:
    """The options of a command by their longest name."""
    found: Any = typer.main.get_command(build_app(command.split()[0]))
    for name in command.split():
        found = found.get_command(None, name)
    return {max(one.opts, key=len): one for one in found.params if one.opts[0].startswith("-")}


def facts(option: Any) -> tuple[Any, ...]:
    return option.opts, option.default, option.help, option.rich_help_panel, option.multiple, option.required


def about_a_judge() -> dict[str, Any]:
    """The options of `judge` that are not about the edit, the output or the run."""
    return {
        name: one
        for name, one in options("judge").items()
        if one.rich_help_panel in PANELS and name not in ABOUT_THE_EDIT
    }


def test_there_are_forty_of_them() -> None:
    assert len(about_a_judge()) == 40


@pytest.mark.parametrize("command", [*LISTS_ALL, *LEFT_OUT, *PARTS])
def test_a_command_offers_them_in_the_same_words_with_the_same_defaults(command: str) -> None:
    shared, mine = about_a_judge(), options(command)
    offered = {name for name in shared if name in mine and (command, name) not in OWN_MEANING}
    assert offered == PARTS.get(command, set(shared) - LEFT_OUT.get(command, set()))
    for name in offered:
        assert facts(mine[name]) == facts(shared[name]), name


def test_the_defaults_are_those_of_the_settings() -> None:
    usual = JudgeSettings()
    found = {name.removeprefix("--").replace("-", "_"): one for name, one in about_a_judge().items()}
    settings = {name for name in JudgeSettings.model_fields if name in found}
    assert settings == set(JudgeSettings.model_fields) - {"retry", "headers"}
    for name in settings:
        assert not found[name].default, name  # what is not given is left to the set-up
        if (value := getattr(usual, name)) not in (None, {}) and name != "our_notes":
            assert found[name].show_default == str(value), name


def test_an_evaluation_offers_everything_a_batch_does() -> None:
    about_manifests = {"--layout", "--results", "--language", "--allow-outside", "--columns", "--untouched"}
    batch, evaluate = options("batch"), options("edival evaluate")
    shared = set(batch) - set(about_a_judge()) - about_manifests - {"--model", "--help"}
    assert shared <= set(evaluate)
    for name in shared - {"--concurrency"}:
        assert facts(batch[name]) == facts(evaluate[name]), name
    assert batch["--concurrency"].default == Limits().concurrency
    assert evaluate["--concurrency"].default == 8


def test_a_reward_offers_everything_a_batch_does() -> None:
    about_manifests = {"--layout", "--results", "--language", "--allow-outside", "--columns", "--model", "--untouched"}
    batch, reward = options("batch"), options("reward")
    shared = set(batch) - set(about_a_judge()) - about_manifests - {"--help", "--out", "--limit"}
    assert {"--max-cost", "--retry-unjudged", "--executor", "--quiet"} <= shared <= set(reward)
    for name in shared:
        assert facts(batch[name]) == facts(reward[name]), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--tool-calls", "x"], '--tool-calls is one of auto, native, text, not "x"'),
        (["--coordinates", "x"], '--coordinates is one of auto, pixels, per_mille, not "x"'),
        (["--structured", "x"], '--structured is one of auto, on, off, not "x"'),
        (["--differences", "x"], '--differences is one of model, tool, not "x"'),
        (["--mode", "x"], '--mode is one of tools, oracle, plain, not "x"'),
        (["--max-turns", "0"], "Invalid value for '--max-turns'"),
        (["--read-text", "x"], '"x" is not a value of read_text'),
    ],
)
@pytest.mark.parametrize("command", ["judge", "batch", "reward"])
def test_a_bad_value_is_one_sentence(
    command: str, given: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "nowhere.jsonl")
    needed = {"judge": [place, place, "Remove it"], "batch": [place, "--out", str(tmp_path / "out")], "reward": [place]}
    assert run([command, *needed[command], "--judge", "rules", *given]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1


@pytest.mark.parametrize("spelling", [["--json"], ["--format", "json"], ["--format=json"]])
@pytest.mark.parametrize("words", [["run", "info"], ["agree"], ["report"]])
def test_json_is_asked_for_in_either_spelling(
    words: list[str], spelling: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    human = {"instruction_following": "Wrong Action"}
    made = make_run(tmp_path / "run", [Line(f"e{n}", human=human) for n in range(3)])

    assert run([*words, str(made), *spelling]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize("words", [["make", "check"], ["make", "scenes", "check"]])
def test_json_is_asked_for_in_either_spelling_of_commands_in_groups(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["make", "billiards", str(tmp_path / "scenes"), "--count", "1"]) == 0
    capsys.readouterr()
    outputs = []
    for spelling in (["--json"], ["--format", "json"]):
        assert run([*words, str(tmp_path / "scenes"), *spelling]) == 3
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["correct"] is None
