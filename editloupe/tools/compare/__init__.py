"""The difference engine: registers two pictures and locates what changed between them."""

__all__: list[str] = []
