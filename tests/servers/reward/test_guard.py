"""Strangers spend nobody's money: tokens beyond this machine, names and origins on it, bodies within their limits."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest
from starlette.datastructures import Headers

from editloupe import Judge, UserError
from editloupe.servers.http.guard import token_of
from editloupe.servers.reward import RewardServerSettings
from tests.servers.reward.running import Running, own, running

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    with running(Judge("rules", mode="plain"), token=TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def local() -> Iterator[Running]:
    with running(Judge("rules", mode="plain"), body_bytes=200_000, bodies_bytes=300_000) as server:
        yield server


def test_every_address_but_this_machines_own_needs_a_token() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "reward.example"):
        with pytest.raises(UserError, match="needs a token"):
            RewardServerSettings(host=host)
        assert RewardServerSettings(host=host, token=TOKEN)
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        assert RewardServerSettings(host=host).token is None


@pytest.mark.parametrize(
    ("token", "sentence"), [("short", "at least 16"), ("a token with spaces in it", "plain letters")]
)
def test_a_token_is_long_and_plain(token: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        RewardServerSettings(token=token)


def test_the_token_comes_as_a_header_or_in_the_address(guarded: Running) -> None:
    basic = base64.b64encode(f"any:{TOKEN}".encode()).decode()
    for kind in (f"Bearer {TOKEN}", f"Basic {basic}"):
        assert guarded.client.get("/health", headers={"authorization": kind}).status_code == 200
    address = guarded.url.replace("http://", f"http://any:{TOKEN}@")
    assert httpx.get(f"{address}/health", trust_env=False).status_code == 200


@pytest.mark.parametrize("given", ["", "Bearer wrong", "Basic ???", "Basic YWJj", f"Digest {TOKEN}"])
def test_without_it_nothing_is_told(given: str) -> None:
    with running(Judge("rules", mode="plain"), token=TOKEN) as server:
        for path in ("/health", "/metrics", "/v1/judge", "/openapi.json", "/nowhere"):
            answer = server.client.request("POST" if "judge" in path else "GET", path, headers={"authorization": given})
            assert answer.status_code == 401
            assert TOKEN not in answer.text


def test_wrong_tokens_are_slowed_down_and_do_not_lock_out_the_right_one() -> None:
    with running(Judge("rules", mode="plain"), token=TOKEN) as server:
        codes = [server.client.get("/health", headers={"authorization": f"Bearer {n}"}).status_code for n in range(12)]
        assert codes[:10] == [401] * 10
        assert codes[10:] == [429] * 2
        assert server.client.get("/health", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_header_that_is_no_text_is_no_token() -> None:
    assert token_of(Headers({"authorization": "Basic /w=="})) == ""


def test_a_name_that_leads_here_by_a_trick_is_not_answered(local: Running) -> None:
    assert local.client.get("/health", headers={"host": "evil.example"}).status_code == 421
    assert local.client.get("/health", headers={"host": "localhost:1"}).status_code == 200


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_pages_of_the_web_are_not_answered(local: Running, headers: dict[str, str]) -> None:
    assert local.post("/v1/judge", {"edits": [own()]}, headers=headers).status_code == 403


def test_a_body_beyond_the_limit_is_not_read(local: Running) -> None:
    assert local.post("/v1/judge", b"x" * 200_001).status_code == 413
    assert local.client.post("/v1/judge", content=iter([b"x"])).status_code == 411


def test_a_path_that_is_not_there_is_told_in_the_same_form(local: Running) -> None:
    answer = local.client.get("/nowhere")
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
    assert local.client.get("/score").status_code == 405
