"""Judge and fork from a page."""

__all__: list[str] = []
