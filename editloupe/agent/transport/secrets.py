"""Find and remove the keys of this process in any text, in every form in which a server may echo them."""

from __future__ import annotations

import base64
import html
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlsplit, urlunsplit

PLACEHOLDER = "[secret]"
LONG = 8
"""Shorter keys may be ordinary words, so they are only matched as whole words."""
SHORTEST = 3
"""Shorter values are version numbers or options, not keys; matching them would damage ordinary texts."""
WORDS = frozenset(
    {"none", "null", "empty", "dummy", "test", "ollama", "lm-studio", "not-needed", "no-key", "no-key-required"}
)
"""Placeholders for servers that accept any key: not secret, and words a model may write."""
_VARIABLE = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_PARAMETER = r"[\w.-]*(?:key|token|secret|sig|signature|password|passwd|pwd|auth|credential|code)"
_IN_QUERY = re.compile(rf"([?&;]{_PARAMETER}=)[^&;\s\"'\\#<>]+", re.IGNORECASE)
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s\"']+@")
_BEFORE = r"(?:bearer\s+|basic\s+|key\W{1,4}|token\W{1,4}|provided\W{1,4}|password\W{1,4})"
_HARMLESS = frozenset({"api-version", "version", "model", "deployment", "region", "beta"})
"""URL parameters whose values are not secret, unless they look like a key."""
_PREFIXED = re.compile(
    r"(?:sk|pk|rk|gsk|xai|nvapi|pplx|key)-[\w-]{6,}|(?:hf|gsk|ghp|r8)_\w{8,}|AIza[\w-]{10,}|AKIA[0-9A-Z]{12,}|ya29\.\S+"
    r"|eyJ[\w-]{8,}\.\S+"
)
"""Prefixes of the keys of known providers."""
_RANDOM = re.compile(r"(?<![A-Za-z0-9])(?=[a-z]*[0-9])(?=[0-9]*[a-z])[a-z0-9]{24,}(?![a-z0-9])", re.IGNORECASE)
"""Letters and digits without a break, longer than names and dates."""
_LONGEST_NAME = 20
"""Length of a parameter's name; a longer one without a value is itself a secret."""

_REMEMBERED: set[str] = set()


def remember_secrets(*values: str | None) -> None:
    """Treat these values as secrets in everything this process shows or writes from now on."""
    stripped = (value.strip() for value in values if value)
    _REMEMBERED.update(value for value in stripped if len(value) >= SHORTEST and value.lower() not in WORDS)


def remember_url_secrets(url: str | None) -> None:
    """Treat the password of a URL and the values of its parameters as secrets."""
    if not url:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    if password:
        remember_secrets(password, unquote(password), f"{unquote(user)}:{unquote(password)}")
    elif len(user) >= LONG:
        remember_secrets(user, unquote(user))
    for name, value in parse_qsl(parts.query):
        if name.lower() not in _HARMLESS:
            remember_secrets(value)
    for _, parameter in _parameters(parts):
        for secret in _redact_parameter(parameter)[1]:
            remember_secrets(unquote(secret), unquote_plus(secret))
    remember_secrets(*(unquote(part) for part in _folders(parts.path) if _PREFIXED.fullmatch(unquote(part))))
    if looks_like_a_key(parts.fragment):
        remember_secrets(unquote(parts.fragment))


def redact_url(url: str) -> str:
    """Return a URL without user and password and with the values of its parameters replaced.

    >>> redact_url("https://me:word@example.org/v1?api-key=abc&api-version=2")
    'https://example.org/v1?api-key=[secret]&api-version=2'
    """
    if not any(mark in url for mark in "@?#;") and not _PREFIXED.search(url):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return PLACEHOLDER
    path = "/".join(_redact_folder(folder) for folder in parts.path.split("/"))
    query = "".join(mark + _redact_parameter(parameter)[0] for mark, parameter in _split(parts.query))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, query, ""))


def _redact_folder(folder: str) -> str:
    (_, name), *parameters = _split(folder, ";")
    name = PLACEHOLDER if _PREFIXED.fullmatch(unquote(name)) else name
    return name + "".join(mark + _redact_parameter(parameter)[0] for mark, parameter in parameters)


def _redact_parameter(parameter: str) -> tuple[str, tuple[str, ...]]:
    """Return a redacted parameter and its secrets; one without `=` is a value without a name."""
    name, equals, value = parameter.partition("=")
    if name.lower() in _HARMLESS and not looks_like_a_key(value):
        return parameter, ()
    padded = equals and not value.strip("=") and (value or len(name) >= _LONGEST_NAME)  # base64 may end with `=`
    if name and (not equals or padded or looks_like_a_key(name)):
        return PLACEHOLDER, (parameter, name, value.strip("="))
    return (f"{name}={PLACEHOLDER}", (value,)) if value else (parameter, ())


def looks_like_a_key(text: str) -> bool:
    """Return True if a text has the form of a provider's key or is a long run of random letters and digits."""
    text = unquote(text)
    return bool(_PREFIXED.match(text) or _RANDOM.search(text))


def _parameters(parts: SplitResult) -> list[tuple[str, str]]:
    """Return the parameters of a URL: those of its query, and those after a `;` in its path."""
    behind = [pair for folder in parts.path.split("/") for pair in _split(folder, ";")[1:]]
    return [*_split(parts.query), *behind]


def _folders(path: str) -> list[str]:
    return [folder.partition(";")[0] for folder in path.split("/")]


def _split(text: str, marks: str = "&;") -> list[tuple[str, str]]:
    """Split a text; return each part with the separator before it."""
    first, *rest = re.split(f"([{marks}])", text)
    return [("", first), *zip(rest[::2], rest[1::2], strict=True)]


class Secrets:
    """Removes every key of this process from texts: plain, escaped for JSON, HTML or URLs, or in base64."""

    def __init__(self, values: Iterable[str] | None = None) -> None:
        variables = os.environ.items() if values is None else ()
        self._own = {
            value for name, value in variables if _VARIABLE.search(name) and value.strip().lower() not in WORDS
        }
        self._own.update(values or ())
        self._known: frozenset[str] = frozenset()
        self._probes: tuple[tuple[str, bytes], ...] = ()
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        self._learn()
        if self._text and any(probe in text for probe, _ in self._probes):
            text = self._text.sub(_blot, text)
        if "://" in text and "@" in text:
            text = _USER_IN_ADDRESS.sub("", text)
        return _IN_QUERY.sub(rf"\1{PLACEHOLDER}", text) if "=" in text else text

    def in_value(self, value: Any) -> Any:
        """Return a value with secrets removed from its texts, and from those in its lists, tuples and mappings.

        Text marked as HTML stays marked. Values of other types are returned unchanged.
        """
        if isinstance(value, str):
            text = self(str(value))
            return type(value)(text) if hasattr(value, "__html__") else text
        if isinstance(value, Mapping):
            return {self.in_value(name): self.in_value(inner) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            items = (self.in_value(inner) for inner in value)
            return tuple(items) if isinstance(value, tuple) else list(items)
        return value

    def in_body(self, body: bytes) -> bytes:
        """Return the body of a reply without secrets."""
        self._learn()
        if self._bytes and any(probe in body for _, probe in self._probes):
            return self._bytes.sub(_blot_bytes, body)
        return body

    def _learn(self) -> None:
        """Include the secrets that were remembered since the last call."""
        if self._text is None or not self._known >= _REMEMBERED:
            self._known = frozenset(value.strip() for value in self._own | _REMEMBERED if value.strip())
            forms = [form for value in sorted(self._known, key=len, reverse=True) for form in _forms(value)]
            probes = {_probe(value) for value in self._known} | {form for v in self._known for form in _base64(v)}
            # A variable may hold bytes that are not text, which Python stores as lone surrogates.
            self._probes = tuple((probe, probe.encode("utf-8", "surrogatepass")) for probe in sorted(probes))
            pattern = "|".join(forms) or r"(?!)"
            self._text, self._bytes = re.compile(pattern), re.compile(pattern.encode("utf-8", "surrogatepass"))


def redact_text(text: str) -> str:
    """Return a text without the keys of this process."""
    return _EVERYTHING(text)


def redact_value(value: Any) -> Any:
    """Return a text, list, tuple or mapping without the keys of this process."""
    return _EVERYTHING.in_value(value)


def _blot(match: re.Match[str]) -> str:
    return PLACEHOLDER


def _blot_bytes(match: re.Match[bytes]) -> bytes:
    return PLACEHOLDER.encode()


def _forms(value: str) -> list[str]:
    """Return the patterns that find a secret; a short word only counts in the position of a key."""
    escaped = "".join(_character(character) for character in value)
    if len(value) >= LONG:
        return [escaped, *map(re.escape, _base64(value))]
    mixed = len(value) > 3 and not value.isalpha() and not value.isdigit()
    before = r"(?<![A-Za-z0-9])" if mixed else rf"(?i:{_BEFORE})"
    return [rf"{before}{escaped}(?![A-Za-z0-9])"]


def _character(character: str) -> str:
    """Return a pattern for one character of a secret, plain or escaped."""
    if character.isascii() and character.isalnum():
        return character
    plain = "|".join(re.escape(way) for way in (character, html.escape(character)))
    code = f"{ord(character):04x}"
    in_json = rf"\\{{0,4}}(?:{plain}|u(?i:{code}))"
    in_address = "".join(rf"%(?:25){{0,2}}(?i:{byte:02x})" for byte in character.encode("utf-8", "replace"))
    return f"(?:{in_json}|{in_address})"


def _base64(value: str) -> list[str]:
    """Return the part of a secret's base64 that does not depend on its surroundings, for each of three offsets."""
    if len(value) < LONG:
        return []
    encodings: list[str] = []
    for offset in range(3):
        raw = b"\0" * offset + value.encode("utf-8", "replace")
        start, end = -(-offset * 8 // 6), len(raw) * 8 // 6
        encodings += [write(raw).decode()[start:end] for write in (base64.b64encode, base64.urlsafe_b64encode)]
    return list(dict.fromkeys(encodings))


def _probe(value: str) -> str:
    """Return the longest run of a secret that no escaping changes; a text without it is not searched further."""
    runs: list[str] = re.findall(r"[A-Za-z0-9]+", value)
    return max(runs or [value], key=len)


_EVERYTHING = Secrets()
