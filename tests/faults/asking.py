"""Asking a judge behind a scripted server, through the client of either provider."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, Judgement, JudgeSettings
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.manifests.layouts import load_manifest
from tests.drawn_pictures import edit_pair
from tests.evals.samples import write_manifest
from tests.scripted import (
    ScriptedServer,
    final,
)

BOTH = ("openai:gpt-4.1", "google_genai:gemini-2.5-pro")
GOOD = final("Wrong Action")
QUICK = RetryPolicy(first_wait=0.01, longest_wait=0.02)
both = pytest.mark.parametrize("spec", BOTH)


def address(server: ScriptedServer, spec: str) -> str:
    return server.gemini_url if spec.startswith("google") else server.openai_url


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


@pytest.fixture
def asked(edit: Edit) -> Callable[..., Judgement]:
    def ask(server: ScriptedServer, spec: str = BOTH[0], url: str | None = None, **options: Any) -> Judgement:
        settings = JudgeSettings(**{"retry": QUICK, "timeout": 5.0, **options.pop("settings", {})})
        options = {"criteria": ["instruction_following"], "mode": "plain", **options}
        return Judge(spec, base_url=url or address(server, spec), settings=settings, **options).judge(edit)

    return ask


def only(judgement: Judgement) -> Any:
    (outcome,) = judgement.verdicts
    return outcome


def batch(folder: Path, server: ScriptedServer, count: int = 4, **options: Any) -> Any:
    if not (folder / "manifest.jsonl").exists():
        write_manifest(folder, count)
    settings = JudgeSettings(retry=QUICK, timeout=5)

    def opened(**hooks: Any) -> Judge:
        only_this = ["instruction_following"]
        url = server.openai_url
        return Judge(BOTH[0], mode="plain", base_url=url, criteria=only_this, settings=settings, **hooks)

    edits = lambda: load_manifest(folder / "manifest.jsonl")  # noqa: E731
    return judge_batch(Batch(edits, folder / "run", opened, **options), quiet=True)
