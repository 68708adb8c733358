"""Studios for tests: one that is asked directly, and one that really listens on a port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from editloupe.servers.http.server import ServerShutdown, StoppableServer
from editloupe.servers.http.server import listen as listen_on
from editloupe.servers.studio.app import LEAVE_AFTER, STOPPED, create_app
from editloupe.servers.studio.settings import StudioSettings
from tests.servers.studio.samples import many_edits

TOKEN = "open-sesame-0123456789"
BEARER = {"authorization": f"Bearer {TOKEN}"}
OpenStudio = Callable[..., TestClient]
Listen = Callable[..., str]


@pytest.fixture
def studio() -> Iterator[OpenStudio]:
    """Open studios: `studio(runs=(folder,))` returns a client that asks them from this machine and shows the token.

    `studio(bearer=False)` returns one that has yet to be let in.
    """
    opened: list[TestClient] = []

    def start(bearer: bool = True, **options: object) -> TestClient:
        app = create_app(StudioSettings(**{"token": TOKEN, **options}))  # type: ignore[arg-type]
        client = TestClient(app, base_url="http://127.0.0.1:8642", follow_redirects=False)
        if bearer:
            client.headers.update(BEARER)
        client.__enter__()
        opened.append(client)
        return client

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@contextmanager
def served(**options: object) -> Iterator[str]:
    """Serve a studio on a free port and give its address; it asks for TOKEN."""
    settings = StudioSettings(**{"port": 0, "token": TOKEN, **options})  # type: ignore[arg-type]
    with listen_on(settings.host, settings.port, "the test") as listener:
        port = listener.getsockname()[1]
        app = create_app(replace(settings, port=port))
        studio = app.state.studio
        server = StoppableServer(app, ServerShutdown(STOPPED, studio.end, studio.leave, LEAVE_AFTER))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Serve studios that are closed when the test ends: `listen(runs=(folder,))` returns the address."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(served(**options))


@pytest.fixture(scope="session")
def thousands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 5 000 edits, only ever read."""
    return many_edits(tmp_path_factory.mktemp("many"), 5000)
