"""The Pairs page in a real browser: two people answer, a third settles, `make pairs` writes what they decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from editloupe.cli.main import run as editloupe
from editloupe.types import Box
from tests.evals.preferences.samples import all_metrics, compass_run
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen


def answer(page: Page, name: str, key: str) -> None:
    page.goto("/pairs")
    page.fill("[name=annotator]", name)
    page.keyboard.press("Enter")
    expect(page.locator(".pane img")).to_have_count(3)
    page.wait_for_load_state("load")
    page.keyboard.press("3")
    page.keyboard.press("u")
    expect(page.locator("input:checked")).to_have_count(0)
    page.keyboard.press("4")
    expect(page.locator("[name=a][value='4']")).to_be_checked()
    page.keyboard.press("2")
    expect(page.get_by_role("button", name="A is better")).to_be_visible()
    page.wait_for_load_state("load")
    page.keyboard.press(key)


@pytest.fixture
def pair(listen: Listen, new_page: NewPage, tmp_path: Path) -> Page:
    models = {"x": [all_metrics(5, 4, 4, 4)] * 2, "y": [all_metrics(3, 4, 4, 4)] * 2}
    run = compass_run(tmp_path / "run", models, boxes=(Box(x1=40, y1=30, x2=60, y2=50),))
    making = ["make", "pairs", str(run), "--out", str(tmp_path / "pairs.jsonl")]
    assert editloupe([*making, "--dimension", "IA"]) == 0
    page = new_page(listen(pairs=(tmp_path / "pairs.jsonl",)))
    page.goto("/pairs/1?annotator=Ana")
    page.wait_for_load_state("networkidle")
    return page


def test_source_and_candidates_zoom_together_and_lie_over_each_other(pair: Page) -> None:
    widths = "(all) => all.map((one) => parseFloat(one.style.width))"
    whole = pair.locator(".pane img").evaluate_all(widths)
    assert len(set(whole)) == 1
    expect(pair.locator(".mark.target")).to_have_count(3)
    pair.keyboard.press("g")
    closer = pair.locator(".pane img").evaluate_all(widths)
    assert len(set(closer)) == 1
    assert closer[0] > 2 * whole[0]
    assert pair.locator(".loupe").count() == 3
    visible = pair.locator(".pane:visible")
    expect(visible).to_have_count(3)
    pair.keyboard.press("l")
    expect(visible).to_have_count(2)
    expect(pair.locator("[data-pane=source]")).to_be_hidden()
    expect(pair.locator(".handle")).to_be_visible()
    pair.keyboard.press("o")
    expect(pair.locator("[data-over='source a']")).to_have_attribute("aria-pressed", "true")
    expect(pair.locator("[data-pane=b]")).to_be_hidden()
    pair.keyboard.press("v")
    expect(pair.locator("[data-pane=source].behind")).to_have_count(1)
    expect(pair.locator("[data-pane=a].behind")).to_have_count(1)


def test_ratings_and_choices_are_taken_back_by_a_key(pair: Page, tmp_path: Path) -> None:
    first = pair.locator("h1").inner_text()
    for key in ("4", "2"):
        pair.keyboard.press(key)
    expect(pair.locator(".pair-question")).to_contain_text("You rated A 4 and B 2.")
    pair.wait_for_load_state("networkidle")
    pair.keyboard.press("u")
    expect(pair.locator(".pair-scale")).to_have_count(2)
    expect(pair.locator("input:checked")).to_have_count(0)
    pair.wait_for_load_state("networkidle")
    for key in ("5", "1"):
        pair.keyboard.press(key)
    expect(pair.locator(".pair-question")).to_contain_text("You rated A 5 and B 1.")
    pair.wait_for_load_state("networkidle")
    pair.keyboard.press("a")
    expect(pair.locator("h1")).not_to_have_text(first)
    pair.wait_for_load_state("networkidle")
    pair.keyboard.press("u")
    expect(pair.locator("h1")).to_have_text(first)
    expect(pair.locator(".pair-question")).to_contain_text("You chose A; another choice replaces it.")
    pair.wait_for_load_state("networkidle")
    pair.keyboard.press("t")
    expect(pair.locator("h1")).not_to_have_text(first)
    rows = [json.loads(line) for line in (tmp_path / "pairs.answers.jsonl").read_text().splitlines()]
    assert [sorted(row["ratings"].values()) for row in rows if "ratings" in row] == [[2, 4], [1, 5]]
    assert rows[-1]["choice"] == "tie"


def test_two_people_disagree_and_a_third_settles_the_pair(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    models = {"x": [all_metrics(5, 4, 4, 4)], "y": [all_metrics(3, 4, 4, 4)]}
    making = ["make", "pairs", str(compass_run(tmp_path / "run", models)), "--out", str(tmp_path / "pairs.jsonl")]
    assert editloupe([*making, "--dimension", "IA"]) == 0
    page = new_page(listen(pairs=(tmp_path / "pairs.jsonl",)))
    for name, key in (("Ana", "a"), ("Bo", "b"), ("Cy", "a")):
        answer(page, name, key)
        expect(page.get_by_role("heading", name="Nothing more to answer")).to_be_visible()
    page.goto("/pairs/1?annotator=Di")
    expect(page.get_by_role("heading", name="Nothing more to answer")).to_be_visible()
    assert editloupe([*making, "--dimension", "IA"]) == 0
    (line,) = [json.loads(one) for one in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert (line["by"], line["votes"]) == ("people", {"winner": 2, "loser": 1, "tie": 0})
