"""Prepare traces for their pages."""

__all__: list[str] = []
