"""Compare two pictures of the same scene and locate what changed between them."""

__all__: list[str] = []
