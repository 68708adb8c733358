"""A judge for functions that others call is opened at the first call and shared from then on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from editloupe.judge import Judge, judge_opener
from editloupe.types import UserError


def test_calls_from_many_threads_open_one_judge() -> None:
    open_judge = judge_opener("rules", {"mode": "plain"})
    with ThreadPoolExecutor(8) as threads:
        opened = set(threads.map(lambda _: open_judge(), range(32)))
    (judge,) = opened
    assert judge.mode == "plain"
    judge.close()


def test_a_mistake_is_raised_when_the_judge_is_opened_and_again_at_the_next_call() -> None:
    open_judge = judge_opener("rules", {"protocol": "made_up"})
    for _ in range(2):
        with pytest.raises(UserError, match="made_up"):
            open_judge()


def test_an_open_judge_is_returned_as_it_is_and_takes_no_options() -> None:
    with Judge("rules", mode="plain") as judge:
        assert judge_opener(judge, {})() is judge
        with pytest.raises(UserError, match="takes no options"):
            judge_opener(judge, {"mode": "plain"})
