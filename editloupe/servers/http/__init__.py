"""Code shared by all servers, such as token checks, request limits and orderly shutdown."""

__all__: list[str] = []
