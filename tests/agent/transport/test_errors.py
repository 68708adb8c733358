"""Errors of clients lead to a retry, an unjudged case or a stop, and their sentences contain no secret."""

from __future__ import annotations

import time
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from editloupe.agent.transport.errors import classify, clean
from editloupe.types import Reason


class ServerError(Exception):
    """An error as the clients raise it: a status, a body, a response with headers."""

    def __init__(self, status: int, message: str = "no", code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status_code = status
        self.body = {"error": {"message": message, "code": code}}
        self.response = SimpleNamespace(headers={name.replace("_", "-"): value for name, value in headers.items()})


def sort(error: Exception) -> Any:
    return classify(error, "openai:x", 90)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 408, 409])
def test_passing_statuses_are_tried_again(status: int) -> None:
    assert sort(ServerError(status)).again


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ServerError(401), "key"),
        (ServerError(403), "key"),
        (ServerError(400, "API key not valid. Please pass a valid API key."), "key"),
        (ServerError(404, "The model `x` does not exist"), "model"),
        (ServerError(429, "You exceeded your current quota", "insufficient_quota"), "quota"),
    ],
)
def test_what_the_user_must_mend_is_fatal(error: Exception, word: str) -> None:
    fault = sort(error)
    assert fault.fatal is not None
    assert word in str(fault.fatal)


def test_another_refusal_leaves_the_case_unjudged() -> None:
    fault = sort(ServerError(400, "image too large"))
    assert (fault.again, fault.fatal, fault.reason) == (False, None, Reason.REFUSED)
    assert "image too large" in fault.sentence


def test_retry_after_is_read_as_seconds_milliseconds_and_date() -> None:
    assert sort(ServerError(429, retry_after="7")).retry_after == 7
    assert sort(ServerError(429, retry_after_ms="250")).retry_after == 0.25
    date = formatdate(time.time() + 60, usegmt=True)
    assert sort(ServerError(429, retry_after=date)).retry_after == pytest.approx(60, abs=3)
    assert sort(ServerError(429)).retry_after is None


def test_a_date_to_wait_for_is_counted_from_the_servers_clock() -> None:
    hours_ago = time.time() - 7200
    later, date = formatdate(hours_ago + 30, usegmt=True), formatdate(hours_ago, usegmt=True)
    assert sort(ServerError(429, retry_after=later, date=date)).retry_after == 30


def test_a_time_to_wait_that_stands_in_the_sentence_is_kept_even_behind_what_is_shown_of_it() -> None:
    long = f"You exceeded your current quota, please check your plan and billing details. {'* Quota ' * 60}"
    fault = sort(ServerError(429, f"{long}Please retry in 12.5s."))
    assert (fault.fatal, fault.again, fault.slow_down, fault.retry_after) == (None, True, True, 12.5)
    assert sort(ServerError(429, "Please try again in 20s.", retry_after="7")).retry_after == 7


def test_a_status_deep_in_the_chain_is_found() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = ServerError(503)
    assert sort(outer).slow_down


@pytest.mark.parametrize("error", [httpx.ReadTimeout("x"), TimeoutError()])
def test_timeouts_have_their_own_reason(error: Exception) -> None:
    fault = sort(error)
    assert fault.again
    assert fault.reason is Reason.TIMEOUT


@pytest.mark.parametrize(
    "error", [httpx.RemoteProtocolError("gone"), ConnectionResetError("gone"), ValueError("<html>")]
)
def test_broken_connections_and_bodies_are_tried_again(error: Exception) -> None:
    assert sort(error).again


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcdef123456",
        "?key=AIzaSyA1234567890abcdef",
        "Authorization: Bearer abc.def",
    ],
)
def test_nothing_that_looks_like_a_key_is_repeated(text: str) -> None:
    said = clean(text)
    assert "***" in said
    for secret in ("abcdef123456", "AIzaSy", "abc.def"):
        assert secret not in said
