"""Adapters for Inspect, LangSmith and openevals, TRL, verl and LangGraph."""

__all__: list[str] = []
