"""Programs that answer requests: the studio, the reward server and the MCP server."""

__all__: list[str] = []
