"""OpenTelemetry spans of judging."""

__all__: list[str] = []
