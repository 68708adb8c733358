"""Fixtures for all tests: scripted model servers, and an environment that keeps every request on this machine."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from tests.scripted import Reply, Script, ScriptedServer

_FOREIGN = (
    *("OPENAI_", "GOOGLE_", "GEMINI_", "ANTHROPIC_", "AZURE_OPENAI_", "OPENROUTER_", "OLLAMA_", "AWS_"),
    *("OTEL_", "LANGSMITH", "LANGCHAIN_", "EDITLOUPE_"),
)
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


_MARKS = {"chromium": "browser", "tiny_detector": "models", "nanodet": "models"}
"""What a fixture needs, as the marker of every test that asks for it, also by way of another fixture."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures, before they are chosen by their markers."""
    for item in items:
        for fixture in _MARKS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARKS[fixture])


class StartServer(Protocol):
    """Starts a server that plays these replies, or this one function; closed when the test ends."""

    def __call__(self, *script: Script, **options: Any) -> ScriptedServer: ...


@pytest.fixture(autouse=True)
def _only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove keys, endpoints and proxies, so that no test depends on them or leaves loopback."""
    for name in list(os.environ):
        if name.upper().startswith(_FOREIGN) or name.lower() in _PROXIES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


@pytest.fixture
def scripted() -> Iterator[StartServer]:
    """Start scripted servers: `scripted(say("hello"), final("Wrong Action"))`, or `scripted(function, delay=0.1)`."""
    started: list[ScriptedServer] = []

    def start(*script: Script, **options: Any) -> ScriptedServer:
        whole: Any = script[0] if len(script) == 1 and not isinstance(script[0], Reply) else script
        server = ScriptedServer(whole, **options).start()
        started.append(server)
        return server

    yield start
    failures = []
    for server in started:
        try:
            server.close()
        except AssertionError as error:
            failures.append(error)
    if failures:
        raise failures[0]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a Ray cluster, one for all tests of this process: Ray does not reliably start a second one in the same process.

    Ray believes that it has two GPUs, so that work is spread as on a machine that has them.
    """
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray keeps a token there
        ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    ray.shutdown()


_modules_set_aside = 0


def _collect() -> None:
    """Collect all garbage; after modules were loaded all that lives is set aside, else each collection would walk through it."""
    global _modules_set_aside
    gc.collect()
    if len(sys.modules) > _modules_set_aside or not gc.get_freeze_count():
        _modules_set_aside = len(sys.modules)
        gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_unheard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which a task or a future failed and nobody looked: asyncio only logs that.

    It does so when the task is collected, so the development run (`make strict`) collects after every test.
    """
    yield
    if sys.flags.dev_mode:
        _collect()
    unheard = [
        record.getMessage()
        for when in ("setup", "call", "teardown")
        for record in caplog.get_records(when)
        if record.name == "asyncio" and record.levelname == "ERROR"
    ]
    assert not unheard, unheard
