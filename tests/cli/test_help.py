"""The help: commands in groups, plain words, and examples that can be pasted."""

from __future__ import annotations

import re
import shlex

import pytest

from editloupe.cli.main import COMMANDS, EPILOG, run
from tests.cli.commands import command_names, find_command

AVOIDED = re.compile(
    r"may be given again|\bwhere (?:a|the|it|no|several|one)\b|\belse\b|\bset-up\b|\banew\b|\bso many\b|\bsomebody\b|\bnobody\b"
    r"|\bbeside\b|\bis none\b|\btold\b|\bstands?\b|\blies?\b",
    re.IGNORECASE,
)
GROUPS = ("Judge", "Results", "Traces", "People and trust", "Benchmarks", "Serve", "Set-up")


def examples(text: str) -> list[list[str]]:
    """Return the commands of all examples in a help text, as words after the program's name."""
    lines = [line.strip().removeprefix("Example: ") for line in text.splitlines() if "Example: " in line]
    commands = [re.sub(r" > \S+$", "", part) for line in lines for part in line.split(" && ")]
    return [shlex.split(command) for command in commands]


def test_commands_are_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(dict.fromkeys(command.panel for command in COMMANDS)) == GROUPS
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_an_example_that_parses(name: str) -> None:
    words = examples(find_command(name).help or "")
    assert any(example[1 : 1 + len(name.split())] == name.split() or name == "make scenes" for example in words)
    for example in words:
        check_example(example)


def test_the_example_of_the_program_parses() -> None:
    for example in examples(EPILOG):
        check_example(example)


def check_example(words: list[str]) -> None:
    """Parse a command with all its options and run nothing; a wrong one raises."""
    program, name, *rest = words
    assert program == "editloupe"
    command = find_command(name)
    if hasattr(command, "commands"):
        if name == "make" and rest[0] not in command.list_commands(None):
            rest = ["scenes", *rest]
        command = command.get_command(None, rest.pop(0))
    command.make_context(name, rest)


@pytest.mark.parametrize("name", command_names())
def test_help_texts_are_plain(name: str) -> None:
    command = find_command(name)
    texts = [command.help or "", *(option.help or "" for option in command.params)]
    for text in texts:
        plain = re.sub(r"`[^`]*`|'[^']*'", "", text)
        assert not AVOIDED.search(plain), text
        assert not text or text[0] in "([" or text[0].isalnum() or text[0] in ".`"


def test_every_command_in_the_list_says_what_it_does_in_one_sentence() -> None:
    for command in COMMANDS:
        assert command.help.endswith(".")
        assert ";" not in command.help
