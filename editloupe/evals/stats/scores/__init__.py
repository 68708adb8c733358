"""Scores of a run by its protocol's arithmetic."""

__all__: list[str] = []
