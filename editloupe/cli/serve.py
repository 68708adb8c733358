"""The command `editloupe serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import SERVING, Host, Port, Visible, expand_options, token_option
from editloupe.servers.reward.settings import DEADLINE, PORT, RewardServerSettings
from editloupe.types import UserError

LIMITS = "Limits"


@expand_options
def serve(
    judge: Annotated[JudgeOptions, Visible("max_memory")],
    *,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    token: Annotated[str | None, token_option("EDITLOUPE_SERVE_TOKEN", "requests")] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token",
            help="Need no token; for loopback addresses only. Every user of this machine can then spend your key.",
            rich_help_panel=SERVING,
        ),
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A further host name of this machine, for servers without a token. Repeatable.",
            hidden=True,
            rich_help_panel=SERVING,
        ),
    ] = None,
    allow_pickle: Annotated[
        bool,
        typer.Option(
            "--allow-pickle",
            help="Also accept pickled requests (Edit-R1, flow_grpo, EditScore). Only plain data is unpickled.",
            rich_help_panel=SERVING,
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Store traces and pictures in this run, and reuse the verdicts it has.", rich_help_panel=SERVING
        ),
    ] = None,
    unjudged: Annotated[
        float | None,
        typer.Option(
            metavar="nan|NUMBER",
            help="Reward of an unjudged edit, for trainers that cannot take null. Default: null.",
            rich_help_panel=SERVING,
        ),
    ] = None,
    deadline: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds within which a request is answered. Keep it below the client's timeout.",
            rich_help_panel=LIMITS,
        ),
    ] = DEADLINE,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Concurrent requests to the model.", rich_help_panel=LIMITS)
    ] = 32,
    queue: Annotated[
        int,
        typer.Option(
            min=1, help="Edits accepted at once. Further requests get status 429.", hidden=True, rich_help_panel=LIMITS
        ),
    ] = 512,
    max_body: Annotated[
        int, typer.Option(min=1, help="Largest request, in MB.", hidden=True, rich_help_panel=LIMITS)
    ] = 64,
) -> int:
    """Serve rewards from 0 to 1 to training loops. An unjudged edit is null or an error.

    Example: editloupe serve --judge openai:gpt-5.1 --out runs/rewards
    """
    from editloupe.servers.http.access import new_token

    if no_token and token is not None:
        raise UserError("--no-token cannot be combined with --token or EDITLOUPE_SERVE_TOKEN")
    is_generated = token is None and not no_token
    settings = RewardServerSettings(
        host=host,
        port=port,
        token=new_token() if is_generated else token,
        allowed_hosts=tuple(allow_host or ()),
        out=out,
        deadline=deadline,
        concurrency=concurrency,
        queue=queue,
        body_bytes=max_body * 2**20,
        bodies_bytes=max(512, 2 * max_body) * 2**20,
        allow_pickle=allow_pickle,
        unjudged=unjudged,
    )
    try:
        from editloupe.servers.reward.app import serve_rewards
    except ImportError as error:
        raise UserError(f"the reward server needs {error.name}: pip install '.[serve]'") from None
    judge.announce()
    return serve_rewards(judge.open(), settings, show_token=is_generated)
