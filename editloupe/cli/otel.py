"""Sends OpenTelemetry spans of a command in the background, with a few seconds at its end."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from editloupe.cli.output import tell
from editloupe.telemetry.spans import spans_to
from editloupe.types import UserError

PATIENCE = 4.0
"""Seconds the last spans have to reach their endpoint."""
VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"

Otel = Annotated[
    bool,
    typer.Option(
        "--otel",
        help="Send OpenTelemetry spans of edits, criteria, model and tool calls. "
        "Default: on if an OTEL_… variable names an endpoint.",
        hidden=True,
    ),
]


def is_enabled(by_option: bool) -> bool:
    """Return whether to send spans: by the option, or because the usual variables name an endpoint."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = os.environ.get(EXPORTER, "").strip().lower()
    has_endpoint = any(os.environ.get(name, "").strip() for name in VARIABLES)
    return by_option or (exporter != "none" and (has_endpoint or exporter == "otlp"))


@contextmanager
def send_spans(by_option: bool) -> Iterator[None]:
    """Send spans within the context, if enabled. An endpoint that hangs delays the end by a few seconds."""
    provider = _open_provider(by_option) if is_enabled(by_option) else None
    if provider is None:
        yield
        return
    spans_to(provider)
    complaints = _Complaints()
    sdk = logging.getLogger("opentelemetry")
    sdk.addHandler(complaints)
    try:
        yield
    finally:
        spans_to(None)
        waiting = threading.Thread(target=provider.shutdown, name="editloupe-last-spans", daemon=True)
        waiting.start()
        waiting.join(PATIENCE)
        if waiting.is_alive():  # it may go on to complain, so its handler stays
            tell(f"the OpenTelemetry endpoint did not take the last spans within {PATIENCE:g} s; they are dropped")
        else:
            sdk.removeHandler(complaints)
            if complaints.lost:
                tell("the OpenTelemetry endpoint did not take all spans; some are dropped")


class _Complaints(logging.Handler):
    """Collects the SDK's log messages, so that the user reads one sentence at the end instead of a line per attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lost = False
        """Whether spans were dropped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Record a failure. Attempts that will be repeated are ignored."""
        self.lost = self.lost or record.levelno >= logging.ERROR or "dropping" in str(record.msg).lower()


def _open_provider(by_option: bool) -> Any | None:
    """Return the tracer provider; None if the packages are missing and the option is not set."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        if by_option:
            raise UserError("--otel needs OpenTelemetry: pip install '.[otel]'") from None
        tell("an OTEL_… variable names an endpoint, but no spans are sent: pip install '.[otel]'")
        return None
    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "editloupe"}
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
