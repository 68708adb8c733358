"""Parameters of a provider are sent by the real clients, are part of the question's key, and keep secrets secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, JudgeSettings, UserError
from editloupe.agent.model_settings import FLEX_SECONDS
from editloupe.agent.transport.secrets import redact_text
from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, final
from tests.scripted.server import ScriptedServer

OPENAI, GEMINI = "openai:gpt-5.1", "google_genai:gemini-3-pro"
SECRET = "corp-Zx81-hush-hush"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Paint it")


def url_of(server: ScriptedServer, spec: str) -> str:
    return server.gemini_url if spec.startswith("google") else server.openai_url


def sent(scripted: StartServer, edit: Edit, spec: str, **options: Any) -> Request:
    """Return what a judge with these settings sends."""
    server = scripted(lambda _: final("Wrong Action"))
    settings = JudgeSettings(**options)
    with Judge(
        spec, mode="plain", criteria=["instruction_following"], base_url=url_of(server, spec), settings=settings
    ) as judge:
        assert judge.judge(edit).judged
        assert not judge.notes
    return server.requests[0]


@pytest.mark.parametrize(
    ("parameters", "body"),
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"seed": 7}, {"seed": 7}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"service_tier": "flex"}, {"service_tier": "flex"}),
        (
            {"extra_body": {"top_k": 3, "chat_template_kwargs": {"x": True}}},
            {"top_k": 3, "chat_template_kwargs": {"x": True}},
        ),
    ],
)
def test_openai_is_sent_what_was_set(
    scripted: StartServer, edit: Edit, parameters: dict[str, Any], body: dict[str, Any]
) -> None:
    body_sent = sent(scripted, edit, OPENAI, **parameters).body
    assert {name: body_sent.get(name) for name in body} == body


@pytest.mark.long
@pytest.mark.parametrize(
    ("parameters", "where", "value"),
    [
        ({"thinking_level": "low"}, ("generationConfig", "thinkingConfig", "thinking_level"), "low"),
        ({"thinking_budget": 128}, ("generationConfig", "thinkingConfig", "thinking_budget"), 128),
        ({"seed": 7}, ("generationConfig", "seed"), 7),
        ({"top_p": 0.5}, ("generationConfig", "topP"), 0.5),
        ({"service_tier": "flex"}, ("serviceTier",), "flex"),
        ({"extra_body": {"generationConfig": {"topK": 3}}}, ("generationConfig", "topK"), 3),
    ],
)
def test_gemini_is_sent_what_was_set(
    scripted: StartServer, edit: Edit, parameters: dict[str, Any], where: tuple[str, ...], value: Any
) -> None:
    body_sent: Any = sent(
        scripted, edit, GEMINI.replace("3-pro", "2.5-pro") if "thinking_budget" in parameters else GEMINI, **parameters
    ).body
    for name in where:
        body_sent = body_sent[name]
    assert str(body_sent).lower() == str(value).lower()


@pytest.mark.parametrize("spec", [OPENAI, GEMINI])
def test_headers_go_with_every_request_and_pictures_too(scripted: StartServer, edit: Edit, spec: str) -> None:
    request = sent(
        scripted, edit, spec, headers={"X-Route": "b-17", "X-Corp-Key": SECRET}, extra_body={"labels": {"a": "b"}}
    )
    assert (request.headers["x-route"], request.headers["x-corp-key"]) == ("b-17", SECRET)
    assert request.body["labels"] == {"a": "b"}
    assert [image.defect() for image in request.images] == [None, None]


@pytest.mark.parametrize(
    ("spec", "parameters", "sentence"),
    [
        (
            OPENAI,
            {"thinking_level": "low"},
            "openai:gpt-5.1 does not support --thinking-level; it has --reasoning-effort",
        ),
        (
            OPENAI,
            {"thinking_budget": 5},
            "openai:gpt-5.1 does not support --thinking-budget; it has --reasoning-effort",
        ),
        (GEMINI, {"reasoning_effort": "low"}, "does not support --reasoning-effort; it has --thinking-level"),
        ("rules", {"seed": 1}, "rules does not support --seed"),
        ("rules", {"headers": {"a": "b"}}, "rules does not support --header"),
    ],
)
def test_what_a_provider_does_not_have_is_one_sentence(spec: str, parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Judge(spec, settings=JudgeSettings(**parameters))


def test_the_flex_tier_is_waited_for_unless_a_timeout_was_set() -> None:
    assert JudgeSettings(service_tier="flex").patience == FLEX_SECONDS == 900
    assert JudgeSettings(service_tier="flex", timeout=30).patience == 30
    assert JudgeSettings().patience == JudgeSettings().timeout


@pytest.mark.long
def test_every_parameter_is_part_of_what_was_asked(edit: Edit) -> None:
    parameters: list[dict[str, Any]] = [
        {},
        {"reasoning_effort": "low"},
        {"seed": 1},
        {"seed": 2},
        {"top_p": 0.5},
        {"service_tier": "flex"},
        {"headers": {"X-Route": "a"}},
        {"headers": {"X-Route": "b"}},
        {"extra_body": {"top_k": 1}},
    ]
    keys = set()
    for options in parameters:
        with Judge(OPENAI, base_url="http://127.0.0.1:9/v1", settings=JudgeSettings(**options)) as judge:
            keys.add(judge.question_spec(edit, "instruction_following").key)
    assert len(keys) == len(parameters)


def test_another_key_in_a_header_asks_nothing_anew(edit: Edit) -> None:
    keys = set()
    for value in ("one-corp-key", "another-corp-key"):
        settings = JudgeSettings(headers={"X-Api-Key": value})
        with Judge(OPENAI, base_url="http://127.0.0.1:9/v1", settings=settings) as judge:
            keys.add(judge.question_spec(edit, "instruction_following").key)
    assert len(keys) == 1


@pytest.mark.long
def test_the_run_records_parameters_and_no_secret(
    scripted: StartServer, edit: Edit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, out = scripted(lambda request: final("Wrong Action", f"You sent {SECRET}.")), tmp_path / "run"
    asked = ["--judge", OPENAI, "--base-url", server.openai_url, "--mode", "plain", "--out", str(out), "--json"]
    parameters = ["--seed", "7", "--top-p", "0.9", "--reasoning-effort", "high", "--service-tier", "flex"]
    parameters += ["--header", f"X-Team={SECRET}", "--header", "OpenAI-Beta=x=v1", "--extra-body", '{"top_k": 2}']
    pictures = [str(edit.source), str(edit.edited), edit.instruction, "--criterion", "instruction_following"]
    assert run(["judge", *pictures, *asked, *parameters]) == 0
    assert server.requests[0].headers["x-team"] == SECRET
    assert server.requests[0].headers["openai-beta"] == "x=v1"
    (about,) = json.loads((out / "run.json").read_text())["configurations"]
    recorded = about["settings"]
    assert (recorded["seed"], recorded["top_p"], recorded["service_tier"]) == (7, 0.9, "flex")
    assert (recorded["reasoning_effort"], recorded["extra_body"]) == ("high", {"top_k": 2})
    assert recorded["headers"]["openai-beta"] == "x=v1"
    written = b"".join(file.read_bytes() for file in out.rglob("*") if file.is_file())
    printed = capsys.readouterr()
    assert SECRET.encode() not in written
    assert SECRET not in printed.out + printed.err
    assert SECRET not in redact_text(f"They said {SECRET}.")


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (["--header", "novalue-hush"], "--header takes NAME=VALUE"),
        (["--header", "a b=hush"], '"a b" cannot be the name of a header'),
        (["--header", "Host=hush"], '"Host" cannot be the name of a header'),
        (["--header", "X-A=hüsh"], "the header X-A needs a value of printable ASCII characters"),
        (["--extra-body", "[1]"], "--extra-body takes a JSON object"),
        (["--extra-body", "{"], "--extra-body takes a JSON object"),
        (["--extra-body", '{"model": "hush"}'], 'extra_body cannot set "model"'),
        (["--extra-body", '{"messages": ["hush"]}'], 'extra_body cannot set "messages"'),
        (["--extra-body", '{"a": {"b": NaN}}'], "NaN or infinity"),
        (["--temperature", "inf"], "temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--top-p", "0"], "judging.top_p"),
        (["--thinking-level", "low"], "does not support --thinking-level"),
    ],
)
def test_a_mistake_is_one_sentence_without_the_value(
    edit: Edit, parameters: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = [str(edit.source), str(edit.edited), edit.instruction]
    assert run(["judge", *pictures, "--judge", OPENAI, "--base-url", "http://127.0.0.1:9/v1", *parameters]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "hush" not in told
    assert len(told.strip().splitlines()) == 1
