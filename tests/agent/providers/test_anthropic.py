"""Claude's picture limits apply from the first request, its signed thoughts are sent back, and its refusals are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.load import dumpd
from PIL import Image

from editloupe import Edit, Judge, JudgeSettings, Reason, UserError
from editloupe.agent.providers import anthropic
from editloupe.agent.providers.anthropic import hide_address, leave_out
from editloupe.agent.specs import find_profile
from editloupe.agent.transport.attachments import fit_limits, wire_limits
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, ScriptedServer, call, calls, empty, final, say

ZOOM = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
SPEC = "anthropic:claude-sonnet-4-6"


def asked(server: ScriptedServer, edit: Edit, spec: str = SPEC, **options: Any) -> Any:
    settings = JudgeSettings(**options.pop("settings", {}))
    options.setdefault("criteria", ["instruction_following"])
    with Judge(spec, base_url=server.url, settings=settings, **options) as judge:
        return judge.judge(edit)


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Paint the patch red")


@pytest.mark.parametrize(
    ("name", "temperature", "schema"),
    [
        ("claude-sonnet-4-6", True, True),
        ("claude-haiku-4-5-20251001", True, True),
        ("claude-opus-4-1-20250805", True, False),
        ("claude-3-7-sonnet-latest", True, False),
        ("claude-opus-4-7", False, True),
        ("claude-sonnet-5", False, True),
        ("claude-fable-5-1", False, True),
    ],
)
def test_what_a_model_takes_follows_its_name(name: str, temperature: bool, schema: bool) -> None:
    profile = find_profile("anthropic", name)
    assert (profile.temperature, profile.structured_output) == (temperature, schema)
    assert profile.native_tools
    assert profile.max_long_side == 2000


def test_behind_a_proxy_its_name_is_known_and_the_proxy_s_limits_hold() -> None:
    profile = find_profile("openai", "anthropic/claude-sonnet-5")
    assert not profile.temperature
    assert not profile.native_tools
    assert (profile.max_image_bytes, profile.max_long_side) == (15_000_000, None)


@pytest.mark.long
def test_a_conversation_with_more_than_twenty_pictures_goes_through(scripted: StartServer, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("before", "after"):
        small = rng.integers(0, 255, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(small).resize((2600, 1950)).save(tmp_path / f"{name}.jpg")
    edit = Edit(source=tmp_path / "before.jpg", edited=tmp_path / "after.jpg", instruction="Paint the patch red")

    def script(request: Request) -> Any:
        turn = sum(message.role == "assistant" for message in request.messages)
        boxes = [[100 * i, 100 * turn, 100 * i + 90, 100 * turn + 90] for i in range(12)]
        looks = [call("zoom_in_image", bbox_2d=box, target_image="Edited Image") for box in boxes]
        return calls(*looks) if turn < 2 else final("Wrong Action")

    server = scripted(script)
    judgement = asked(server, edit, settings={"long_side": 4000})
    assert judgement.verdicts[0].label == "Wrong Action"
    assert not server.refused
    last = server.requests[-1]
    assert len(last.images) > 20
    assert max(max(image.pixels) for image in last.images) == 2000
    assert "2000" in last.text, "the size it was announced with is the size it is sent with"


@pytest.mark.long
def test_a_picture_heavier_than_it_takes_is_sent_smaller(scripted: StartServer, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (1500, 1500, 3), dtype=np.uint8)
    for name in ("before", "after"):
        Image.fromarray(noise).save(tmp_path / f"{name}.png")
    edit = Edit(source=tmp_path / "before.png", edited=tmp_path / "after.png", instruction="Paint the patch red")
    server = scripted(final("Wrong Action"))
    assert asked(server, edit, mode="plain").judged
    assert all(len(image.encoded) <= 5 * 2**20 for image in server.requests[0].images)


def test_pictures_of_more_than_a_request_holds_are_packed_at_the_same_size(
    scripted: StartServer, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = tuple(profile.model_copy(update={"max_request_bytes": 60_000}) for profile in anthropic.PROFILES)
    monkeypatch.setattr("editloupe.agent.open_model.find_profile", lambda provider, name: tight[1])
    server = scripted(final("Wrong Action"))
    judgement = asked(server, edit, mode="plain")
    assert judgement.judged
    assert [image.mime for image in server.requests[0].images] == ["image/jpeg"] * 2
    assert [image.pixels for image in server.requests[0].images] == [(160, 120)] * 2
    assert any("lower quality and the same size" in note for note in judgement.notes)


def test_pictures_that_fit_are_left_as_they_are(edit: Edit) -> None:
    album, limits = Album(), wire_limits(4000, find_profile("anthropic", "claude-sonnet-5"))
    assert limits == EncodingLimits(2000, anthropic.LARGEST_PICTURE)
    sha = album.open(edit.source).sha
    size = len(album[sha].wire(limits).base64)
    assert fit_limits([sha] * 3, album, limits, 3 * size) == limits
    assert fit_limits([sha] * 4, album, limits, 3 * size).packed
    assert not fit_limits([sha] * 4, album, limits, None).packed


def test_its_thoughts_go_back_with_their_signatures_and_are_shown(scripted: StartServer, edit: Edit) -> None:
    thought = ZOOM.but(signature="c2lnbmVk")
    server = scripted(thought, final("Wrong Action").but(signature="YWdhaW4="))
    judgement = asked(server, edit, settings={"thinking_budget": 2048})
    assert judgement.verdicts[0].label == "Wrong Action"
    assert not server.refused
    first, second = (request.body for request in server.requests)
    assert first["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert "temperature" not in first
    assert second["messages"][1]["content"][0]["signature"] == "c2lnbmVk"
    assert judgement.traces[0].steps[0].thought == "Let me look closely."
    assert any("temperature is not sent" in note for note in judgement.notes)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"reasoning_effort": "low"}, ("output_config", {"effort": "low"})),
        ({"thinking_budget": 0}, ("thinking", {"type": "disabled"})),
        ({"top_p": 0.5}, ("top_p", 0.5)),
        ({"max_output_tokens": 900}, ("max_tokens", 900)),
        ({}, ("max_tokens", anthropic.LONGEST_REPLY)),
        ({"extra_body": {"cache_control": {"type": "ephemeral"}}}, ("cache_control", {"type": "ephemeral"})),
    ],
)
def test_it_is_sent_what_was_set(
    scripted: StartServer, edit: Edit, given: dict[str, Any], where: tuple[str, Any]
) -> None:
    server = scripted(final("Wrong Action"))
    assert asked(server, edit, mode="plain", settings=given).judged
    assert server.requests[0].body[where[0]] == where[1]


@pytest.mark.parametrize("given", [{"service_tier": "flex"}, {"seed": 3}, {"thinking_level": "low"}])
def test_what_it_does_not_have_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{SPEC} does not support --"):
        Judge(SPEC, base_url="http://127.0.0.1:1", settings=JudgeSettings(**given))


def test_thinking_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(UserError, match="leaves no room for an answer"):
        Judge(SPEC, base_url="http://127.0.0.1:1", settings=JudgeSettings(thinking_budget=20_000))


def test_a_model_that_takes_no_temperature_after_all_is_asked_without(scripted: StartServer, edit: Edit) -> None:
    server = scripted(final("Wrong Action"))
    judgement = asked(server, edit, "anthropic:claude-sonnet-5", mode="plain", settings={"temperature": 0.5})
    assert judgement.judged
    assert any("temperature is not sent" in note for note in judgement.notes)
    assert [request.temperature for request in server.requests] == [0.5, None]


def test_a_refusal_is_no_verdict(scripted: StartServer, edit: Edit) -> None:
    server = scripted(say("I would rather", finish="content_filter"))
    (outcome,) = asked(server, edit, mode="plain").verdicts
    assert outcome.reason == Reason.REFUSED
    assert "stop reason refusal" in outcome.detail


def test_a_refusal_without_a_word_is_no_broken_reply(scripted: StartServer, edit: Edit) -> None:
    server = scripted(empty(finish="content_filter"))
    (outcome,) = asked(server, edit, mode="plain").verdicts
    assert outcome.reason == Reason.REFUSED
    assert len(server.requests) == 1


def test_parameters_are_left_out_under_the_names_they_have_here() -> None:
    body: dict[str, Any] = {"temperature": 0, "max_tokens": 5, "output_config": {"format": {}}}
    leave_out(body, {"temperature", "response_format"})
    assert body == {"max_tokens": 5}
    body = {"output_config": {"format": {}, "effort": "low"}}
    leave_out(body, {"response_format"})
    assert body == {"output_config": {"effort": "low"}}


def test_a_tracer_is_told_neither_key_nor_address() -> None:
    client: Any = hide_address(ChatAnthropic)
    written = json.dumps(dumpd(client(model="m", api_key="sk-secret-123", base_url="http://localhost:1/hidden")))
    assert "sk-secret" not in written
    assert "hidden" not in written


def test_a_client_that_cannot_be_given_ours_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic, "_speak_through", _fails)
    with pytest.raises(UserError, match="pip install 'langchain-anthropic"):
        Judge(SPEC, base_url="http://127.0.0.1:1")


def _fails(model: Any, client: Any) -> None:
    raise AttributeError("no _async_client")
