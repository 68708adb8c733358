"""A real Chromium, one for all tests of the pages; every page fails its test on a script error."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator

import pytest

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright  # noqa: E402

from tests.servers.studio.conftest import TOKEN  # noqa: E402

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 30_000
"""Milliseconds a page may take on a busy machine before what a test waits for is taken for missing."""
expect.set_options(timeout=PATIENCE)
TELL_KEYS = """addEventListener("keydown", ({ key, code, target, altKey, ctrlKey }) => {
  console.debug("key", key, code, target.tagName, altKey, ctrlKey, document.hasFocus(), performance.now());
}, true);"""
"""Run in every page before its own scripts: which keys arrived, where, and with what held down."""
NewPage = Callable[..., Page]


class HeldBack:
    """What a page asks for at some addresses: it waits from `hold` on until `let_go`."""

    def __init__(self, page: Page, addresses: str) -> None:
        self._waiting: list[Route] = []
        self._holds = False
        page.route(re.compile(addresses), self._came)

    def _came(self, route: Route) -> None:
        if self._holds:
            self._waiting.append(route)
        else:
            route.continue_()

    def hold(self) -> None:
        self._holds = True

    def let_go(self) -> None:
        self._holds = False
        while self._waiting:
            self._waiting.pop().continue_()


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Start Chromium; without one the tests are skipped, but never where CI runs."""
    found = os.environ.get("EDITLOUPE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI must drive the pages: install Debian's package chromium")
        pytest.skip("no Chromium on this machine: apt-get install chromium, or set EDITLOUPE_CHROMIUM")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def new_page(chromium: Browser) -> Iterator[NewPage]:
    """Open pages: `new_page(address, width=400, dark=True)`; with `known=False` the browser has not shown the token yet."""
    contexts = []
    wrong: list[str] = []

    def start(address: str, width: int = 1280, height: int = 860, dark: bool = False, known: bool = True) -> Page:
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", base_url=address
        )
        contexts.append(context)
        if known:
            assert context.request.get("/", params={"token": TOKEN}).ok
        context.add_init_script(TELL_KEYS)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda line: wrong.append(line.text) if line.type == "error" and "status of 4" not in line.text else None,
        )
        # Shown by pytest where the test fails.
        page.on("console", lambda line: print(line.text, file=sys.stderr) if line.type == "debug" else None)
        page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
        return page

    yield start
    for context in contexts:
        context.close()
    assert wrong == []
