"""What the real clients raise when a service fails: the facts that the agent's error handling stands on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import google.genai.errors
import httpx
import langchain_core.exceptions as core
import openai
import pytest

from tests.conftest import StartServer
from tests.scripted import Reply, drop, empty, fault, hang, not_json, out_of_quota, say, wrong_key, wrong_shape
from tests.scripted.test_scripted_server import both, model

HTTP = [
    ("401", fault(401), core.ModelAuthenticationError, 401),
    ("403", fault(403), core.ModelPermissionDeniedError, 403),
    ("404", fault(404), core.ModelNotFoundError, 404),
    ("400", fault(400), core.ModelInvalidRequestError, 400),
    ("429", fault(429, retry_after=0.25), core.ModelRateLimitError, 429),
    ("quota", out_of_quota(), core.ModelRateLimitError, 429),
    ("500", fault(500), core.ModelAPIError, 500),
    ("503", fault(503), core.ModelAPIError, 503),
]


def _raised(server: Any, provider: str, **options: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        model(server, provider, **options).invoke("Hi")
    return caught.value


def _google(error: Exception) -> google.genai.errors.APIError:
    """Return Google's own error: the cause of a 4xx, and a 5xx itself."""
    found = error if isinstance(error, google.genai.errors.APIError) else error.__cause__
    assert isinstance(found, google.genai.errors.APIError)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("reply", "kind", "status"), [row[1:] for row in HTTP], ids=[row[0] for row in HTTP])
@both
def test_http_errors_are_raised_as_langchains_classes_with_their_status(
    scripted: StartServer, provider: str, reply: Reply, kind: type[Exception], status: int
) -> None:
    server = scripted(reply)
    error = _raised(server, provider)
    assert isinstance(error, kind)
    if provider == "openai":
        assert isinstance(error, openai.APIStatusError)
        assert error.status_code == status
    else:
        assert _google(error).code == status
    assert server.served == 1


@pytest.mark.long
def test_a_wrong_key_is_401_at_openai_and_400_at_gemini(scripted: StartServer) -> None:
    error = _raised(scripted(wrong_key()), "openai")
    assert isinstance(error, openai.AuthenticationError)
    assert error.code == "invalid_api_key"
    cause = _google(_raised(scripted(wrong_key()), "gemini"))
    assert cause.code == 400
    assert cause.details["error"]["details"][0]["reason"] == "API_KEY_INVALID"


@pytest.mark.long
@both
def test_a_server_told_its_keys_and_models_refuses_others(scripted: StartServer, provider: str) -> None:
    refuses_key = _raised(scripted(say("ok"), keys=["another"]), provider)
    assert isinstance(refuses_key, (core.ModelAuthenticationError, core.ModelInvalidRequestError))
    refuses_model = _raised(scripted(say("ok"), models=["another"]), provider)
    assert isinstance(refuses_model, core.ModelNotFoundError)
    assert model(scripted(say("ok"), keys=["test"], models=["gpt-4.1", "gemini-2.5-flash"]), provider).invoke("Hi").text


@pytest.mark.long
def test_the_time_to_wait_is_a_header_at_openai_and_a_detail_at_gemini(scripted: StartServer) -> None:
    error = _raised(scripted(fault(429, retry_after=0.25)), "openai")
    assert isinstance(error, openai.RateLimitError)
    assert error.response.headers["retry-after"] == "0.25"
    cause = _google(_raised(scripted(fault(429, retry_after=0.25)), "gemini"))
    assert cause.response.headers.get("retry-after") is None
    waits = [d["retryDelay"] for d in cause.details["error"]["details"] if d["@type"].endswith("RetryInfo")]
    assert waits == ["0.25s"]


@pytest.mark.long
def test_spent_quota_can_be_told_from_a_rate_limit(scripted: StartServer) -> None:
    error = _raised(scripted(out_of_quota()), "openai")
    assert isinstance(error, openai.RateLimitError)
    assert error.code == "insufficient_quota"
    details = _google(_raised(scripted(out_of_quota()), "gemini")).details["error"]["details"]
    assert "PerDay" in details[0]["violations"][0]["quotaId"]


@pytest.mark.long
@pytest.mark.parametrize("half", [False, True])
def test_a_dropped_connection_is_classified_by_openai_and_raw_from_gemini(scripted: StartServer, half: bool) -> None:
    error = _raised(scripted(drop(half)), "openai")
    assert isinstance(error, core.ModelConnectionError)
    assert not isinstance(error, openai.APITimeoutError)
    assert type(_raised(scripted(drop(half)), "gemini")) is httpx.RemoteProtocolError


@pytest.mark.long
def test_a_timeout_is_classified_by_openai_and_raw_from_gemini(scripted: StartServer) -> None:
    assert isinstance(_raised(scripted(hang(30)), "openai", timeout=0.2), core.ModelTimeoutError)
    assert type(_raised(scripted(hang(30)), "gemini", timeout=0.2)) is httpx.ReadTimeout


@pytest.mark.long
@both
@pytest.mark.parametrize("content_type", ["text/html", "application/json"])
def test_a_body_that_is_not_json_is_a_value_error(scripted: StartServer, provider: str, content_type: str) -> None:
    error = _raised(scripted(not_json(content_type=content_type)), provider)
    assert isinstance(error, ValueError)
    assert isinstance(error, json.JSONDecodeError) == (provider == "gemini" or content_type == "application/json")


@pytest.mark.long
def test_json_of_the_wrong_shape_is_an_error_at_openai_and_an_empty_message_at_gemini(scripted: StartServer) -> None:
    assert isinstance(_raised(scripted(wrong_shape()), "openai"), TypeError)
    assert isinstance(_raised(scripted(wrong_shape({"choices": []})), "openai"), IndexError)
    reply = model(scripted(wrong_shape()), "gemini").invoke("Hi")
    assert (reply.content, reply.usage_metadata, reply.response_metadata) == ("", None, {})


@pytest.mark.long
def test_a_blocked_prompt_is_an_error_at_openai_and_an_empty_message_at_gemini(scripted: StartServer) -> None:
    error = _raised(scripted(empty(finish="blocked")), "openai")
    assert isinstance(error, openai.BadRequestError)
    assert error.code == "invalid_prompt"
    reply = model(scripted(empty(finish="blocked")), "gemini").invoke("Hi")
    assert reply.text == ""
    assert "finish_reason" not in reply.response_metadata
    assert reply.response_metadata["prompt_feedback"]["block_reason"] == "SAFETY"


@pytest.mark.long
@both
def test_a_path_the_service_does_not_have_is_not_found(scripted: StartServer, provider: str) -> None:
    server = scripted(say("ok"))
    wrong = {"openai": server.url, "gemini": f"{server.url}/v1beta"}[provider]
    chat: Any = model(server, provider)
    with pytest.raises(core.ModelNotFoundError, match="Invalid URL"):
        type(chat)(model="any", base_url=wrong, api_key="test", max_retries=1).invoke("Hi")


@pytest.mark.parametrize(("provider", "retries", "requests"), [("openai", 0, 1), ("openai", 1, 2), ("gemini", 1, 1)])
def test_the_clients_own_retries_are_off_at_zero_for_openai_and_one_for_gemini(
    scripted: StartServer, provider: str, retries: int, requests: int
) -> None:
    server = scripted(lambda request: fault(429, retry_after=0.01))
    assert isinstance(_raised(server, provider, max_retries=retries), core.ModelRateLimitError)
    assert server.served == requests


@pytest.fixture(scope="module", autouse=True)
def _someone_elses_settings() -> Iterator[None]:
    """Set what a developer's shell might, before the fixture that removes it for each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", "http://192.0.2.1/v1")
        patch.setenv("GEMINI_API_KEY", "a-real-key")
        patch.setenv("HTTP_PROXY", "http://192.0.2.1:9")
        patch.setenv("EDITLOUPE_JUDGE", "openai:gpt-5.1")
        yield


def test_keys_endpoints_and_proxies_of_the_shell_do_not_reach_a_test() -> None:
    names = {"OPENAI_BASE_URL", "GEMINI_API_KEY", "HTTP_PROXY", "EDITLOUPE_JUDGE"}
    assert names.isdisjoint(os.environ)
    assert os.environ["NO_PROXY"] == "127.0.0.1,localhost"
