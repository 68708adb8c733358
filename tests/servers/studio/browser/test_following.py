"""Open pages follow runs that are being written, replaced or removed."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import expect

from tests.evals.traces.samples import Told, write_run
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen, OpenStudio
from tests.servers.studio.samples import many_edits


def test_rows_written_by_a_batch_come_without_a_reload(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 3),)))
    page.goto("/runs/run?order=edit")
    expect(page.locator(".count")).to_contain_text("of 3 edits")
    many_edits(tmp_path, 5)  # before the page has asked for anything
    expect(page.locator(".count")).to_contain_text("of 5 edits")
    expect(page.locator(".page-head")).to_contain_text("5 edits")


def test_a_judge_that_joins_a_run_can_be_chosen_without_a_reload(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "one", [Told("a"), Told("b")])
    page = new_page(listen(runs=(run,)))
    page.goto("/runs/one")
    chosen = page.get_by_label("Judged by")
    expect(chosen).to_have_count(0)
    write_run(run, [Told("a")], "openai:gpt-6")
    chosen.select_option(label="openai:gpt-6 · dlebench · tools mode (1 verdicts)")
    expect(page.locator(".rows .chip")).to_have_count(1)
    page.goto("/runs/one?view=agreement")
    expect(page.locator(".lab")).to_be_visible()
    write_run(run, [Told("c")])
    page.click("text=Count again")
    expect(page.locator(".lab")).to_contain_text("3 verdicts")


def test_the_list_of_runs_follows_runs_that_begin_and_grow(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    write_run(tmp_path / "one", [Told("a"), Told("b")])
    page = new_page(listen(runs=(tmp_path,)))
    page.goto("/runs?order=-name")
    page.get_by_role("checkbox", name="Compare one").check()
    write_run(tmp_path / "two", [Told("a")])
    names = page.locator("tbody .row-link")
    expect(names).to_have_text(["two", "one"])
    expect(page.get_by_role("checkbox", name="Compare one")).to_be_checked()
    write_run(tmp_path / "one", [Told("c", label=None)])
    progress = page.locator("tr[data-run=one] .progress")
    expect(progress).to_contain_text("1 of 3 unjudged")
    expect(page.get_by_role("checkbox", name="Compare one")).to_be_focused()
    shutil.rmtree(tmp_path / "two")
    expect(page.locator("tr[data-run=two]")).to_contain_text("is gone")


def test_a_run_that_is_removed_and_made_again_while_its_page_is_open(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "one", [Told("a")])
    page = new_page(listen(runs=(run,)))
    page.goto("/runs/one")
    shutil.rmtree(run)
    expect(page.locator(".toast")).to_contain_text("The run “one” is gone")
    write_run(run, [Told("a"), Told("b")])
    expect(page.locator(".count")).to_contain_text("of 2 edits")


def test_a_run_that_takes_the_place_of_another_is_read_afresh(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(write_run(tmp_path / "one", [Told("a"), Told("b")]),))
    before = client.get("/runs/one/score").json()
    shutil.rmtree(tmp_path / "one")
    write_run(tmp_path / "one", [Told("a", "Localization Failure"), Told("b", "Localization Failure")])
    after = client.get("/runs/one/score").json()
    assert (before["value"], after["value"]) == (100, 0)
