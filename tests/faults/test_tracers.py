"""LangSmith's tracing is on: what its endpoint is sent, and how long it can hold up the end of a command."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest

from editloupe import __main__ as command_line
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Reply as Scripted
from tests.scripted import Request, ScriptedServer, call, calls, final

LONGEST = 5.0
"""Seconds a tracer may hold up the end of a command."""
SECRETS = {
    "OPENAI_API_KEY": "sk-a-key-that-stays-at-home-1",
    "GOOGLE_API_KEY": "AIzaAKeyThatStaysAtHome1",
    "LANGSMITH_API_KEY": "lsv2-a-key-for-headers-only-1",
}
IN_THE_ADDRESS = "word-in-the-address-1"
LOOK = call("localize_differences", comparison_image_1="Source Image", comparison_image_2="Edited Image")


@dataclass
class Endpoint:
    """A LangSmith endpoint on loopback that keeps what it is sent."""

    mood: Literal["takes", "hangs"]
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""
    awake: threading.Event = field(default_factory=threading.Event)

    def text(self) -> str:
        return b"\n".join(self.bodies).decode("utf-8", "replace")


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            limits = {"use_multipart_endpoint": True, "size_limit": 100, "size_limit_bytes": 20_971_520,
                      "scale_up_nthreads_limit": 4, "scale_up_qsize_trigger": 1000, "scale_down_nempty_trigger": 4}  # fmt: skip
            self._answer(200, json.dumps({"version": "0.10", "batch_ingest_config": limits}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding")
            assert packed in (None, "gzip"), f"the test cannot look into {packed}"
            endpoint.bodies.append(gzip.decompress(body) if packed else body)
            self._answer(202, b"{}")

        def do_PATCH(self) -> None:
            self.do_POST()

        def _answer(self, status: int, body: bytes) -> None:
            if endpoint.mood == "hangs":
                endpoint.awake.wait(120)
                return
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@pytest.fixture
def endpoint() -> Iterator[Callable[[Literal["takes", "hangs"]], Endpoint]]:
    started: list[tuple[ThreadingHTTPServer, Endpoint]] = []

    def start(mood: Literal["takes", "hangs"]) -> Endpoint:
        made = Endpoint(mood)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
        made.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append((server, made))
        return made

    yield start
    for server, made in started:
        made.awake.set()
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Ended:
    """A command that ran to its end."""

    code: int
    out: str
    err: str
    lingered: float
    """Seconds from its last line of output to its end."""


def run(tracer: str, spec: str, base_url: str, folder: Path, tracing: str = "LANGSMITH_TRACING") -> Ended:
    before, after = edit_pair(folder, (320, 240))
    command = [sys.executable, "-u", "-m", "editloupe", "judge", str(before), str(after), "Make the patch red"]
    command += ["--judge", spec, "--base-url", base_url, "--criterion", "instruction_following"]
    traced = {tracing: "true", "LANGSMITH_ENDPOINT": tracer, **SECRETS}
    process = subprocess.Popen(
        command, env={**os.environ, **traced}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stderr
    lines = []
    last = time.monotonic()
    for line in process.stdout:
        lines.append(line)
        last = time.monotonic()
    err = process.stderr.read()
    code = process.wait(timeout=60)
    return Ended(code, "".join(lines), err, time.monotonic() - last)


def looks_once(request: Request) -> Scripted:
    return final("Wrong Action") if any(m.role == "assistant" for m in request.messages) else calls(LOOK)


def address(server: ScriptedServer, spec: str) -> str:
    url = server.gemini_url if spec.startswith("google") else server.openai_url
    return url.replace("http://", f"http://me:{IN_THE_ADDRESS}@")


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-3-pro"])
def test_traces_hold_the_conversation_but_no_picture_no_key_and_no_address(
    scripted: StartServer, endpoint: Callable[..., Endpoint], spec: str, tmp_path: Path
) -> None:
    server, tracer = scripted(looks_once), endpoint("takes")
    ended = run(tracer.url, spec, address(server, spec), tmp_path)
    assert ended.code == 0, ended.err
    assert "Wrong Action" in ended.out
    assert len(server.requests) == 2
    assert sum(len(message.images) for message in server.requests[1].messages) >= 3

    sent = tracer.text()
    assert "Make the patch red" in sent
    assert "localize_differences" in sent
    for picture in (image for request in server.requests for m in request.messages for image in m.images):
        assert picture.encoded[:60] not in sent
    assert not re.search(r"[A-Za-z0-9+/_-]{600}", sent), "a long run of letters without a space is a picture"
    for secret in (*SECRETS.values(), IN_THE_ADDRESS):
        assert secret not in sent
    assert str(server.port) not in sent


@pytest.mark.long
def test_an_endpoint_that_hangs_does_not_hold_up_the_end_and_the_exit_code_is_kept(
    scripted: StartServer, endpoint: Callable[..., Endpoint], tmp_path: Path
) -> None:
    server, tracer = scripted(lambda _: final("No Such Label")), endpoint("hangs")
    ended = run(tracer.url, "openai:gpt-4.1", server.openai_url, tmp_path)
    assert (ended.code, "unjudged" in ended.out) == (3, True)
    assert ended.lingered < LONGEST
    assert ended.err.count("did not take the last traces") == 1


@pytest.mark.long
def test_an_endpoint_that_refuses_does_not_hold_up_the_end(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(final("Wrong Action"))
    ended = run("http://127.0.0.1:9", "google_genai:gemini-3-pro", server.gemini_url, tmp_path, "LANGCHAIN_TRACING_V2")
    assert (ended.code, "Wrong Action" in ended.out) == (0, True)
    assert ended.lingered < LONGEST


def test_without_a_tracer_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_core.tracers.langchain.wait_for_all_tracers", lambda: time.sleep(60))
    assert not command_line.is_tracing()
    started = time.monotonic()
    command_line.flush_traces()
    assert time.monotonic() - started < 1
