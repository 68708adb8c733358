"""Requests for completions built after the first one's pattern: the same on the wire, or left to the openai package."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from editloupe.agent.providers.openai_requests import LikeTheFirst, PlainCompletions
from tests.conftest import StartServer
from tests.scripted import say

RAW = "x-stainless-raw-response"
"""Set by the package's own completions for themselves."""


def client(url: str, plain: bool, **settings: Any) -> ChatOpenAI:
    model = ChatOpenAI(model="gpt-4.1", api_key="none", base_url=url, max_retries=0, **settings)  # type: ignore[arg-type]
    if plain:
        model.async_client = PlainCompletions(model.root_async_client)
    return model


@pytest.mark.parametrize(
    "settings", [{}, {"timeout": 7}, {"default_headers": {"X-Team": "a"}}, {"default_query": {"version": "2"}}]
)
async def test_the_second_and_third_request_have_the_headers_and_the_body_of_the_packages_own(
    scripted: StartServer, settings: dict[str, Any]
) -> None:
    server = scripted(lambda request: say("fine"), checks=False)
    for plain in (False, True):
        model = client(server.openai_url, plain, **settings)
        for words in ("one", "twenty-two", "drei ü"):
            await model.ainvoke(words)
    usual, short = server.requests[:3], server.requests[3:]
    for one, other in zip(usual, short, strict=True):
        assert other.body == one.body
        assert other.path == one.path
        assert dict(other.headers) == {name: value for name, value in one.headers.items() if name != RAW}


async def test_a_client_whose_requests_differ_from_time_to_time_builds_them_itself(scripted: StartServer) -> None:
    server = scripted(lambda request: say("fine"), checks=False)
    model = client(server.openai_url, plain=False)
    model.root_async_client._idempotency_header = "Idempotency-Key"
    model.async_client = PlainCompletions(model.root_async_client)
    for _ in range(3):
        await model.ainvoke("Hello.")
    keys = [request.headers["idempotency-key"] for request in server.requests]
    assert len(set(keys)) == 3


async def test_what_is_no_plain_completion_is_left_to_the_package(scripted: StartServer) -> None:
    server = scripted(lambda request: say("fine"), checks=False)
    model = client(server.openai_url, plain=True)
    for _ in range(2):
        await model.ainvoke("Hello.")
    openai = model.root_async_client
    assert isinstance(openai._build_request, LikeTheFirst)
    options: Any = {"security": {"bearer_auth": True}, "headers": {"X-Team": "b"}}
    await openai.post("/chat/completions", cast_to=object, body={"model": "gpt-4.1", "messages": []}, options=options)
    assert server.requests[-1].headers["x-team"] == "b"
    await model.ainvoke("Hello.")
    assert "x-team" not in server.requests[-1].headers
