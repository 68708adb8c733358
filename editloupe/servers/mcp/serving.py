"""Run the MCP server over standard input and output, or over HTTP on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from starlette.types import ASGIApp

from editloupe.judge import Judge
from editloupe.servers.http.access import server_url
from editloupe.servers.http.guard import ProgramGuard
from editloupe.servers.http.server import ServerShutdown, StoppableServer, listen
from editloupe.servers.mcp.settings import HOST, McpSettings
from editloupe.servers.mcp.tool_server import ToolServer, create_server
from editloupe.types import UserError

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
