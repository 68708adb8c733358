"""Special behaviour of Ollama, OpenRouter and Azure, on the wire and for tracers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd

from editloupe import Edit, Judge, JudgeSettings, UserError
from editloupe.agent.providers import azure_openai, ollama
from editloupe.agent.specs import find_profile
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, call, fault, final

ROUTED = "openrouter:qwen/qwen3-vl-30b-a3b-instruct@deepinfra/fp8,novita"
OLLAMA = "ollama:qwen3-vl:8b"
AZURE = "azure_openai:our-gpt-4.1"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Paint the patch red")


def sent(scripted: StartServer, edit: Edit, spec: str, **given: Any) -> Request:
    """Return what a judge with these settings sends."""
    server = scripted(lambda _: final("Wrong Action"))
    url = server.openai_url if spec.startswith("openrouter") else server.url
    with Judge(
        spec, mode="plain", criteria=["instruction_following"], base_url=url, settings=JudgeSettings(**given)
    ) as judge:
        assert judge.judge(edit).judged
    return server.requests[0]


def test_openrouter_goes_to_the_named_hosts_and_to_no_other(scripted: StartServer, edit: Edit) -> None:
    body = sent(scripted, edit, ROUTED).body
    assert body["model"] == "qwen/qwen3-vl-30b-a3b-instruct"
    assert body["provider"] == {"order": ["deepinfra/fp8", "novita"], "allow_fallbacks": False}


def test_without_a_named_host_openrouter_goes_to_whoever_made_the_model(scripted: StartServer, edit: Edit) -> None:
    body = sent(scripted, edit, "openrouter:google/gemini-2.5-flash").body
    assert body["provider"] == {"order": ["google-ai-studio"], "allow_fallbacks": False}


def test_what_the_user_says_of_the_route_joins_it(scripted: StartServer, edit: Edit) -> None:
    body = sent(
        scripted, edit, ROUTED, extra_body={"provider": {"quantizations": ["fp8"]}}, reasoning_effort="low"
    ).body
    assert body["provider"]["quantizations"] == ["fp8"]
    assert body["provider"]["allow_fallbacks"] is False
    assert body["reasoning"] == {"effort": "low"}


def test_the_family_is_known_before_the_route() -> None:
    assert find_profile("openrouter", "qwen/qwen3-vl-30b-a3b-instruct@deepinfra/fp8").family == "Qwen3-VL"
    assert find_profile("openrouter", "openai/gpt-5.1").native_tools
    assert not find_profile("openrouter", "google/gemini-3-pro").native_tools


@pytest.mark.long
def test_a_route_nobody_serves_is_told(scripted: StartServer, edit: Edit) -> None:
    server = scripted(lambda _: fault(404, "No allowed providers are available for the selected model."))
    with (
        Judge(ROUTED, mode="plain", base_url=server.openai_url) as judge,
        pytest.raises(UserError, match="No allowed providers are available"),
    ):
        judge.judge(edit)


@pytest.mark.parametrize("spec", [ROUTED, OLLAMA, AZURE])
def test_none_of_them_has_a_cheaper_tier(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "az-key-0123456789")
    with pytest.raises(UserError, match="does not support --service-tier"):
        Judge(spec, base_url="http://127.0.0.1:1/v1", settings=JudgeSettings(service_tier="flex"))


def test_ollama_is_asked_for_a_whole_reply_and_for_room_enough(scripted: StartServer, edit: Edit) -> None:
    request = sent(scripted, edit, OLLAMA, seed=3, top_p=0.5, max_output_tokens=99, reasoning_effort="none")
    body = request.body
    assert body["stream"] is False
    assert body["think"] is False
    wanted = {"num_ctx": ollama.CONTEXT, "num_predict": 99, "seed": 3, "top_p": 0.5, "temperature": 0.0}
    assert body["options"] == wanted
    assert [image.pixels for image in request.images] == [(160, 120)] * 2
    assert request.headers["authorization"] == "Bearer none"


def test_ollama_s_options_are_the_user_s(scripted: StartServer, edit: Edit) -> None:
    body = sent(scripted, edit, OLLAMA, extra_body={"options": {"num_ctx": 8192}}).body
    assert body["options"]["num_ctx"] == 8192
    assert body["options"]["temperature"] == 0.0


@pytest.mark.long
def test_ollama_s_thoughts_are_shown(scripted: StartServer, edit: Edit) -> None:
    zoom = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image").but(signature="x")
    server = scripted(zoom, final("Wrong Action"))
    settings = JudgeSettings(tool_calls="native", reasoning_effort="on")
    with Judge(OLLAMA, base_url=server.url, criteria=["instruction_following"], settings=settings) as judge:
        judgement = judge.judge(edit)
    assert judgement.traces[0].steps[0].thought == "Let me look closely."


def test_a_model_of_ollama_s_without_functions_is_told_with_the_way_out(scripted: StartServer, edit: Edit) -> None:
    server = scripted(lambda _: fault(400, "registry.ollama.ai/library/llava:7b does not support tools"))
    with (
        Judge("ollama:llava:7b", base_url=server.url, settings=JudgeSettings(tool_calls="native")) as judge,
        pytest.raises(UserError, match="--tool-calls text"),
    ):
        judge.judge(edit)


def test_ollama_needs_no_key_and_its_refused_options_are_left_out() -> None:
    with Judge(OLLAMA, mode="plain") as judge:
        assert judge.notes == ()
    body: dict[str, Any] = {"format": {}, "options": {"num_predict": 3, "temperature": 0, "num_ctx": 9}}
    ollama.leave_out(body, {"max_tokens", "temperature", "response_format"})
    assert body == {"options": {"num_ctx": 9}}


def test_azure_is_asked_at_the_deployment(scripted: StartServer, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "az-key-0123456789")
    request = sent(scripted, edit, AZURE, max_output_tokens=77)
    assert request.path == "/openai/deployments/our-gpt-4.1/chat/completions"
    assert request.headers["api-key"] == "az-key-0123456789"
    assert len(request.images) == 2
    assert request.body["max_completion_tokens"] == 77


def test_azure_without_an_address_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "az-key-0123456789")
    with pytest.raises(UserError, match="set AZURE_OPENAI_ENDPOINT, or give --base-url"):
        Judge(AZURE)


def test_azure_needs_its_key_whatever_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"our-gpt-4\.1 needs a key: set AZURE_OPENAI_API_KEY$"):
        Judge(AZURE, base_url="http://127.0.0.1:1")


@pytest.mark.long
def test_tracers_are_told_neither_key_nor_address() -> None:
    from langchain_ollama import ChatOllama
    from langchain_openai import AzureChatOpenAI

    azure: Any = azure_openai.hide_address(AzureChatOpenAI)
    hidden = {"azure_endpoint": "http://localhost:1/hidden", "api_version": "1", "api_key": "az-secret-1"}
    local: Any = ollama.hide_address(ChatOllama)
    for model in (azure(azure_deployment="m", **hidden), local(model="m", base_url="http://localhost:1/hidden")):
        written = json.dumps(dumpd(model), default=str)
        assert "hidden" not in written
        assert "az-secret" not in written
