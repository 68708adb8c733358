"""What the pages about traces show."""

__all__: list[str] = []
