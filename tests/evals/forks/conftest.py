"""Runs to fork."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.evals.forks.kept_runs import Keep, Kept, script


@pytest.fixture
def keep(tmp_path: Path, scripted: StartServer) -> Keep:
    def kept(spec: str = "openai:gpt-4.1", replies: Any = script, **options: Any) -> Kept:
        return Kept(tmp_path, scripted(replies), spec, replies=replies, **options)

    return kept
