"""Sorts what clients raise into: try again, leave this case unjudged, or stop at once because the user must mend something."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from editloupe.types import Reason, UserError

_SECRET = re.compile(r"\b(sk-[\w-]{6,}|AIza[\w-]{10,}|Bearer\s+\S+)|(?<=key=)[^&\s]+", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing", re.IGNORECASE)
_KEY = re.compile(r"api[ _]key|API_KEY_INVALID|incorrect.{0,10}key|credential", re.IGNORECASE)
_MODEL = re.compile(
    r"model.{0,80}(not found|does not exist|not supported)|no such model|model_not_found", re.IGNORECASE
)


class ModelFailed(Exception):
    """The model could not be got to answer; this case ends unjudged."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence


class ModelRejected(UserError):
    """A wrong key, an unknown model, no quota: nothing that trying again would change."""


@dataclass(frozen=True)
class Fault:
    """What an error means."""

    sentence: str
    reason: Reason = Reason.MODEL_ERROR
    again: bool = False
    slow_down: bool = False
    retry_after: float | None = None
    fatal: ModelRejected | None = None


def classify(error: BaseException, model: str, timeout: float) -> Fault:
    """Say what an error of a chat client means; the sentence never holds a secret."""
    chain = list(_chain(error))
    status = next((code for code in map(_status, chain) if code), None)
    said = _said(chain)
    if status is not None:
        return _by_status(status, said, model, chain)
    if any(_named(error, "Timeout") for error in chain):
        return Fault(f"{model} did not answer within {timeout:g} s", Reason.TIMEOUT, again=True)
    if any(isinstance(e, OSError) or _named(e, "Transport", "Connection", "Payload") for e in chain):
        return Fault(f"the server of {model} could not be reached or dropped the connection ({said})", again=True)
    if any(_named(error, "JSONDecode", "ValidationError") for error in chain):
        return Fault(f"{model} sent a reply that is not in its provider's format ({said})", again=True)
    return Fault(f"{model} sent a reply the client could not take: {type(error).__name__}: {said}", again=True)


def _named(error: BaseException, *words: str) -> bool:
    """True where a class the error descends from has one of these words in its name.

    The clients sit on several HTTP libraries, each with its own classes for the same thing.
    """
    return any(word in kind.__name__ for kind in type(error).__mro__ for word in words)


def _by_status(status: int, said: str, model: str, chain: list[BaseException]) -> Fault:
    text = f"{model} answered {status}: {said}"
    if status in (401, 403) or (status == 400 and _KEY.search(said)):
        return Fault(text, fatal=ModelRejected(f"the key for {model} was not accepted ({status}: {said})"))
    if status == 404 or (status == 400 and _MODEL.search(said)):
        return Fault(text, fatal=ModelRejected(f"the server does not know the model {model} ({status}: {said})"))
    if status == 429 and _QUOTA.search(said) and _retry_after(chain) is None:
        return Fault(text, fatal=ModelRejected(f"the account of {model} has no quota left ({said})"))
    if status == 429:
        return Fault(text, again=True, slow_down=True, retry_after=_retry_after(chain))
    if status == 408:
        return Fault(text, Reason.TIMEOUT, again=True)
    if status >= 500 or status in (409, 425):
        return Fault(text, again=True, slow_down=status == 503, retry_after=_retry_after(chain))
    return Fault(text, Reason.REFUSED)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None


def _retry_after(chain: list[BaseException]) -> float | None:
    """Return how long the server asks to wait: the Retry-After header, or the delay Gemini writes into its error."""
    for error in chain:
        response: Any = getattr(error, "response", None)
        headers = getattr(response, "headers", None) or {}
        for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0), ("Retry-After", 1.0)):
            value = headers.get(name) if hasattr(headers, "get") else None
            seconds = _seconds(str(value).strip()) if value else None
            if seconds is not None:
                return seconds * unit
        delay = re.search(r"'?\"?retryDelay'?\"?:\s*'?\"?(\d+(?:\.\d+)?)s", str(error))
        if delay:
            return float(delay[1])
    return None


def _seconds(text: str) -> float | None:
    """Read a Retry-After value: seconds, or the date to wait for."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def _said(chain: list[BaseException]) -> str:
    """Return the server's own words, on one line, without secrets."""
    for error in chain:
        body = getattr(error, "body", None) or getattr(error, "details", None)
        message = _message_in(body)
        if message:
            return clean(message)
    return clean(str(chain[0]) or type(chain[0]).__name__)


def _message_in(body: Any) -> str:
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            code = f"{inner['code']}: " if isinstance(inner.get("code"), str) else ""
            return code + str(inner.get("message") or "")
        return str(inner)
    return ""


def clean(text: str, limit: int = 300) -> str:
    """Return a text on one line, shortened, with anything that looks like a key blotted out."""
    text = _SECRET.sub("***", " ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1] + "…"
