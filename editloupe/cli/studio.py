"""`editloupe studio`: serves the web page on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli import options as o
from editloupe.types import UserError


def studio(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...", help="Run folders, a folder of runs, a manifest to label, or a benchmark in the making."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8642,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="EDITLOUPE_STUDIO_TOKEN",
            help="What a browser must show, at least 16 characters; made anew each time unless given.",
            show_envvar=True,
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name this machine is called by; may be given again.")
    ] = None,
    judge_spec: o.JudgeSpec = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            help="A server the page may ask a judge at; may be given again. Others are refused.",
            rich_help_panel=o.ASKING,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Keep what is judged on the page in this run folder.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="The file human labels go to; else labels.jsonl inside the run.")
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="A file that `make pairs` wrote: people are asked about its pairs; may be given again."),
    ] = None,
    queue: Annotated[
        list[Path] | None,
        typer.Option(
            "--queue",
            help="A queue to label; may be given again. One in the run's folder is found by itself.",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="For a manifest to label: the protocol whose rubrics are asked.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> int:
    """Judge, look and label in the browser.

    Example: editloupe studio runs/demo
    """
    from editloupe.servers.http.access import new_token
    from editloupe.servers.studio.settings import StudioSettings

    settings = StudioSettings(
        runs=tuple(runs or ()),
        out=out,
        labels=labels,
        pairs=tuple(pairs or ()),
        queues=_there(queue or ()),
        protocol=protocol,
        host=host,
        port=port,
        token=new_token() if token is None else token,
        allowed_hosts=tuple(allow_host or ()),
        judge=judge_spec,
        base_urls=tuple(base_url or ()),
    )
    try:
        from editloupe.servers.studio.serve import serve
    except ImportError as error:
        raise UserError(f"the studio needs {error.name}: pip install 'editloupe[studio]'") from None
    return serve(settings, open_browser)


def _there(queues: Iterable[Path]) -> tuple[Path, ...]:
    for path in queues:
        if not path.is_file():
            raise UserError(f"the queue was not found at {path}")
    return tuple(queues)
