"""The Runs and Trace pages in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from editloupe.cli.main import run as command
from tests.drawn_pictures import edit_pair
from tests.evals.sample_runs import Line, make_run
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen
from tests.servers.studio.samples import HOSTILE, TYPES, long_trace, many_edits

TRACE = "/runs/run/trace?edit=the-edit/../x"


@pytest.fixture
def trace(listen: Listen, new_page: NewPage, tmp_path: Path) -> Page:
    page = new_page(listen(runs=(long_trace(tmp_path, repeats=2),)))
    page.goto(TRACE)
    expect(page.locator(".step")).to_have_count(12)
    return page


def zoom_of(page: Page, role: str) -> tuple[float, float]:
    width, moved = page.locator(f"[data-pane={role}] img").evaluate(
        "(one) => [parseFloat(one.style.width), one.style.transform]"
    )
    return width, float(moved.split("(")[1].split("px")[0])


def test_five_thousand_edits_are_filtered_ordered_and_turned_by_keyboard(
    listen: Listen, new_page: NewPage, thousands: Path
) -> None:
    page = new_page(listen(runs=(thousands,)))
    page.goto("/")
    expect(page.locator(".count")).to_contain_text("1–50 of 5 000")
    page.keyboard.press("/")
    page.keyboard.type("patch 49")
    expect(page.locator(".count")).to_contain_text("of 111 edits")
    assert "where=edit_text" in page.url
    expect(page.locator("[name=where][type=search]")).to_have_value('edit_text ~ "patch 49"')
    page.select_option("[name=type]", TYPES[0])
    expect(page.locator(".count")).not_to_contain_text("of 111 edits")
    page.reload()
    expect(page.locator("[name=type]")).to_have_value(TYPES[0])
    page.click("text=Clear")
    expect(page.locator(".count")).to_contain_text("of 5 000")
    page.keyboard.press("]")
    expect(page.locator(".count")).to_contain_text("51–100 of 5 000")
    page.keyboard.press("[")
    expect(page.locator(".count")).to_contain_text("1–50 of 5 000")
    page.select_option("[name=apart]", "people")
    expect(page.locator(".count")).to_contain_text("of 500 edits")
    expect(page.locator(".of-people.apart").first).to_be_visible()
    page.click("thead >> text=Instruction Following")
    expect(page.locator("[aria-sort=ascending]")).to_contain_text("Instruction Following")
    expect(page.locator("tbody .chip").first).to_have_class("chip level-2 two")
    page.click("thead >> text=Instruction Following")
    expect(page.locator("[aria-sort=descending]")).to_contain_text("Instruction Following")
    expect(page.locator("tbody .chip").first).to_have_class("chip level-4 two")
    assert "order=-label.instruction_following" in page.url
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1.instruction")).to_contain_text("Change the color of patch")


def test_the_reports_charts_have_a_view_of_their_own(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = new_page(listen(runs=(many_edits(tmp_path, 30),)))
    page.goto("/runs/run")
    expect(page.locator(".bar")).to_have_count(2)
    page.click(".bar a >> nth=0")
    expect(page.locator(".count")).not_to_contain_text("of 30 edits")
    page.get_by_role("link", name="Charts").click()
    figures = page.locator(".sheet")
    expect(figures.first).to_be_visible(timeout=60_000)
    expect(page.locator(".sheet svg")).to_have_count(figures.count(), timeout=60_000)
    page.get_by_role("link", name="Agreement and tools").click()
    expect(page.locator(".confusion").first).to_be_visible()


def test_a_point_of_a_chart_leads_to_its_edit(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = [Line(f"e{n}", 1 + n % 4, boxes=((1, 1, 3 + 2 * n, 9),)) for n in range(12)]
    page = new_page(listen(runs=(make_run(tmp_path / "run", lines, pictures=True),)))
    page.goto("/runs/run?view=charts")
    point = page.locator('.sheet a[href*="/trace?edit=e7&"]').first
    point.click()
    expect(page.locator("h1.instruction")).to_be_visible()
    assert "edit=e7" in page.url


@pytest.mark.parametrize("part", ["bar", "cell"])
def test_a_part_of_a_chart_leads_to_its_edits(listen: Listen, new_page: NewPage, tmp_path: Path, part: str) -> None:
    pytest.importorskip("matplotlib")
    page = new_page(listen(runs=(many_edits(tmp_path, 30),)))
    page.goto("/runs/run?view=charts")
    link = page.locator(f'.sheet a[href*="{"human" if part == "cell" else "label"}+"]').first
    says = link.get_attribute("aria-label") or ""
    number = says.rpartition(": ")[2] if part == "bar" else says.partition(":")[0]
    link.click()
    expect(page.locator(".count")).to_contain_text(f"of {number} verdict")
    assert ("human" in page.url) == (part == "cell")


def test_charts_have_the_colours_of_the_scheme(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    address = listen(runs=(many_edits(tmp_path, 30),))
    inks = []
    for dark in (False, True):
        page = new_page(address, dark=dark)
        page.goto("/runs/run?view=charts")
        text = page.locator(".sheet text").first
        expect(text).to_be_visible(timeout=60_000)
        inks.append(text.evaluate("(one) => getComputedStyle(one).fill"))
        assert inks[-1] == page.evaluate("getComputedStyle(document.body).color")
    assert inks[0] != inks[1]


def test_the_target_is_enlarged_in_all_pictures_below_the_viewer(trace: Page) -> None:
    glasses = trace.locator(".loupe .glass")
    expect(glasses).to_have_count(2)
    for number in range(2):
        size = glasses.nth(number).bounding_box()
        assert size is not None
        assert min(size["width"], size["height"]) >= 300
    moved = "(all) => all.map((one) => one.style.transform)"
    before = trace.locator(".loupe img").evaluate_all(moved)
    assert before[0] == before[1] != ""
    # The target of 60 × 40 pixels fills a good part of each.
    assert trace.locator(".loupe img").first.evaluate("(one) => parseFloat(one.style.width)") > 200 * 2.5
    glasses.first.hover()
    trace.mouse.down()
    trace.mouse.move(*(lambda box: (box["x"] + 40, box["y"] + 60))(glasses.first.bounding_box()))
    trace.mouse.up()
    after = trace.locator(".loupe img").evaluate_all(moved)
    assert after[0] == after[1] != before[0]


def test_a_key_zooms_to_the_target_and_back(trace: Page) -> None:
    expect(trace.locator(".loupe-choices button").first).to_be_visible()  # the page's script has come
    whole, _ = zoom_of(trace, "source")
    trace.keyboard.press("g")
    closer, _ = zoom_of(trace, "source")
    assert closer > 1.3 * whole
    trace.keyboard.press("g")
    assert zoom_of(trace, "source")[0] == whole


def test_without_a_target_the_measured_differences_are_enlarged(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 3),)))
    page.goto("/runs/run/trace?edit=edit-00000")
    expect(page.locator(".loupe-choices button").first).to_have_text("Difference")


def test_the_next_trace_is_shown_as_the_last_one_was(trace: Page) -> None:
    expect(trace.locator(".loupe-choices button").first).to_be_visible()  # the page's script has come
    trace.keyboard.press("l")
    trace.keyboard.press("x")
    trace.reload()
    expect(trace.locator(".stage")).to_have_attribute("data-mode", "slider")
    expect(trace.locator("[data-toggle-boxes]")).to_have_attribute("aria-pressed", "false")


def test_edits_of_a_filtered_table_are_stepped_through(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 40),)))
    page.goto("/runs/run?apart=people&order=edit")
    expect(page.locator(".count")).to_contain_text("1–4 of 4 edits")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".within")).to_contain_text("1 of 4 in agrees = false")
    expect(page.locator(".verdict .human")).to_contain_text("1 label apart")
    expect(page.locator(".loupe-choices button").first).to_be_visible()  # the page's script has come
    page.keyboard.press("]")
    expect(page.locator(".within")).to_contain_text("2 of 4 in agrees = false")
    expect(page.locator("h1.instruction")).to_contain_text("patch 10")
    expect(page.locator(".loupe-choices button").first).to_be_visible()
    page.select_option("[name=criterion]", "visual_consistency")
    expect(page.locator(".verdict h3")).to_have_text("Visual Consistency")
    expect(page.locator(".within")).to_contain_text("2 of 4 in agrees = false")
    expect(page.locator(".loupe-choices button").first).to_be_visible()
    page.keyboard.press("[")
    expect(page.locator("h1.instruction")).to_contain_text("patch 0 ")
    expect(page.locator("[name=criterion]")).to_have_value("visual_consistency")
    page.click(".within code")
    expect(page.locator(".count")).to_contain_text("1–4 of 4 edits")


def test_one_filter_holds_by_edit_and_by_verdict_and_on_the_way_back(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 40),)))
    page.goto("/runs/run")
    page.select_option("[name=apart]", "people")
    expect(page.locator(".count")).to_contain_text("of 4 edits")
    page.keyboard.press("Escape")
    page.locator("[name=apart]").blur()
    page.keyboard.press("v")
    expect(page.locator(".count")).to_contain_text("of 4 verdicts")
    page.keyboard.press("f")
    query = page.locator("[name=where][type=search]")
    expect(query).to_be_focused()
    query.fill("agrees = false and apart > 40")
    page.keyboard.press("Enter")
    expect(page.locator(".count")).to_contain_text("of 2 verdicts")
    page.keyboard.press("e")
    expect(page.locator(".count")).to_contain_text("of 2 edits")
    expect(page.locator("[name=apart]")).to_have_value("people")
    page.go_back()
    expect(page.locator(".count")).to_contain_text("of 2 verdicts")
    expect(query).to_have_value("agrees = false and apart > 40")
    query.fill("lable = 3")
    page.keyboard.press("Enter")
    expect(page.locator("[role=alert]")).to_contain_text("did you mean label?")
    expect(query).to_have_attribute("aria-invalid", "true")
    page.click("text=Clear")
    expect(page.locator(".count")).to_contain_text("of 40 edits")
    expect(query).to_have_value("")
    page.click("text=Worst disagreements")
    expect(page.locator("tbody tr").first).to_contain_text("3 apart")


def test_columns_are_chosen_and_remembered(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 4),)))
    page.goto("/runs/run")
    heads = page.locator("thead th")
    expect(heads.filter(has_text="Confidence")).to_have_count(1)
    page.click("summary >> text=Columns")
    page.get_by_role("checkbox", name="Confidence").uncheck()
    expect(heads.filter(has_text="Confidence")).to_have_count(0)
    page.get_by_role("checkbox", name="Cost").uncheck()
    expect(heads.filter(has_text="Cost")).to_have_count(0)
    assert "columns=label%2Cpeople%2Csteps%2Cseconds%2Ctags" in page.url
    page.goto("/runs/run?by=verdict")
    expect(heads.filter(has_text="Steps")).to_have_count(1)
    expect(heads.filter(has_text="Cost")).to_have_count(0)


def test_the_bars_follow_the_editing_model(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 30),)))
    page.goto("/runs/run")
    counts = page.locator(".bar").first.locator("b")
    assert sum(map(int, counts.all_inner_texts())) == 30
    whole = page.locator(".bar svg[role=img]").first.get_attribute("aria-label")
    page.select_option("[name=model]", "painter-1")
    expect(page.locator(".count")).to_contain_text("of 10 edits")
    expect(page.locator(".bar svg[role=img]").first).not_to_have_attribute("aria-label", str(whole))
    assert sum(map(int, counts.all_inner_texts())) == 10


def test_an_overview_leads_to_each_step(trace: Page) -> None:
    lines = trace.locator(".overview a")
    expect(lines).to_have_count(12)
    expect(lines.first).to_contain_text("zoom_in_image")
    expect(lines.last).to_contain_text("answer")
    lines.last.click()
    expect(trace.locator("#step-12")).to_be_focused()


def test_enlarged_pictures_are_gone_through_with_the_arrow_keys(trace: Page) -> None:
    trace.locator(".step .shot").first.click()
    caption = trace.locator(".lightbox figcaption")
    expect(caption).to_contain_text("(1 of ")
    trace.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("(2 of ")
    trace.keyboard.press("ArrowLeft")
    expect(caption).to_contain_text("(1 of ")


def test_hovering_a_step_lights_its_box(trace: Page) -> None:
    lit = trace.locator("[data-pane=edited] .mark.lit")
    expect(lit).to_have_count(0)
    trace.locator(".step").nth(1).hover()
    expect(lit).to_have_count(1)
    assert trace.locator("[data-pane=source] .mark.dim").count() > 3
    trace.locator(".step").nth(2).focus()
    expect(trace.locator("[data-pane=source] .mark.lit")).to_have_count(1)
    trace.keyboard.press("j")
    expect(trace.locator(".step").nth(3)).to_be_focused()
    trace.keyboard.press("Enter")
    expect(trace.locator(".zoom-level")).not_to_have_text("100 %")


def test_both_pictures_zoom_and_move_together(trace: Page) -> None:
    before = zoom_of(trace, "source")
    trace.keyboard.press("+")
    trace.keyboard.press("+")
    assert zoom_of(trace, "source")[0] > 2 * before[0]
    assert zoom_of(trace, "source") == zoom_of(trace, "edited")
    trace.locator(".stage").focus()
    trace.keyboard.press("ArrowRight")
    moved = zoom_of(trace, "edited")
    assert moved == zoom_of(trace, "source")
    trace.locator("[data-pane=edited]").hover()
    trace.mouse.wheel(0, -400)
    expect(trace.locator(".zoom-level")).not_to_have_text("256 %")
    assert zoom_of(trace, "source")[0] > moved[0]
    trace.mouse.down()
    trace.mouse.move(500, 400, steps=3)
    trace.mouse.up()
    assert zoom_of(trace, "source") == zoom_of(trace, "edited")
    trace.keyboard.press("0")
    assert zoom_of(trace, "source")[0] == before[0]


def test_slider_blink_and_difference_show_the_pictures_over_each_other(trace: Page) -> None:
    trace.keyboard.press("l")
    handle = trace.locator(".handle")
    expect(handle).to_be_visible()
    handle.focus()
    trace.keyboard.press("Home")
    expect(handle).to_have_attribute("aria-valuenow", "0")
    clip = "getComputedStyle(document.querySelector('[data-pane=edited]')).clipPath"
    assert trace.evaluate(clip) == "inset(0px 0px 0px 0%)"
    around = trace.locator(".stage").bounding_box()
    assert around is not None
    trace.mouse.move(around["x"] + 3, around["y"] + around["height"] / 2)
    trace.mouse.down()
    trace.mouse.move(around["x"] + around["width"] * 0.75, around["y"] + 40, steps=4)
    trace.mouse.up()
    expect(handle).to_have_attribute("aria-valuenow", "75")
    trace.keyboard.press("b")
    expect(trace.locator("[data-pane=edited].behind")).to_have_count(1)
    expect(trace.locator("[data-pane=source].behind")).to_have_count(1)
    trace.keyboard.press("d")
    expect(trace.locator("img.difference")).to_have_js_property("naturalWidth", 200)
    expect(trace.locator("img.difference")).to_be_visible()
    trace.keyboard.press("x")
    expect(trace.locator(".mark")).to_have_count(0)
    trace.keyboard.press("s")
    expect(trace.locator("[data-view=side]")).to_have_attribute("aria-pressed", "true")


def test_raw_request_and_reply_come_on_demand_in_a_wide_pane(trace: Page) -> None:
    asked: list[str] = []
    trace.on("request", lambda request: asked.append(request.url))
    trace.locator("[data-raw]").nth(1).click()
    request, reply = (trace.locator(f".raw-pane [data-part={part}]") for part in ("request", "reply"))
    expect(request).to_contain_text("You judge edits.")
    expect(reply).to_contain_text("zoom_in_image")
    assert len([url for url in asked if "/raw?" in url]) == 1
    width = trace.locator(".raw-pane").evaluate("(pane) => pane.offsetWidth / innerWidth")
    assert width > 0.9
    trace.fill(".raw-pane [name=find]", "zoom_IN")
    expect(trace.locator(".raw-pane output")).to_have_text("1 of 3")
    trace.keyboard.press("Enter")
    expect(trace.locator(".raw-pane output")).to_have_text("2 of 3")
    expect(trace.locator("mark.here")).to_have_text("zoom_in")
    trace.fill(".raw-pane [name=find]", "nowhere")
    expect(trace.locator(".raw-pane output")).to_have_text("not found")
    trace.context.grant_permissions(["clipboard-read", "clipboard-write"])
    trace.locator("[data-copy=request]").click()
    expect(trace.locator("[data-copy=request]")).to_have_text("Copied")
    copied = json.loads(trace.evaluate("navigator.clipboard.readText()"))
    assert copied[0] == {"role": "system", "content": "You judge edits."}
    trace.keyboard.press("Escape")
    expect(trace.locator(".raw-pane")).to_be_hidden()


def test_steps_are_collapsed_one_by_one_and_all_together(trace: Page) -> None:
    thoughts = trace.locator(".step .thought:visible")
    expect(thoughts).to_have_count(12)
    trace.get_by_role("button", name="Collapse all").click()
    expect(thoughts).to_have_count(0)
    expect(trace.locator(".step-act:visible").first).to_have_text("zoom_in_image")
    trace.locator(".overview a").nth(2).click()
    expect(thoughts).to_have_text("I look. (3)")
    trace.keyboard.press("o")
    expect(thoughts).to_have_count(0)
    trace.keyboard.press("r")
    expect(trace.locator(".raw-pane h2")).to_have_text("Step 3: raw request and reply")
    trace.keyboard.press("Escape")
    trace.get_by_role("button", name="Expand all").click()
    expect(thoughts).to_have_count(12)


def test_a_pair_of_crops_is_zoomed_and_blinks_between_its_halves(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    source, edited = edit_pair(tmp_path)
    words = "Change the color of the patch to red"
    asked = ["--judge", "rules", "--mode", "tools", "--out", str(tmp_path / "run")]
    assert command(["judge", str(source), str(edited), words, *asked]) == 0
    page = new_page(listen(runs=(tmp_path / "run",)), width=1440)
    page.goto("/runs/run/trace?edit=after")
    expect(page.locator(".step").last).to_contain_text("The rationale above.")
    crop = page.locator(".crops img").first
    assert crop.evaluate("(one) => one.offsetWidth") > 300
    crop.click()
    moved = "(one) => one.style.transform + one.style.clipPath"
    picture = page.locator(".lightbox img")
    expect(page.locator(".lightbox [data-halves]")).to_be_visible()
    whole = picture.evaluate(moved)
    page.keyboard.press("b")
    half = page.locator(".lightbox [data-half]")
    expect(half).to_have_text("right half")
    right = picture.evaluate(moved)
    expect(half).to_have_text("left half")
    assert len({whole, right, picture.evaluate(moved)}) == 3
    page.keyboard.press("b")
    page.keyboard.press("+")
    expect(page.locator(".lightbox [data-zoom-level]")).to_have_text("160 %")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".lightbox [data-halves]")).to_be_hidden()


def test_two_traces_stand_beside_each_other(trace: Page) -> None:
    trace.select_option("[name=beside]", index=1)
    expect(trace.locator(".timeline")).to_have_count(2)
    expect(trace.locator(".parting-line")).to_contain_text("They differ from step 4")
    expect(trace.locator(".step.parted")).to_have_count(2)
    trace.wait_for_load_state()  # another page: measured before its style sheets are there, nothing stands in its place
    left, right = (trace.locator(".timeline").nth(n).bounding_box() for n in (0, 1))
    assert left is not None
    assert right is not None
    assert right["x"] > left["x"] + left["width"]
    trace.locator(".timeline >> nth=1 >> .step >> nth=3").hover()
    expect(trace.locator(".mark.lit")).to_have_count(1)


def test_a_picture_the_judge_saw_opens_large(trace: Page) -> None:
    trace.locator(".shot").first.click()
    expect(trace.locator("dialog.lightbox")).to_be_visible()
    trace.keyboard.press("Escape")
    expect(trace.locator("dialog.lightbox")).to_be_hidden()
    trace.keyboard.press("?")
    expect(trace.locator("dialog.keys")).to_contain_text("Zoom in, out, fit")


def test_a_hostile_thought_is_only_text(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen(runs=(long_trace(tmp_path, steps=3, thought=HOSTILE),)))
    page.goto(TRACE)
    expect(page.locator(".thought").first).to_contain_text("<script>document.title='owned'</script>")
    page.locator("[data-raw]").first.click()
    expect(page.locator("[data-part=reply]")).to_contain_text("owned")
    assert page.title() == "the-edit/../x · EditLoupe"
