"""Settings of the studio, and the host names it accepts."""

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
    """Settings of the studio."""

    runs: tuple[Path, ...] = ()
    """Run folders, or folders that hold run folders."""
    out: Path | None = None
    """The run that stores what is judged on the page; by default a temporary one."""
    labels: Path | None = None
    """The label file; by default `labels.jsonl` in the run."""
    pairs: tuple[Path, ...] = ()
    """Files of pairs for people to answer, from `make pairs`."""
    allow_outside: bool = False
    """Whether files of pairs may name pictures outside their folder."""
    queues: tuple[Path, ...] = ()
    """Queues of edits to label, in addition to those in a run's folder."""
    protocol: str | None = None
    """The protocol by which unjudged edits of a manifest are labelled."""
    rubrics: tuple[Path, ...] = ()
    """Files with own rubrics, or other wordings of the protocol's, by which they are labelled."""
    host: str = "127.0.0.1"
    port: int = 8642
    token: str = field(default_factory=new_token, repr=False)
    """The token every request must have, also from this machine: it may have other users."""
    allowed_hosts: tuple[str, ...] = ()
    """Further host names of this machine."""
    judge: str | None = None
    """The judge the page suggests."""
    longest: float = 30 * 60.0
    """The most seconds for judging an edit on the page."""
    base_urls: tuple[str, ...] = ()
    """The servers a judge may use in addition to the provider's own; the API key is sent to them."""

    def __post_init__(self) -> None:
        check_token(self.token, "the studio's token")
        for base_url in self.base_urls:
            _check_address(base_url)

    @property
    def servers(self) -> Mapping[str, str]:
        """The allowed base URLs by the name on the page: the address without secrets."""
        servers: dict[str, str] = {}
        clean = Secrets()
        for base_url in dict.fromkeys(self.base_urls):
            name = plain = clean(shown_address(base_url))
            while name in servers:
                name = f"{plain} ({len(servers) + 1})"
            servers[name] = base_url
        return servers

    @property
    def local(self) -> bool:
        """True if the studio can be reached only from this machine."""
        return is_loopback(self.host)

    @property
    def hosts(self) -> frozenset[str]:
        """Host names a request may use."""
        names = {*LOOPBACK_NAMES, *(name.lower() for name in self.allowed_hosts)}
        if self.local:
            return frozenset(names)
        if self.host not in ("0.0.0.0", "::", ""):
            return frozenset({*names, self.host.lower()})
        return frozenset(names | machine_names())


def _check_address(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not base_url.isprintable() or " " in base_url:
        raise UserError("--base-url takes the address of a server, such as http://127.0.0.1:8000/v1")
