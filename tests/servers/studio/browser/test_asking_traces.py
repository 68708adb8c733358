"""Asking all traces in a real browser: filter, statistics, going through what fits, notes, anchors, two runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.evals.traces.samples import FIND, ZOOM, Told, write_run
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.browser.test_appearance import NAMELESS, PALE
from tests.servers.studio.conftest import served
from tests.servers.studio.samples import long_trace

RIGHT, OVER, WRONG = "Flawless Execution", "Over Modification", "Wrong Action"
TOLD = (
    Told("a", OVER, (ZOOM,), RIGHT, 0.6, picture=1, thought="The rim is green."),
    Told("b", WRONG, (FIND, ZOOM), RIGHT, 0.9, picture=2),
    Told("c", RIGHT, (FIND,), RIGHT, 0.8, picture=3),
    Told("d", OVER, (FIND,), RIGHT, 0.7, picture=4),
    Told("e", None, (ZOOM + "!",), picture=5),
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("asked")
    first = write_run(folder / "one", TOLD)
    second = write_run(folder / "two", [Told("a", RIGHT, (), picture=1), Told("c", RIGHT, picture=3)], "rules")
    with served(runs=(first, second)) as where:
        yield where


def query_of(page: Page) -> Locator:
    """Return the field that takes a filter."""
    return page.get_by_role("searchbox", name="Filter")


def press(page: Page, key: str) -> None:
    """Press a key once the page listens: its scripts have run when it is loaded."""
    page.wait_for_load_state("load")
    page.keyboard.press(key)


def test_a_filter_is_typed_kept_in_the_address_and_gone_through_by_keys(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one")
    press(page, "v")
    expect(page.locator(".count")).to_contain_text("of 5 verdicts")
    press(page, "f")
    page.keyboard.type("human != label")
    press(page, "Enter")
    expect(page.locator(".count")).to_contain_text("1–3 of 3 verdicts")
    page.click("thead >> text=Confidence")
    expect(page.locator(".what .small").first).to_contain_text("b")
    assert "where=human" in page.url
    assert "order=-confidence" in page.url
    press(page, "j")
    press(page, "Enter")
    expect(page.locator(".within")).to_contain_text("1 of 3 in human != label")
    press(page, "]")
    expect(page.locator(".within")).to_contain_text("2 of 3")
    expect(page.locator(".page-head .facts")).to_contain_text("d")
    press(page, "]")
    expect(page.locator(".within")).to_contain_text("3 of 3")
    press(page, "[")
    expect(page.locator(".within")).to_contain_text("2 of 3")
    page.click(".within code")
    expect(page.locator(".count")).to_contain_text("1–3 of 3 verdicts")


def test_statistics_come_when_asked_for_and_a_cell_opens_its_edits(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one?by=verdict")
    page.wait_for_load_state("load")
    page.get_by_role("link", name="Agreement and tools").click()
    expect(page.locator(".lab")).to_contain_text("Agreement with people, with and without each tool")
    expect(page.locator(".lab")).to_contain_text("This is not an experiment")
    page.click(f'.confusion a[aria-label*="judge {OVER}"]')
    expect(page.locator(".count")).to_contain_text("1–2 of 2 verdicts")
    expect(query_of(page)).to_have_value(
        f'criterion = "instruction_following" and human = "{RIGHT}" and label = "{OVER}"'
    )


def test_a_mistake_is_told_and_the_filter_stays_to_be_mended(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one?by=verdict")
    query_of(page).fill('thougth("green")')
    page.get_by_role("button", name="Search").click()
    expect(page.locator("[role=alert]")).to_contain_text("did you mean thought(…)?")
    query_of(page).fill('thought("rim is green")')
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".count")).to_contain_text("1–1 of 1 verdict ")


def test_tags_and_a_note_are_kept_and_found(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one/trace?edit=e")
    press(page, "n")
    page.keyboard.type("tool broke, check")
    page.fill("[name=note]", "The zoom failed.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toast")).to_have_text("Saved.")
    page.reload()
    expect(page.locator("[name=tags]")).to_have_value("tool broke, check")
    page.goto('/runs/one/traces?where=tagged("check")')
    expect(page.locator(".a-tag")).to_have_text(["check", "tool broke"])


def test_a_list_is_saved_and_queued_for_labelling(address: str, new_page: NewPage, tmp_path: Path) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one")
    press(page, "w")
    expect(page.locator(".count")).to_contain_text("of 3 verdicts")
    page.click("summary >> text=Save")
    with page.expect_download() as download:
        page.get_by_role("link", name="JSONL").click()
    download.value.save_as(tmp_path / "list.jsonl")
    assert len((tmp_path / "list.jsonl").read_text("utf-8").splitlines()) == 3
    page.click("summary >> text=Label")
    page.get_by_label("Label queue").fill("worst")
    page.get_by_role("button", name="Add the edits of these 3 verdicts").click()
    expect(page.locator("[data-queue] [role=status]")).to_contain_text("3 edits added to worst.queue.jsonl")
    page.click("text=Label them")
    expect(page.get_by_role("radio", name="worst.queue.jsonl")).to_be_checked()


def test_an_edit_is_labelled_where_its_trace_is_read(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one/trace?edit=e")
    press(page, "a")
    page.keyboard.type("Ana")
    page.get_by_role("button", name=WRONG).click()
    expect(page.locator(".verdict .human")).to_contain_text(f"Ana: {WRONG}")


def test_a_link_to_a_step_puts_the_focus_on_it(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one/trace?edit=b#step-2")
    expect(page.locator("#step-2")).to_be_focused()
    page.click("#step-1 .anchor")
    expect(page.locator("#step-1")).to_be_focused()
    assert page.url.endswith("#step-1")


def test_two_runs_are_one_list_that_opens_both_traces(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one")
    page.click("summary >> text=Compare with")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".count")).to_contain_text("1–1 of 1 that differ, among 2 verdicts")
    press(page, "j")
    press(page, "Enter")
    expect(page.locator(".timeline")).to_have_count(2)
    expect(page.locator(".parting-line")).to_contain_text("They differ from step 1")


def test_a_cell_of_what_changed_opens_its_edits(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one/differences?other=two")
    expect(page.locator(".changes .fixed")).to_have_text("1 fixed")
    expect(page.locator(".changes .broken")).to_have_text("0 broken")
    page.click(".changes .fixed a")
    expect(page.locator(".count")).to_contain_text("1 verdict: wrong in A and right in B")
    expect(page.locator(".found .what .small")).to_have_text(["a"])
    page.click("text=Show all that differ")
    page.click(".confusion .same a >> nth=-1")
    expect(page.locator(".count")).to_contain_text(f"{RIGHT} in A and {RIGHT} in B")
    expect(page.locator(".found .what .small")).to_have_text(["c"])


def test_two_configurations_of_a_run_are_compared_by_choice(new_page: NewPage, tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [Told("a", OVER, (ZOOM,), RIGHT, picture=1)])
    write_run(run, [Told("a", WRONG, (), RIGHT, picture=1)], "rules")
    write_run(run, [Told("a", RIGHT, (), RIGHT, picture=1)], "openai:gpt-6")
    with served(runs=(run,)) as where:
        page: Page = new_page(where)
        page.goto("/runs/one/differences")
        expect(page.locator("h1")).to_have_text("Two configurations of one")
        expect(page.locator(".changes")).to_contain_text("1 wrong in both")
        page.wait_for_load_state("load")
        page.select_option("[name=other_configuration]", index=2)
        expect(page.locator(".changes .fixed")).to_have_text("1 fixed")
        expect(page.locator(".found .chip")).to_have_text([OVER, RIGHT, RIGHT])
        page.wait_for_load_state("networkidle")


def test_all_verdicts_on_an_edit_are_one_grid(new_page: NewPage, tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", [Told("a", OVER, (ZOOM,), RIGHT, picture=1, repeat=n) for n in range(3)])
    write_run(run, [Told("a", None, picture=1)], "rules")
    other = write_run(tmp_path / "two", [Told("b", RIGHT, (FIND, ZOOM), picture=1)], "openai:gpt-6")
    with served(runs=(run, other)) as where:
        page: Page = new_page(where, width=1440)
        page.goto("/runs/one/trace?edit=a")
        page.click("text=All 5 verdicts in a grid")
        expect(page.locator(".grid thead th")).to_have_count(3)
        expect(page.locator(".strip").first.locator(".chip")).to_have_text([OVER] * 3)
        expect(page.locator(".strip").nth(1)).to_contain_text("unreadable answer")
        expect(page.locator(".grid")).to_contain_text("3 × Over Modification")
        expect(page.locator(".acts").nth(2).locator("a")).to_have_text([FIND, ZOOM, "answer"])
        page.get_by_role("checkbox").nth(1).uncheck()
        page.click("text=Show the chosen")
        expect(page.locator(".grid thead th")).to_have_count(2)
        page.click("text=Step by step with 1")
        expect(page.locator(".timeline")).to_have_count(2)
        expect(page.locator(".parting-line")).to_contain_text("They differ from step 1")
        page.wait_for_load_state("networkidle")


def test_runs_are_found_ordered_and_two_are_compared(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs")
    names = page.locator("tbody tr:visible .row-link")
    expect(names).to_have_text(["one", "two"])
    expect(page.locator("[data-of=score]").first).not_to_have_text("…")
    page.click("thead >> text=Run")
    page.click("thead >> text=Run")
    expect(names).to_have_text(["two", "one"])
    assert "order=-name" in page.url
    page.reload()
    expect(names).to_have_text(["two", "one"])
    press(page, "/")
    page.keyboard.type("rules")
    expect(names).to_have_text(["two"])
    page.get_by_role("searchbox").fill("")
    compare = page.get_by_role("button", name="Compare two")
    expect(compare).to_be_disabled()
    page.get_by_role("checkbox", name="Compare one").check()
    page.get_by_role("checkbox", name="Compare two").check()
    compare.click()
    expect(page.locator("h1")).to_have_text("two and one")


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_people_next_to_missing_and_repeated_verdicts_fit_a_row(new_page: NewPage, tmp_path: Path, width: int) -> None:
    told = [Told("a", label, (), WRONG, repeat=n, model="m-1") for n, label in enumerate((OVER, OVER, RIGHT))]
    run = write_run(tmp_path / "one", [*told, Told("b", None, (), RIGHT, model="m-2")])
    with served(runs=(run,)) as where:
        page: Page = new_page(where, width=width)
        page.goto("/runs/one")
        expect(page.locator(".rows .chip").first).to_contain_text("3 repeats, which differ")
        missing = page.locator(".rows .chip.unjudged")
        expect(missing).to_contain_text("unreadable answer")
        expect(missing.locator(".of-people")).to_contain_text(RIGHT)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width == 1440:
            heights = [row.bounding_box()["height"] for row in page.locator("tbody tr").all()]  # type: ignore[index]
            assert max(heights) <= 60


def test_lists_show_the_target_and_the_whole_pictures_under_the_pointer(new_page: NewPage, tmp_path: Path) -> None:
    with served(runs=(long_trace(tmp_path),)) as where:
        page: Page = new_page(where)
        page.goto("/runs/run")
        thumbs = page.locator(".pair img")
        assert "/crop/" in (thumbs.first.get_attribute("src") or "")
        size = "document.querySelector('.pair img').naturalWidth"
        page.wait_for_function(f"() => {size} > 0 && {size} < 150")
        expect(page.locator(".peek")).to_be_hidden()
        page.hover("td.pair")
        whole = page.locator(".peek img")
        expect(whole).to_have_count(2)
        page.wait_for_function(
            "() => [...document.querySelectorAll('.peek img')].every((one) => one.naturalWidth >= 150)"
        )
        page.hover("h1")
        expect(page.locator(".peek")).to_be_hidden()


def test_the_worst_disagreements_are_one_key_away_the_surest_first(address: str, new_page: NewPage) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one")
    press(page, "w")
    expect(page.locator(".what .small")).to_have_text(["b", "d", "a"])
    page.click("text=Confident and wrong")
    expect(page.locator(".what .small")).to_have_text(["b", "d", "a"])


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_the_pages_are_readable(address: str, new_page: NewPage, width: int, dark: bool) -> None:
    page: Page = new_page(address, width=width, dark=dark)
    for path in (
        "/runs/one?by=verdict",
        "/runs/one?view=agreement",
        "/runs/one?by=verdict&where=oops",
        "/runs/one/differences?other=two",
    ):
        page.goto(path)
        page.wait_for_load_state("load")
        if "agreement" in path:
            expect(page.locator(".lab")).to_be_visible()
        for summary in page.locator(".language summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        assert page.locator("h1").count() == 1, path
        assert page.evaluate(NAMELESS) == [], path
        assert page.evaluate(PALE) == [], path


def test_a_sent_trace_opens_from_the_disk(address: str, new_page: NewPage, tmp_path: Path) -> None:
    page: Page = new_page(address)
    page.goto("/runs/one/trace?edit=a")
    with page.expect_download() as download:
        page.click("text=Save as a file")
    place = tmp_path / "a.html"
    download.value.save_as(place)
    page.goto(place.as_uri())
    expect(page.locator("h1")).to_have_text("Paint the cup red")
    for picture in page.locator("img").all():
        expect(picture).not_to_have_js_property("naturalWidth", 0)
