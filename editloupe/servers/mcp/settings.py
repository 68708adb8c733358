"""Settings of the MCP server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from editloupe.servers.http.access import LOOPBACK_NAMES, check_token
from editloupe.types import UserError

HOST = "127.0.0.1"
"""The only address for HTTP: every client that reaches the server can read pictures of this machine."""


@dataclass(frozen=True)
class McpSettings:
    """All settings of the server except the judge."""

    roots: tuple[Path, ...] = ()
    """Folders whose files may be opened. If empty, pictures can only be sent as base64."""
    out: Path | None = None
    """Run folder that stores judgements with traces and pictures."""
    token: str | None = field(default=None, repr=False)
    """Token that HTTP requests must carry. Not used over stdio."""
    result_bytes: int = 1_000_000
    """Size limit of a result; desktop clients cut off results above one megabyte."""
    body_bytes: int = 64 * 2**20
    """Size limit of an HTTP request."""
    bodies_bytes: int = 256 * 2**20
    """Size limit of all pending HTTP requests together."""
    judging: int = 8
    """Edits judged at the same time."""

    def __post_init__(self) -> None:
        for root in self.roots:
            if not root.is_dir():
                raise UserError(f"--root {root} is not a folder")
        if self.token is not None:
            check_token(self.token, "the server's token")

    @property
    def hosts(self) -> frozenset[str]:
        """Host names that requests may use."""
        return frozenset(LOOPBACK_NAMES)
