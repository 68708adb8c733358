"""A server that echoes every secret in headers, errors and replies: none is in any file, log, export, report, trace or output."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from langchain_core.tracers.context import collect_runs

from editloupe import Edit, Judge, JudgeSettings, UserError
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.types import Step, Trace
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.samples import write_manifest
from tests.scripted import Reply, Request, ScriptedServer, call, calls, fault, final, say

KEY = "sk-proj-A1b2/C3d4+E5f6=G7h8"
PASSWORD = "pa55-w0rd.of~mine"
IN_ADDRESS = "qQ77zZ88-in/the+address"
SECRETS = (KEY, PASSWORD, IN_ADDRESS)
SPECS = ("openai:gpt-4.1", "google_genai:gemini-2.5-pro")
QUICK = RetryPolicy(first_wait=0.01, longest_wait=0.02)


def forms(secret: str) -> list[str]:
    """The ways a secret is echoed, and looked for."""
    whole = base64.b64encode(f"user:{secret}".encode()).decode()
    escaped = json.dumps(secret)[1:-1].replace("/", "\\/")
    return [secret, quote(secret, safe=""), escaped, secret.replace("=", "\\u003d"), whole]


ECHO = " ".join(form for secret in SECRETS for form in forms(secret))
TRACES = [form for secret in SECRETS for form in (*forms(secret), secret[6:-6])]
"""What must not be found anywhere, a secret's inner part included."""


def echoing(request: Request) -> Reply:
    """Fail and answer by turns; whatever is said, the secrets are in it."""
    turn = len([m for m in request.messages if m.role == "assistant"])
    if request.index % 3 == 0:
        return fault((500, 429, 503)[request.index // 3 % 3], f"I know {ECHO}", retry_after=0.01)
    if "Do 1" in request.messages[0].text:
        return fault(400, f"Refused for {ECHO}")
    if "Do 2" in request.messages[0].text:
        return say(f"I will not say a label, only {ECHO}")
    if turn == 0 and request.tools:
        looked = call("zoom_in_image", bbox_2d=[1, 1, 20, 20], target_image=ECHO)
        return calls(looked, text=f"I look with {ECHO}")
    return final("Wrong Action", f"I was given {ECHO}")


def assert_clean(where: str, content: str | bytes) -> None:
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    found = [secret for secret in TRACES if secret in text]
    assert not found, f"{where} holds {found[0]!r}: …{text[max(0, text.find(found[0]) - 100) :][:200]}…"


def assert_folder_clean(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert_clean(str(path), path.read_bytes())


@pytest.fixture
def server(scripted: StartServer, monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GOOGLE_API_KEY", KEY)
    headers = {f"x-echo-{place}": secret for place, secret in enumerate(SECRETS)}
    return scripted(echoing, headers={**headers, "set-cookie": f"key={KEY}"})


def address(server: ScriptedServer, spec: str) -> str:
    """The server's address with a user, a password and a key in it."""
    bare = (server.gemini_url if spec.startswith("google") else server.openai_url).removeprefix("http://")
    return f"http://user:{quote(PASSWORD)}@{bare}?api-key={quote(IN_ADDRESS, safe='')}&api-version=1"


@pytest.fixture
def _everything_logged() -> Iterator[None]:
    """Log everything everybody has to say, and look for secrets in it afterwards."""
    written, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(written), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield
    root.removeHandler(handler)
    root.setLevel(level)
    assert "chat/completions" in written.getvalue() or "generateContent" in written.getvalue()
    assert_clean("the log", written.getvalue())


@pytest.mark.long
@pytest.mark.usefixtures("_everything_logged")
@pytest.mark.parametrize("spec", SPECS)
def test_no_secret_is_in_anything_a_batch_leaves(
    server: ScriptedServer,
    tmp_path: Path,
    spec: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out, reports = tmp_path / "run", tmp_path / "reports"
    reports.mkdir()
    judged = ["batch", str(write_manifest(tmp_path / "edits", 4)), "--out", str(out), "--mode", "tools", "--quiet"]
    assert command([*judged, "--judge", spec, "--base-url", address(server, spec)]) == 3
    assert "Basic" in {r.headers.get("authorization", "").split(" ")[0] for r in server.requests}
    for form in ("html", "md", "json", "text"):
        command(["report", str(out), "--format", form, "--out", str(reports / f"report.{form}")])
    for form in ("jsonl", "csv"):
        command(["export", str(out), "--format", form, "--out", str(reports / f"rows.{form}")])
    for number in range(4):
        command(["trace", str(out), f"e{number}", "--json"])
        command(["trace", str(out), f"e{number}"])
    assert_folder_clean(out)
    assert_folder_clean(reports)
    said = capfd.readouterr()
    assert "[secret]" in said.out
    assert_clean("stdout", said.out)
    assert_clean("stderr", said.err)
    with Run.open(out) as run:
        about = run.about()["configurations"][0]["base_url"]
    assert about.endswith("?api-key=[secret]&api-version=1")


@pytest.mark.long
@pytest.mark.usefixtures("_everything_logged")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "text"])
def test_no_secret_is_in_what_judge_prints(
    server: ScriptedServer,
    tmp_path: Path,
    spec: str,
    options: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    before, after = edit_pair(tmp_path)
    for instruction in ("Paint it", "Do 1", "Do 2"):
        command(
            [
                "judge",
                str(before),
                str(after),
                instruction,
                "--judge",
                spec,
                "--base-url",
                address(server, spec),
                *options,
            ]
        )
    said = capfd.readouterr()
    assert "[secret]" in said.out
    assert_clean("stdout", said.out)
    assert_clean("stderr", said.err)


class Steps:
    """Watches as the live page does."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def step(self, trace: Trace, step: Step) -> None:
        """Take a step as it comes."""
        self.seen += [trace.model_dump_json(), step.model_dump_json()]


@pytest.mark.long
@pytest.mark.parametrize("spec", SPECS)
async def test_no_secret_reaches_whoever_watches_or_traces(server: ScriptedServer, tmp_path: Path, spec: str) -> None:
    before, after = edit_pair(tmp_path)
    settings, steps = JudgeSettings(retry=QUICK, timeout=20), Steps()
    judge = Judge(spec, base_url=address(server, spec), settings=settings)
    with collect_runs() as traced:
        for instruction in ("Paint it", "Do 1"):
            await judge.ajudge(Edit(source=before, edited=after, instruction=instruction), watcher=steps)
    assert steps.seen
    assert traced.traced_runs
    assert_clean("a step", "\n".join(steps.seen))
    for run in traced.traced_runs:
        assert_clean("a tracer", run.model_dump_json() if hasattr(run, "model_dump_json") else run.json())
    await judge.aclose()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(
    "reply",
    [
        lambda: fault(401, f"Incorrect API key provided: {ECHO}"),
        lambda: fault(404, f"no model {ECHO}"),
        lambda: fault(402, ECHO),
    ],
    ids=["key", "model", "budget"],
)
def test_no_secret_is_in_the_sentence_that_stops_a_run(
    server: ScriptedServer, tmp_path: Path, spec: str, reply: Callable[[], Any]
) -> None:
    server.play(reply())
    before, after = edit_pair(tmp_path)
    judge = Judge(spec, base_url=address(server, spec), settings=JudgeSettings(retry=QUICK))
    with pytest.raises(UserError) as raised:
        judge.judge(Edit(source=before, edited=after, instruction="Paint it"))
    assert_clean("the sentence", str(raised.value))
    assert "[secret]" in str(raised.value)


def test_a_dead_server_behind_a_secret_address_is_told_without_the_secret(tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)
    url = f"http://user:{PASSWORD}@127.0.0.1:9/v1?api-key={quote(IN_ADDRESS)}"
    judge = Judge(SPECS[0], base_url=url, settings=JudgeSettings(retry=RetryPolicy(max_attempts=1)))
    judgement = judge.judge(Edit(source=before, edited=after, instruction="Paint it"))
    assert not judgement.judged
    assert_clean("the judgement", judgement.model_dump_json())


@pytest.mark.long
@pytest.mark.parametrize(
    "carried", ["?{}", "?api-version=1&{}", "?api-version=1;key={}", "?version={}", ";key={}", "#{}"]
)
def test_a_secret_without_a_name_in_an_address_reaches_no_file(
    scripted: StartServer, tmp_path: Path, carried: str, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "sk-bare-secret-777"
    url = scripted(lambda _: fault(400, f"Asked with {secret}")).openai_url + carried.format(secret)
    out = tmp_path / "run"
    given = ["batch", str(write_manifest(tmp_path / "edits", 1)), "--out", str(out), "--mode", "plain", "--quiet"]
    command([*given, "--judge", SPECS[0], "--base-url", url])
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {"run.json", "run.sqlite"} <= {path.name for path in files}
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert secret not in "".join(capfd.readouterr())


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_no_secret_is_in_what_ray_writes(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    out = tmp_path / "run"
    try:
        given = ["batch", str(write_manifest(tmp_path / "edits", 4)), "--out", str(out), "--mode", "plain", "--quiet"]
        url = address(server, SPECS[0])
        command([*given, "--judge", SPECS[0], "--base-url", url, "--executor", "ray"])
    finally:
        ray.shutdown()
    assert os.listdir(logs)
    assert_folder_clean(logs)
    assert_folder_clean(out)
