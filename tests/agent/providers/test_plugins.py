"""Other packages add providers as entry points; what LangChain alone knows is opened by `init_chat_model`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from editloupe import Edit, Judge, UserError
from editloupe.agent.transport.secrets import redact_text
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import final

ROOT = Path(__file__).parents[3]
NAMES = "from editloupe.agent.specs import find_profile, split_spec; "


def run_installed(folder: Path, entry: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which a package with this entry point is installed."""
    facts = folder / "own-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[editloupe.providers]\n{entry}\n")
    path = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, "-c", NAMES + code]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)


@pytest.mark.long
def test_a_provider_of_an_installed_package_opens_specs(tmp_path: Path) -> None:
    done = run_installed(
        tmp_path,
        "parrot = tests.agent.providers.third:PROVIDER",
        "print(split_spec('parrot:grey'), find_profile('parrot', 'grey').family)",
    )
    assert done.stdout == "('parrot', 'grey') Parrot\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("parrot = no_such_module:PROVIDER", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("parrot = tests.agent.providers.third:picture", "is not a Provider"),
        ("parot = tests.agent.providers.third:PROVIDER", 'is called "parrot", not "parot"'),
    ],
)
def test_one_that_cannot_be_loaded_is_named_with_the_reason(tmp_path: Path, entry: str, why: str) -> None:
    name = entry.partition(" ")[0]
    done = run_installed(
        tmp_path, entry, f"split_spec('openai:a')\ntry: split_spec('{name}:grey')\nexcept Exception as e: print(e)"
    )
    assert done.stdout.startswith(f"the provider {name} of an installed package cannot be loaded: ")
    assert why in done.stdout


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Paint it red")


def test_a_provider_that_only_langchain_knows_is_asked_with_a_note(
    scripted: StartServer, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an empty list of providers, LangChain alone knows the name, and its client reaches the scripted server."""
    pytest.importorskip("langchain")
    monkeypatch.setattr("editloupe.agent.specs.PROVIDERS", [])
    monkeypatch.setattr("editloupe.agent.providers.registry.PROVIDERS", [])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-found-by-langchain-1")
    server = scripted(final("Wrong Action"))
    with Judge("openai:gpt-4.1", mode="plain", criteria=["instruction_following"], base_url=server.openai_url) as judge:
        (verdict,) = judge.judge(edit).verdicts
        assert verdict.status == "judged"
        assert any("the provider's quirks are unknown" in note for note in judge.notes)
        assert judge.describe()["profile"]["family"] == "LangChain's openai"
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer sk-found-by-langchain-1"
    assert request.body["temperature"] == 0
    assert "sk-found-by-langchain-1" not in redact_text("It was sk-found-by-langchain-1.")


def test_a_missing_package_of_langchain_is_named() -> None:
    pytest.importorskip("langchain")
    with pytest.raises(
        UserError, match="mistralai:a needs a client that is not installed: pip install langchain-mistralai"
    ):
        Judge("mistralai:a")
