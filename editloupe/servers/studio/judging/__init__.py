"""Judging and forking from a page: requests, uploaded pictures, and the judgement under way."""

__all__: list[str] = []
