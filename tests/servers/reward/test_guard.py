"""Strangers spend nobody's money: tokens beyond this machine, names and origins on it, bodies within their limits."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from starlette.datastructures import Headers

from editloupe import Judge, UserError
from editloupe.servers.http import guard
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


@contextmanager
def stalled(server: Running, count: int, stated: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Open connections that state a length and send less."""
    head = f"POST /v1/judge HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {stated}\r\n\r\n".encode()
    with ExitStack() as stack:
        address = ("127.0.0.1", server.scorer.settings.port)
        connections = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(count)]
        for connection in connections:
            connection.sendall(head + sent)
        yield connections


def test_connections_that_state_a_length_and_send_nothing_lock_nobody_out(local: Running) -> None:
    with stalled(local, 8, 100_000, b"{"):
        assert local.post("/v1/judge", {"edits": [own()]}).json()["results"][0]["status"] == "judged"


def test_bytes_that_arrived_count_and_are_released(local: Running) -> None:
    def answer() -> int:
        time.sleep(0.02)  # the server reads what others have sent, or that they have left
        return local.post("/v1/judge", b"x" * 110_001).status_code

    def answer_beside_a_stalled_request() -> int:
        with stalled(local, 1, 200_000, b"x" * 190_000):
            return answer()

    assert any(answer_beside_a_stalled_request() == 429 for _ in range(100))
    assert any(answer() == 400 for _ in range(100))  # not JSON, but read


@pytest.mark.long
def test_a_body_that_does_not_arrive_in_time_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "BODY_SECONDS"):
        with monkeypatch.context() as patch, running(Judge("rules", mode="plain")) as server:
            patch.setattr(guard, name, 0.05)
            with stalled(server, 1, 1000, b"{") as (connection,):
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert answer.endswith(b'{"error":"the request did not arrive in time"}')
            assert server.client.get("/health").status_code == 200


def test_a_path_that_is_not_there_is_told_in_the_same_form(local: Running) -> None:
    answer = local.client.get("/nowhere")
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
    assert local.client.get("/score").status_code == 405
