"""Comparisons of runs and of editing models."""

__all__: list[str] = []
