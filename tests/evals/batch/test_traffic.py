"""Traffic control: places, refusals, rates, caps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.evals.batch import traffic as module
from editloupe.evals.batch.traffic import Bucket, Limits, Spending, TrafficControl
from editloupe.evals.runs.prices import Price
from editloupe.types import Usage

REPLY = Usage(requests=1, input_tokens=100, output_tokens=0)


async def ask(control: TrafficControl, usage: Usage = REPLY, hold: float = 0.0) -> int:
    async with control.request() as slot:
        at_once = control.under_way
        await asyncio.sleep(hold)
        slot.record_reply(usage)
        return at_once


async def test_never_more_requests_are_under_way_than_allowed() -> None:
    control = TrafficControl(Limits(concurrency=3))
    seen = await asyncio.gather(*(ask(control, hold=0.001) for _ in range(20)))
    assert max(seen) == 3
    assert control.under_way == 0


async def test_refusals_of_one_moment_shrink_once_and_calm_grows_again() -> None:
    control = TrafficControl(Limits(concurrency=32))
    async with control.request() as slot:
        for _ in range(5):
            slot.record_refusal(None)
    assert control.allowed == 24
    assert control.refusals == 5
    for _ in range(200):
        await ask(control)
    assert control.allowed == 32


async def test_refusals_again_and_again_leave_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BETWEEN_SHRINKS", 0.0)
    control = TrafficControl(Limits(concurrency=8))
    for _ in range(50):
        async with control.request() as slot:
            slot.record_refusal(1.0)
    assert control.allowed == 1
    assert await asyncio.wait_for(ask(control), 1) == 1


def passed_in_a_minute(bucket: Bucket, amount: float) -> float:
    """Let through as much as the bucket allows, on a clock of its own."""
    now, passed = 0.0, 0.0
    while now < 60.0:
        if (wait := bucket.wait(now)) > 0:
            now += wait + 1e-9
        else:
            bucket.take(amount)
            passed += amount
    return passed


@pytest.mark.parametrize("per_minute", [1, 3, 60, 600, 10_000])
def test_no_minute_sees_more_requests_than_its_limit(per_minute: int) -> None:
    passed = passed_in_a_minute(Bucket(per_minute, 0.0), 1)
    assert passed <= per_minute
    assert passed >= per_minute * 0.45


def test_large_requests_are_paid_back_by_waiting() -> None:
    assert passed_in_a_minute(Bucket(60_000, 0.0), 5_000) <= 60_000 + 5_000


async def test_requests_wait_for_their_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    control = TrafficControl(Limits(concurrency=10, requests_a_minute=60))
    await asyncio.wait_for(ask(control), 1)
    second = asyncio.create_task(ask(control))
    await asyncio.sleep(0.01)
    assert not second.done()
    now += 1.1
    control._let_in()
    assert await asyncio.wait_for(second, 1) == 1


async def test_a_cap_is_never_passed_by_more_than_what_was_under_way() -> None:
    limits = Limits(concurrency=4, max_cost=1.0)
    control = TrafficControl(limits, Spending(limits, Price(input=1000, output=0)))
    results = await asyncio.gather(*(ask(control, hold=0.001) for _ in range(50)), return_exceptions=True)
    assert sum(isinstance(result, OverBudget) for result in results) == 40
    assert control.spending.cost == pytest.approx(1.0)


async def test_a_cap_counts_what_earlier_sessions_spent() -> None:
    limits = Limits(max_tokens=1000)
    control = TrafficControl(limits, Spending(limits, None, Usage(requests=10, input_tokens=850)))
    await ask(control)
    with pytest.raises(OverBudget, match="the cap of 1000 tokens is reached"):
        await ask(control)


async def test_a_request_that_is_cancelled_while_it_waits_gives_up_its_place() -> None:
    control = TrafficControl(Limits(concurrency=1))
    first = asyncio.create_task(ask(control, hold=0.02))
    await asyncio.sleep(0)
    second = asyncio.create_task(ask(control))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert await asyncio.wait_for(ask(control), 1) == 1
    assert control.under_way == 0


async def test_a_request_that_is_cancelled_just_as_its_place_is_free_does_not_keep_it() -> None:
    control = TrafficControl(Limits(concurrency=1))
    held: Any = control.request()
    slot = await held.__aenter__()
    waiting = asyncio.create_task(ask(control))
    await asyncio.sleep(0)
    slot.record_reply(REPLY)
    await held.__aexit__(None, None, None)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert control.under_way == 0
    assert await asyncio.wait_for(ask(control), 1) == 1


async def test_after_a_stop_everybody_who_waits_is_told() -> None:
    control = TrafficControl(Limits(concurrency=1))
    first = asyncio.create_task(ask(control, hold=0.01))
    await asyncio.sleep(0)
    second = asyncio.create_task(ask(control))
    await asyncio.sleep(0)
    control.stop("the cap is reached")
    with pytest.raises(OverBudget, match="the cap is reached"):
        await second
    assert await first == 1


async def test_a_request_that_fails_frees_its_place() -> None:
    control = TrafficControl(Limits(concurrency=1))
    for _ in range(3):
        with pytest.raises(ValueError, match="server"):
            async with control.request():
                raise ValueError("server")
    assert control.under_way == 0


async def test_the_advice_names_the_rate_that_the_server_admits_and_says_that_it_was_kept() -> None:
    control = TrafficControl(Limits())
    assert control.advise_rate() is None
    async with control.request("openai:x") as slot:
        slot.record_pause(5.0)
        assert control.advise_rate() == (
            "the server rate-limited this run (1 pause); use --rpm N to send fewer requests per minute"
        )
        slot.record_pause(15.0, 12)
    assert control.advise_rate() == (
        "the server rate-limited this run (2 pauses) and admitted about 12 requests per minute; later requests kept to that "
        "pace, and --rpm 12 does so from the start"
    )
    async with control.request("openai:y") as slot:
        slot.record_pause(5.0, 3)
    assert "--rpm N" in str(control.advise_rate()), "two judges share --rpm"
