"""Spans of a real judge per edit, criterion, model call and tool call; none if switched off."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, JudgeSettings
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.cli import otel
from editloupe.cli.main import run as command
from editloupe.telemetry.spans import CONTENT_VARIABLE, PICTURES_VARIABLE, spans_to
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, call, fault, final

pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

ZOOM = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
INSTRUCTION = "Change the color of the patch to red"


def script(request: Request) -> Any:
    return final("Flawless Execution") if any(m.role == "assistant" for m in request.messages) else ZOOM


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    spans_to(provider)
    yield kept
    spans_to(None)
    provider.shutdown()


def judge(tmp_path: Path, url: str, spec: str = "openai:gpt-4.1") -> None:
    before, after = edit_pair(tmp_path)
    edit = Edit(id="patch", source=before, edited=after, instruction=INSTRUCTION)
    settings = JudgeSettings(retry=RetryPolicy(max_attempts=2, first_wait=0.01, longest_wait=0.02))
    with Judge(spec, base_url=url, criteria=["instruction_following"], settings=settings) as opened:
        opened.judge(edit)


def by_operation(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(str((span.attributes or {})["gen_ai.operation.name"]), []).append(span)
    return found


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    ("spec", "provider"), [("openai:gpt-4.1", "openai"), ("google_genai:gemini-3-pro", "gcp.gemini")]
)
def test_an_edit_is_a_tree_of_spans(
    spec: str, provider: str, tmp_path: Path, scripted: StartServer, exporter: InMemorySpanExporter
) -> None:
    server = scripted(script)
    judge(tmp_path, server.gemini_url if provider == "gcp.gemini" else server.openai_url, spec)
    spans = by_operation(exporter)
    assert {name: len(found) for name, found in spans.items()} == {"invoke_agent": 2, "chat": 2, "execute_tool": 1}
    criterion, edit = spans["invoke_agent"]
    assert edit.parent is None
    assert (edit.name, criterion.name) == ("invoke_agent editloupe", "invoke_agent instruction_following")
    assert criterion.parent
    assert criterion.parent.span_id == edit.context.span_id
    for inner in (*spans["chat"], *spans["execute_tool"]):
        assert inner.parent
        assert inner.parent.span_id == criterion.context.span_id
    assert facts(edit)["editloupe.edit.id"] == "patch"
    asked = facts(spans["chat"][0])
    assert asked["gen_ai.provider.name"] == provider
    assert asked["gen_ai.request.model"] == spec.partition(":")[2]
    assert asked["gen_ai.usage.input_tokens"] > 0
    assert asked["server.address"] == "127.0.0.1"
    assert facts(spans["execute_tool"][0])["gen_ai.tool.name"] == "zoom_in_image"


def test_the_verdict_is_the_result_of_an_evaluation(
    tmp_path: Path, scripted: StartServer, exporter: InMemorySpanExporter
) -> None:
    judge(tmp_path, scripted(script).openai_url)
    criterion, edit = by_operation(exporter)["invoke_agent"]
    assert facts(criterion)["gen_ai.evaluation.score.label"] == "Flawless Execution"
    (event,) = edit.events
    assert event.name == "gen_ai.evaluation.result"
    assert dict(event.attributes or {}) == {
        "gen_ai.evaluation.name": "instruction_following",
        "gen_ai.evaluation.score.value": 100.0,
        "gen_ai.evaluation.score.label": "Flawless Execution",
    }


def test_an_unjudged_edit_has_an_error_and_no_score(
    tmp_path: Path, scripted: StartServer, exporter: InMemorySpanExporter
) -> None:
    judge(tmp_path, scripted(lambda _: fault(500)).openai_url)
    spans = by_operation(exporter)
    assert facts(spans["chat"][0])["error.type"] == "model_error"
    (event,) = spans["invoke_agent"][1].events
    assert dict(event.attributes or {}) == {
        "gen_ai.evaluation.name": "instruction_following",
        "error.type": "model_error",
    }


@pytest.mark.parametrize(("content", "pictures"), [("", ""), ("true", ""), ("true", "bytes"), ("", "bytes")])
def test_texts_are_there_where_asked_and_pictures_are_hashes_unless_asked(
    content: str,
    pictures: str,
    tmp_path: Path,
    scripted: StartServer,
    exporter: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CONTENT_VARIABLE, content)
    monkeypatch.setenv(PICTURES_VARIABLE, pictures)
    judge(tmp_path, scripted(script).openai_url)
    spans = by_operation(exporter)
    text = json.dumps([facts(span) for found in spans.values() for span in found])
    shas = facts(spans["chat"][0])["editloupe.pictures"]
    assert len(shas) == 2
    assert len(facts(spans["execute_tool"][0])["editloupe.pictures"]) == 1
    assert (INSTRUCTION in text) == bool(content)
    assert ("iVBORw0KGgo" in text) == (content == "true" and pictures == "bytes")
    if content and not pictures:
        (first, *_) = json.loads(facts(spans["chat"][0])["gen_ai.input.messages"])[1:]
        assert {"type": "file", "modality": "image", "file_id": shas[0]} in first["parts"]


@pytest.mark.long
def test_switched_off_nothing_of_opentelemetry_is_needed(tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)
    arguments = ["judge", str(before), str(after), INSTRUCTION, "--judge", "rules", "--mode", "plain", "-q", "--json"]
    code = (
        "import sys; sys.modules |= dict.fromkeys(('opentelemetry.sdk', 'opentelemetry.trace', 'opentelemetry.exporter'));"
        f"from editloupe.cli.main import run; sys.exit(run({arguments!r}))"
    )  # a module that is None cannot be imported; langsmith looks for some of it and can do without
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Collector(HTTPServer):
    """Takes spans, or says nothing for ever."""

    def __init__(self, hangs: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hangs, self.bodies, self.over = hangs, list[bytes](), threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.hangs:
            self.server.over.wait(30)
        self.server.bodies.append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    server = Collector(request.param)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


def judged_with_spans(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    before, after = edit_pair(tmp_path)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    return command(["judge", str(before), str(after), INSTRUCTION, "--judge", "rules", "-q", *more])


@pytest.mark.long
@pytest.mark.parametrize("collector", [False], indirect=True)
@pytest.mark.parametrize("option", [["--otel"], []])
def test_a_command_sends_its_spans_to_a_collector(
    option: list[str], collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged_with_spans(tmp_path, collector, monkeypatch, *option) == 0
    sent = b"".join(collector.bodies)
    for part in (b"invoke_agent editloupe", b"execute_tool localize_differences", b"gen_ai.evaluation.result"):
        assert part in sent


@pytest.mark.parametrize("collector", [False], indirect=True)
def test_the_usual_variables_switch_spans_off(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert judged_with_spans(tmp_path, collector, monkeypatch) == 0
    assert collector.bodies == []


@pytest.mark.long
@pytest.mark.parametrize("collector", [False], indirect=True)
def test_an_endpoint_that_is_not_there_is_one_sentence(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port = collector.server_port
    collector.server_close()
    collector.server_port = port
    assert judged_with_spans(tmp_path, collector, monkeypatch) == 0
    told = capsys.readouterr().err.splitlines()
    assert len([line for line in told if "endpoint did not take" in line]) == 1
    assert [line for line in told if not line.startswith("editloupe: ")] == []


@pytest.mark.long
@pytest.mark.parametrize("collector", [True], indirect=True)
def test_an_endpoint_that_hangs_costs_the_command_its_spans_and_not_its_end(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert otel.PATIENCE < 5
    monkeypatch.setattr(otel, "PATIENCE", 0.2)
    assert judged_with_spans(tmp_path, collector, monkeypatch) == 0
    told = capsys.readouterr()
    assert "Flawless" in told.out or "Instruction Following" in told.out
    assert "did not take the last spans within 0.2 s; they are dropped" in told.err
    assert not collector.bodies
