"""The settings of a model, as users set them, as requests carry them and as runs record them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, field_validator

from editloupe._util.hashing import text_key
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.agent.providers.provider import Profile, Provider
from editloupe.agent.transport.secrets import PLACEHOLDER, looks_like_a_key, remember_secrets
from editloupe.types import Record, UserError

FLEX = "flex"
FLEX_SECONDS = 900.0
"""Timeout of the flex tier: OpenAI's guide advises 15 minutes."""
_SECRET = re.compile(r"auth|key|token|secret|password|cookie|credential|signature", re.IGNORECASE)
_HARMLESS = re.compile(
    r"(version|beta|region|project|organization|title|referer|tier|model|deployment)$", re.IGNORECASE
)
"""Headers whose values may be recorded, unless they look like a key."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_OURS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"})
_OURS = "it is part of the judge's question"
_ASKED = {
    "model": "the judge's spec names the model",
    **dict.fromkeys(("messages", "contents", "input", "tools", "stream"), _OURS),
}
"""Body fields that users cannot set, because then a run would not have asked what it records."""
ALTERNATIVES = {
    "reasoning_effort": "thinking_level",
    "thinking_level": "reasoning_effort",
    "thinking_budget": "reasoning_effort",
}
"""The closest parameter of other providers."""


class ProviderParameters(Record):
    """Parameters of a provider's interface; None and empty values are not sent."""

    reasoning_effort: str | None = Field(default=None, min_length=1)
    """`low`, `medium`, `high` or another level of OpenAI's reasoning models and of compatible servers."""
    thinking_level: str | None = Field(default=None, min_length=1)
    """`minimal`, `low`, `medium` or `high`, for Gemini 3."""
    thinking_budget: Annotated[int, Field(ge=-1)] | None = None
    """Thinking tokens, for Gemini 2.5 and Claude; 0 switches thinking off if possible, -1 leaves it to the model."""
    seed: int | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    service_tier: str | None = Field(default=None, min_length=1)
    """`flex` is slower and cheaper; the timeout is then 15 minutes unless `timeout` is set."""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Sent with every request. Values that may be secret are never recorded."""
    extra_body: Mapping[str, Any] = Field(default_factory=dict)
    """Fields added to the body of every request; objects are merged with existing ones."""

    @field_validator("extra_body")
    @classmethod
    def _leaves_the_question(cls, body: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in body:
            if name in _ASKED:
                raise ValueError(f'extra_body cannot set "{name}": {_ASKED[name]}')
        try:
            json.dumps(body, allow_nan=False, default=dict)
        except ValueError:
            raise ValueError("extra_body has a number that JSON cannot hold (NaN or infinity)") from None
        except TypeError as error:
            raise ValueError(f"extra_body cannot be written as JSON ({error})") from None
        return body

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in headers.items():
            if not _NAME.fullmatch(name) or name.lower() in _NOT_OURS:
                raise ValueError(f'"{name}" cannot be the name of a header')
            if not value.strip() or not all(" " <= character <= "~" for character in value):
                raise ValueError(f"the header {name} needs a value of printable ASCII characters")
            if redact_header(name, value) != value:
                remember_secrets(value, *value.split())
        return headers

    @field_serializer("headers", when_used="json")
    def _without_secrets(self, headers: Mapping[str, str]) -> dict[str, str]:
        return redact_headers(headers)


class ModelSettings(ProviderParameters):
    """Settings of a model."""

    tool_calls: Literal["auto", "native", "text"] = "auto"
    """`auto` follows the model's profile."""
    coordinates: Literal["auto", "pixels", "per_mille"] = "auto"
    structured: Literal["auto", "on", "off"] = "auto"
    """Whether the provider enforces the answer's JSON schema; `auto` follows the model's profile."""
    written_reasoning: Literal["auto", "on", "off"] = "auto"
    """Whether a JSON reply begins with step-by-step reasoning; `auto`: only for models that do not reason by themselves."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """None: 0 if the model accepts a temperature; else none is sent."""
    max_output_tokens: int | None = None
    timeout: float = 90.0
    """Seconds to wait for a reply; 900 for the service tier `flex` unless set."""
    retry: RetryPolicy = RetryPolicy()

    @property
    def patience(self) -> float:
        """The timeout in effect, in seconds."""
        waits = self.service_tier == FLEX and "timeout" not in self.model_fields_set
        return FLEX_SECONDS if waits else self.timeout


def adjust_profile(profile: Profile, settings: ModelSettings) -> Profile:
    """Return the profile with the user's settings applied."""
    changes: dict[str, Any] = {}
    if settings.tool_calls != "auto":
        changes["native_tools"] = settings.tool_calls == "native"
    if settings.coordinates != "auto":
        changes["per_mille"] = settings.coordinates == "per_mille"
    if settings.structured != "auto":
        changes["structured_output"] = settings.structured == "on"
    if settings.written_reasoning != "auto":
        changes["reasons"] = settings.written_reasoning == "off"
    return profile.model_copy(update=changes)


def build_sampling(profile: Profile, settings: ModelSettings) -> dict[str, Any]:
    """Return the parameters that are sent, without secrets: temperature 0 if accepted, and everything that was set."""
    parameters: dict[str, Any] = {}
    if settings.temperature is not None:
        parameters["temperature"] = settings.temperature
    elif profile.temperature:
        parameters["temperature"] = 0.0
    if settings.max_output_tokens is not None:
        parameters["max_tokens"] = settings.max_output_tokens
    return parameters | list_parameters(settings)


def redact_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as they are recorded, by lower-case name."""
    return {name.lower(): redact_header(name, value) for name, value in sorted(headers.items())}


def redact_header(name: str, value: str) -> str:
    """Return a header's value as it is recorded: unchanged, a placeholder, or a hash that changes with the value.

    >>> redact_header("OpenAI-Beta", "x=v1"), redact_header("X-Api-Key", "abc"), redact_header("X-Route", "b")[:2]
    ('x=v1', '[secret]', '[s')
    """
    if _SECRET.search(name) or looks_like_a_key(value):
        return PLACEHOLDER
    return value if _HARMLESS.search(name) else f"{PLACEHOLDER} {text_key(value)}"


def list_parameters(settings: ProviderParameters) -> dict[str, Any]:
    """Return the parameters that were set, as they are recorded."""
    fields = ProviderParameters.model_fields
    values: dict[str, Any] = {name: getattr(settings, name) for name in fields}
    values["headers"] = redact_headers(settings.headers)
    return {name: value for name, value in values.items() if value not in (None, {})}


def check_supported(settings: ProviderParameters, provider: Provider | None, spec: str) -> None:
    """Raise UserError if a parameter was set that the judge's provider does not have."""
    takes = provider.takes if provider else frozenset[str]()
    for name in list_parameters(settings):
        if name not in takes:
            other = ALTERNATIVES.get(name, "")
            hint = f"; it has {_option(other)}" if other in takes else ""
            raise UserError(f"{spec} does not support {_option(name)}{hint}")


def _option(name: str) -> str:
    return f"--{'header' if name == 'headers' else name.replace('_', '-')}"
