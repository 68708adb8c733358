"""Another provider is one file, such as `third.py` in this folder, and one line in the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe import Edit, Judge, UserError
from editloupe.agent.providers.provider import Client, Opening
from editloupe.agent.providers.registry import PROVIDERS
from editloupe.agent.specs import find_profile
from editloupe.cli.main import run
from tests.agent.providers import third
from tests.conftest import StartServer
from tests.rubrics.samples import edit_for
from tests.scripted import final, say, wrong_key


@pytest.fixture(autouse=True)
def listed() -> Iterator[None]:
    """The one line."""
    PROVIDERS.append(third.PROVIDER)
    yield
    PROVIDERS.remove(third.PROVIDER)


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    return edit_for(tmp_path, roles=())


def test_it_judges_an_edit(scripted: StartServer, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARROT_KEY", "pk-feathers-123")
    server = scripted(final("Wrong Action"))
    with Judge("parrot:grey", mode="plain", criteria=["instruction_following"], base_url=server.openai_url) as judge:
        (verdict,) = judge.judge(edit).verdicts
        assert judge.describe()["versions"]["httpx"]
        assert judge.describe()["profile"]["family"] == "Parrot"
    assert verdict.status == "judged"
    assert verdict.label == "Wrong Action"
    (request,) = server.requests
    assert request.headers["authorization"] == "Bearer pk-feathers-123"
    assert request.body["model"] == "grey"
    assert len(request.messages[-1].images) == 2, "nothing joins its requests on their way, so pictures are written out"


def test_its_address_may_come_from_its_variable_and_its_replies_are_held_to_a_schema(
    scripted: StartServer, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(say('{"reason": "seen", "score": 4}'))
    monkeypatch.setenv("PARROT_URL", server.openai_url)
    with Judge("parrot:grey", protocol="edit-compass", mode="plain", criteria=["instruction_following"]) as judge:
        (verdict,) = judge.judge(edit).verdicts
    assert verdict.status == "judged"
    assert verdict.score == 4
    assert server.requests[0].body["response_format"]["type"] == "json_schema"


def test_its_refusals_are_understood(scripted: StartServer, edit: Edit) -> None:
    server = scripted(wrong_key())
    with (
        Judge("parrot:grey", mode="plain", criteria=["instruction_following"], base_url=server.openai_url) as judge,
        pytest.raises(UserError, match="the key for parrot:grey was not accepted"),
    ):
        judge.judge(edit)


def test_a_client_that_cannot_be_opened_is_one_sentence_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(opening: Opening) -> Client:
        raise RuntimeError(f"no way in with {opening.key}")

    monkeypatch.setenv("PARROT_KEY", "pk-feathers-0123456789")
    monkeypatch.setattr("editloupe.agent.open_model.find_provider", lambda name: replace(third.PROVIDER, open=breaks))
    with pytest.raises(UserError, match="the client for parrot:grey cannot be opened: RuntimeError") as told:
        Judge("parrot:grey")
    assert "feathers" not in str(told.value)


def test_everything_that_lists_providers_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="needs a key: set PARROT_KEY"):
        Judge("parrot:grey")
    with pytest.raises(UserError, match=r"write openai:NAME, .*parrot:NAME or rules"):
        Judge("owl:snowy")
    assert run(["doctor", "--no-timing"]) == 0
    assert "parrot:NAME" in capsys.readouterr().out
    assert find_profile("parrot", "our-gemini-3").per_mille, (
        "families of other providers are known by their names here, too"
    )
