"""Addresses of servers: what can be one is found out before anything is sent there."""

from __future__ import annotations

from urllib.parse import urlsplit

from editloupe.types import UserError

EXAMPLE = "http://localhost:8000/v1"


def check_address(url: str, what: str = "--base-url") -> str:
    """Return the address of a server; what cannot be one is told in one sentence.

    >>> check_address("http://localhost:8000/v1")
    'http://localhost:8000/v1'
    """
    if not url.strip():
        raise UserError(f"{what} is empty; leave it out for the provider's own server, or give one such as {EXAMPLE}")
    if any(c.isspace() or not c.isprintable() for c in url):
        raise UserError(f"{what} has a space, a line break or an unprintable character in it: {url!r}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # the port is read only here, and may be no number
    except ValueError as error:
        raise UserError(f"{what} is no address ({error}); write for instance {EXAMPLE}") from None
    if parts.scheme not in ("http", "https"):
        raise UserError(f"{what} begins with http:// or https://, such as {EXAMPLE}; {_scheme(url)} does not")
    if not host:
        raise UserError(f"{what} names no server; write for instance {EXAMPLE}")
    return url


def _scheme(url: str) -> str:
    """Return the beginning of an address: its end may hold a key."""
    scheme, colon, _ = url.partition("://")
    return f"{scheme}://" if colon else f'"{url[:30].partition("?")[0]}"'
