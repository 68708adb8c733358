"""Caps on cost and tokens: reached they stop a batch cleanly, and they hold over all sessions of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.batch.batch import Batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.prices import Price
from editloupe.judge import Judge
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.evals.batch.test_batch import answers, batch, run, units
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, call


@pytest.mark.long
def test_a_cost_cap_stops_at_the_cap_and_a_higher_one_continues(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answers, delay=0.01)
    manifest = write_manifest(tmp_path, 20)
    price = Price(input=10_000, output=0)
    each = 1.0  # 100 input tokens a reply
    low = Limits(concurrency=4, max_cost=10 * each)
    first = run(batch(server, manifest, tmp_path / "run", limits=low, price=price))
    assert first.why is not None
    assert "the cap of $10 is reached" in first.why
    assert first.tally.missing > 0
    assert 10 * each - each <= (first.spending.cost or 0) <= 10 * each + 4 * each
    asked = server.served
    second = run(batch(server, manifest, tmp_path / "run", limits=low, price=price))
    assert server.served == asked
    assert second.tally.judged == 0
    assert run(batch(server, manifest, tmp_path / "run", price=price)).tally.missing == 0
    assert server.served == 40
    assert {status for *_, status in units(tmp_path / "run")} == {"judged"}


@pytest.mark.long
def test_a_token_cap_needs_no_price_and_a_cost_cap_does(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 10)

    def unknown(**hooks: Any) -> Judge:
        return Judge("openai:nobody-knows", mode="plain", base_url=server.openai_url, **hooks)

    def with_limits(limits: Limits) -> Batch:
        return Batch(lambda: load_manifest(manifest), tmp_path / "run", unknown, limits=limits)

    with pytest.raises(UserError, match="--max-cost needs a price"):
        run(with_limits(Limits(max_cost=1)))
    ending = run(with_limits(Limits(concurrency=2, max_tokens=600)))
    assert ending.spending.cost is None
    assert 480 <= ending.spending.usage.input_tokens + ending.spending.usage.output_tokens <= 600 + 2 * 120


@pytest.mark.long
def test_a_cap_holds_when_the_same_command_is_given_again(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answers)
    manifest = write_manifest(tmp_path, 20)
    for _ in range(3):
        capped = batch(server, manifest, tmp_path / "run", limits=Limits(concurrency=8, max_tokens=120 * 10 + 60))
        assert "the cap of 1260 tokens is reached" in str(run(capped).why)
        assert server.served == 10
    raised = batch(server, manifest, tmp_path / "run", limits=Limits(concurrency=8, max_tokens=120 * 12))
    run(raised)
    assert server.served == 12


@pytest.mark.long
def test_a_small_cap_buys_whole_verdicts_and_not_first_turns(scripted: StartServer, tmp_path: Path) -> None:
    def looks_twice(request: Request) -> Answer:
        turns = sum(message.role == "assistant" for message in request.messages)
        if turns == 2:
            return answers(request)
        return call("zoom_in_image", bbox_2d=[1, 1, 20 + turns, 20], target_image="Edited Image")

    server = scripted(looks_twice, delay=0.02)
    price = Price(input=10_000, output=0)  # one dollar a reply of 100 tokens
    limits = Limits(concurrency=32, max_cost=28.0)
    ending = run(
        batch(
            server, write_manifest(tmp_path, 30), tmp_path / "run", limits=limits, price=price, judge={"mode": "tools"}
        )
    )
    assert ending.why is not None
    assert ending.tally.judged >= 8, "28 replies are enough for nine verdicts of three replies each"
    assert server.served <= 28
