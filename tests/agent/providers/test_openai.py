"""OpenAI's client sends the right name of the length limit and shows tracers no secret."""

import json
from pathlib import Path

import pytest
from langchain_core.load import dumpd
from langchain_openai import ChatOpenAI

from editloupe import Judge, JudgeSettings
from editloupe.agent.providers.openai import hide_address
from tests.conftest import StartServer
from tests.rubrics.samples import edit_for
from tests.scripted import final, say


@pytest.mark.parametrize(("model", "limit"), [("qwen2.5-vl-7b", "max_tokens"), ("gpt-4.1", "max_completion_tokens")])
def test_the_length_limit_has_the_name_that_the_models_server_knows(
    scripted: StartServer, tmp_path: Path, model: str, limit: str
) -> None:
    server = scripted(final("Wrong Action"), checks=False)
    settings = JudgeSettings(max_output_tokens=321, tool_calls="text")
    with Judge(
        f"openai:{model}", base_url=server.openai_url, criteria=["instruction_following"], settings=settings
    ) as judge:
        judgement = judge.judge(edit_for(tmp_path, roles=()))
    assert judgement.verdicts[0].status == "judged"
    assert server.requests[0].body[limit] == 321
    assert len([name for name in server.requests[0].body if name.startswith("max_")]) == 1


def test_the_length_limit_is_sent_together_with_a_schema(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(say('{"reason": "seen", "score": 4}'), checks=False)
    settings = JudgeSettings(max_output_tokens=321, structured="on", written_reasoning="off")
    options = {"protocol": "edit-compass", "mode": "plain", "criteria": ["instruction_following"]}
    with Judge("openai:qwen2.5-vl-7b", base_url=server.openai_url, settings=settings, **options) as judge:
        judge.judge(edit_for(tmp_path, roles=()))
    body = server.requests[0].body
    assert body["max_tokens"] == 321
    assert body["response_format"]["type"] == "json_schema"


@pytest.mark.long
def test_opening_a_model_gives_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"base_url": "http://localhost:8000/v1"}):
        for model in ("gpt-5.1", "gpt-4.1", "o3", "qwen2.5-vl-7b", "gpt-5-pro"):
            monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
            with Judge(
                f"openai:{model}", mode="plain", settings=JudgeSettings(max_output_tokens=9), **options
            ) as judge:
                assert judge.notes == ()


def test_a_tracer_sees_neither_key_nor_address() -> None:
    client = hide_address(ChatOpenAI)
    model = client(model="m", api_key="sk-secret-123", base_url="http://localhost:1/hidden")  # type: ignore[arg-type]
    written = json.dumps(dumpd(model))
    assert "sk-secret" not in written
    assert "hidden" not in written
