"""Run the reward server until it is stopped."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import replace

from editloupe.evals.batch.local_executor import compare_in_pool
from editloupe.evals.reward.edit_rewards import check_scorable
from editloupe.judge import Judge
from editloupe.servers.http.access import server_url
from editloupe.servers.http.server import ServerShutdown, StoppableServer, listen
from editloupe.servers.reward.app import create_app
from editloupe.servers.reward.scoring import EditScorer, JudgementRun
from editloupe.servers.reward.settings import RewardServerSettings

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
