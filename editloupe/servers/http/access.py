"""Check tokens and host names of requests, and the lengths of their texts.

Imports no web framework, so settings can be checked before one is loaded.
"""

from __future__ import annotations

import hmac
import math
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Any

from editloupe.types import UserError

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")
SHORTEST_TOKEN = 16
MOST_SENDERS = 4096
"""Senders whose wrong tokens are counted; beyond that the oldest are forgotten."""


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(24)


def check_token(token: str, whose: str) -> None:
    """Raise UserError for a token that a header cannot carry, or that can be guessed."""
    if not all("!" <= letter <= "~" for letter in token):
        raise UserError(f"{whose} takes plain letters, digits and signs, without spaces")
    if len(token) < SHORTEST_TOKEN:
        raise UserError(f"{whose} needs at least {SHORTEST_TOKEN} characters; without --token one is made")


def is_same_secret(candidate: str, wanted: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(candidate.encode("utf-8", "replace"), wanted.encode())


class TokenCheck:
    """Compares tokens, and names the time to wait for senders of wrong ones.

    After `at_once` wrong tokens a sender has one try every `seconds`. The right token is always accepted: senders can share an
    address, and a token of `SHORTEST_TOKEN` characters is not found by trying.
    """

    def __init__(
        self, token: str, at_once: int = 10, seconds: float = 6.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._token = token
        self._at_once = at_once
        self._seconds = seconds
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def refuse(self, token: str, client: tuple[str, int] | None) -> int | None:
        """Return None for the right token; for a wrong one, the whole seconds that its sender had to wait before trying.

        A wrong token of a sender that did not have to wait is counted.
        """
        if is_same_secret(token, self._token):
            return None
        sender, now = _sender(client), self._clock()
        until = max(self._until.get(sender, 0.0), now)
        seconds = max(0, math.ceil(until - now - (self._at_once - 1) * self._seconds))
        if not seconds:
            self._until[sender] = until + self._seconds
            self._until.move_to_end(sender)
            while len(self._until) > MOST_SENDERS:
                self._until.popitem(last=False)
        return seconds


def _sender(client: tuple[str, int] | None) -> str:
    """Return whose guesses are counted together: an address, or the network of an IPv6 address."""
    host = client[0] if client else ""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return address.packed[:8].hex() if isinstance(address, IPv6Address) else host


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets.

    >>> host_name("localhost:8642"), host_name("[::1]:8642"), host_name("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def machine_names() -> set[str]:
    """Return the name of this machine and its addresses."""
    name = socket.gethostname().lower()
    try:
        addresses = {str(entry[4][0]).lower() for entry in socket.getaddrinfo(name, None)}
    except OSError:
        addresses = set()
    return {name, *addresses}


def server_url(host: str, port: int) -> str:
    """Return the URL of a server.

    >>> server_url("::1", 80)
    'http://[::1]:80'
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


LONGEST = 20_000
"""Maximum length of a text of an edit, such as its instruction or hint."""


def check_text_lengths(**texts: Any) -> None:
    """Raise UserError if a text is longer than `LONGEST`.

    Args:
        texts: The texts by their names in an edit. Other values than texts are not checked.
    """
    for name, text in texts.items():
        if isinstance(text, str) and len(text) > LONGEST:
            raise UserError(f"the {name[:100].replace('_', ' ')} has more than {LONGEST} letters")
