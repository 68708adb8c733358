"""Collect the labels of people."""

__all__: list[str] = []
