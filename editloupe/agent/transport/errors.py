"""Classify the errors of chat clients and the refusals of servers.

An error means a retry, an unjudged case, or an immediate stop because the user must change something. Servers and
proxies use different statuses for the same refusal, so its words decide. The patterns are taken from the messages of
OpenAI, Gemini, Anthropic, DashScope, Zhipu, LiteLLM's proxy, OpenRouter, vLLM and Ollama.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from editloupe.agent.providers.provider import ErrorForm
from editloupe.agent.transport.http import BrokenReply, Redirected
from editloupe.agent.transport.secrets import redact_text, redact_url
from editloupe.types import Reason, Usage, UserError

_SECRET = re.compile(
    r"\b(sk-[\w-]{6,}|AIza[\w-]{10,}|Bearer\s+[^\s\"',}]+|Basic\s+[A-Za-z0-9+/=_-]{8,})|(?<=key=)[^&\s]+", re.IGNORECASE
)


_WAITS = (
    ("retry-after-ms", 0.001),
    ("retry-after", 1.0),
    ("Retry-After", 1.0),
    ("llm_provider-retry-after-ms", 0.001),
    ("llm_provider-retry-after", 1.0),
)
"""Headers with the time to wait; LiteLLM's proxy renames those of its provider."""
_NOTHING = Usage()
_ANY_FORM = ErrorForm()


OVERLOADED = 529
"""A non-standard status by which some services report overload."""


class ModelFailed(Exception):
    """The model gave no reply; this case ends unjudged."""

    def __init__(self, reason: Reason, sentence: str, usage: Usage = _NOTHING, attempts: int = 1) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.usage = usage
        """Tokens of the failed requests, as far as known."""
        self.attempts = attempts


class ModelRejected(UserError):
    """A wrong key, an unknown model, no quota or a wrong address, which a retry would not change."""


@dataclass(frozen=True)
class Fault:
    """The consequences of an error."""

    sentence: str
    reason: Reason = Reason.MODEL_ERROR
    again: bool = False
    slow_down: bool = False
    retry_after: float | None = None
    limited: bool = False
    """The server limits requests (429) without a time to wait."""
    fatal: ModelRejected | None = None
    parameter: str | None = None
    """A parameter that the server does not accept."""
    paid: bool = False
    """The server was working on this request, which may cost money although no reply came."""
    redirected: bool = False
    """Temporary in the middle of a run; a wrong address if the server has never answered."""


def classify(error: BaseException, model: str, timeout: float, form: ErrorForm = _ANY_FORM) -> Fault:
    """Return the consequences of a chat client's error.

    Args:
        error: The error.
        model: Name of the model, for the sentence.
        timeout: The timeout in seconds, for the sentence.
        form: How to read the errors of the provider's client.

    Returns:
        The fault; its sentence never contains a secret.
    """
    chain = list(walk_causes(error))
    bodies = [body for error in chain for body in _bodies(error, form)]
    message = _server_message(chain, bodies)
    for cause in chain:
        if isinstance(cause, Redirected):
            return _redirect(cause, model)
        if isinstance(cause, BrokenReply):
            return Fault(f"{model} sent a reply that cannot be read ({clean(str(cause))})", again=True, paid=True)
    status = next((code for error in chain if (code := _status(error, form))), None)
    if status is not None:
        parameter = find_parameter(message, _field(bodies)) if status in (400, 404, 422) else None
        if status in (404, 405) and not parameter:
            fatal = _wrong_address(status, message, model, chain, form.versioned_path)
            if fatal:
                return Fault(f"{model} answered {status}: {message}", fatal=fatal)
        return _by_status(status, message, model, _retry_after(chain, form), parameter)
    if any(_has_name(error, "Timeout") for error in chain):
        waiting = not any(_has_name(error, "ConnectTimeout", "PoolTimeout") for error in chain)
        return Fault(f"{model} did not answer within {timeout:g} s", Reason.TIMEOUT, again=True, paid=waiting)
    if any(isinstance(e, OSError) or _has_name(e, "Transport", "Connection", "Payload") for e in chain):
        return Fault(f"the server of {model} could not be reached or dropped the connection ({message})", again=True)
    if any(_has_name(error, "JSONDecode", "ValidationError") for error in chain):
        return Fault(f"{model} sent a reply that is not in its provider's format ({message})", again=True, paid=True)
    name = type(error).__name__
    return Fault(f"{model} sent a reply that the client could not parse: {name}: {message}", again=True, paid=True)


def empty_reply_fault(model: str) -> Fault:
    """Return the fault of a reply without text, calls and finish reason, which is the server's error."""
    return Fault(f"{model} sent a reply that is not in its provider's format (nothing in it)", again=True, paid=True)


def _has_name(error: BaseException, *words: str) -> bool:
    """Return True if a base class of the error has one of these words in its name.

    The clients use several HTTP libraries, each with its own error classes.
    """
    return any(word in kind.__name__ for kind in type(error).__mro__ for word in words)


def _redirect(error: Redirected, model: str) -> Fault:
    to = clean(error.target)
    sentence = f"the server of {model} redirects ({error.status}) to {to}, which is not followed"
    why = (
        "a redirect is not followed, because the key and the pictures would go with it; give that address as --base-url"
    )
    fatal = ModelRejected(f"the server of {model} redirects ({error.status}) to {to}; {why}")
    return Fault(sentence, again=True, redirected=True, fatal=fatal)


def _by_status(status: int, message: str, model: str, wait: float | None, parameter: str | None) -> Fault:
    text = f"{model} answered {status}: {message}"
    if status == 408:
        return Fault(text, Reason.TIMEOUT, again=True)
    if status >= 500 or status in (409, 425):
        return Fault(text, again=True, slow_down=status in (503, OVERLOADED), retry_after=wait)
    detail = f"({status}: {message})"
    about = classify_refusal(status, message, waits=wait is not None)
    if about == "budget":
        return Fault(text, fatal=ModelRejected(f"the account of {model} has no quota or budget left {detail}"))
    if status == 429:
        return Fault(text, again=True, slow_down=True, retry_after=wait, limited=wait is None)
    if parameter:
        return Fault(text, Reason.SERVER_REFUSED, parameter=parameter)
    if about == "key":
        return Fault(text, fatal=ModelRejected(f"the key for {model} was not accepted {detail}"))
    if about == "model":
        return Fault(text, fatal=ModelRejected(f"the server does not know the model {model} {detail}"))
    if about == "pictures":
        return Fault(text, fatal=ModelRejected(f"the model {model} does not accept pictures {detail}"))
    return Fault(text, Reason.REFUSED if about == "content" else Reason.SERVER_REFUSED)


def _wrong_address(
    status: int, message: str, model: str, chain: list[BaseException], path: str
) -> ModelRejected | None:
    """Return an error if the address lacks the version that most servers expect before the client's path."""
    url = next((url for error in chain if (url := _url(error))), "")
    base, separator, _ = url.partition(path) if path else (url, "", "")
    if not separator or re.search(r"/v\d", base) or names_model(message):
        return None
    return ModelRejected(
        f"the server of {model} has nothing at {clean(redact_url(url))} ({status}: {message}); "
        f"most compatible servers want /v1 at the end of their address: --base-url {clean(redact_url(base))}/v1"
    )


def _url(error: BaseException) -> str:
    try:
        return str(getattr(getattr(error, "response", None), "url", "") or "")
    except RuntimeError:  # a response without a request has no URL
        return ""


def walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that one and so on, each once."""
    ids: set[int] = set()
    while error is not None and id(error) not in ids:
        ids.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException, form: ErrorForm) -> int | None:
    value = getattr(error, "status_code", None) or form.status(error)
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _retry_after(chain: list[BaseException], form: ErrorForm) -> float | None:
    """Return the time to wait that a server gives in a header, in the details of its error or in its message."""
    for error in chain:
        response: Any = getattr(error, "response", None)
        headers = getattr(response, "headers", None) or form.headers(error) or {}
        for name, unit in _WAITS:
            value = headers.get(name) if hasattr(headers, "get") else None
            seconds = _seconds(str(value).strip(), headers.get("date")) if value else None
            if seconds is not None:
                return seconds * unit
        delay = re.search(r"'?\"?retryDelay'?\"?:\s*'?\"?(\d+(?:\.\d+)?)s", str(error))
        if delay:
            return float(delay[1])
    # The errors' own texts, because the displayed message is shortened.
    return next((wait for error in chain if (wait := find_wait(str(error))) is not None), None)


def _seconds(text: str, sent: Any = None) -> float | None:
    """Parse a Retry-After value, which is a number of seconds or a date.

    Args:
        text: The value.
        sent: The Date header of the response. The wait is counted from it, so that a wrong clock of this machine has no effect.
    """
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    moment = _timestamp(text)
    if moment is None:
        return None
    now = _timestamp(str(sent))
    return max(0.0, moment - (time.time() if now is None else now))


def _timestamp(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def _bodies(error: BaseException, form: ErrorForm) -> Iterator[Any]:
    """Yield the bodies that came with an error."""
    yield from (body for body in (getattr(error, "body", None), form.body(error)) if body)


def _server_message(chain: list[BaseException], bodies: list[Any]) -> str:
    """Return the server's message on one line, redacted."""
    for body in bodies:
        if message := _message_in(body):
            return clean(message)
    return clean(str(chain[0]) or type(chain[0]).__name__)


def _message_in(body: Any) -> str:
    if isinstance(body, str):
        return body
    if not isinstance(body, dict):
        return ""
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        return str(inner)
    code = f"{inner['code']}: " if isinstance(inner.get("code"), str) and not inner["code"].isdigit() else ""
    message = inner.get("message") or inner.get("detail") or inner.get("msg") or ""
    return code + str(message) if message else ""


def _field(bodies: list[Any]) -> str | None:
    """Return the parameter that an error names in a field of its own."""
    for body in bodies:
        inner = body.get("error", body) if isinstance(body, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("param"), str):
            return str(inner["param"])
    return None


def clean(text: str, limit: int = 300) -> str:
    """Return a text on one line, shortened and redacted."""
    text = _SECRET.sub("***", redact_text(" ".join(text.split())))
    return text if len(text) <= limit else text[: limit - 1] + "…"


About = Literal["key", "budget", "model", "pictures", "content", "other"]

_BUDGET = re.compile(
    r"insufficient_quota|budget has been exceeded|exceeded ?budget|budget_?exceeded|crossed budget|over budget|max budget"
    r"|budget limit|(insufficient|not enough|out of) (credit|balance|funds)|credit balance is too low|payment required"
    r"|requires more credits|spend(ing)? limit|billing[ _]hard[ _]limit|billing[ _]not[ _]active|arrearage|欠费|余额不足"
    r"|reached your \w+ usage limit",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"exceeded your current quota|check your (plan and )?billing|enable billing|billing to be enabled", re.IGNORECASE
)
"""Gemini says this of its limits per minute too, but then with a time to wait."""
_BY_TIME = re.compile(r"rate[ _-]limit|\bper (min|sec)\b|per[ _-]?(minute|second)|\b[RT]PM\b", re.IGNORECASE)
"""A limit that waiting solves. LiteLLM's RateLimitError is not included, because it also means an empty account."""
_ADDRESS = re.compile(r"https?://\S+")
_WAIT = re.compile(
    r"\b(?:try(?:ing)? (?:it |your request )?again|retry(?:ing)?)(?: your request)? (?:in|after)(?: about)?"
    r"((?:\s*\d+(?:\.\d+)?\s*(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)(?![a-z]))+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|mil|s|m|h)", re.IGNORECASE)
_UNITS = {"ms": 0.001, "mil": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_KEY = re.compile(
    r"api[ _-]?key|API_KEY_INVALID|incorrect.{0,10}key|credential|authentication|unauthori[sz]ed|virtual key"
    r"|proxy server token|token (was )?not found in db|no connected db|permission denied",
    re.IGNORECASE,
)
"""LiteLLM's proxy without a database answers "No connected db." to every key but its own."""
_MODEL = re.compile(
    r"invalid model|unknown model|no such model|model_not_found|not a valid model|model identifier is invalid"
    r"|model\b.{0,80}?\b(not found|does not exist|doesn't exist|not exist|is not supported|is not available)"
    r"|(not allowed|no access|does not have access) to (access |use |call )?(the |this )?model",
    re.IGNORECASE | re.DOTALL,
)
_PICTURES = re.compile(
    r"(does not|doesn't|not) support (image|vision|multimodal|picture)|image_url is only supported by certain models"
    r"|not a multimodal model|no endpoints found that support image|at most 0 image",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"content.{0,20}(filter|policy|polic|moderat|management)|content_filter|safety|moderation|flagged|prohibited|harmful"
    r"|may contain content|content that is not allowed|responsible.?ai|violat|recitation|usage polic"
    r"|(prompt|response|content|output|input|image)\b.{0,40}blocked"
    r"|context.{0,12}(length|window)|maximum context|too (long|large|big|many (tokens|images|pixels))|string_above_max_length"
    r"|(prompt|input|request).{0,40}exceed|exceeds the (maximum|limit|allowed)|token limit|longer than the maximum"
    r"|reduce the (length|size)"
    r"|inappropriate|data_?inspection|(?<!case[ -])(?<!in)sensitive|unsafe|nsfw|disallowed content|content exists risk"
    r"|considered high risk|敏感|不安全|违规|違規|违法|违反|不合规|不当内容|不適切|内容安全|安全审核|内容.{0,6}审核"
    r"|(image|picture|file).{0,60}(invalid|unsupported|not supported|could not|cannot|can't|corrupt|too|exceed|truncated|empty)"
    r"|(invalid|unsupported|could not|cannot|unable to|failed to).{0,40}(image|picture|base64)",
    re.IGNORECASE | re.DOTALL,
)

PARAMETERS = (
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "response_format",
    "parallel_tool_calls",
    "tool_choice",
    "tools",
    "top_p",
    "seed",
)
_ALSO_CALLED = {
    "temperature": r"temperature",
    "max_completion_tokens": r"max_completion_tokens",
    "max_tokens": r"max_tokens|max_output_tokens|maxOutputTokens",
    "response_format": r"response_format|response[_ ]?(json_?)?schema|response_?mime_?type|json_schema|structured output\w*",
    "parallel_tool_calls": r"parallel_tool_calls",
    "tool_choice": r"tool_choice|tool_?config",
    "tools": r"tools|tool use|tool calls?|tool calling|tool choice|functions|function[ -]call(s|ing)?",
    "top_p": r"top_?p",
    "seed": r"seed",
}
_NAMED = {name: re.compile(rf"(?<![\w-])({also})(?![\w-])", re.IGNORECASE) for name, also in _ALSO_CALLED.items()}
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|(does not|doesn't|do not|not) support|unrecogni[sz]ed|unknown|unexpected|not permitted"
    r"|extra (inputs|fields|input)|not allowed|invalid|deprecated|cannot|can't|may only|must be|only the default|only supported"
    r"|not compatible|incompatible|requires|not implemented|too large|no endpoints found|drop_params",
    re.IGNORECASE,
)


def find_parameter(message: str, field: str | None = None) -> str | None:
    """Return the parameter that a refusal is about; `field` is the one that the error names in a field.

    >>> find_parameter("Unsupported value: 'temperature' does not support 0 with this model.")
    'temperature'
    """
    if field:
        field = next((name for name in PARAMETERS if _NAMED[name].search(field)), None)
        if field:
            return field
    if not _NOT_TAKEN.search(message) or (_CONTENT.search(message) and "too large" not in message):
        return None
    return next((name for name in PARAMETERS if _NAMED[name].search(message)), None)


def classify_refusal(status: int, message: str, waits: bool = False) -> About:
    """Return the subject of a refusal; `waits` says whether the server gave a time to wait."""
    if status == 402 or _BUDGET.search(message):
        return "budget"
    if _QUOTA.search(message) and not (
        waits or find_wait(message) is not None or _BY_TIME.search(_ADDRESS.sub("", message))
    ):
        return "budget"
    if status == 429:
        return "other"
    if status == 401:
        return "key"
    if _PICTURES.search(message):
        return "pictures"
    if status == 404 or _MODEL.search(message):
        return "model"
    if status in (413, 451) or _CONTENT.search(message):
        return "content"
    return "key" if status == 403 or _KEY.search(message) else "other"


def find_wait(message: str) -> float | None:
    """Return the seconds after which a server's message asks to try again.

    >>> find_wait("Rate limit reached. Please try again in 1m30s."), find_wait("Please retry in 250ms."), find_wait("Try again.")
    (90.0, 0.25, None)
    """
    match = _WAIT.search(message)
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(match[1])) if match else None


def names_model(message: str) -> bool:
    """Return True if a refusal is about a missing model rather than an address."""
    return bool(_MODEL.search(message))


def is_rate_limited(detail: str) -> bool:
    """Return True if the detail of an unjudged unit reports a server's rate limit.

    >>> is_rate_limited("openai:x answered 429: Too many requests"), is_rate_limited("openai:x answered 500: no")
    (True, False)
    """
    return re.search(r"\banswered 429: ", detail) is not None
