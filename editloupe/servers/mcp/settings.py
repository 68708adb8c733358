"""What the MCP server is started with, apart from the judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from editloupe.servers.http.access import LOOPBACK_NAMES, check_token
from editloupe.types import UserError

HOST = "127.0.0.1"
"""Over HTTP it listens here and nowhere else: whoever reaches it reads pictures of this machine."""


@dataclass(frozen=True)
class McpSettings:
    """Everything that can be set about the server."""

    roots: tuple[Path, ...] = ()
    """Folders whose files may be opened; without any, pictures come as base64 only."""
    out: Path | None = None
    """The run that keeps what is judged, with traces and pictures."""
    token: str | None = field(default=None, repr=False)
    """What requests over HTTP must show; over stdio there is nobody else who could ask."""
    result_bytes: int = 1_000_000
    """The largest result; desktop clients cut what is longer than a megabyte."""
    body_bytes: int = 64 * 2**20
    """The largest request over HTTP."""
    bodies_bytes: int = 256 * 2**20
    """What all requests over HTTP together may hold at one time."""
    judging: int = 8
    """Edits judged at one time."""

    def __post_init__(self) -> None:
        for root in self.roots:
            if not root.is_dir():
                raise UserError(f"--root {root} is no folder")
        if self.token is not None:
            check_token(self.token, "the server's token")

    @property
    def hosts(self) -> frozenset[str]:
        """Names a request may call this machine by."""
        return frozenset(LOOPBACK_NAMES)
