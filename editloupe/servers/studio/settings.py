"""What the studio is started with, and which addresses it answers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from editloupe.agent.transport.secrets import Secrets
from editloupe.agent.transport.secrets import redact_url as shown_address
from editloupe.servers.http.access import LOOPBACK_NAMES, check_token, is_loopback, machine_names, new_token
from editloupe.types import UserError

UPLOAD_BYTES = 40 * 2**20
"""The largest picture file the page takes."""
FORM_BYTES = 2**20
"""The largest request of any other kind."""
UPLOAD_PIXELS = 50_000_000
"""The largest picture the page takes; decoded it holds 150 MB, and judging makes several copies of it."""


@dataclass(frozen=True)
class StudioSettings:
    """Everything that can be set about the studio."""

    runs: tuple[Path, ...] = ()
    """Run folders, or folders that hold run folders."""
    out: Path | None = None
    """The run that takes what is judged on the page; without it a temporary one that ends with the program."""
    labels: Path | None = None
    """The label file; without it `labels.jsonl` inside the run."""
    pairs: tuple[Path, ...] = ()
    """Files of pairs, as `make pairs` writes them, that people are asked about."""
    queues: tuple[Path, ...] = ()
    """Queues of edits to label, besides those found beside a run."""
    protocol: str | None = None
    """By which the edits of a manifest that nobody judged are labelled."""
    host: str = "127.0.0.1"
    port: int = 8642
    token: str = field(default_factory=new_token, repr=False)
    """What a request must show, also on this machine: others may have an account on it."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names this machine is called by."""
    judge: str | None = None
    """The judge the page proposes."""
    longest: float = 30 * 60.0
    """Seconds one judging on the page may take."""
    base_urls: tuple[str, ...] = ()
    """The only servers a judge may be asked at besides the provider's own; a key follows the address."""

    def __post_init__(self) -> None:
        check_token(self.token, "the studio's token")
        for base_url in self.base_urls:
            _check_address(base_url)

    @property
    def servers(self) -> Mapping[str, str]:
        """The allowed base URLs, by the name the page shows: the address itself, without a key it may hold."""
        shown: dict[str, str] = {}
        clean = Secrets()
        for base_url in dict.fromkeys(self.base_urls):
            name = plain = clean(shown_address(base_url))
            while name in shown:
                name = f"{plain} ({len(shown) + 1})"
            shown[name] = base_url
        return shown

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
        return frozenset(given | machine_names())


def _check_address(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not base_url.isprintable() or " " in base_url:
        raise UserError("--base-url takes the address of a server, such as http://127.0.0.1:8000/v1")
