"""The loop through a real LiteLLM proxy, whose upstream is the scripted server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, JudgeSettings, UserError, Verdict
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.rubrics.registry import get_protocol
from tests.drawn_pictures import edit_pair
from tests.rubrics.samples import reply_for
from tests.scripted import Request, ScriptedServer, call, calls, fault, final, out_of_quota, say, think_and_call_text
from tests.servers.started import command, free_port, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KEY, SPENT = "sk-master-0123456789", "sk-spent-0123456789"
MODELS = ("gpt-4.1", "gpt-5.1", "qwen2.5-vl")
DIFFER = call("localize_differences", comparison_image_1="Source Image", comparison_image_2="Edited Image")
AUTH = f'''
import litellm
from litellm.proxy._types import UserAPIKeyAuth

async def check(request, api_key):
    if api_key == "{SPENT}":
        raise litellm.BudgetExceededError(current_cost=2.5, max_budget=1.0)
    return UserAPIKeyAuth(api_key=api_key)
'''
"""Budgets of keys need a database; this raises what LiteLLM raises then, and its proxy does the rest."""


def config(upstream: str, general: dict[str, str]) -> str:
    """Return the proxy's configuration; JSON is YAML."""
    own = {"api_base": upstream, "api_key": "sk-upstream-0123456789"}
    models: list[dict[str, Any]] = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", **own}} for name in MODELS
    ]
    price = {"input_cost_per_token": 1, "output_cost_per_token": 1, "max_budget": 0.5, "budget_duration": "1d"}
    models.append({"model_name": "dear", "litellm_params": {"model": "openai/gpt-4.1", **own, **price}})
    return json.dumps(
        {
            "model_list": models,
            "general_settings": general,
            "litellm_settings": {"num_retries": 0},
            "router_settings": {"num_retries": 0, "disable_cooldowns": True},
        }
    )


@contextmanager
def proxy(folder: Path, upstream: str, general: dict[str, str]) -> Iterator[str]:
    port = free_port()
    (folder / "config.yaml").write_text(config(upstream, general))
    (folder / "keys.py").write_text(AUTH)
    started = [command("litellm", "litellm[proxy]"), "--config", "config.yaml", "--host", "127.0.0.1"]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    url = f"http://127.0.0.1:{port}"
    with running([*started, "--port", str(port)], f"{url}/health/liveliness", folder / "log", folder, quiet):
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedServer]:
    with ScriptedServer(final("Wrong Action")) as server:
        yield server


@pytest.fixture(scope="module")
def url(upstream: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with proxy(tmp_path_factory.mktemp("litellm"), upstream.openai_url, {"master_key": KEY}) as address:
        yield address


Judging = Callable[..., Any]


@pytest.fixture
def judging(upstream: ScriptedServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judging:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    before, after = edit_pair(tmp_path)
    edit = Edit(
        source=before,
        edited=after,
        instruction="Change the color of the patch to red",
        instruction_type="LC",
        more_images={"annotated": (before,)},
    )

    def judge(script: Any, spec: str = "openai:gpt-4.1", **options: Any) -> Any:
        upstream.play(script if callable(script) else lambda _: script)
        upstream.requests.clear()
        upstream.refused.clear()
        options.setdefault("criteria", ["instruction_following"])
        settings = JudgeSettings(retry=RetryPolicy(first_wait=0.05, longest_wait=0.2), timeout=60, max_turns=4)
        opened = Judge(spec, base_url=options.pop("base_url", url), settings=settings, **options)
        return opened.judge(edit)

    return judge


def first_then(first: Any, then: Any) -> Any:
    return lambda request: then if any(m.role == "assistant" for m in request.messages) else first


def test_an_answer_is_a_verdict_with_its_tokens_and_the_pictures_arrive(
    judging: Judging, upstream: ScriptedServer
) -> None:
    (verdict,) = judging(final("Flawless Execution")).verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.label, verdict.usage.input_tokens, verdict.usage.output_tokens) == ("Flawless Execution", 100, 20)
    (request,) = upstream.requests
    assert [image.pixels for image in request.messages[0].images] == [(160, 120), (160, 120)]
    assert request.headers["authorization"] == "Bearer sk-upstream-0123456789"
    assert not request.body.get("stream")


@pytest.mark.parametrize(
    ("spec", "turn"),
    [("openai:gpt-4.1", calls(DIFFER)), ("openai:qwen2.5-vl", think_and_call_text("Look.", DIFFER))],
)
def test_tools_are_called_natively_and_in_the_text(
    judging: Judging, upstream: ScriptedServer, spec: str, turn: Any
) -> None:
    judgement = judging(first_then(turn, final("Over Modification")), spec)
    assert judgement.verdicts[0].label == "Over Modification"
    assert judgement.traces[0].steps[0].observations[0].pictures
    assert len(upstream.requests) == 2
    assert upstream.requests[1].messages[-1].images
    assert not upstream.refused


def test_the_answers_schema_arrives(judging: Judging, upstream: ScriptedServer) -> None:
    options = {"protocol": "vibe", "criteria": ["lighting_direction"], "mode": "plain"}
    script = lambda request: say(reply_for(get_protocol("vibe"), request.system))  # noqa: E731
    (verdict,) = judging(script, **options).verdicts
    assert isinstance(verdict, Verdict), verdict
    assert upstream.requests[0].body["response_format"]["json_schema"]["strict"] is True


def test_a_wrong_key_stops_at_once(judging: Judging, upstream: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nobody-knows-this-1")
    with pytest.raises(UserError) as stopped:
        judging(final("Wrong Action"))
    assert "No connected db" in str(stopped.value)
    assert "sk-nobody" not in str(stopped.value)
    assert not upstream.requests


def test_an_unknown_model_stops_at_once(judging: Judging, upstream: ScriptedServer) -> None:
    with pytest.raises(UserError, match="Invalid model name passed in model=gpt-4-nowhere"):
        judging(final("Wrong Action"), "openai:gpt-4-nowhere")
    assert not upstream.requests


def test_a_model_over_its_budget_stops_at_once(judging: Judging) -> None:
    assert judging(final("Wrong Action"), "openai:dear").verdicts[0].label == "Wrong Action"
    again = (
        judging(final("Wrong Action"), "openai:dear") for _ in range(20)
    )  # it counts what was spent a moment later
    with pytest.raises(UserError, match="crossed budget"):
        list(again)


def test_a_key_over_its_budget_stops_at_once(
    judging: Judging, upstream: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SPENT)
    settings = {"master_key": KEY, "custom_auth": "keys.check"}
    with (
        proxy(tmp_path, upstream.openai_url, settings) as address,
        pytest.raises(UserError, match=r"Budget has been exceeded! Current cost: 2\.5"),
    ):
        judging(final("Wrong Action"), base_url=address)


def test_an_account_without_quota_behind_the_proxy_stops_at_once(judging: Judging, upstream: ScriptedServer) -> None:
    with pytest.raises(UserError, match="exceeded your current quota"):
        judging(out_of_quota())
    assert len(upstream.requests) == 1


def test_a_rate_limit_behind_the_proxy_is_waited_for(judging: Judging, upstream: ScriptedServer) -> None:
    waits = iter([fault(429, retry_after=1), final("Wrong Action")])

    def script(request: Request) -> Any:
        return next(waits)

    judgement = judging(script)
    assert judgement.verdicts[0].label == "Wrong Action"
    assert judgement.traces[0].steps[0].attempts == 2
    assert judgement.traces[0].steps[0].seconds >= 1


def test_a_parameter_the_model_behind_the_proxy_refuses_is_left_out(judging: Judging, upstream: ScriptedServer) -> None:
    refused = fault(
        400,
        "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.",
        param="temperature",
        code="unsupported_value",
    )
    judgement = judging(lambda request: refused if "temperature" in request.body else final("Wrong Action"))
    assert judgement.verdicts[0].label == "Wrong Action"
    assert ["temperature" in request.body for request in upstream.requests] == [True, False]
