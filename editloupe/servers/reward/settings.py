"""What the reward server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from editloupe.servers.http.access import LOOPBACK_NAMES, check_token, is_loopback
from editloupe.types import UserError

PORT = 8645
DEADLINE = 50.0
"""Seconds; trainers give up after 60, and what is judged after that is paid for and lost."""


@dataclass(frozen=True)
class RewardServerSettings:
    """Everything that can be set about the server, apart from the judge."""

    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = field(default=None, repr=False)
    """What a request must show; None on this machine's own addresses, where none is asked for."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names a request may call this machine by, where no token is asked for."""
    out: Path | None = None
    """The run that keeps what was judged, with traces and pictures."""
    deadline: float = DEADLINE
    """Seconds after which a request is answered with what is there."""
    concurrency: int = 32
    """Requests to the model under way at one time."""
    queue: int = 512
    """Edits taken on at one time, begun or not; what comes beyond is asked to come back."""
    remember: int = 20_000
    """Scores kept in memory, so that the same edit is not judged twice."""
    body_bytes: int = 64 * 2**20
    """The largest request."""
    bodies_bytes: int = 512 * 2**20
    """What all requests together may hold at one time."""
    picture_pixels: int = 50_000_000
    """The largest picture."""
    allow_pickle: bool = False
    """Whether pickled requests are read, by an unpickler that makes nothing but data."""
    grace: float = 5.0
    """Seconds a stopped server gives to what is under way."""

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise UserError(f"a server on {self.host} needs a token: whoever reaches it spends your money")
        if self.token is not None:
            check_token(self.token, "the server's token")

    @property
    def hosts(self) -> frozenset[str]:
        """Names a request may call this machine by, where no token is asked for."""
        return frozenset({*LOOPBACK_NAMES, self.host.lower(), *(name.lower() for name in self.allowed_hosts)})
