"""The pace of requests to one server, found from the limits in its headers and from its refusals."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic

from editloupe._util.text import number_of

MINUTE = 60.0
GROWTH = 1.2
"""Factor per minute without a refusal by which a pace found from refusals grows, because it may have been too low."""
OBSERVED = 10_000
"""How many of the latest replies the estimate from refusals uses."""
_NAME = re.compile(
    r"ratelimit-(?:(limit|remaining|reset)-(requests|tokens)|(requests|tokens)-(limit|remaining|reset))$"
)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Allowance:
    """What a server still admits, as its headers state it."""

    limit: int
    left: float
    """Requests or tokens that it admits within `seconds`."""
    seconds: float
    """Until the whole limit is available again."""


def read_allowances(headers: Mapping[str, str]) -> dict[str, Allowance]:
    """Return the allowance of `requests` and of `tokens`, as far as headers state limit, remaining and reset.

    >>> stated = {"limit": "60", "remaining": "12", "reset": "48s"}
    >>> read_allowances({f"x-ratelimit-{name}-requests": value for name, value in stated.items()})
    {'requests': Allowance(limit=60, left=12.0, seconds=48.0)}
    """
    values: dict[str, dict[str, float]] = {}
    for name, text in headers.items():
        if (match := _NAME.search(name.lower())) and (value := _parse(text)) is not None:
            values.setdefault(match[2] or match[3], {})[match[1] or match[4]] = value
    return {
        kind: Allowance(int(stated["limit"]), stated["remaining"], stated["reset"])
        for kind, stated in values.items()
        if stated.keys() == {"limit", "remaining", "reset"} and stated["limit"] > 0
    }


def _parse(text: str) -> float | None:
    """Parse a number, a duration or a time.

    >>> _parse("6m0s"), _parse("20ms"), _parse("149984"), _parse("soon")
    (360.0, 0.02, 149984.0, None)
    """
    if re.fullmatch(r"\d+(\.\d+)?", text := text.strip()):
        return float(text)
    if re.fullmatch(rf"(?:{_PART.pattern})+", text):
        return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds()) if moment.tzinfo else None


class ServerPace:
    """Spreads the requests to one server over the time for which it admits them.

    Headers that state what is left and until when decide the pace. Without them, the number of requests that the server admitted
    in the minute before it began to refuse does; that pace grows until it is refused again.
    """

    def __init__(self, minute: float = MINUTE, clock: Callable[[], float] = monotonic) -> None:
        """Begin without a limit.

        Args:
            minute: Seconds of the period that limits are per.
            clock: Returns the time in seconds.
        """
        self._minute, self._clock = minute, clock
        self._allowed: dict[str, tuple[Allowance, float]] = {}
        """What is left, and the time at which the limit is available again."""
        self._tokens, self._replies = 0, 0
        self._next = float("-inf")
        self._sent: deque[float] = deque(maxlen=OBSERVED)
        self._refused: float | None = None
        """Time of the first refusal since the last request that was admitted."""
        self._found: tuple[int, float] | None = None
        """The requests per minute found from refusals, and when."""

    def note_allowances(self, allowances: Mapping[str, Allowance]) -> None:
        """Note what a server's headers state."""
        now = self._clock()
        for kind, allowance in allowances.items():
            self._allowed[kind] = (allowance, now + min(allowance.seconds, self._minute))

    def note_reply(self, sent: float, tokens: int) -> None:
        """Note a reply, when its request was sent, and its tokens."""
        self._tokens, self._replies = self._tokens + tokens, self._replies + 1
        self._sent.append(sent)
        if self._refused is not None and sent > self._refused:
            self._refused = None

    def note_pause(self) -> int | None:
        """Note that a pause begins, and return the requests per minute that the server admits; None if not known.

        Two pauses in a row show that the limit is per time.
        """
        now = self._clock()
        if self._refused is None:
            self._refused = now
        else:
            began = self._refused
            if count := sum(began - self._minute < sent <= began for sent in self._sent):
                self._found = (count, now)
        return self._found[0] if self._found else None

    def reserve(self) -> float:
        """Reserve a time for a request and return the seconds until then."""
        now = self._clock()
        earliest = max(now, self._next)
        begin, interval = earliest, 0.0
        for kind, (allowance, until) in list(self._allowed.items()):
            cost = 1.0 if kind == "requests" else self._tokens / max(1, self._replies)
            if until <= now:
                del self._allowed[kind]
            elif allowance.left >= max(cost, 1.0) and until > earliest:
                interval = max(interval, (until - earliest) * cost / allowance.left)
                self._allowed[kind] = (replace(allowance, left=allowance.left - cost), until)
            else:
                begin = max(begin, until)
                interval = max(interval, self._minute * cost / allowance.limit)
        if self._found:
            count, since = self._found
            interval = max(interval, self._minute / (count * GROWTH ** ((now - since) / self._minute)))
        self._next = begin + interval
        return begin - now

    def describe_limits(self) -> str:
        """Return the limits that the server's headers state; empty if there are none."""
        limits = {kind: allowance.limit for kind, (allowance, _) in self._allowed.items()}
        return " and ".join(number_of(limit, kind[:-1]) for kind, limit in sorted(limits.items()))
