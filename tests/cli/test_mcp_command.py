"""`editloupe mcp` as a process: over stdin and stdout, over HTTP, asked by the protocol's own client and by the inspector."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, final, hang

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "editloupe", "mcp"]
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
TOKEN = "a-token-for-the-tests"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "OPENAI_API_KEY": "sk-of-the-tests"}


def labels(request: Request) -> Any:
    return final("Scene Collapse" if "Perfect Consistency" in request.system else "Flawless Execution")


@pytest.fixture
def edit(tmp_path: Path) -> dict[str, str]:
    before, after = edit_pair(tmp_path)
    return {"source": before.name, "edited": after.name, "instruction": "Change the color of the patch to red"}


@contextmanager
def talking(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command with pipes for its streams."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*COMMAND, *options], text=True, env=environment(), **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send(process: subprocess.Popen[str], *messages: dict[str, Any]) -> None:
    assert process.stdin
    for message in messages:
        process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


@pytest.mark.long
async def test_over_stdio_a_client_judges_with_the_options_given_at_the_start(
    edit: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(labels)
    options = ["--root", str(tmp_path), "--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain"]
    parameters = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *options], env=environment())
    async with mcp.Client(stdio_client(parameters)) as client:
        assert client.server_info
        assert client.server_info.name == "editloupe"
        result = await client.call_tool("judge_edit", edit)
        refused = await client.call_tool("judge_edit", {**edit, "source": "/etc/passwd"})
    assert result.structured_content
    assert result.structured_content["score_100"] == pytest.approx(50)
    assert result.structured_content["mode"] == "plain"
    assert refused.is_error


@pytest.mark.long
def test_stdout_holds_the_protocol_and_nothing_else(edit: dict[str, str], tmp_path: Path) -> None:
    plugin = tmp_path / "noisy" / "noisy_tool.py"
    plugin.parent.mkdir()
    plugin.write_text(
        "import os\nprint('loaded')\nos.write(1, b'loaded\\n')\ndef make(): raise ValueError('no tool')\n"
    )
    facts = plugin.parent / "noisy-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[editloupe.tools]\nnoisy = noisy_tool:make\n")
    asked = {"name": "judge_edit", "arguments": edit}
    messages = [
        json.dumps(one)
        for one in (
            HELLO,
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked},
        )
    ]
    paths = os.pathsep.join([str(ROOT), str(plugin.parent)])
    with subprocess.Popen(
        [*COMMAND, "--root", str(tmp_path), "--judge", "rules"],
        text=True,
        env={**environment(), "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("\n".join([*messages, "this is no message\n"]))
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        rest, told = process.communicate(timeout=60)
    assert process.returncode == 0
    found = {line.get("id"): line for line in [*lines, *map(json.loads, rest.splitlines())]}
    assert found[1]["result"]["serverInfo"]["name"] == "editloupe"
    assert found[2]["result"]["structuredContent"]["status"] == "judged"
    assert told.count("loaded") == 2


@pytest.mark.long
@pytest.mark.parametrize(("ending", "code"), [("input", 0), (signal.SIGTERM, 130)])
def test_it_ends_at_once_in_the_middle_of_an_edit(
    ending: Any, code: int, edit: dict[str, str], tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(lambda _: hang(60))
    options = ["--root", str(tmp_path), "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    with talking(*options) as process:
        send(process, HELLO)
        assert read(process)["id"] == 1
        asked = {"name": "judge_edit", "arguments": edit}
        send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked})
        while len(server.requests) < 2:
            time.sleep(0.01)
        if ending == "input":
            assert process.stdin
            process.stdin.close()
            process.stdin = None
        else:
            process.send_signal(ending)
        _, told = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in told
    assert "error" not in told.lower()


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Start the command on a free port, and read its address and its token."""
    command = [*COMMAND, "--http", "0", "--judge", "rules", "--mode", "plain", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    token = ""
    try:
        assert process.stderr
        for line in process.stderr:
            token = line.partition("token: ")[2].strip() or token
            if found := re.search(r"http://\S+", line):
                yield process, found[0], token
                return
        raise AssertionError("the server did not start")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
async def test_over_http_a_client_with_the_token_is_served_and_others_are_turned_away(
    edit: dict[str, str], tmp_path: Path
) -> None:
    with serving("--root", str(tmp_path)) as (process, url, token):
        assert url.startswith("http://127.0.0.1:")
        assert len(token) > 20
        for mode in ("auto", "legacy"):
            async with (
                create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as http,
                mcp.Client(streamable_http_client(url, http_client=http), mode=mode) as client,
            ):
                result = await client.call_tool("judge_edit", edit)
                assert result.structured_content
                assert result.structured_content["status"] == "judged"
        assert [_status(url, token, **headers) for headers in STRANGERS] == [401, 401, 403, 421, 413]
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate(timeout=30)
    assert process.returncode == 143
    assert out == ""
    assert told.splitlines()[-1] == "editloupe: the MCP server was stopped"
    assert "Traceback" not in told
    assert token not in told


STRANGERS: list[dict[str, str]] = [
    {"authorization": ""},
    {"authorization": "Bearer wrong-wrong-wrong-wrong"},
    {"origin": "https://example.org"},
    {"host": "example.org"},
    {"content-length": str(2**30)},
]


def _status(url: str, token: str, **headers: str) -> int:
    """Send the head of a request, and return the status of the answer."""
    place = urlsplit(url)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=30)
    connection.putrequest("POST", place.path, skip_host=True)
    usual = {"host": place.netloc, "authorization": f"Bearer {token}", "content-length": "0"}
    for name, value in {**usual, "content-type": "application/json", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    with closing(connection):
        return connection.getresponse().status


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--root", "/nowhere/at/all"], "--root /nowhere/at/all is not a folder"),
        (["--http", "0", "--token", "short"], "at least 16 characters"),
        (["--http", "70000"], "--http"),
        (["--judge", "nobody:x"], "nobody"),
        (["--http", "0", "--protocol", "made-up"], "made-up"),
        (["--mode", "fast"], "--mode is one of"),
    ],
)
def test_a_mistake_is_one_sentence(options: list[str], sentence: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp", "--judge", "rules", *options]) == 2
    out, told = capfd.readouterr()
    assert out == ""
    assert sentence in told
    assert len([line for line in told.splitlines() if not line.startswith("token: ")]) == 1


def test_a_port_that_is_taken_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    from editloupe.servers.http.server import listen

    with listen("127.0.0.1", 0, "the test") as taken:
        port = str(taken.getsockname()[1])
        assert run(["mcp", "--judge", "rules", "--http", port, "--token", TOKEN]) == 2
    assert "choose another with --http" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npx") is None, reason="needs node")
def test_the_inspector_lists_and_calls_the_tools(edit: dict[str, str], tmp_path: Path) -> None:
    def inspect(*arguments: str) -> dict[str, Any]:
        server = [*COMMAND, "--judge", "rules", "--root", str(tmp_path)]
        command = ["npx", "--yes", INSPECTOR, "--cli", *server, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=150, cwd=tmp_path)
        if done.returncode and "npm error" in done.stderr:
            pytest.skip(f"the inspector cannot be fetched: {done.stderr.splitlines()[0]}")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    tools = inspect("--method", "tools/list")["tools"]
    assert tools[0]["name"] == "judge_edit"
    assert all(tool["outputSchema"] for tool in tools)
    given = [part for name, value in edit.items() for part in ("--tool-arg", f"{name}={value}")]
    judged = inspect("--method", "tools/call", "--tool-name", "judge_edit", *given)
    assert judged["structuredContent"]["status"] == "judged"
    box = ["--tool-arg", "image=before.png", "--tool-arg", "box=[10,10,90,90]"]
    zoomed = inspect("--method", "tools/call", "--tool-name", "zoom_in_image", *box)
    assert [part["type"] for part in zoomed["content"]] == ["text", "text", "image"]
    outside = inspect("--method", "tools/call", "--tool-name", "read_text", "--tool-arg", "image=/etc/passwd")
    assert outside["isError"]
