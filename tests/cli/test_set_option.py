"""`--set KEY=VALUE` sets any setting of the judge, exactly as its named option would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.judge_options import JudgeOptions, describe_values, read_set_values, set_keys
from editloupe.cli.main import run
from editloupe.cli.options import ToolOptions
from editloupe.judge.settings import JudgeSettings
from editloupe.tools.settings import setting_names
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import final

BY_OPTION: dict[str, tuple[list[str], str]] = {
    "max_turns": (["--max-turns", "4"], "4"),
    "max_repairs": (["--max-repairs", "1"], "1"),
    "temperature": (["--temperature", "0.5"], "0.5"),
    "timeout": (["--timeout", "30"], "30"),
    "long_side": (["--long-side", "512"], "512"),
    "max_output_tokens": (["--max-output-tokens", "700"], "700"),
    "min_confidence": (["--min-confidence", "0.4"], "0.4"),
    "tool_calls": (["--tool-calls", "text"], "text"),
    "coordinates": (["--coordinates", "per_mille"], "per_mille"),
    "structured": (["--structured", "off"], "off"),
    "written_reasoning": (["--written-reasoning", "on"], "on"),
    "differences": (["--differences", "tool"], "tool"),
    "target_crop": (["--target-crop", "box"], "box"),
    "tells": (["--tells", "instruction,hint"], "instruction,hint"),
    "our_notes": (["--no-our-notes"], "off"),
    "reasoning_effort": (["--reasoning-effort", "low"], "low"),
    "thinking_level": (["--thinking-level", "low"], "low"),
    "thinking_budget": (["--thinking-budget", "-1"], "-1"),
    "seed": (["--seed", "7"], "7"),
    "top_p": (["--top-p", "0.9"], "0.9"),
    "service_tier": (["--service-tier", "flex"], "flex"),
    "headers": (["--header", "X-Team=vision"], '{"X-Team": "vision"}'),
    "extra_body": (["--extra-body", '{"top_k": 2}'], '{"top_k": 2}'),
    "tools.offered": (["--tools", "zoom_in_image"], "zoom_in_image"),
    "tools.enhancer": (["--enhancer", "none"], "none"),
    "tools.max_regions": (["--tool-set", "max_regions=2"], "2"),
}


def parse(arguments: list[str]) -> JudgeOptions:
    """Parse options as a command does."""
    from editloupe.cli.ablate import _command

    options: JudgeOptions = _command().main(arguments, prog_name="editloupe", standalone_mode=False)
    return options


def test_every_setting_of_the_judge_and_its_tools_has_a_key() -> None:
    keys = set(set_keys())
    assert set(JudgeSettings.model_fields) - {"retry"} <= keys
    assert {f"retry.{name}" for name in JudgeSettings().retry.model_dump()} <= keys
    assert {f"tools.{name}" for name in setting_names()} <= keys
    assert set(JudgeSettings.model_fields) - {"retry"} <= set(BY_OPTION)


@pytest.mark.long
@pytest.mark.parametrize("key", BY_OPTION)
def test_a_setting_is_the_same_by_its_option_and_by_set(key: str) -> None:
    arguments, value = BY_OPTION[key]
    by_option, by_set = parse(arguments), parse(["--set", f"{key}={value}"])
    assert by_option.preset() == by_set.preset()
    assert by_option.preset().describe() == by_set.preset().describe()
    assert parse([*arguments, "--set", f"{key}={value}"]).preset() == by_set.preset()


@pytest.mark.long
def test_unit_keys_do_not_depend_on_the_way_a_setting_was_given(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [str(path) for path in edit_pair(tmp_path)]
    server = scripted(lambda _: final("Flawless Execution"))
    judge = [
        "judge",
        *pair,
        "Remove it",
        "--judge",
        "openai:gpt-4.1",
        "--base-url",
        server.openai_url,
        "--mode",
        "plain",
    ]
    judge += ["--criterion", "instruction_following", "--out", str(tmp_path / "run")]
    assert run([*judge, "--max-turns", "3", "--temperature", "0.5", "--seed", "7"]) == 0
    assert run([*judge, "--set", "max_turns=3", "--set", "temperature=0.5", "--set", "seed=7"]) == 0
    capsys.readouterr()
    assert run(["run", "info", str(tmp_path / "run"), "--json"]) == 0
    configurations = json.loads(capsys.readouterr().out)["configurations"]
    assert len(configurations) == 1


def test_set_overrides_the_preset_and_the_last_value_counts(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("judging: {max_turns: 3, max_repairs: 5, retry: {max_attempts: 9}}\ntools: {max_regions: 2}\n")
    given = ["--setup", str(file), "--set", "max_turns=4", "--set", "max_turns=6", "--set", "retry.first_wait=1"]
    preset = parse([*given, "--set", "tools.max_regions=3"]).preset()
    settings = preset.judge_settings()
    assert (settings.max_turns, settings.max_repairs) == (6, 5)
    assert (settings.retry.max_attempts, settings.retry.first_wait) == (9, 1.0)
    assert preset.tool_settings().max_regions == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_turn=3", '"max_turn" is not a setting; did you mean max_turns? `editloupe settings` lists them all'),
        ("max_region=3", "did you mean tools.max_regions"),
        ("zzz=1", '"zzz" is not a setting; `editloupe settings` lists them all'),
        ("mode=plain", '"mode" is not a setting; it is an option: --mode'),
        ("max_turns", "--set takes KEY=VALUE"),
        ("max_turns=0", '--set max_turns takes a whole number of at least 1, not "0"'),
        ("max_turns=many", '--set max_turns takes a whole number of at least 1, not "many"'),
        ("max_turns=none", '--set max_turns takes a whole number of at least 1, not "none"'),
        ("min_confidence=2", '--set min_confidence takes a number from 0 to 1, not "2"'),
        ("timeout=nan", "--set timeout takes a number of at least 0.1"),
        ("tool_calls=x", '--set tool_calls takes auto, native or text, not "x"'),
        ("our_notes=maybe", '--set our_notes takes on or off, not "maybe"'),
        ("tells=hints", '--set tells is one of instruction, type, hint, not "hints"'),
        ("tools.max_regions=x", '--set tools.max_regions takes a whole number, not "x"'),
        ("tools.box_threshold=3", "--set tools.box_threshold must be between 0 and 1"),
        ("retry.max_attempts=0", '--set retry.max_attempts takes a whole number of at least 1, not "0"'),
        ("extra_body=5", "--set extra_body takes a JSON object"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [str(path) for path in edit_pair(tmp_path)]
    assert run(["judge", *pair, "Remove it", "--judge", "rules", "--set", text]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


def test_a_wrong_header_is_not_repeated() -> None:
    for text in ("headers=hush", 'headers={"a b": "hush"}', 'headers={"X-A": "hüsh"}'):
        with pytest.raises(UserError) as error:
            read_set_values([text])
        assert "hush" not in str(error.value)
        assert "hüsh" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            JudgeOptions(max_turns=4, set_values=["max_turns=3"]),
            "--max-turns and --set max_turns have different values",
        ),
        (
            JudgeOptions(tools=ToolOptions(tool_set=["max_regions=3"]), set_values=["tools.max_regions=4"]),
            "--tool-set and --set tools.max_regions have different values",
        ),
        (
            JudgeOptions(tools=ToolOptions(offered="none"), set_values=["tools.offered=all"]),
            "--tools and --set tools.offered have different values",
        ),
    ],
)
def test_two_different_values_of_one_setting_are_refused(options: JudgeOptions, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        options.preset()


def test_every_key_says_what_it_takes() -> None:
    for key in set_keys():
        assert describe_values(key)


def test_a_varied_setting_replaces_the_value_of_set() -> None:
    from editloupe.cli.ablate import vary_options

    judge = JudgeOptions(set_values=["max_turns=4", "tools.max_regions=4", "max_repairs=1"])
    values: Any = {"max-turns": "2", "max_regions": "3"}
    varied = vary_options(judge, values)
    assert varied.settings().max_turns == 2
    assert varied.settings().max_repairs == 1
    assert varied.tool_values()["max_regions"] == 3
