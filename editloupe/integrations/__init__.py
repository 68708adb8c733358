"""Adapters for other frameworks: Inspect, LangSmith and openevals, TRL, verl, LangGraph."""

__all__: list[str] = []
