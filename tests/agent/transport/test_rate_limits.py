"""The pauses after a 429 without a time to wait, on a clock of their own."""

from __future__ import annotations

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.agent.transport.rate_limits import LOOK_AGAIN, LimitPauses
from tests.agent.transport.test_errors import ServerError, sort


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-6  # no two events at the same moment
        return self.now


def begin() -> tuple[Clock, LimitPauses]:
    clock = Clock()
    return clock, LimitPauses(RetryPolicy(), clock)


def try_after_pause(clock: Clock, pauses: LimitPauses) -> float | None:
    """Wait out the pause, send a request, have it refused and return the next pause."""
    clock.now += pauses.seconds_left
    assert pauses.seconds_left == 0
    sent = pauses.note_sent()
    seconds = pauses.note_refused(sent)
    pauses.note_ended(sent)
    return seconds


def test_pauses_grow_to_a_minute_and_end_after_three_minutes_without_a_reply() -> None:
    clock, pauses = begin()
    seconds = [try_after_pause(clock, pauses) for _ in range(7)]
    assert seconds == [5, 15, 30, 60, 60, 60, None]
    assert pauses.seconds_left == 0, "refusals count as attempts now, and nothing is held back"


def test_requests_refused_together_begin_one_pause() -> None:
    _, pauses = begin()
    sent = [pauses.note_sent() for _ in range(8)]
    assert [pauses.note_refused(one) for one in sent] == [5] + [0] * 7
    assert 4.9 < pauses.seconds_left <= 5


def test_one_request_tries_the_server_after_a_pause_and_a_reply_lets_all_others_go() -> None:
    clock, pauses = begin()
    assert try_after_pause(clock, pauses) == 5
    assert try_after_pause(clock, pauses) == 15
    clock.now += 15
    trial = pauses.note_sent()
    assert pauses.seconds_left == LOOK_AGAIN
    pauses.note_admitted(trial, replied=True)
    pauses.note_ended(trial)
    assert pauses.seconds_left == 0
    assert pauses.note_refused(pauses.note_sent()) == 5, "the pauses begin again from the first"


def test_a_trial_that_ends_without_an_answer_leaves_its_place_to_the_next() -> None:
    clock, pauses = begin()
    try_after_pause(clock, pauses)
    clock.now += 5
    pauses.note_ended(pauses.note_sent())
    assert pauses.seconds_left == 0


def test_a_reply_to_a_request_from_before_the_pause_does_not_end_it() -> None:
    clock, pauses = begin()
    early, late = pauses.note_sent(), pauses.note_sent()
    assert pauses.note_refused(late) == 5
    pauses.note_admitted(early, replied=True)
    assert pauses.seconds_left > 4
    clock.now += 5
    assert try_after_pause(clock, pauses) == 15


def test_any_reply_renews_the_three_minutes() -> None:
    clock, pauses = begin()
    slow = pauses.note_sent()
    for _ in range(5):
        try_after_pause(clock, pauses)
    pauses.note_admitted(slow, replied=True)
    assert [try_after_pause(clock, pauses) for _ in range(4)] == [60, 60, 60, None]


def test_only_a_429_without_a_time_to_wait_is_such_a_limit() -> None:
    assert sort(ServerError(429)).limited
    assert not sort(ServerError(429, retry_after="7")).limited
    assert not sort(ServerError(429, "Please try again in 20s.")).limited
    assert not sort(ServerError(503)).limited
    assert not sort(ServerError(429, "You exceeded your current quota", "insufficient_quota")).limited


def test_time_in_which_nobody_asked_does_not_use_up_the_patience() -> None:
    clock, pauses = begin()
    assert try_after_pause(clock, pauses) == 5
    clock.now += 600
    assert pauses.seconds_left == 0
    assert pauses.note_refused(pauses.note_sent()) == 5, (
        "the server limits requests again, and the pauses begin from the first"
    )
