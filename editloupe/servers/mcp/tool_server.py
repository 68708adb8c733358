"""The MCP server, the registration of its tools, and running it over standard input and output or over HTTP on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.metadata import version
from inspect import getdoc
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError
from starlette.types import ASGIApp

from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.secrets import Secrets
from editloupe.judge import Judge
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.servers.http.access import server_url
from editloupe.servers.http.guard import ProgramGuard
from editloupe.servers.http.server import ServerShutdown, StoppableServer, listen
from editloupe.servers.mcp.judge_tool import JudgementStore, JudgeTool, TraceTool
from editloupe.servers.mcp.results import error_result
from editloupe.servers.mcp.settings import HOST, McpSettings
from editloupe.servers.mcp.visual_tools import PictureGate, VisualTools
from editloupe.types import UserError

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


STOPPED = "editloupe: the MCP server was stopped"
LEAVE_AFTER = 4.0
PATH = "/mcp"


def serve_stdio(open_judge: Callable[[], Judge], settings: McpSettings) -> int:
    """Serve the parent process until it closes standard input. Only protocol messages go to standard output."""

    async def serve(judge: Judge) -> None:
        with closing(create_server(judge, settings)) as server:
            async with judge:
                await server.run_stdio_async()

    _log_plainly()
    with _redirect_stdout():
        judge = open_judge()
    try:
        asyncio.run(serve(judge))
    except* (BrokenPipeError, ConnectionResetError):
        pass  # the client has gone
    return 0


@contextmanager
def _redirect_stdout() -> Iterator[None]:
    """Redirect standard output to standard error: output of a plug-in would be an invalid message to the client."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def serve_http(judge: Judge, settings: McpSettings, port: int) -> int:
    """Serve on the loopback address until stopped. Closes the judge and returns the exit code."""
    _log_plainly()
    with ExitStack() as stack:
        stack.enter_context(judge)
        listener = stack.enter_context(listen(HOST, port, "the MCP server", "--http"))
        tools = stack.enter_context(closing(create_server(judge, settings)))
        server = StoppableServer(
            http_app(tools, settings), ServerShutdown(STOPPED, judge.aclose, lambda: None, LEAVE_AFTER)
        )
        where = server_url(HOST, listener.getsockname()[1]) + PATH
        print(f"EditLoupe MCP server: {where}\nPress Ctrl+C to stop.", file=sys.stderr, flush=True)
        server.run(sockets=[listener])
    server.say_stopped()
    return server.exit_code


def _log_plainly() -> None:
    """Log warnings as plain lines; the default handler of the `mcp` package renders slow, large tracebacks."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)


def http_app(tools: ToolServer, settings: McpSettings) -> ASGIApp:
    """Return the MCP application wrapped in the guard that checks the token."""
    if settings.token is None:
        raise UserError("an MCP server over HTTP needs a token: others may have an account on this machine")
    app = tools.streamable_http_app(streamable_http_path=PATH, host=HOST, max_request_body_size=settings.body_bytes)
    return ProgramGuard(app, settings)
