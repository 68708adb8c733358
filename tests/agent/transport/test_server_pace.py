"""The pace that a server's headers and refusals lead to, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from editloupe.agent.transport.rate_limits import Allowance, ServerPace, read_allowances


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def begin() -> tuple[Clock, ServerPace]:
    clock = Clock()
    return clock, ServerPace(clock=clock)


def send(clock: Clock, pace: ServerPace, count: int, when_sent: Callable[[], None] = lambda: None) -> list[float]:
    """Queue requests together; return the seconds after which each is sent."""
    began, times = clock.now, []
    places = [ExitStack() for _ in range(count)]
    turns = [place.enter_context(pace.queue()) for place in places]
    looks = dict.fromkeys(range(count), clock.now)
    while looks:
        number = min(looks, key=lambda key: (looks[key], key))
        clock.now = max(clock.now, looks[number])
        if (seconds := turns[number]()) > 0:
            looks[number] = clock.now + seconds + 1e-6  # a real clock moves on
            continue
        del looks[number]
        places[number].close()
        times.append(clock.now - began)
        when_sent()
    return times


def stated(left: float, seconds: float, limit: int = 60) -> dict[str, Allowance]:
    return {"requests": Allowance(limit, left, seconds)}


@pytest.mark.parametrize("form", ["x-ratelimit-{field}-requests", "X-Provider-RateLimit-Requests-{field}"])
def test_headers_of_both_spellings_are_read(form: str) -> None:
    values = {"limit": "60", "remaining": "12", "reset": "1m2.5s"}
    headers = {form.format(field=field): value for field, value in values.items()}
    assert read_allowances(headers) == {"requests": Allowance(60, 12.0, 62.5)}


def test_a_moment_is_read_as_the_seconds_until_it() -> None:
    reset = (datetime.now(UTC) + timedelta(seconds=30)).isoformat().replace("+00:00", "Z")
    headers = {"a-ratelimit-tokens-limit": "9", "a-ratelimit-tokens-remaining": "1", "a-ratelimit-tokens-reset": reset}
    assert read_allowances(headers)["tokens"].seconds == pytest.approx(30, abs=5)


@pytest.mark.parametrize("missing", ["limit", "remaining", "reset"])
def test_headers_that_are_incomplete_or_unreadable_say_nothing(missing: str) -> None:
    headers = {f"x-ratelimit-{name}-requests": "1" for name in ("limit", "remaining", "reset")}
    assert read_allowances({**headers, f"x-ratelimit-{missing}-requests": "soon"}) == {}
    del headers[f"x-ratelimit-{missing}-requests"]
    assert read_allowances(headers) == {}


@pytest.mark.parametrize("limit", ["9" * 400, "0.5", "0", "-1", "nan"])
def test_a_limit_that_is_no_count_says_nothing(limit: str) -> None:
    values = {"limit": limit, "remaining": "0", "reset": "1s"}
    assert read_allowances({f"x-ratelimit-{name}-requests": value for name, value in values.items()}) == {}


@pytest.mark.parametrize("reset", ["9" * 400 + "s", "9" * 400, "-1"])
def test_a_reset_that_is_no_time_says_nothing(reset: str) -> None:
    values = {"limit": "10", "remaining": "0", "reset": reset}
    assert read_allowances({f"x-ratelimit-{name}-requests": value for name, value in values.items()}) == {}


def test_nothing_waits_while_the_server_states_and_refuses_nothing() -> None:
    clock, pace = begin()
    assert send(clock, pace, 100) == [0.0] * 100


def test_a_plentiful_allowance_hardly_slows_down() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=499, seconds=0.12, limit=500))
    assert sum(send(clock, pace, 32)) < 0.2


def test_what_is_left_is_spread_until_the_limit_is_available_again() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=10, seconds=30))
    times = send(clock, pace, 10)
    assert times[0] == 0
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == pytest.approx([3] * 9, abs=0.1)


def test_requests_beyond_what_is_left_wait_for_the_reset_and_are_spread_then() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=0, seconds=20, limit=4))
    times = send(clock, pace, 12)
    assert times[0] == pytest.approx(20, abs=0.01)
    for after in (20, 40, 60):
        assert sum(after - 0.01 <= time < after + 19.99 for time in times) == 4
    clock.now += 60
    assert send(clock, pace, 1) == [0], "the limit is available again"


def test_a_reset_in_a_day_does_not_hold_requests_for_a_day() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=0, seconds=86_400))
    assert send(clock, pace, 1) == pytest.approx([60], abs=0.01)


@pytest.mark.parametrize(
    ("kind", "limit"), [("tokens", 1), ("tokens", 100), ("requests", 10)], ids=["one", "hundred", "per second"]
)
def test_a_limit_that_each_reply_states_as_used_up_until_the_next_second_costs_a_second(kind: str, limit: int) -> None:
    clock, pace = begin()

    def reply() -> None:
        pace.note_reply(clock.now, tokens=3000)
        pace.note_allowances({kind: Allowance(limit, 0, 1.0)})

    reply()
    assert send(clock, pace, 20, reply) == pytest.approx(range(1, 21), abs=0.1)


def test_a_request_that_costs_more_than_the_limit_is_sent_once_per_period() -> None:
    clock, pace = begin()
    pace.note_reply(clock.now, tokens=3000)
    pace.note_allowances({"tokens": Allowance(1000, 900, 6.0)})
    times = send(clock, pace, 2)
    assert times == pytest.approx([6, 66], abs=0.01)


def test_fresh_headers_end_a_wait() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=0, seconds=60))
    with pace.queue() as first, pace.queue() as second:
        assert first() <= 1, "it looks again soon"
        assert second() <= 1
        clock.now += 1
        pace.note_allowances(stated(left=60, seconds=6))
        assert first() == 0
        assert 0 < second() < 0.3


def test_a_limit_is_forgotten_if_no_headers_state_it_for_a_minute_after_its_reset() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=0, seconds=60, limit=1))
    assert send(clock, pace, 9) == pytest.approx([60] + [120] * 8, abs=0.01)


def test_requests_that_leave_the_queue_hold_nothing_up() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=0, seconds=2, limit=5))
    with ExitStack() as cancelled:
        for turn in [cancelled.enter_context(pace.queue()) for _ in range(40)]:
            assert turn() > 0
    assert send(clock, pace, 1) == pytest.approx([2], abs=0.01)


def test_tokens_count_by_the_mean_of_the_replies() -> None:
    clock, pace = begin()
    for _ in range(4):
        pace.note_reply(999.0, tokens=1000)
    pace.note_allowances({"tokens": Allowance(60_000, 10_000, 30.0)})
    assert send(clock, pace, 10)[-1] == pytest.approx(27, abs=3.5)
    assert pace.describe_limits() == "60000 tokens"


def test_two_pauses_in_a_row_show_the_pace_that_the_server_admits_and_it_grows_again() -> None:
    clock, pace = begin()
    for number in range(30):
        pace.note_reply(clock.now + number / 10, tokens=10)
    clock.now += 4
    assert pace.note_pause() is None, "a single pause may be a burst"
    clock.now += 5
    assert pace.note_pause() == 30
    assert send(clock, pace, 2) == pytest.approx([0, 2], abs=0.02)
    clock.now += 238
    assert send(clock, pace, 2) == pytest.approx([0, 2 / 1.2**4], abs=0.02)
    clock.now += 7 * 86_400
    assert send(clock, pace, 2) == [0, 0], "after a week it does not count any more"


def test_a_reply_between_two_pauses_shows_that_the_limit_was_a_burst() -> None:
    clock, pace = begin()
    pace.note_reply(clock.now, tokens=10)
    clock.now += 1
    pace.note_pause()
    clock.now += 5
    pace.note_reply(clock.now, tokens=10)
    clock.now += 1
    assert pace.note_pause() is None
    assert send(clock, pace, 2) == [0, 0]
