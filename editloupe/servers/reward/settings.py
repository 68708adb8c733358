"""Settings of the reward server."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isinf
from pathlib import Path

from editloupe.servers.http.access import LOOPBACK_NAMES, check_token, is_loopback
from editloupe.types import UserError

PORT = 8645
DEADLINE = 50.0
"""Seconds. Trainers give up after 60; verdicts after that would be paid for and lost."""


@dataclass(frozen=True)
class RewardServerSettings:
    """All settings of the server except the judge."""

    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = field(default=None, repr=False)
    """Token that requests must carry. None is allowed on loopback addresses only."""
    allowed_hosts: tuple[str, ...] = ()
    """Further host names that requests may use if no token is set."""
    out: Path | None = None
    """Run folder that stores judgements with traces and pictures."""
    deadline: float = DEADLINE
    """Seconds after which a request is answered with the scores available by then."""
    concurrency: int = 32
    """Concurrent requests to the model."""
    queue: int = 512
    """Maximum number of pending edits; further requests get a 429 response."""
    remember: int = 20_000
    """Scores kept in memory so that the same edit is not judged twice."""
    body_bytes: int = 64 * 2**20
    """Size limit of a request."""
    bodies_bytes: int = 512 * 2**20
    """Size limit of all pending requests together."""
    picture_pixels: int = 50_000_000
    """Size limit of a picture."""
    allow_pickle: bool = False
    """Whether pickled requests are accepted. They are read by a restricted unpickler that only builds data."""
    unjudged: float | None = None
    """Reward of an unjudged edit in dialects with a list of rewards, for trainers that cannot take null; may be NaN."""
    grace: float = 5.0
    """Seconds that pending edits get after the server was stopped."""

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise UserError(
                f"a server on {self.host} needs a token, because every client that reaches it spends your money"
            )
        if self.unjudged is not None and isinf(self.unjudged):
            raise UserError("the reward of an unjudged edit is a finite number or nan")
        if self.token is not None:
            check_token(self.token, "the server's token")

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may use if no token is set."""
        return frozenset({*LOOPBACK_NAMES, self.host.lower(), *(name.lower() for name in self.allowed_hosts)})
