"""Agreement between the judge and people, and among people."""

__all__: list[str] = []
