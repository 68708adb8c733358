"""How Gemini's client speaks HTTP: through httpx, where a hook can put the pictures into a request that leaves.

The google-genai package prefers aiohttp where that is installed, which has no such hook, tries failed connections again by itself
after up to ten seconds, and follows redirects with the key. Given a transport, it uses httpx.
"""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import httpx

from editloupe.agent.attachments import attach
from editloupe.types import UserError

HOME = "https://generativelanguage.googleapis.com"
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
"""How many requests are under way is decided elsewhere."""


class GeminiTransport(httpx.AsyncHTTPTransport):
    """The transport of the asynchronous client; the package gives it to its synchronous one as well, which only closes it."""

    def close(self) -> None:
        """Leave the closing to the asynchronous client."""


def client_arguments(base_url: str | None) -> dict[str, Any]:
    """Return what google-genai opens its HTTP clients with."""
    if os.environ.get("GOOGLE_GENAI_HTTP_CLIENT", "").lower() == "httpx2":
        raise UserError(
            "GOOGLE_GENAI_HTTP_CLIENT=httpx2 does not go with google_genai: judges, which use httpx; unset it"
        )
    context = _context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    return {
        "transport": GeminiTransport(verify=context, limits=LIMITS, proxy=_proxy_for(base_url or HOME)),
        "verify": context,
        "event_hooks": {"request": [attach]},
        "follow_redirects": False,
    }


@cache
def _context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """Return the certificates google-genai itself would trust; reading them takes longer than all the rest of opening it."""
    return ssl.create_default_context(cafile=file or certifi.where(), capath=folder)


def _proxy_for(url: str) -> str | None:
    """Return the proxy the environment names for this server: httpx does not look once it is given a transport."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
