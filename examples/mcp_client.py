"""Use the MCP server as an assistant does: start `editloupe mcp`, judge an edit and zoom in.

    python examples/mcp_client.py

Needs pip install '.[mcp]'. In an assistant's settings, name the same command and arguments.
"""

import asyncio
import sys

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client

from editloupe.demo import demo_manifest


async def main() -> None:
    """Judge an edit, and show a region of both pictures."""
    pictures = demo_manifest().parent / "pictures"
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "editloupe", "mcp", "--root", str(pictures), "--judge", "rules"]
    )
    pair = {"source": "chelsea.jpg", "edited": "cat-eye-edited.jpg"}
    instruction = "Change the color of the cat's eye on the left from green to blue."
    async with mcp.Client(stdio_client(server, errlog=sys.__stderr__)) as client:
        judged = await client.call_tool("judge_edit", {**pair, "instruction": instruction})
        for verdict in judged.structured_content["verdicts"]:
            print(f"{verdict['criterion']}: {verdict['label'] or verdict['detail']}")
        region = {"image": pair["source"], "second": pair["edited"], "box": [420, 110, 480, 230]}
        zoomed = await client.call_tool("zoom_in_image", region)
        for part in zoomed.content:
            print(part.text.splitlines()[0] if part.type == "text" else f"a picture, {part.mime_type}")


if __name__ == "__main__":
    asyncio.run(main())
