"""What a server's refusal is about: a key, a budget, the model, a parameter, or this very content.

Servers and the proxies before them say the same things under different statuses, so the words decide. The patterns are taken
from the sentences of OpenAI, Gemini, Anthropic, DashScope, Zhipu, LiteLLM's proxy, OpenRouter, vLLM and Ollama.
"""

from __future__ import annotations

import re
from typing import Literal

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
"""Gemini says this of its limits by the minute as well, then with the time to wait."""
_BY_TIME = re.compile(r"rate[ _-]limit|\bper (min|sec)\b|per[ _-]?(minute|second)|\b[RT]PM\b", re.IGNORECASE)
"""A limit that waiting cures. LiteLLM's RateLimitError is not among it: so it calls an empty account as well."""
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
"""LiteLLM's proxy without a database says "No connected db." of any key but its own."""
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


def parameter_in(said: str, named: str | None = None) -> str | None:
    """Return the parameter a refusal complains about; `named` is the one the error's own field names.

    >>> parameter_in("Unsupported value: 'temperature' does not support 0 with this model.")
    'temperature'
    """
    if named:
        field = next((name for name in PARAMETERS if _NAMED[name].search(named)), None)
        if field:
            return field
    if not _NOT_TAKEN.search(said) or (_CONTENT.search(said) and "too large" not in said):
        return None
    return next((name for name in PARAMETERS if _NAMED[name].search(said)), None)


def refusal_about(status: int, said: str, waits: bool = False) -> About:
    """Return what a refusal with this status and these words is about; `waits`: the server gave a time to wait."""
    if status == 402 or _BUDGET.search(said):
        return "budget"
    if _QUOTA.search(said) and not (waits or wait_in(said) is not None or _BY_TIME.search(_ADDRESS.sub("", said))):
        return "budget"
    if status == 429:
        return "other"
    if status == 401:
        return "key"
    if _PICTURES.search(said):
        return "pictures"
    if status == 404 or _MODEL.search(said):
        return "model"
    if status in (413, 451) or _CONTENT.search(said):
        return "content"
    return "key" if status == 403 or _KEY.search(said) else "other"


def wait_in(said: str) -> float | None:
    """Return the seconds after which a server's sentence asks to try again.

    >>> wait_in("Rate limit reached. Please try again in 1m30s."), wait_in("Please retry in 250ms."), wait_in("Try again.")
    (90.0, 0.25, None)
    """
    found = _WAIT.search(said)
    return sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(found[1])) if found else None


def names_a_model(said: str) -> bool:
    """True where a refusal speaks of a model that is not there, rather than of an address."""
    return bool(_MODEL.search(said))


def refused_by_limit(detail: str) -> bool:
    """Return whether the sentence of a unit that was given up reports a server that limits requests.

    >>> refused_by_limit("openai:x answered 429: Too many requests"), refused_by_limit("openai:x answered 500: no")
    (True, False)
    """
    return re.search(r"\banswered 429: ", detail) is not None
