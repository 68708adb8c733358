"""Hostile replies of Azure and OpenRouter: a verdict that was given, or a reason; nothing invented, no key repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from editloupe import Judgement, Reason
from editloupe.types import Unjudged
from tests.conftest import StartServer
from tests.faults.asking import GOOD, only
from tests.scripted import Garbage, ScriptedServer

KEY = "sk-hostile-0123456789abcdef"
PROVIDERS = {
    "azure_openai:gpt-4.1": ("AZURE_OPENAI_API_KEY", lambda server: server.url),
    "openrouter:openai/gpt-4.1": ("OPENROUTER_API_KEY", lambda server: server.openai_url),
}
MESSAGE = {"role": "assistant", "content": GOOD.text}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}


def body(**changes: Any) -> Garbage:
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE], "usage": usage}
    return Garbage(json.dumps({**whole, **changes}).encode())


def choice(**changes: Any) -> Garbage:
    return body(choices=[{**CHOICE, **changes}])


def message(**changes: Any) -> Garbage:
    return choice(message={**MESSAGE, **changes})


READ = {
    "filter results of another type": body(prompt_filter_results="x"),
    "blank lines while it waits": Garbage(b"\n \n" + body().body),
    "a list of parts": message(content=[{"type": "text", "text": GOOD.text}]),
    "reasoning of another type": message(reasoning={"a": 1}, reasoning_details="x"),
    "tokens as words": body(usage="many"),
    "impossible tokens": body(usage={"prompt_tokens": -5, "completion_tokens": 1e300, "total_tokens": None}),
    "a cost that is no number": body(usage={"prompt_tokens": 5, "completion_tokens": 5, "cost": "NaN"}),
    "a model that is a number": body(model=5, provider=["x"], created="yesterday"),
}
ANSWERS: dict[str, tuple[Garbage, Reason, int]] = {
    "filtered": (choice(message={**MESSAGE, "content": None}, finish_reason="content_filter"), Reason.REFUSED, 1),
    "filtered in part": (choice(finish_reason="content_filter"), Reason.REFUSED, 1),
    "declined": (message(content=None, refusal=f"I cannot. {KEY}"), Reason.REFUSED, 1),
    "refused in a 200": (
        Garbage(b'{"error": {"message": "no", "code": 400}, "user_id": "u"}'),
        Reason.SERVER_REFUSED,
        1,
    ),
    "failed behind the proxy": (
        choice(error={"code": 502, "message": KEY}, finish_reason="error"),
        Reason.MODEL_ERROR,
        3,
    ),
    "an error that is a text": (Garbage(json.dumps({"error": KEY}).encode()), Reason.MODEL_ERROR, 6),
    "no choice": (body(choices=[]), Reason.MODEL_ERROR, 6),
    "choices by name": (body(choices={"a": 1}), Reason.MODEL_ERROR, 6),
    "no message": (choice(message=None), Reason.MODEL_ERROR, 6),
    "calls that are a text": (message(tool_calls="none"), Reason.MODEL_ERROR, 6),
    "content that is a number": (message(content=7), Reason.MODEL_ERROR, 6),
    "fifty thousand brackets": (Garbage(b"[" * 50_000 + b"]" * 50_000), Reason.MODEL_ERROR, 6),
    "a page": (Garbage(f"<html>502 {KEY}</html>".encode()), Reason.MODEL_ERROR, 6),
}


@pytest.fixture
def hostile(scripted: StartServer, asked: Callable[..., Judgement], monkeypatch: pytest.MonkeyPatch) -> Any:
    def ask(spec: str, reply: Garbage) -> tuple[Any, ScriptedServer]:
        variable, address = PROVIDERS[spec]
        monkeypatch.setenv(variable, KEY)
        server = scripted(lambda _: reply)
        return only(asked(server, spec, url=address(server))), server

    return ask


@pytest.mark.long
@pytest.mark.parametrize("spec", PROVIDERS)
def test_odd_facts_around_an_answer_do_not_spoil_it(spec: str, hostile: Any) -> None:
    for name, reply in READ.items():
        outcome, server = hostile(spec, reply)
        assert (name, getattr(outcome, "label", outcome)) == (name, "Wrong Action")
        assert server.served == 1


@pytest.mark.long
@pytest.mark.parametrize("spec", PROVIDERS)
def test_what_is_no_answer_has_its_reason_and_is_paid_for_no_more_often_than_needed(spec: str, hostile: Any) -> None:
    for name, (reply, reason, requests) in ANSWERS.items():
        outcome, server = hostile(spec, reply)
        assert isinstance(outcome, Unjudged), name
        assert (name, outcome.reason, server.served) == (name, reason, requests)
        assert KEY not in outcome.detail
