"""Parse the replies of models."""

__all__: list[str] = []
