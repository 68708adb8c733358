"""The Pairs page in a real browser: two people answer, a third settles, `make pairs` writes what they decided."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from editloupe.cli.main import run as editloupe
from tests.evals.preferences.samples import all_metrics, compass_run
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen


def answer(page: Page, name: str, key: str) -> None:
    page.goto("/pairs")
    page.fill("[name=annotator]", name)
    page.keyboard.press("Enter")
    expect(page.locator(".pair-picture img")).to_have_count(3)
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
