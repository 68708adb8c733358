"""Forking a trace in a real browser, from the step to the fork beside its parent."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import expect

from editloupe.evals.forks import fork
from editloupe.evals.forks.fork_judge import JudgeChange
from tests.conftest import StartServer
from tests.evals.forks.kept_runs import CRITERION, Kept, script
from tests.scripted import Hang
from tests.servers.studio.browser.conftest import HeldBack, NewPage
from tests.servers.studio.conftest import Listen

BROKEN = """() => [...document.querySelectorAll('.found .cell .small, .found thead th')].flatMap((one) => {
  const found = [];
  const walk = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    for (const word of node.textContent.matchAll(/\\w+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((line) => Math.round(line.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})"""
"""Words of a table that are broken over two lines."""


@pytest.fixture
def kept(tmp_path: Path, scripted: StartServer) -> Kept:
    with ThreadPoolExecutor(1) as aside:  # the browser's own event loop runs in this thread
        return aside.submit(Kept, tmp_path, scripted(script), "openai:gpt-4.1").result()


def test_a_dropped_observation_leads_to_another_label(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)))
    page.goto("/runs/run/trace?edit=patch")
    page.locator(".step").first.get_by_text("Fork from here").click()
    expect(page.locator("h1")).to_have_text("Fork at step 1")
    page.get_by_label("Result").select_option("drop")
    page.get_by_role("button", name="Continue from here").click()
    expect(page.locator(".parting-line")).to_contain_text("They differ from step 1 on.")
    expect(page.locator("[data-side=B] .step")).to_have_count(2)
    expect(page.locator("[data-side=B]")).to_contain_text("Wrong Action")
    expect(page.locator("[data-side=A]")).to_contain_text("Flawless Execution")
    expect(page.locator(".step.parted")).to_have_count(2)
    assert len(kept.more) == 1
    page.locator("[data-side=B] .step").nth(1).get_by_text("Fork from here").click()
    expect(page).to_have_url(re.compile("parent=1"))


def test_the_box_of_a_call_is_drawn_on_its_picture(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)), width=1440)
    page.goto("/runs/run/fork?edit=patch&criterion=instruction_following&step=2")
    page.wait_for_load_state("networkidle")
    field = page.get_by_label("Box, in the coordinates of the call")
    expect(field).to_have_value("50, 30, 110, 80")
    expect(page.locator(".pane-names span").first).to_have_text("Edited Image")
    pane = page.locator("[data-pane=source]").bounding_box()
    assert pane is not None
    page.mouse.move(pane["x"] + 0.8 * pane["width"], pane["y"] + 0.8 * pane["height"])
    page.mouse.down()
    page.mouse.move(pane["x"] + 0.95 * pane["width"], pane["y"] + 0.95 * pane["height"], steps=4)
    page.mouse.up()
    expect(field).not_to_have_value("50, 30, 110, 80")
    drawn = [int(value) for value in field.input_value().split(", ")]
    shape = page.locator("[data-pane=source] .shape").get_attribute("viewBox")
    width = int(str(shape).split()[2])
    assert abs(drawn[0] - 0.8 * width) <= 2
    assert abs(drawn[2] - 0.95 * width) <= 2
    field.fill("10, 10, 60, 50")
    expect(page.locator("[data-pane=source] .mark.target")).to_have_count(1)
    page.get_by_role("button", name="Continue from here").click()
    expect(page.locator(".page-head .facts")).to_contain_text("call 1 with the box 10, 10, 60, 50")


def test_words_of_buttons_are_not_broken_while_a_fork_is_made(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)), width=1024)
    page.goto("/runs/run/fork?edit=patch&criterion=instruction_following&step=1")
    kept.server.play(Hang(600))
    page.get_by_role("button", name="Continue from here").click()
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    lines = "(all) => all.map((one) => [one.innerText, Math.round(one.getBoundingClientRect().height)])"
    heights = page.locator(".judge-buttons > :visible").evaluate_all(lines)
    assert all(height < 50 for _, height in heights), heights
    stop.click()
    expect(stop).to_be_hidden()


def test_long_facts_are_whole_on_a_narrow_page(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    with ThreadPoolExecutor(1) as aside:
        aside.submit(fork, kept.run, "patch", CRITERION, 2, other=JudgeChange(judge="rules")).result()
    page = new_page(listen(runs=(kept.run,)), width=390)
    page.goto("/runs/run/forks/1")
    cut = """() => [...document.querySelectorAll('.facts li')].filter((one) => {
      const range = document.createRange();
      range.selectNodeContents(one);
      const edge = one.parentElement.getBoundingClientRect().left + parseFloat(getComputedStyle(one).fontSize);
      return [...range.getClientRects()].some((line) => line.left < edge - 0.5);
    }).map((one) => one.textContent)"""
    assert page.locator(".facts li").count() > 2
    assert page.evaluate(cut) == []


def test_a_form_that_a_script_sends_waits_for_the_script(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)))
    page.goto("/runs/run/trace?edit=patch")
    form = str(page.locator(".step").first.get_by_text("Fork from here").get_attribute("href"))
    scripts = HeldBack(page, r"/static/.*[.]js")
    for address, name in (
        (form, "Continue from here"),
        ("/judge", "Judge"),
        ("/runs/run/annotate", "Draw a random subset"),
        ("/runs/run/trace?edit=patch", "Save tags and note"),
    ):
        scripts.hold()
        page.goto(address, wait_until="commit")
        button = page.get_by_role("button", name=name, exact=True, include_hidden=True)
        expect(button).to_be_disabled()
        scripts.let_go()
        expect(button).to_be_enabled()


def test_a_fork_that_takes_too_long_is_stopped_on_the_page(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)))
    page.goto("/runs/run/fork?edit=patch&criterion=instruction_following&step=2")
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_hidden()
    kept.server.play(Hang(600))
    page.get_by_role("button", name="Continue from here").click()
    stop.click()
    expect(page.locator("[data-stopped]")).to_have_text("The fork was stopped; nothing was kept. ")
    expect(stop).to_be_hidden()
    kept.server.play(script)
    page.get_by_role("button", name="Continue from here").click()
    expect(page.locator("[data-side=B] .step")).to_have_count(3)


def test_what_is_wrong_is_said_on_the_form(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)), width=400, dark=True)
    page.goto("/runs/run/fork?edit=patch&criterion=instruction_following&step=2")
    page.get_by_label("Box, in the coordinates of the call").fill("1, 2")
    page.get_by_role("button", name="Continue from here").click()
    expect(page.locator("[data-failure]")).to_have_text("the box of call 1 takes four numbers: x1, y1, x2, y2")
    assert kept.more == []


def test_the_judge_page_is_filled_in_from_the_trace(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,)))
    page.goto("/runs/run/trace?edit=patch")
    page.get_by_text("Judge this edit again").click()
    expect(page.locator("[name=instruction]")).to_have_value(kept.edit.instruction)
    expect(page.locator("[data-slot=source].filled")).to_be_visible()
    expect(page.locator("[name=mode]")).to_have_value("tools")


def test_how_often_is_at_least_once(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(runs=(kept.run,), base_urls=(kept.server.openai_url,)))
    page.goto("/runs/run/fork?edit=patch&criterion=instruction_following&step=2")
    page.get_by_label("Repeats").fill("0")
    page.get_by_role("button", name="Continue from here").click()
    expect(page.locator("[data-failure]")).to_contain_text("greater than or equal to 1")
    assert kept.more == []


def test_the_page_of_a_run_that_holds_forks_alone_leads_to_them(
    kept: Kept, listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as aside:
        aside.submit(fork, kept.run, "patch", CRITERION, 1, drop=[1], out=tmp_path / "alone").result()
    page = new_page(listen(runs=(tmp_path / "alone",)))
    page.goto("/runs/alone")
    expect(page.locator("[data-filters]")).to_have_count(0)
    page.get_by_role("link", name="See the forks").click()
    page.locator(".row-link").click()
    expect(page.locator(".parting-line")).to_contain_text("They differ from step 1 on.")


def test_no_word_of_the_list_of_forks_is_broken(kept: Kept, listen: Listen, new_page: NewPage) -> None:
    with ThreadPoolExecutor(1) as aside:
        rules = JudgeChange(judge="rules")
        aside.submit(fork, kept.run, "patch", CRITERION, 2, other=rules).result()
    page = new_page(listen(runs=(kept.run,)), width=1440)
    page.goto("/runs/run/forks")
    expect(page.locator(".found")).to_contain_text("judge (openai:gpt-4.1, then rules)")
    assert page.evaluate(BROKEN) == []
