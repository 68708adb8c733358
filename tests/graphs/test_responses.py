"""OpenAI's Responses interface: the same loop, the same endings, the answer's schema held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from editloupe import Edit, Judge, JudgeSettings, Reason, Unjudged
from tests.conftest import StartServer
from tests.rubrics.samples import edit_for
from tests.scripted import ScriptedServer, call, final, say

ZOOM = call("zoom_in_image", bbox_2d=[10, 10, 30, 30], target_image="Edited Image")


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    return edit_for(tmp_path, roles=())


@pytest.fixture(autouse=True)
def by_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the client speak the other interface, as it does at OpenAI for the models that need it."""
    monkeypatch.setattr(ChatOpenAI, "_use_responses_api", lambda self, payload: True)


def outcome_of(server: ScriptedServer, edit: Edit, **options: Any) -> Any:
    with Judge("openai:gpt-5.1", base_url=server.openai_url, criteria=["instruction_following"], **options) as judge:
        (outcome,) = judge.judge(edit).verdicts
    return outcome


@pytest.mark.long
def test_a_reply_is_held_to_the_answers_schema(scripted: StartServer, edit: Edit) -> None:
    server = scripted(say('{"reason": "seen", "score": 4}'))
    assert outcome_of(server, edit, protocol="edit-compass", mode="plain").score == 4
    (request,) = server.requests
    assert request.path == "/v1/responses"
    form = request.body["text"]["format"]
    assert (form["type"], form["strict"]) == ("json_schema", True)
    assert form["schema"]["required"] == ["reason", "score"]
    assert len(request.messages[-1].images) == 2


@pytest.mark.long
def test_endless_calls_are_forbidden_at_last_on_the_same_interface(scripted: StartServer, edit: Edit) -> None:
    server = scripted(lambda _: ZOOM)
    outcome = outcome_of(server, edit, settings=JudgeSettings(max_turns=2))
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.NO_ANSWER
    assert [request.path for request in server.requests] == ["/v1/responses"] * 3
    assert [request.tool_choice for request in server.requests] == [None, None, "none"]
    assert server.requests[-1].body["tools"] == server.requests[0].body["tools"]
    assert not server.refused


@pytest.mark.long
def test_an_incomplete_reply_is_truncated_and_the_limit_is_sent(scripted: StartServer, edit: Edit) -> None:
    server = scripted(lambda _: final("Flawless Execution").but(finish="length"))
    outcome = outcome_of(server, edit, settings=JudgeSettings(max_output_tokens=555))
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.TRUNCATED
    assert "max_output_tokens" in outcome.detail
    assert server.requests[0].body["max_output_tokens"] == 555
