"""The reward server's ASGI application, with one route per dialect, health and metrics, and running it until it is stopped."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from importlib.metadata import version
from math import isnan
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from editloupe._util.text import for_json
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.batch.local_executor import compare_in_pool
from editloupe.evals.reward.edit_rewards import check_scorable
from editloupe.judge import Judge
from editloupe.judge.edit_score import fill_in
from editloupe.servers.http.access import server_url
from editloupe.servers.http.guard import ProgramGuard, busy_response, error_response
from editloupe.servers.http.server import ServerShutdown, StoppableServer, listen
from editloupe.servers.reward.dialects import DIALECTS
from editloupe.servers.reward.requests import BadRequest, Dialect, RequestLimits
from editloupe.servers.reward.scoring import MEDIA_TYPE, Busy, EditScorer, JudgementRun, OutOfOrder, TooMany
from editloupe.servers.reward.settings import RewardServerSettings


def create_app(scorer: EditScorer) -> FastAPI:
    """Return the application for a scorer.

    Args:
        scorer: Judges the edits; its settings decide the limits and whether pickles are read.
    """
    settings = scorer.settings
    app = FastAPI(title="EditLoupe reward server", version=version("editloupe"), docs_url=None, redoc_url=None)
    for dialect in DIALECTS:
        is_allowed = not dialect.pickled or settings.allow_pickle
        extra = {"requestBody": {"content": {"application/json": {"schema": dict(dialect.schema)}}}}
        app.add_api_route(
            dialect.path,
            _route(dialect, scorer) if is_allowed else _refuse_pickle,
            methods=["POST"],
            name=dialect.name,
            include_in_schema=not dialect.pickled,
            openapi_extra=extra if dialect.schema else None,
        )
    for path in ("/health", "/ping"):  # EditScore's client uses the second
        app.add_api_route(path, _health(scorer), methods=["GET"], include_in_schema=path == "/health")
    app.add_api_route("/metrics", _metrics(scorer), methods=["GET"])
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(ProgramGuard, settings=settings)
    return app


def _route(dialect: Dialect, scorer: EditScorer) -> Callable[[Request], Awaitable[Response]]:
    clean = Secrets()

    async def ask(request: Request) -> Response:
        answer = await _answer(dialect, scorer, request, clean)
        scorer.metrics.count("requests_total", dialect=dialect.name, code=str(answer.status_code))
        return answer

    ask.__doc__ = f"Score edits in the format of {dialect.name}."
    return ask


async def _answer(dialect: Dialect, scorer: EditScorer, request: Request, clean: Secrets) -> Response:
    limits = RequestLimits(scorer.settings.queue, scorer.settings.picture_pixels)
    try:
        # Read the stream instead of `request.body()`, which would keep the bytes: the pictures are copied and may wait for long.
        parsed = await asyncio.to_thread(dialect.read, b"".join([part async for part in request.stream()]), limits)
        answer = dialect.answer(parsed, fill_in(parsed.items, await scorer.score(parsed.edits)), scorer)
    except ClientDisconnect:
        return error_response("the client has gone", 499)
    except HTTPException:
        raise
    except (BadRequest, TooMany) as mistake:
        return error_response(clean(str(mistake)), 413 if isinstance(mistake, TooMany) else 400)
    except Busy as full:
        return busy_response(str(full), full.seconds)
    except OutOfOrder as why:
        return error_response(clean(str(why)), 503)
    except Exception as fault:  # the client always gets an answer
        print(clean(traceback.format_exc()), file=sys.stderr)
        return error_response(f"something went wrong inside the server ({type(fault).__name__})", 500)
    answer = clean.in_value(answer)  # a model's server may echo a key
    if dialect.pickled:
        return Response(pickle.dumps(answer), media_type="application/octet-stream")
    chosen = scorer.settings.unjudged
    text = json.dumps(answer, allow_nan=chosen is not None and isnan(chosen))
    return Response(text, media_type="application/json")


async def _refuse_pickle(request: Request) -> Response:
    """Refuse a pickled request."""
    return error_response("pickled requests are read only by a server that was started with --allow-pickle", 403)


def _health(scorer: EditScorer) -> Callable[[], Awaitable[Response]]:
    judge, settings = scorer.judge, scorer.settings

    async def health() -> Response:
        """Return the rewards by name, their scale, and the judge."""
        state = "ok" if scorer.broken is None else "broken"
        facts: dict[str, Any] = {
            "status": state,
            "rewards": {name: [state] for name in scorer.names},
            "scale": [0, 1],
            "score": "the mean of the criteria" if judge.criteria_chosen else "by the protocol's formula",
            "unjudged": (
                "null, or the dialect's error; never a number"
                if settings.unjudged is None
                else f"{settings.unjudged:g} in lists of rewards, with the reasons in `errors`"
            ),
            "judge": judge.spec,
            "protocol": judge.protocol,
            "mode": judge.mode,
            "scorer_version": scorer.version,
            "deadline": settings.deadline,
            "queue": settings.queue,
            "dialects": {
                dialect.path: dialect.name for dialect in DIALECTS if settings.allow_pickle or not dialect.pickled
            },
            "notes": list(judge.notes),
            **({"error": scorer.broken} if scorer.broken else {}),
        }
        return Response(for_json(facts), 200 if state == "ok" else 503, media_type="application/json")

    return health


def _metrics(scorer: EditScorer) -> Callable[[], Awaitable[Response]]:
    with suppress(OSError):
        _read_resident_bytes()
        scorer.metrics.gauge("resident_bytes", "Memory of this process.", _read_resident_bytes)

    async def metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(scorer.metrics.text(), media_type=MEDIA_TYPE)

    return metrics


def _read_resident_bytes() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _http_error(request: Request, problem: Exception) -> Response:
    """Return an error of the framework in the form of all other errors."""
    assert isinstance(problem, HTTPException)
    return error_response(str(problem.detail), problem.status_code)


STOPPED = "editloupe: the reward server was stopped"
KEEP_ALIVE = 120
"""Seconds an idle connection stays open, so that a trainer that pauses between two batches can reuse it."""
ANSWERING = 3
"""Seconds to send the last answers after pending edits have ended."""


def serve_rewards(judge: Judge, settings: RewardServerSettings, show_token: bool = False) -> int:
    """Serve until stopped.

    Args:
        judge: The judge; it is closed at the end.
        settings: Settings of the server.
        show_token: Print the address with the token in it, if the user does not know the token yet.

    Returns:
        The exit code.
    """
    with ExitStack() as stack:
        stack.enter_context(judge)
        check_scorable(judge)
        listener = stack.enter_context(listen(settings.host, settings.port, "the reward server"))
        settings = replace(settings, port=listener.getsockname()[1])
        if (pool := compare_in_pool(judge)) is not None:
            stack.callback(pool.close)
        run = stack.enter_context(closing(JudgementRun(settings.out, judge))) if settings.out else None
        scorer = EditScorer(judge, settings, run)
        ending = ServerShutdown(STOPPED, scorer.stop, lambda: None, settings.grace + 2 * ANSWERING)
        server = StoppableServer(create_app(scorer), ending, ANSWERING, KEEP_ALIVE)
        _announce(scorer, show_token)
        server.run(sockets=[listener])
    server.say_stopped()
    return server.exit_code


def _announce(scorer: EditScorer, show_token: bool) -> None:
    settings, judge = scorer.settings, scorer.judge
    url = server_url(settings.host, settings.port)
    if show_token:
        url = url.replace("//", f"//any:{settings.token}@", 1)
    lines = [
        f"EditLoupe reward server: {url}",
        f"judge {judge.spec}, {judge.protocol}, {judge.mode} mode; rewards from 0 to 1: {', '.join(scorer.names)}",
        *(f"note: {note}" for note in judge.notes),
        *([f"kept in {settings.out}"] if settings.out else []),
        "Press Ctrl+C to stop.",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)
