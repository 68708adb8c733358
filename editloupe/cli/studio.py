"""The command `editloupe studio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli import options as o
from editloupe.types import UserError


def studio(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="Run folders, a folder of runs, a manifest to label, or a benchmark that `make` is building.",
        ),
    ] = None,
    port: o.Port = 8642,
    host: o.Host = "127.0.0.1",
    token: Annotated[str | None, o.token_option("EDITLOUPE_STUDIO_TOKEN", "the browser")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further host name of this machine. Repeatable.", rich_help_panel=o.SERVING),
    ] = None,
    judge_spec: o.JudgeSpec = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option(
            help="A server that the page may use for a judge; others are refused. Repeatable.",
            rich_help_panel=o.ASKING,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Store what is judged on the page in this run folder.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="File for human labels. Default: labels.jsonl in the run.")
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="A file of pairs by `make pairs`, for people to answer. Repeatable."),
    ] = None,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Allow pictures outside the folder of a file of pairs.")
    ] = False,
    queue: Annotated[
        list[Path] | None,
        typer.Option(
            "--queue",
            help="A label queue. One in the run's folder is found automatically. Repeatable.",
        ),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="For a manifest to label: the protocol whose rubrics are used.")
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for pictures, requests and caches, such as 4GB. Default: half of the machine's.",
        ),
    ] = None,
    rubrics: Annotated[
        list[Path] | None,
        typer.Option(
            "--rubric",
            help="For a manifest to label: own rubric (YAML), or another wording of the protocol's. Repeatable.",
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> int:
    """Judge, inspect and label in the browser.

    Example: editloupe studio runs/demo

    Example: editloupe studio edits.jsonl --rubric my-wording.yaml
    """
    from editloupe.servers.http.access import new_token
    from editloupe.servers.studio.settings import StudioSettings

    if max_memory is not None:
        from editloupe.pictures.memory_budget import limit_memory, read_size

        limit_memory(read_size(max_memory, "--max-memory"))
    if rubrics and not any(path.is_file() for path in runs or ()):
        raise UserError(
            "--rubric goes with a manifest to label; a run is labelled by the rubrics that its judge was asked"
        )
    if missing := [path for path in queue or () if not path.is_file()]:
        raise UserError(f"the queue was not found at {missing[0]}")
    settings = StudioSettings(
        runs=tuple(runs or ()),
        out=out,
        labels=labels,
        pairs=tuple(pairs or ()),
        allow_outside=allow_outside,
        queues=tuple(queue or ()),
        protocol=protocol,
        rubrics=tuple(rubrics or ()),
        host=host,
        port=port,
        token=new_token() if token is None else token,
        allowed_hosts=tuple(allow_host or ()),
        judge=judge_spec,
        base_urls=tuple(base_url or ()),
    )
    try:
        from editloupe.servers.studio.app import serve
    except ImportError as error:
        raise UserError(f"the studio needs {error.name}: pip install '.[studio]'") from None
    return serve(settings, open_browser)
