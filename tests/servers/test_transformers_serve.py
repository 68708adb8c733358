"""The loop through a real `transformers serve` with a tiny random model: noise is never a verdict, and its tokens are counted."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from editloupe import Edit, Judge, JudgeSettings, Reason, Unjudged
from editloupe.agent.chat_interface import RetryPolicy
from tests.drawn_pictures import edit_pair
from tests.servers.started import command, free_port, running
from tests.servers.tiny_vlm import save_tiny_llava

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("torch", "transformers", "accelerate"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: `make slow` installs transformers[serving]")
    return save_tiny_llava(tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("serve"), free_port()
    started = [command("transformers", "transformers[serving]"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HOME": str(folder)}
    address = f"http://127.0.0.1:{port}"
    with running([*started, "--device", "cpu"], f"{address}/health", folder / "log", folder, offline):
        yield f"{address}/v1"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


def judge(spec: str, url: str, **options: Any) -> Judge:
    settings = {"timeout": 120, "max_turns": 3, "max_repairs": 1, "retry": RetryPolicy(first_wait=0.05, max_attempts=2)}
    settings |= options.pop("settings", {})
    return Judge(spec, base_url=url, criteria=["instruction_following"], settings=JudgeSettings(**settings), **options)


@pytest.mark.parametrize(("mode", "tool_calls"), [("plain", "text"), ("tools", "text"), ("tools", "native")])
def test_noise_is_left_unjudged_and_its_tokens_are_counted(
    model: Path, url: str, edit: Edit, mode: Any, tool_calls: str
) -> None:
    judgement = judge(f"openai:{model}", url, mode=mode, settings={"tool_calls": tool_calls}).judge(edit)
    (outcome,) = judgement.verdicts
    assert isinstance(outcome, Unjudged)
    assert outcome.reason in (Reason.UNREADABLE, Reason.NO_ANSWER)
    assert outcome.detail
    assert outcome.usage.requests == len(judgement.traces[0].steps) == 2
    assert outcome.usage.input_tokens > 2 * 1000
    assert outcome.usage.output_tokens >= 2


def test_an_unknown_model_is_the_servers_fault_and_no_verdict(url: str, edit: Edit) -> None:
    (outcome,) = judge("openai:nobody/has-this-model", url, mode="plain").judge(edit).verdicts
    assert isinstance(outcome, Unjudged)
    assert outcome.reason == Reason.MODEL_ERROR
    # It answers a bare 500 and closes the connection, at which the next try may still have been waiting.
    assert "500" in outcome.detail or "dropped the connection" in outcome.detail
    assert outcome.usage.requests == 2


def test_the_server_still_answers_after_all_that(model: Path, url: str) -> None:
    asked = {"model": str(model), "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    reply = httpx.post(f"{url}/chat/completions", json=asked, timeout=120, trust_env=False)
    assert reply.json()["usage"]["total_tokens"] > 0
