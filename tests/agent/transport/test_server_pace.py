"""The pace that a server's headers and refusals lead to, on a clock of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from editloupe.agent.transport.server_pace import Allowance, ServerPace, read_allowances


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def begin() -> tuple[Clock, ServerPace]:
    clock = Clock()
    return clock, ServerPace(clock=clock)


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


def test_nothing_waits_while_the_server_states_and_refuses_nothing() -> None:
    _, pace = begin()
    assert [pace.reserve() for _ in range(100)] == [0.0] * 100


def test_a_plentiful_allowance_hardly_slows_down() -> None:
    _, pace = begin()
    pace.note_allowances(stated(left=499, seconds=0.12, limit=500))
    assert sum(pace.reserve() for _ in range(32)) < 0.2


def test_what_is_left_is_spread_until_the_limit_is_available_again() -> None:
    _, pace = begin()
    pace.note_allowances(stated(left=10, seconds=30))
    waits = [pace.reserve() for _ in range(10)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(27, abs=3.5)


def test_requests_beyond_what_is_left_wait_for_the_reset_and_go_out_at_the_limit_s_pace() -> None:
    clock, pace = begin()
    pace.note_allowances(stated(left=0, seconds=20, limit=60))
    assert [pace.reserve() for _ in range(3)] == pytest.approx([20, 21, 22])
    clock.now += 60
    assert pace.reserve() == 0, "what headers state holds until the reset only"


def test_a_reset_in_a_day_does_not_hold_requests_for_a_day() -> None:
    _, pace = begin()
    pace.note_allowances(stated(left=0, seconds=86_400))
    assert pace.reserve() == 60


def test_tokens_count_by_the_mean_of_the_replies() -> None:
    _, pace = begin()
    for _ in range(4):
        pace.note_reply(999.0, tokens=1000)
    pace.note_allowances({"tokens": Allowance(60_000, 10_000, 30.0)})
    waits = [pace.reserve() for _ in range(10)]
    assert waits[-1] == pytest.approx(27, abs=3.5)
    assert pace.describe_limits() == "60000 tokens"


def test_two_pauses_in_a_row_show_the_pace_that_the_server_admits_and_it_grows_again() -> None:
    clock, pace = begin()
    for number in range(30):
        pace.note_reply(clock.now + number / 10, tokens=10)
    clock.now += 4
    assert pace.note_pause() is None, "a single pause may be a burst"
    clock.now += 5
    assert pace.note_pause() == 30
    waits = [pace.reserve() for _ in range(3)]
    assert waits == pytest.approx([0, 2, 4])
    clock.now += 240
    first = pace.reserve()
    assert pace.reserve() - first == pytest.approx(2 / 1.2**4)


def test_a_reply_between_two_pauses_shows_that_the_limit_was_a_burst() -> None:
    clock, pace = begin()
    pace.note_reply(clock.now, tokens=10)
    clock.now += 1
    pace.note_pause()
    clock.now += 5
    pace.note_reply(clock.now, tokens=10)
    clock.now += 1
    assert pace.note_pause() is None
    assert pace.reserve() == 0
