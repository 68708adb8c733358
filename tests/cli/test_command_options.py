"""No option is lost: every command still takes every option that it took before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import command_names, find_command

BEFORE = json.loads((Path(__file__).parents[1] / "fixtures" / "command_options.json").read_text("utf-8"))
"""The options of every command of version 0.2, taken from its code."""


def test_no_command_is_lost() -> None:
    assert set(BEFORE) <= set(command_names())


@pytest.mark.long
@pytest.mark.parametrize("name", BEFORE)
def test_no_option_is_lost(name: str) -> None:
    options = {spelling for option in find_command(name).params for spelling in (*option.opts, *option.secondary_opts)}
    assert set(BEFORE[name]) <= options
