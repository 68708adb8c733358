"""Every page at both widths and in both colour schemes: nothing sticks out, everything has a name, contrast is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.servers.studio.browser.conftest import HeldBack, NewPage
from tests.servers.studio.conftest import served
from tests.servers.studio.samples import long_trace, many_edits

PAGES = {
    "judge": "/judge",
    "runs": "/runs",
    "table": "/runs/run",
    "trace": "/runs/run-2/trace?edit=the-edit/../x",
    "compared": "/runs/run-2/trace?edit=the-edit/../x&beside=run-2~1",
    "grid": "/runs/run-2/verdicts?edit=the-edit/../x&criterion=instruction_following",
    "differences": "/runs/run/differences?other=run-2",
    "who": "/runs/run/annotate",
    "annotate": "/runs/run/annotate?annotator=Ana",
    "nowhere": "/nowhere",
}
STEADY = {
    **PAGES,
    "traces": "/runs/run?by=verdict",
    "fork": "/runs/run-2/fork?edit=the-edit/../x&criterion=instruction_following&step=2",
    "forks": "/runs/run/forks",
}
SHIFT = """() => new Promise((told) => {
  let sum = 0;
  const add = (list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value; };
  new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => told(sum))));
})"""
"""What moved after it was shown, as browsers count it."""
STYLED = """() => document.readyState !== 'loading'
  && [...document.querySelectorAll('link[rel=stylesheet]')].every((one) => one.sheet)"""
"""The page was read to its end, and its style sheets are there."""
NAMELESS = """() => [...document.querySelectorAll('a, button, input, select, textarea, summary, [role=slider]')]
  .filter((one) => one.checkVisibility() && one.offsetParent !== null && !one.closest('[aria-hidden=true]'))
  .filter((one) => !(one.innerText || one.getAttribute('aria-label') || one.closest('label')?.innerText
    || one.querySelector('img')?.alt || '').trim())
  .map((one) => one.outerHTML.slice(0, 120))"""
PALE = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return { rgb: n.slice(0, 3), alpha: n[3] ?? 1 } };
  const linear = (v) => { const s = v / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4 };
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour.startsWith('rgb') && parse(colour).alpha > 0.5) return parse(colour).rgb;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const one of document.querySelectorAll('p, h1, h2, h3, a, button, label, small, b, li, th, td, summary, span')) {
    const says = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!says || one.offsetParent === null || one.closest('.stage, .icon, dialog, :disabled')) continue;
    const style = getComputedStyle(one);
    if (!style.color.startsWith('rgb')) continue;
    const [high, low] = [light(parse(style.color).rgb), light(behind(one))].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${one.outerHTML.slice(0, 80)}`);
  }
  return found;
}"""
"""Texts whose contrast to what is behind them is below the 4.5 that WCAG asks for."""

TYPE = """() => [...new Set([...document.querySelectorAll('body *')]
  .filter((one) => one.offsetParent !== null)
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
  .map((one) => [getComputedStyle(one), one])
  .filter(([style]) => !['12px', '14px', '16px', '20px', '28px'].includes(style.fontSize)
    || !['400', '600'].includes(style.fontWeight))
  .map(([style, one]) => `${style.fontSize} ${style.fontWeight} ${one.outerHTML.slice(0, 60)}`))]"""
"""Texts in another size or weight than those of tokens.css."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder: Path = tmp_path_factory.mktemp("looks")
    with served(runs=(many_edits(folder / "many", 60), long_trace(folder / "long", repeats=2))) as where:
        yield where


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_is_readable(address: str, new_page: NewPage, width: int, dark: bool) -> None:
    page: Page = new_page(address, width=width, dark=dark)
    for name, path in PAGES.items():
        page.goto(path)
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
            f"{name} is wider than the window"
        )
        assert page.title().endswith(" · EditLoupe"), name
        assert page.locator("h1").count() == 1, name
        assert page.evaluate("document.querySelectorAll('img:not([alt])').length") == 0, name
        assert page.evaluate(NAMELESS) == [], name
        assert page.evaluate(PALE) == [], name
        assert page.evaluate(TYPE) == [], name


@pytest.mark.parametrize("width", [1440, 400])
def test_what_is_shown_stays_where_it_is(address: str, new_page: NewPage, width: int) -> None:
    page: Page = new_page(address, width=width)
    for name, path in STEADY.items():
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate(SHIFT) <= 0.05, name


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("name", ["trace", "compared"])
def test_nothing_of_a_trace_moves_when_its_scripts_and_pictures_come(
    address: str, new_page: NewPage, width: int, name: str
) -> None:
    page: Page = new_page(address, width=width)
    rest = HeldBack(page, r"/static/.*[.]js|/pictures/")
    rest.hold()
    page.goto(PAGES[name], wait_until="commit")
    page.wait_for_function(STYLED)
    steps = page.locator(".step").first
    stood = steps.bounding_box()
    rest.let_go()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.querySelector('[data-pane=source] img').naturalWidth") > 0
    assert steps.bounding_box() == stood


def test_what_stands_before_the_choices_of_a_trace_does_not_move_as_they_come(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address, width=1440)
    page.goto(PAGES["compared"])
    link = page.get_by_role("link", name="Judge this edit again")
    stood = link.bounding_box()
    page.evaluate("document.querySelector('.choices').innerHTML = '<label>Criterion<select></select></label>'")
    assert link.bounding_box() == stood


@pytest.mark.parametrize("width", [1440, 400])
def test_charts_fit_the_page(address: str, new_page: NewPage, width: int) -> None:
    page: Page = new_page(address, width=width)
    page.goto("/runs/run?view=charts")
    expect(page.locator(".sheets svg").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_table_begins_above_the_fold(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address, width=1440)
    page.goto("/runs/run")
    first = page.locator("tbody tr").first.bounding_box()
    assert first is not None
    assert first["y"] < 600
    assert first["height"] <= 60


def test_on_a_narrow_page_an_edit_to_label_opens_with_its_pictures_in_sight(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address, width=400)
    page.goto("/runs/run/annotate?annotator=Ana")
    expect(page.locator(".question.current")).to_have_count(1)
    expect(page.locator("h1")).to_be_in_viewport()


def test_nothing_is_loaded_from_elsewhere(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES.values():
        page.goto(path)
    assert asked
    assert [url for url in asked if not url.startswith(address)] == []


def test_the_page_can_be_used_from_the_keyboard_from_its_first_key(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/run")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
