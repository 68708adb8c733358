"""One edit judged by a scripted model through the real clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, Judgement, JudgeSettings
from editloupe.agent.chat_interface import RetryPolicy
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Script, ScriptedServer

QUICK = RetryPolicy(first_wait=0.01, longest_wait=0.02)

Judging = Callable[..., tuple[Judgement, ScriptedServer]]


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


@pytest.fixture
def judging(scripted: StartServer, edit: Edit) -> Judging:
    def run(script: Script, spec: str = "openai:gpt-4.1", **options: Any) -> tuple[Judgement, ScriptedServer]:
        server = (
            scripted(*script)
            if isinstance(script, list)
            else scripted(script if callable(script) else lambda _: script)
        )
        url = server.gemini_url if spec.startswith("google") else server.openai_url
        settings = {"retry": QUICK, "timeout": 5.0} | options.pop("settings", {})
        options.setdefault("criteria", ["instruction_following"])
        judged = options.pop("edit", edit)
        return Judge(spec, base_url=url, settings=JudgeSettings(**settings), **options).judge(judged), server

    return run


def only(judgement: Judgement) -> Any:
    (outcome,) = judgement.verdicts
    return outcome
