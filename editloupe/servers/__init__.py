"""The studio, the reward server and the MCP server."""

__all__: list[str] = []
