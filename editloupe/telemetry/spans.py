"""OpenTelemetry spans of edits, criteria, model calls and tool calls, by its conventions for generative AI.

If spans are switched off, one costs a comparison and nothing of OpenTelemetry is imported. Pictures are identified by
their hashes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from editloupe.types import Observation, Outcome, Reason, ToolCall, Usage, Verdict

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""If it is `true`, spans contain the texts of messages, calls and results."""
PICTURES_VARIABLE = "EDITLOUPE_OTEL_PICTURES"
"""If it is `bytes`, and texts are captured too, messages contain the pictures themselves."""
AGENT = "editloupe"


class Span:
    """An open span, or a placeholder if spans are switched off."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def __bool__(self) -> bool:
        return self._span is not None

    def set(self, **attributes: Any) -> None:
        """Set attributes; double underscores become dots, and None values are dropped."""
        if self._span is not None:
            self._span.set_attributes(_attributes(attributes))

    def event(self, name: str, **attributes: Any) -> None:
        """Add an event."""
        if self._span is not None:
            self._span.add_event(name, _attributes(attributes))

    def mark_failed(self, kind: str, sentence: str = "") -> None:
        """Mark the span as failed."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, sentence or None))


_NONE = Span()
_TRACER: Any = None


def spans_to(provider: Any | None) -> None:
    """Send spans to an OpenTelemetry tracer provider from now on.

    Args:
        provider: The `TracerProvider`; None switches spans off.
    """
    global _TRACER
    if provider is None:
        _TRACER = None
        return
    from importlib.metadata import version

    _TRACER = provider.get_tracer("editloupe", version("editloupe"))


def spans_on() -> bool:
    """Return True if spans are sent."""
    return _TRACER is not None


@contextmanager
def edit_span(edit_id: str, protocol: str, mode: str, judge: str, repeat: int) -> Iterator[Span]:
    """Yield the span of one edit; the outcomes of its criteria become its events."""
    facts = {"edit__id": edit_id, "protocol": protocol, "mode": mode, "judge": judge, "repeat": repeat}
    with _span(f"invoke_agent {AGENT}", "invoke_agent", {"gen_ai__agent__name": AGENT, **_own(facts)}) as span:
        yield span


@contextmanager
def criterion_span(edit_id: str, criterion: str, target: int | None) -> Iterator[Span]:
    """Yield the span of one criterion of an edit, or of one of its targets."""
    facts = {"edit__id": edit_id, "criterion": criterion, "target": None if target is None else target + 1}
    attributes = {"gen_ai__agent__name": criterion, **_own(facts)}
    with _span(f"invoke_agent {criterion}", "invoke_agent", attributes) as span:
        yield span


@contextmanager
def chat_span(provider: str, model: str, parameters: Mapping[str, Any], address: str | None) -> Iterator[Span]:
    """Yield the span of one question to a model, with all its attempts."""
    facts = {
        "gen_ai__provider__name": provider,
        "gen_ai__request__model": model,
        "gen_ai__request__temperature": parameters.get("temperature"),
        "gen_ai__request__max_tokens": parameters.get("max_tokens"),
        "gen_ai__request__seed": parameters.get("seed"),
        "gen_ai__request__top_p": parameters.get("top_p"),
        "server__address": address,
    }
    with _span(f"chat {model}", "chat", facts, client=True) as span:
        yield span


def set_reply(span: Span, metadata: Mapping[str, Any], finish: str, usage: Usage, attempts: int) -> None:
    """Set the attributes of a chat span that describe the reply."""
    span.set(
        gen_ai__response__id=metadata.get("id"),
        gen_ai__response__model=metadata.get("model_name"),
        gen_ai__response__finish_reasons=[finish] if finish else None,
        gen_ai__usage__input_tokens=usage.input_tokens,
        gen_ai__usage__output_tokens=usage.output_tokens,
        gen_ai__usage__cache_read__input_tokens=usage.cached_tokens or None,
        gen_ai__usage__reasoning__output_tokens=usage.reasoning_tokens or None,
        editloupe__attempts=attempts,
    )


@contextmanager
def tool_span(call: ToolCall) -> Iterator[Span]:
    """Yield the span of one tool call."""
    facts: dict[str, Any] = {
        "gen_ai__tool__name": call.name,
        "gen_ai__tool__call__id": call.id,
        "gen_ai__tool__type": "function",
    }
    if _TRACER is not None and captures_content():
        facts["gen_ai__tool__call__arguments"] = json.dumps(dict(call.parameters), ensure_ascii=False, default=str)
    with _span(f"execute_tool {call.name}", "execute_tool", facts) as span:
        yield span


def set_observation(span: Span, observation: Observation) -> None:
    """Set the attributes of a tool's span that describe its result; pictures by hash."""
    if not span:
        return
    span.set(editloupe__pictures=list(observation.pictures), editloupe__cached=observation.cached)
    if captures_content():
        span.set(gen_ai__tool__call__result=observation.text)
    if observation.failed:
        span.mark_failed("tool_error")


def add_evaluation(span: Span, outcome: Outcome) -> None:
    """Add an outcome to a span as an evaluation event; an unjudged one has an error and no score."""
    if not span:
        return
    if isinstance(outcome, Verdict):
        span.event(
            "gen_ai.evaluation.result",
            gen_ai__evaluation__name=outcome.criterion,
            gen_ai__evaluation__score__value=outcome.score_100,
            gen_ai__evaluation__score__label=outcome.label,
            gen_ai__evaluation__explanation=outcome.rationale if captures_content() else None,
        )
    else:
        span.event(
            "gen_ai.evaluation.result", gen_ai__evaluation__name=outcome.criterion, error__type=outcome.reason.value
        )


def set_decision(span: Span, criterion: str, label: str | None, score_100: float | None, reason: Reason | None) -> None:
    """Set the outcome of a criterion on its span."""
    span.set(
        gen_ai__evaluation__name=criterion,
        gen_ai__evaluation__score__label=label,
        gen_ai__evaluation__score__value=score_100,
    )
    if reason is not None:
        span.mark_failed(reason.value)


def captures_content() -> bool:
    """Return True if spans should contain the texts of messages."""
    return os.environ.get(CONTENT_VARIABLE, "").strip().lower() in ("true", "1", "span_only", "span_and_event")


def captures_pictures() -> bool:
    """Return True if spans should contain the pictures themselves."""
    return captures_content() and os.environ.get(PICTURES_VARIABLE, "").strip().lower() == "bytes"


@contextmanager
def _span(name: str, operation: str, facts: Mapping[str, Any], client: bool = False) -> Iterator[Span]:
    if _TRACER is None:
        yield _NONE
        return
    from opentelemetry.trace import SpanKind

    attributes = _attributes({"gen_ai__operation__name": operation, **facts})
    kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
    # An exception's message may contain other people's text; its type is enough.
    with _TRACER.start_as_current_span(
        name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        under_way = Span(span)
        try:
            yield under_way
        except BaseException as error:
            under_way.mark_failed(str(getattr(error, "reason", "") or type(error).__name__))
            raise


def _own(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"editloupe__{name}": value for name, value in facts.items()}


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in attributes.items() if value is not None}
