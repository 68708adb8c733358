"""A Model Context Protocol (MCP) server with EditLoupe's judge, visual tools and traces.

Public names are imported on first use, so settings can be checked before the `mcp` package is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.servers.mcp.settings import McpSettings
    from editloupe.servers.mcp.tool_server import ToolServer, create_server, serve_http, serve_stdio

__all__ = [
    "McpSettings",
    "ToolServer",
    "create_server",
    "serve_http",
    "serve_stdio",
]

__getattr__, __dir__ = lazy_names(__name__)
