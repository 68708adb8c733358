"""A benchmark in the making in a real browser: boxes are drawn by hand, samples are reviewed, and the files say who and when."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from editloupe.making.folder import MakingFolder
from tests.conftest import StartServer
from tests.making.demo_questions import lines, make, models, write_questions
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen

SHOTS = os.environ.get("EDITLOUPE_SHOTS")


def made(questions: Path, out: Path, scripted: StartServer) -> None:
    """Make a benchmark in another thread: this one belongs to the browser's event loop."""
    server = scripted(models())
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(make, questions, out, server).result() == 0


def shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def left(page: Page, count: int) -> None:
    """Wait for the page that says so many are left, with its script at work."""
    expect(page.locator("[data-left]")).to_have_text(str(count))
    expect(page.locator("[data-ready]")).to_be_visible()


def enter(page: Page, name: str, button: str) -> None:
    page.goto("/")
    page.fill("[name=name]", name)
    page.get_by_role("button", name=button).click()


def test_boxes_are_drawn_corrected_and_refused_by_people(
    listen: Listen, new_page: NewPage, tmp_path: Path, scripted: StartServer
) -> None:
    questions, out = write_questions(tmp_path / "set", "cat-eye", "spoon-wood", boxes=False), tmp_path / "bench"
    made(questions, out, scripted)
    page = new_page(listen(runs=(out,)))
    enter(page, "Ana", "Draw boxes (2)")
    expect(page.locator(".instruction")).to_have_text("cat's eye on the left side of the picture")
    left(page, 2)
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("Draw a box first")
    picture = page.locator("[data-pane=source] img")
    expect(picture).to_have_js_property("complete", True)
    frame = picture.bounding_box()
    assert frame is not None
    scale = frame["width"] / 451
    page.mouse.move(frame["x"] + 138 * scale, frame["y"] + 86 * scale)
    page.mouse.down()
    page.mouse.move(frame["x"] + 170 * scale, frame["y"] + 120 * scale)
    page.mouse.move(frame["x"] + 205 * scale, frame["y"] + 146 * scale)
    page.mouse.up()
    expect(page.locator("[data-box-list] input")).to_have_count(1)
    shot(page, "making-boxes")
    page.get_by_role("button", name="These are the targets").click()
    left(page, 1)
    page.get_by_role("button", name="It is not in the picture").click()
    expect(page.locator("h1")).to_have_text("Nothing is left for you here")
    drawn, refused = lines(out / "boxes.jsonl")
    assert drawn["by"] == "Ana"
    assert drawn["confirmed"]
    box = drawn["boxes"][0]
    found = [box["x1"], box["y1"], box["x2"], box["y2"]]
    assert found == pytest.approx([138, 86, 205, 146], abs=3)
    assert refused["left_out"] == "the target is not in the picture"


def test_samples_are_accepted_corrected_sent_back_and_discarded(
    listen: Listen, new_page: NewPage, tmp_path: Path, scripted: StartServer
) -> None:
    names = ("cat-eye", "rocket-rod", "saucer-text", "spoon-wood")
    questions, out = write_questions(tmp_path / "set", *names), tmp_path / "bench"
    made(questions, out, scripted)
    page = new_page(listen(runs=(out,)))
    enter(page, "Ana", "Review (4)")
    left(page, 4)
    for words in ("cat's eye on the left side of the picture", "that is green.", "that is blue."):
        expect(page.locator(".making-words")).to_contain_text(words)
    page.keyboard.press("a")
    expect(page.locator("[data-saved]")).to_contain_text("confirm box, metadata and reference")
    for key in "123":
        page.keyboard.press(key)
    expect(page.locator("[data-pane=edited] img")).to_have_js_property("complete", True)
    shot(page, "making-review")
    page.keyboard.press("a")
    left(page, 3)
    page.fill("[data-note]", "the mast is bent")
    page.get_by_role("button", name="Make the reference again").click()
    left(page, 2)
    page.get_by_text("Correct the words").click()
    page.fill("[data-field=edit_instruction]", "Change the text on the saucer from 'ESPRESSO' to 'ARABICA'.")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save the corrections").click()
    left(page, 1)
    page.get_by_role("button", name="Discard").click()
    expect(page.locator("h1")).to_have_text("Nothing is left for you here")
    steps = {sample.id: sample.step for sample in MakingFolder(out).samples()}
    assert steps == {
        "cat-eye": "accepted",
        "rocket-rod": "regenerate",
        "saucer-text": "reference",
        "spoon-wood": "discarded",
    }
    given = lines(out / "reviews.jsonl")
    assert [one["decision"] for one in given] == ["accept", "regenerate", "correct", "discard"]
    assert {one["reviewer"] for one in given} == {"Ana"}
    assert all(one["at"].endswith("Z") for one in given)
    assert given[1]["note"] == "the mast is bent"
    page.goto("/making/bench")
    expect(page.locator("main")).to_contain_text("No sample was reviewed by two people yet")
    shot(page, "making")


def test_hostile_words_stay_words(listen: Listen, new_page: NewPage, tmp_path: Path, scripted: StartServer) -> None:
    questions, out = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench"
    text = questions.read_text("utf-8").replace('"blue"', '"<img src=x onerror=alert(1)>"')
    questions.write_text(text, "utf-8")
    made(questions, out, scripted)
    page = new_page(listen(runs=(out,)))
    enter(page, "<b>Ana</b>", "Review (1)")
    expect(page.locator(".making-question")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator(".crumb")).to_contain_text("<b>Ana</b>")
