"""Servers and proxies as people really meet them, through the real clients: what stops a run, what is retried, what is paid."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, Judgement, JudgeSettings, Reason, Unjudged, UserError, Verdict
from editloupe.agent.chat import RetryPolicy
from editloupe.cli.main import run
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.papers.layouts import load_manifest
from editloupe.evals.runs.prices import Price
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.pictures import edit_pair
from tests.scripted import (
    Garbage,
    Reply,
    Request,
    ScriptedServer,
    Usage,
    drip,
    drop,
    fault,
    final,
    hang,
    packed,
    redirect,
    say,
    wrong_length,
)

BOTH = ("openai:gpt-4.1", "google_genai:gemini-2.5-pro")
GOOD = final("Wrong Action")
QUICK = RetryPolicy(first_wait=0.01, longest_wait=0.02)
both = pytest.mark.parametrize("spec", BOTH)


def address(server: ScriptedServer, spec: str) -> str:
    return server.gemini_url if spec.startswith("google") else server.openai_url


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


@pytest.fixture
def asked(edit: Edit) -> Callable[..., Judgement]:
    def ask(server: ScriptedServer, spec: str = BOTH[0], url: str | None = None, **options: Any) -> Judgement:
        settings = JudgeSettings(**{"retry": QUICK, "timeout": 5.0, **options.pop("settings", {})})
        options = {"criteria": ["instruction_following"], "mode": "plain", **options}
        return Judge(spec, base_url=url or address(server, spec), settings=settings, **options).judge(edit)

    return ask


def only(judgement: Judgement) -> Any:
    (outcome,) = judgement.verdicts
    return outcome


STOPS = [
    (fault(422, "ExceededBudget: User=u over budget. Spend=1.2, Budget=1.0"), "over budget"),
    (fault(429, "Budget has been exceeded! Current cost: 0.02, Max budget: 0.01"), "Budget has been exceeded"),
    (fault(400, "Key crossed budget"), "crossed budget"),
    (fault(400, "/chat/completions: Invalid model name passed in model=gpt-9."), "Invalid model name"),
    (fault(400, "Authentication Error, Invalid proxy server token passed."), "Invalid proxy server token"),
    (fault(400, "image_url is only supported by certain models"), "takes no pictures"),
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


def batch(folder: Path, server: ScriptedServer, count: int = 4, **options: Any) -> Any:
    if not (folder / "manifest.jsonl").exists():
        write_manifest(folder, count)
    settings = JudgeSettings(retry=QUICK, timeout=5)

    def opened(**hooks: Any) -> Judge:
        only_this = ["instruction_following"]
        url = server.openai_url
        return Judge(BOTH[0], mode="plain", base_url=url, criteria=only_this, settings=settings, **hooks)

    edits = lambda: load_manifest(folder / "manifest.jsonl")  # noqa: E731
    return judge_batch(Batch(edits, folder / "run", opened, **options), quiet=True)


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


def test_refusals_filed_by_0_1_are_tried_again_unless_they_are_about_the_content(
    scripted: StartServer, tmp_path: Path
) -> None:
    import sqlite3

    batch(tmp_path, server := scripted(lambda _: fault(400, "This tenant is asleep")))
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as run:
        run.execute(
            "UPDATE units SET reason = 'request_refused', "
            "outcome = replace(outcome, '\"server_refused\"', '\"request_refused\"')"
        )
        run.execute(
            "UPDATE units SET outcome = replace(outcome, 'This tenant is asleep', 'prompt is too long') WHERE edit_id = 'e1'"
        )
    run.close()
    server.play(lambda _: GOOD)
    second = batch(tmp_path, server)
    assert (second.tally.judged, second.tally.held) == (3, 1)


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


BROKEN = {
    "half a body": drop(half=True),
    "nothing in it": Garbage(b"{}"),
    "an error in a 200": Garbage(b'{"error": {"code": 503, "message": "overloaded"}}'),
    "longer than it says": wrong_length(b'{"a": 1}', -3),
    "shorter than it says": wrong_length(b'{"a": 1}', 50),
    "no gzip": packed(b"no gzip at all"),
    "half a gzip": packed(gzip.compress(b'{"a": 1}' * 100)[:30]),
    "an unknown packing": packed(b"....", "snappy"),
    "an array": Garbage(b"[]"),
    "null": Garbage(b"null"),
    "an empty body": Garbage(b""),
}


@pytest.mark.long
@both
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_reply_is_the_servers_fault_and_tried_again(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str, broken: Reply
) -> None:
    judgement = asked(server := scripted(broken, GOOD), spec)
    assert only(judgement).label == "Wrong Action"
    assert server.served == 2
    step = judgement.traces[0].steps[0]
    # What is left over of a body may spoil the next reply on its connection.
    assert step.attempts in ((2, 3) if broken is BROKEN["longer than it says"] else (2,))
    assert step.usage.requests == step.attempts
    outcome = only(asked(scripted(lambda _: broken), spec))
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.MODEL_ERROR
    assert outcome.usage.requests == 6


def test_a_packed_reply_is_read_all_the_same(scripted: StartServer, asked: Callable[..., Judgement]) -> None:
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": GOOD.text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
    }
    assert asked(scripted(packed(gzip.compress(json.dumps(body).encode())))).judged


@pytest.mark.long
@both
def test_a_gzip_bomb_takes_little_memory_and_is_a_broken_reply(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str
) -> None:
    bomb = gzip.compress(b" " * 300_000_000, 9)
    server = scripted(lambda _: packed(bomb), log=False)
    tracemalloc.start()
    try:
        outcome = only(asked(server, spec, settings={"retry": RetryPolicy(max_attempts=1)}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.reason is Reason.MODEL_ERROR
    assert "larger than 16 MB" in outcome.detail
    assert peak < 80_000_000


@pytest.mark.long
@both
def test_the_timeout_bounds_the_whole_reply_however_slowly_it_drips(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str
) -> None:
    started = time.perf_counter()
    outcome = only(asked(scripted(lambda _: drip(20, GOOD)), spec, settings={"timeout": 0.7}))
    assert outcome.reason is Reason.TIMEOUT
    assert time.perf_counter() - started < 4
    assert outcome.usage.requests == 2
    assert outcome.usage.input_tokens > 0, "the server was at work: its time is counted by estimate"


USAGES = [None, Usage(-100, -20), Usage(0, 0), Usage(10**15, 10**15), Usage(10.5, 2.5)]  # type: ignore[arg-type]


@pytest.mark.long
@both
@pytest.mark.parametrize("usage", USAGES, ids=str)
def test_usage_nobody_can_believe_is_estimated_and_said(
    scripted: StartServer, asked: Callable[..., Judgement], spec: str, usage: Usage | None
) -> None:
    judgement = asked(scripted(GOOD.but(usage=usage)), spec)
    verdict = only(judgement)
    assert isinstance(verdict, Verdict)
    assert 100 < verdict.usage.input_tokens < 20_000
    assert 5 < verdict.usage.output_tokens < 200
    assert any("estimated" in note for note in judgement.notes)


@pytest.mark.long
@pytest.mark.parametrize("usage", [None, Usage(-100, -20), Usage(0, 0)], ids=str)
def test_a_cap_holds_although_the_server_reports_no_usage(
    scripted: StartServer, tmp_path: Path, usage: Usage | None
) -> None:
    server = scripted(lambda _: GOOD.but(usage=usage))
    limits = Limits(concurrency=2, max_cost=0.02)
    ending = batch(tmp_path, server, 60, limits=limits, price=Price(input=1, output=1))
    assert ending.why is not None
    assert "cap" in ending.why
    assert 0 < ending.tally.judged < 40
    assert ending.spending.cost is not None
    assert 0.01 < ending.spending.cost <= 0.021
    assert ending.spending.estimated == ending.tally.judged


def test_replies_that_may_have_been_paid_and_never_came_count_towards_the_cap(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(lambda _: drop(half=True))
    ending = batch(tmp_path, server, 20, limits=Limits(concurrency=2, max_tokens=20_000))
    assert ending.why is not None
    assert server.served < 60
    usage = ending.spending.usage
    assert 10_000 < usage.input_tokens + usage.output_tokens <= 20_000


async def test_a_request_that_is_cancelled_counts_by_estimate(scripted: StartServer, edit: Edit) -> None:
    from editloupe.evals.batch.traffic import TrafficControl

    traffic = TrafficControl(Limits())
    judge = Judge(
        BOTH[0],
        mode="plain",
        base_url=scripted(hang(20)).openai_url,
        criteria=["instruction_following"],
        traffic=traffic,
    )
    task = asyncio.create_task(judge.ajudge(edit))
    while not traffic.under_way:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert traffic.spending.usage.requests == 1
    assert traffic.spending.usage.input_tokens > 100
    assert traffic.spending.estimated == 1


@pytest.mark.long
@both
def test_every_event_loop_has_connections_of_its_own(scripted: StartServer, edit: Edit, spec: str) -> None:
    server = scripted(lambda _: GOOD)
    judge = Judge(spec, mode="plain", base_url=address(server, spec), criteria=["instruction_following"])
    found = [asyncio.run(judge.ajudge(edit)) for _ in range(3)] + [judge.judge(edit)]
    assert [judgement.traces[0].steps[0].attempts for judgement in found] == [1, 1, 1, 1]
    assert server.served == 4


async def test_a_closed_chat_has_no_connection_left(scripted: StartServer, edit: Edit) -> None:
    server = scripted(lambda _: GOOD)
    judge = Judge(BOTH[0], mode="plain", base_url=server.openai_url, criteria=["instruction_following"])
    before = len(os.listdir("/proc/self/fd"))
    await judge.ajudge(edit)
    await judge._chat.aclose()
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
