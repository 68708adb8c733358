"""Bedrock uses AWS's credentials, hides pictures from tracers and has a cheaper tier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd

from editloupe import Edit, Judge, JudgeSettings, Reason, UserError
from editloupe.agent.providers import bedrock
from editloupe.agent.providers.provider import Opening, Profile
from editloupe.agent.specs import find_profile
from editloupe.agent.transport.http import Gate
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import ScriptedServer, call, fault, final, say

SPEC = "bedrock:us.anthropic.claude-sonnet-4-6"


@pytest.fixture(autouse=True)
def _nobody_s_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Paint the patch red")


def asked(server: ScriptedServer, edit: Edit, **options: Any) -> Any:
    settings = JudgeSettings(**options.pop("settings", {}))
    with Judge(SPEC, base_url=server.url, criteria=["instruction_following"], settings=settings, **options) as judge:
        return judge.judge(edit)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("us.anthropic.claude-sonnet-4-6", "Claude on Bedrock"),
        ("anthropic.claude-3-7-sonnet-20250219-v1:0", "Claude on Bedrock"),
        ("global.anthropic.claude-opus-4-7-v1:0", "Claude on Bedrock without temperature"),
        ("eu.amazon.nova-pro-v1:0", "Nova"),
        ("meta.llama4-maverick-17b-instruct-v1:0", "Bedrock"),
    ],
)
def test_the_family_is_known_behind_the_region(name: str, family: str) -> None:
    profile: Profile = find_profile("bedrock", name)
    assert profile.family == family


@pytest.mark.long
def test_the_cheaper_tier_is_asked_for(scripted: StartServer, edit: Edit) -> None:
    server = scripted(final("Wrong Action"))
    settings = {"service_tier": "flex", "top_p": 0.5, "max_output_tokens": 88}
    assert asked(server, edit, mode="plain", settings=settings).judged
    body = server.requests[0].body
    assert body["serviceTier"] == {"type": "flex"}
    assert body["inferenceConfig"] == {"maxTokens": 88, "temperature": 0.0, "topP": 0.5}
    assert server.requests[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize("given", [{"seed": 3}, {"reasoning_effort": "low"}, {"extra_body": {"a": 1}}])
def test_what_it_does_not_have_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="does not support --"):
        Judge(SPEC, base_url="http://127.0.0.1:1", settings=JudgeSettings(**given))


@pytest.mark.long
def test_requests_are_signed_with_aws_s_keys_where_there_are_some(
    scripted: StartServer, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE012345678")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-forty-letters-0123456789abcd")
    server = scripted(say("a-secret-of-forty-letters-0123456789abcd"), final("Wrong Action"))
    judgement = asked(server, edit, mode="plain")
    assert judgement.judged
    assert server.requests[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE")
    assert "a-secret-of-forty" not in judgement.traces[0].model_dump_json()


@pytest.mark.long
def test_without_credentials_or_a_region_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="needs credentials: set AWS_BEARER_TOKEN_BEDROCK"):
        Judge(SPEC)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "a-token-0123456789")
    with pytest.raises(UserError, match="needs a region: set AWS_REGION"):
        Judge(SPEC)


@pytest.mark.long
def test_its_thoughts_go_back_and_are_shown(scripted: StartServer, edit: Edit) -> None:
    zoom = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image").but(signature="c2ln")
    server = scripted(zoom, final("Wrong Action"))
    judgement = asked(server, edit)
    assert judgement.traces[0].steps[0].thought == "Let me look closely."
    back = server.requests[1].body["messages"][1]["content"][0]
    assert back["reasoningContent"]["reasoningText"]["signature"] == "c2ln"


@pytest.mark.long
def test_a_filter_s_word_is_no_verdict(scripted: StartServer, edit: Edit) -> None:
    (outcome,) = asked(scripted(say("No", finish="content_filter")), edit, mode="plain").verdicts
    assert outcome.reason == Reason.REFUSED
    (outcome,) = asked(scripted(say("No", finish="guardrail_intervened")), edit, mode="plain").verdicts
    assert outcome.reason == Reason.REFUSED


@pytest.mark.long
def test_a_parameter_it_does_not_take_is_left_out(scripted: StartServer, edit: Edit) -> None:
    server = scripted(fault(400, "`temperature` is deprecated for this model."), final("Wrong Action"))
    judgement = asked(server, edit, mode="plain")
    assert judgement.judged
    assert [request.temperature for request in server.requests] == [0.0, None]


@pytest.mark.long
def test_an_identifier_it_does_not_know_stops_at_once(scripted: StartServer, edit: Edit) -> None:
    server = scripted(fault(400, "The provided model identifier is invalid."))
    with pytest.raises(UserError, match="does not know the model"):
        asked(server, edit, mode="plain")


def test_a_tracer_is_told_neither_key_nor_address() -> None:
    opening = Opening("m", "bedrock-secret-0123", "http://127.0.0.1:1/hidden", {}, 5.0, Gate())
    client = bedrock.open_client(opening)
    written = json.dumps(dumpd(client.model), default=str)
    assert "bedrock-secret" not in written
    assert "hidden" not in written
