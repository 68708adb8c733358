"""The way in, in a real browser: the token in an address, the page that asks for it, links from elsewhere."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from editloupe.servers.studio.app import _way_in
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.browser.test_appearance import NAMELESS, PALE
from tests.servers.studio.conftest import TOKEN, Listen
from tests.servers.studio.samples import many_edits


@contextmanager
def another_site(html: str) -> Iterator[str]:
    """Serve one page under another name of this machine, which is another site to a browser."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_printed_address_lets_one_in_and_the_token_is_gone_from_it(listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(), known=False)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.headers.get("referer", "")))
    page.goto(f"/?token={TOKEN}")
    expect(page).to_have_title("Judge an edit · EditLoupe")
    assert TOKEN not in page.url
    assert page.evaluate("document.cookie") == ""
    page.click("text=Runs")
    assert not [referrer for referrer in asked if TOKEN in referrer]


def test_without_the_token_a_page_asks_for_it_and_goes_on(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 2),)), known=False)
    page.goto("/runs/run?text=patch+1")
    expect(page.locator("h1")).to_have_text("This studio needs its token")
    expect(page.locator("[name=token]")).to_be_focused()
    page.keyboard.type("not-the-right-one")
    page.keyboard.press("Enter")
    expect(page.locator("[role=alert]")).to_have_text("That is not the token of this studio.")
    page.fill("[name=token]", TOKEN)
    page.click("text=Open the studio")
    expect(page.locator(".count")).to_contain_text("1–1 of 1 edit")
    expect(page).to_have_url(re.compile(r"/runs/run\?where=edit_text.*patch"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_that_asks_is_readable(listen: Listen, new_page: NewPage, width: int, dark: bool) -> None:
    page: Page = new_page(listen(), width=width, dark=dark, known=False)
    for address in ("/judge", "/judge?token=wrong"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(PALE) == []


def test_a_browser_of_an_earlier_start_is_told_to_open_the_printed_address(listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen())
    cookie = page.context.cookies()[0]
    other = listen()
    page.context.add_cookies(
        [{"name": f"editloupe-{other.rpartition(':')[2]}", "value": cookie["value"], "url": other}]
    )
    page.goto(f"{other}/judge")
    expect(page.locator("main")).to_contain_text("an earlier start of the studio")


def test_a_link_on_another_site_works_for_whoever_was_let_in(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    address = listen(runs=(many_edits(tmp_path, 2),))
    with another_site(f'<a href="{address}/runs/run?text=patch+1">look</a>') as elsewhere:
        page = new_page(address)
        page.goto(elsewhere)
        page.click("a")
        expect(page.locator(".count")).to_contain_text("1–1 of 1 edit")
        stranger = new_page(address, known=False)
        stranger.goto(elsewhere)
        stranger.click("a")
        expect(stranger.locator("h1")).to_have_text("This studio needs its token")


def test_the_printed_address_also_works_as_a_link_and_from_the_file_that_open_writes(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    address = listen()
    with another_site(f'<a href="{address}/?token={TOKEN}">open</a>') as elsewhere:
        page = new_page(address, known=False)
        page.goto(elsewhere)
        page.click("a")
        expect(page).to_have_title("Judge an edit · EditLoupe")
    file = _way_in(tmp_path, f"{address}/?token={TOKEN}")
    assert file.stat().st_mode & 0o077 == 0
    page = new_page(address, known=False)
    page.goto(file.as_uri())
    expect(page).to_have_title("Judge an edit · EditLoupe")
    assert TOKEN not in page.url


def test_another_site_cannot_have_anything_done_even_in_a_browser_that_was_let_in(
    listen: Listen, chromium: Browser, tmp_path: Path
) -> None:
    run = many_edits(tmp_path, 1)
    address = listen(runs=(run,))
    context = chromium.new_context(base_url=address)
    assert context.request.get("/", params={"token": TOKEN}).ok
    page = context.new_page()
    label = '{"annotator":"eve","edit":"edit-00000","criterion":"instruction_following","label":"Wrong Action"}'
    send = """([to, options]) => fetch(to, {credentials: 'include', ...options}).then(() => 'read', () => 'refused')"""
    with another_site("<p>hello</p>") as elsewhere:
        # The second has the studio's own host and only another port: the cookie comes along, the request is refused.
        for site in (elsewhere, elsewhere.replace("localhost", "127.0.0.1")):
            page.goto(site)
            post = {"method": "POST", "mode": "no-cors", "body": label}
            assert page.evaluate(send, [f"{address}/runs/run/labels", post]) == "refused"
            assert page.evaluate(send, [f"{address}/judge", {}]) == "refused"
    page.goto("/judge")
    expect(page).to_have_title("Judge an edit · EditLoupe")
    context.close()
    assert not (run / "labels.jsonl").exists()
