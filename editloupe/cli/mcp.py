"""The command `editloupe mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import SERVING, expand_options, token_option
from editloupe.servers.mcp.settings import McpSettings
from editloupe.types import UserError


@expand_options
def mcp(
    judge: JudgeOptions,
    *,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder whose pictures and runs may be read. Without it, pictures come as base64. Repeatable.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    http: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve over HTTP on this local port (0 picks a free one) instead of stdin and stdout.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    token: Annotated[str | None, token_option("EDITLOUPE_MCP_TOKEN", "HTTP requests")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Store verdicts, steps and pictures in this run folder.", rich_help_panel=SERVING),
    ] = None,
) -> int:
    """Serve the judge and the visual tools by the Model Context Protocol, over stdin and stdout or over HTTP.

    Example: editloupe mcp --root pictures --root runs --judge openai:gpt-5.1
    """
    from editloupe.servers.http.access import new_token

    is_generated = http is not None and token is None
    settings = McpSettings(roots=tuple(root or ()), out=out, token=new_token() if is_generated else token)
    try:
        from editloupe.servers.mcp.tool_server import serve_http, serve_stdio
    except ImportError as error:
        raise UserError(f"the MCP server needs {error.name}: pip install '.[mcp]'") from None
    judge.announce()
    if http is None:
        return serve_stdio(judge.open, settings)
    if is_generated:
        typer.echo(f"token: {settings.token}", err=True)
    return serve_http(judge.open(), settings, http)
