"""Replies that are broken, packed, endless or slow, and usage nobody can believe: what is asked again, what counts as paid."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import Edit, Judge, Judgement, Reason, Unjudged, Verdict
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.prices import Price
from tests.conftest import StartServer
from tests.faults.asking import BOTH, GOOD, address, batch, both, only
from tests.scripted import (
    Garbage,
    Reply,
    Usage,
    drip,
    drop,
    hang,
    packed,
    wrong_length,
)

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
    peaks = []
    for _ in range(2):  # threads of other tests may still let go of theirs the first time
        tracemalloc.start()
        try:
            outcome = only(asked(server, spec, settings={"retry": RetryPolicy(max_attempts=1)}))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert outcome.reason is Reason.MODEL_ERROR
        assert "larger than 16 MB" in outcome.detail
    assert min(peaks) < 80_000_000


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


@pytest.mark.long
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
