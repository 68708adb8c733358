"""A Model Context Protocol server: assistants and editors have edits judged, look closely and read traces.

Public names are imported when they are first used: settings are checked before the protocol's package is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.servers.mcp.serving import serve_http, serve_stdio
    from editloupe.servers.mcp.settings import McpSettings
    from editloupe.servers.mcp.tool_server import ToolServer, create_server

__all__ = [
    "McpSettings",
    "ToolServer",
    "create_server",
    "serve_http",
    "serve_stdio",
]

__getattr__, __dir__ = lazy_names(__name__)
