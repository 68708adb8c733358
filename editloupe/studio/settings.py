"""What the studio is started with, and which addresses it answers to."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from editloupe.types import UserError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
UPLOAD_BYTES = 40 * 2**20
"""The largest picture file the page takes."""
FORM_BYTES = 2**20
"""The largest request of any other kind."""


@dataclass(frozen=True)
class StudioSettings:
    """Everything that can be set about the studio."""

    runs: tuple[Path, ...] = ()
    """Run folders, or folders that hold run folders."""
    out: Path | None = None
    """The run that takes what is judged on the page; without it a temporary one that ends with the program."""
    labels: Path | None = None
    """The label file; without it `labels.jsonl` inside the run."""
    host: str = "127.0.0.1"
    port: int = 8642
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Further names this machine is called by."""
    judge: str | None = None
    """The judge the page proposes."""
    base_url: str | None = None

    def __post_init__(self) -> None:
        if not self.local and not self.token:
            raise UserError(
                f"on {self.host} other machines could reach the studio: give it a --token, or leave --host out"
            )
        if self.token is not None and not self.token.isascii():
            raise UserError("--token takes plain letters, digits and signs")

    @property
    def local(self) -> bool:
        """True where only this machine can reach the studio."""
        return is_loopback(self.host)

    @property
    def hosts(self) -> frozenset[str]:
        """Names a request may call this machine by."""
        given = {*LOOPBACK_NAMES, *(name.lower() for name in self.allowed_hosts)}
        if self.local:
            return frozenset(given)
        if self.host not in ("0.0.0.0", "::", ""):
            return frozenset({*given, self.host.lower()})
        return frozenset(given | _own_names())


def is_loopback(host: str) -> bool:
    """Whether an address stays on this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _own_names() -> set[str]:
    name = socket.gethostname().lower()
    try:
        found = {str(entry[4][0]).lower() for entry in socket.getaddrinfo(name, None)}
    except OSError:
        found = set()
    return {name, *found}
