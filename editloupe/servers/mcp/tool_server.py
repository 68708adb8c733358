"""The MCP server with its tools; every failure is a result with one sentence."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import version
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.secrets import Secrets
from editloupe.judge import Judge
from editloupe.rubrics.load import mistake
from editloupe.servers.mcp.judging import Judging
from editloupe.servers.mcp.kept_judgements import KeptJudgements
from editloupe.servers.mcp.looking import Looking
from editloupe.servers.mcp.picture_gate import PictureGate
from editloupe.servers.mcp.results import failure
from editloupe.servers.mcp.settings import McpSettings
from editloupe.servers.mcp.tracing import Tracing

INSTRUCTIONS = (
    "EditLoupe judges instruction-based image edits and looks closely at pictures. judge_edit judges one edit (source picture, "
    "instruction, edited picture) and says why; localize_differences, zoom_in_image, read_text and detect_object look at "
    "pictures; read_trace tells what a judge thought and saw. Pictures are paths inside the server's roots, base64 or data "
    "URLs; positions are pixels of the picture. Unjudged means that there is no verdict, not that the edit is bad."
)


class ToolServer(MCPServer[Any]):
    """Offers EditLoupe's judge and tools; it closes the run it keeps, and leaves the judge to whoever opened it."""

    def __init__(self, judge: Judge, settings: McpSettings) -> None:
        super().__init__(
            "editloupe",
            title="EditLoupe",
            version=version("editloupe"),
            instructions=INSTRUCTIONS,
            log_level="WARNING",
        )
        self._clean = Secrets()
        self._kept = KeptJudgements(judge, settings.out)
        gate, most = PictureGate(settings.roots), settings.result_bytes
        looking = Looking(judge.toolbox, gate, most)
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        asks = ToolAnnotations(read_only_hint=settings.out is None, destructive_hint=False, open_world_hint=True)
        self.add_tool(Judging(judge, gate, self._kept, most, settings.judging).judge_edit, annotations=asks)
        toolbox = judge.toolbox
        for function in (
            looking.localize_differences,
            looking.zoom_in_image,
            looking.read_text,
            looking.detect_object,
        ):
            if function.__name__ in toolbox.names or function.__name__ in toolbox.withheld:
                self.add_tool(function, annotations=reads)
        self.add_tool(Tracing(gate, self._kept, most).read_trace, annotations=reads)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; whatever is wrong with a call is an error result with one sentence."""
        offered = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        if name not in offered:
            return failure(f'there is no tool "{name}"; there are: {", ".join(offered)}')
        if unknown := [given for given in arguments if given not in offered[name]]:
            return failure(f'{name} has no parameter "{unknown[0]}"; it has: {", ".join(offered[name])}')
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError as error:  # a fault of ours: the details are for whoever runs the server
            cause = error.__cause__ or error
            print(self._clean("".join(traceback.format_exception(cause))), file=sys.stderr)
            return failure(f"{name} failed: {type(cause).__name__}: {clean(str(cause))}")
        except ToolError as error:
            given = error.__cause__
            told = mistake(given, whole="") if isinstance(given, ValidationError) else error
            return failure(f"{name}: {told}")

    def close(self) -> None:
        """Let go of the run that keeps what was judged."""
        self._kept.close()


def create_server(judge: Judge, settings: McpSettings | None = None) -> ToolServer:
    """Return the server around an open judge; `mcp.Client(create_server(judge))` asks it in the same process."""
    return ToolServer(judge, settings or McpSettings())
