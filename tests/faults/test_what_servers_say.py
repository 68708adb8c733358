"""Servers and proxies as people really meet them, through the real clients: what stops a run, what is asked again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import Edit, Judge, Judgement, JudgeSettings, Reason, Unjudged, UserError
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.samples import write_manifest
from tests.faults.asking import BOTH, GOOD, QUICK, address, batch, both, only
from tests.scripted import (
    Garbage,
    Reply,
    Request,
    fault,
    redirect,
    say,
)

STOPS = [
    (fault(422, "ExceededBudget: User=u over budget. Spend=1.2, Budget=1.0"), "over budget"),
    (fault(429, "Budget has been exceeded! Current cost: 0.02, Max budget: 0.01"), "Budget has been exceeded"),
    (fault(400, "Key crossed budget"), "crossed budget"),
    (fault(400, "/chat/completions: Invalid model name passed in model=gpt-9."), "Invalid model name"),
    (fault(400, "Authentication Error, Invalid proxy server token passed."), "Invalid proxy server token"),
    (fault(400, "image_url is only supported by certain models"), "does not accept pictures"),
]


@pytest.mark.long
@both
@pytest.mark.parametrize(("reply", "sentence"), STOPS, ids=[row[1] for row in STOPS])
def test_what_the_user_must_mend_stops_at_once_with_the_servers_own_sentence(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str, reply: Reply, sentence: str
) -> None:
    server = scripted(lambda _: reply)
    with pytest.raises(UserError, match=sentence):
        asked(server, spec)
    assert server.served == 1


@pytest.mark.long
def test_a_batch_without_budget_ends_with_2_and_files_nothing(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda _: fault(422, "Budget has been exceeded! Current cost: 2, Max budget: 1"))
    command = ["batch", str(write_manifest(tmp_path, 6)), "--out", str(tmp_path / "run"), "--mode", "plain", "--quiet"]
    assert run([*command, "--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--concurrency", "2"]) == 2
    said = capsys.readouterr().err
    assert "Budget has been exceeded" in said
    assert "Traceback" not in said
    assert server.served <= 4


LIMITS = [
    "Rate limit reached for gpt-4.1 in organization org-1 on requests per min (RPM): Limit 3, Used 3, Requested 1. Please "
    "try again in 300ms. Please add a payment method to increase your rate limit. Visit https://platform.openai.com/account/billing.",
    "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: "
    f"{'generativelanguage.googleapis.com/generate_requests, ' * 6}limit: 10. Please retry in 0.3s.",
]


@pytest.mark.long
@both
@pytest.mark.parametrize("sentence", LIMITS, ids=["openai", "gemini"])
def test_a_limit_by_the_minute_is_waited_for_as_long_as_its_sentence_says(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str, sentence: str
) -> None:
    came: list[float] = []

    def script(request: Request) -> Reply:
        came.append(time.perf_counter())
        return fault(429, sentence) if len(came) == 1 else GOOD

    assert asked(scripted(script), spec).judged
    assert came[1] - came[0] >= 0.3


@pytest.mark.long
@both
@pytest.mark.parametrize(
    "sentence",
    [
        "<400> InternalError.Algo.DataInspectionFailed: Input data may contain inappropriate content.",
        "系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语",
    ],
    ids=["dashscope", "zhipu"],
)
def test_a_filter_is_one_in_any_words(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str, sentence: str
) -> None:
    server = scripted(lambda _: fault(400, sentence))
    assert only(asked(server, spec)).reason is Reason.REFUSED
    assert server.served == 1


@pytest.mark.long
def test_units_a_servers_refusal_spoiled_are_tried_again_and_refused_content_is_not(
    scripted: StartServer, tmp_path: Path
) -> None:
    def script(request: Request) -> Reply:
        if "Do 0" in request.messages[-1].text:
            return fault(400, "Your input was flagged by our safety system")
        return fault(400, "This tenant is asleep")

    first = batch(tmp_path, server := scripted(script))
    assert dict(first.tally.unjudged) == {"request_refused": 1, "server_refused": 3}
    server.play(lambda _: GOOD)
    second = batch(tmp_path, server)
    assert (second.tally.judged, second.tally.held) == (3, 1)
    assert server.served == 7


def refuses(name: str, sentence: str) -> Callable[[Request], Reply]:
    """A server that does not take a parameter."""

    def script(request: Request) -> Reply:
        return fault(400, sentence, delay=0.05) if name in request.body else GOOD

    return script


@pytest.mark.long
def test_a_parameter_that_is_refused_is_left_out_once_for_all_and_announced_once(
    scripted: StartServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = scripted(refuses("temperature", "Unsupported value: 'temperature' does not support 0.0 with this model."))
    before, after = edit_pair(tmp_path)
    edits = [Edit(id=str(n), source=before, edited=after, instruction=f"Paint {n}") for n in range(40)]
    settings = JudgeSettings(retry=RetryPolicy(max_attempts=1), timeout=5)
    criteria = ["instruction_following"]
    judge = Judge(BOTH[0], mode="plain", base_url=server.openai_url, criteria=criteria, settings=settings)
    with caplog.at_level(logging.WARNING, "editloupe"):
        found = list(judge.batch(edits, concurrency=32))
    assert all(judgement.judged for judgement in found)
    refused = [request for request in server.requests if "temperature" in request.body]
    assert 1 <= len(refused) <= 32
    assert server.served == 40 + len(refused)
    assert [record.message for record in caplog.records if "temperature" in record.message] != []
    assert len([record for record in caplog.records if "temperature" in record.message]) == 1
    assert any("temperature is not sent" in note for note in found[-1].notes)
    assert any("temperature is not sent" in note for note in found[-1].traces[0].notes)
    last = found[-1].traces[0].steps[0]
    assert last.usage.requests == last.attempts


def test_a_length_under_the_wrong_name_is_sent_under_the_other(
    scripted: StartServer, asked: Callable[..., Judgement]
) -> None:
    server = scripted(refuses("max_completion_tokens", "Unrecognized request argument supplied: max_completion_tokens"))
    assert asked(server, settings={"max_output_tokens": 500}).judged
    assert server.requests[-1].body["max_tokens"] == 500


@pytest.mark.long
def test_a_schema_that_is_refused_is_left_to_the_prompt(scripted: StartServer, asked: Callable[..., Judgement]) -> None:
    def script(request: Request) -> Reply:
        if "response_format" in request.body:
            return fault(400, "'response_format' of type 'json_schema' is not supported with this model.")
        return say('{"score": 7, "reasoning": "It is there."}')

    server = scripted(script)
    judgement = asked(server, protocol="editreward-compass", criteria=None)
    sent = ["response_format" in request.body for request in server.requests]
    assert (sent[0], sent[-1]) == (True, False)
    assert all(outcome.reason is Reason.UNREADABLE for outcome in judgement.verdicts if isinstance(outcome, Unjudged))
    assert any("response_format is not sent" in note for note in judgement.notes)


@both
def test_gemini_and_openai_alike_are_asked_without_the_parameter(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str
) -> None:
    def script(request: Request) -> Reply:
        sent = request.body.get("generationConfig", request.body)
        return fault(400, "temperature: unsupported parameter") if "temperature" in sent else GOOD

    judgement = asked(scripted(script), spec)
    assert judgement.judged
    assert judgement.traces[0].steps[0].attempts == 2


def test_a_parameter_refused_although_it_was_not_sent_is_a_refusal_like_any_other(
    scripted: StartServer, asked: Callable[..., Judgement]
) -> None:
    server = scripted(lambda _: fault(400, "Unsupported parameter: 'temperature'"))
    outcome = only(asked(server))
    assert outcome.reason is Reason.SERVER_REFUSED
    assert server.served == 2


def test_a_server_without_function_calls_is_told_with_the_way_out(
    scripted: StartServer, asked: Callable[..., Judgement]
) -> None:
    server = scripted(lambda _: fault(400, "registry.ollama.ai/library/llava does not support tools"))
    with pytest.raises(UserError, match="--tool-calls text"):
        asked(server, mode="tools")


def test_an_address_without_its_version_is_told_as_such(scripted: StartServer, asked: Callable[..., Judgement]) -> None:
    server = scripted(lambda _: GOOD)
    with pytest.raises(UserError, match=rf"--base-url {server.url}/v1"):
        asked(server, url=server.url)


@pytest.mark.long
def test_the_proxys_own_header_says_how_long_to_wait(scripted: StartServer, asked: Callable[..., Judgement]) -> None:
    busy = Garbage(b'{"error": {"message": "slow down"}}', 429, headers={"llm_provider-retry-after-ms": "400"})
    came: list[float] = []

    def script(request: Request) -> Reply:
        came.append(time.perf_counter())
        return busy if len(came) == 1 else GOOD

    assert asked(scripted(script)).judged
    assert came[1] - came[0] >= 0.4


@pytest.mark.long
@both
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-to-leave-1")
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-never-to-leave-1")
    elsewhere = scripted(lambda _: GOOD)
    server = scripted(lambda _: redirect(f"{elsewhere.url}/v1/chat/completions?key=1", status))
    with pytest.raises(UserError, match=rf"redirects \({status}\) to {elsewhere.url};.*--base-url") as raised:
        asked(server, spec)
    assert elsewhere.served == 0
    assert server.served == 2
    assert "?" not in str(raised.value)


@both
def test_a_redirect_in_the_middle_of_a_run_is_a_passing_fault(scripted: StartServer, edit: Edit, spec: str) -> None:
    away = redirect("http://127.0.0.1:9/maintenance", 302)
    server = scripted(GOOD, away, away, GOOD)
    settings = JudgeSettings(retry=QUICK, timeout=5)
    judge = Judge(
        spec, mode="plain", base_url=address(server, spec), criteria=["instruction_following"], settings=settings
    )
    assert judge.judge(edit).judged
    second = judge.judge(edit)
    assert second.judged
    assert second.traces[0].steps[0].attempts == 3
