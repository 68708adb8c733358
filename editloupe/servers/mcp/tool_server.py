"""The MCP server and the registration of its tools."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from inspect import getdoc
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.secrets import Secrets
from editloupe.judge import Judge
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.servers.mcp.judge_tool import JudgementStore, JudgeTool
from editloupe.servers.mcp.picture_gate import PictureGate
from editloupe.servers.mcp.results import error_result
from editloupe.servers.mcp.settings import McpSettings
from editloupe.servers.mcp.trace_tool import TraceTool
from editloupe.servers.mcp.visual_tools import VisualTools

INSTRUCTIONS = (
    "EditLoupe judges instruction-based image edits and looks closely at pictures. judge_edit judges one edit (source picture, "
    "instruction, edited picture) and says why; localize_differences, zoom_in_image, read_text and detect_object look at "
    "pictures; read_trace returns what a judge thought and saw. Pictures are paths inside the server's roots, base64 or data "
    "URLs; positions are pixels of the picture. Unjudged means that there is no verdict, not that the edit is bad."
)


class ToolServer(MCPServer[Any]):
    """Offers EditLoupe's judge and tools. `close` closes its run, but not the judge."""

    def __init__(self, judge: Judge, settings: McpSettings) -> None:
        super().__init__(
            "editloupe",
            title="EditLoupe",
            version=version("editloupe"),
            instructions=INSTRUCTIONS,
            log_level="WARNING",
        )
        self._clean = Secrets()
        self._store = JudgementStore(judge, settings.out)
        gate, most = PictureGate(settings.roots), settings.result_bytes
        looking = VisualTools(judge.toolbox, gate, most)
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        asks = ToolAnnotations(read_only_hint=settings.out is None, destructive_hint=False, open_world_hint=True)
        self._offer(JudgeTool(judge, gate, self._store, most, settings.judging).judge_edit, asks)
        toolbox = judge.toolbox
        for function in (
            looking.localize_differences,
            looking.zoom_in_image,
            looking.read_text,
            looking.detect_object,
        ):
            if function.__name__ in toolbox.names or function.__name__ in toolbox.withheld:
                self._offer(function, reads)
        self._offer(TraceTool(gate, self._store, most).read_trace, reads)

    def _offer(self, function: Callable[..., Any], annotations: ToolAnnotations) -> None:
        """Add a tool whose description is its docstring without indentation."""
        self.add_tool(function, description=getdoc(function), annotations=annotations)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Every failure is returned as an error result with one sentence."""
        offered = {tool.name: tool.input_schema.get("properties", {}) for tool in await self.list_tools()}
        if name not in offered:
            return error_result(f'there is no tool "{name}"; there are: {", ".join(offered)}')
        if unknown := [argument for argument in arguments if argument not in offered[name]]:
            return error_result(f'{name} has no parameter "{unknown[0]}"; it has: {", ".join(offered[name])}')
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError as error:  # a bug of ours: the details go to the server's log
            cause = error.__cause__ or error
            print(self._clean("".join(traceback.format_exception(cause))), file=sys.stderr)
            return error_result(f"{name} failed: {type(cause).__name__}: {clean(str(cause))}")
        except ToolError as error:
            invalid = error.__cause__
            problem = describe_validation_error(invalid, record="") if isinstance(invalid, ValidationError) else error
            return error_result(f"{name}: {problem}")

    def close(self) -> None:
        """Close the run."""
        self._store.close()


def create_server(judge: Judge, settings: McpSettings | None = None) -> ToolServer:
    """Return a server for an open judge.

    Args:
        judge: The judge; the caller closes it.
        settings: Settings of the server; None for the defaults.

    `mcp.Client(create_server(judge))` connects to it within the same process.
    """
    return ToolServer(judge, settings or McpSettings())
