"""Asks an MCP server of ours with the package's own client, and reads what comes back."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
from mcp_types import CallToolResult
from PIL import Image

from editloupe import Judge
from editloupe.servers.mcp import McpSettings, create_server

INSTRUCTION = "Change the color of the patch to red"


@asynccontextmanager
async def asking(judge: Judge, *roots: Path, mode: str = "auto", **settings: Any) -> AsyncIterator[mcp.Client]:
    """Give a client that asks a server in this process; with mode `legacy` every message goes through its JSON."""
    server = create_server(judge, McpSettings(roots=roots, **settings))
    try:
        async with judge, mcp.Client(server, mode=mode) as client:
            yield client
    finally:
        server.close()


def text_of(result: CallToolResult) -> str:
    """Return the words of a result."""
    return "\n".join(part.text for part in result.content if part.type == "text")


def pictures_of(result: CallToolResult) -> list[Image.Image]:
    """Return the pictures of a result, opened."""
    return [Image.open(io.BytesIO(base64.b64decode(one.data))) for one in result.content if one.type == "image"]


def size_of(result: CallToolResult) -> int:
    """Return how many bytes a result takes on the wire."""
    return len(result.model_dump_json(by_alias=True).encode())


def b64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
