"""Every page of the studio, the HTML report and a trace that is sent have no fault that axe-core knows.

axe-core is no part of the package: `make browser` fetches it from npm into .cache/axe.min.js, and without it these tests skip.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from editloupe.cli.main import run as command
from editloupe.types import Box
from tests.evals.preferences.samples import all_metrics, compass_run
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen
from tests.servers.studio.samples import long_trace, many_edits

PLACE = Path(os.environ.get("EDITLOUPE_AXE") or Path(__file__).parents[4] / ".cache" / "axe.min.js")
LOOKS = (
    pytest.param({"width": 1280}, id="wide"),
    pytest.param({"width": 400, "dark": True}, id="narrow and dark", marks=pytest.mark.slow),
)
EDIT = "edit=the-edit%2F..%2Fx&criterion=instruction_following"
PAGES = {
    "/runs": "h1",
    "/runs/run": "table.edits",
    "/runs/run?view=charts": ".sheets svg",
    "/runs/run?view=agreement": ".lab",
    "/runs/run?label=unjudged": "table.edits",
    f"/runs/run-2/trace?{EDIT}": ".stage",
    f"/runs/run-2/trace?{EDIT}&beside=run-2~1": ".parting-line",
    f"/runs/run-2/verdicts?{EDIT}": ".grid",
    f"/runs/run-2/fork?{EDIT}&repeat=0&step=1": "form",
    "/runs/run/forks": "h1",
    "/runs/run?by=verdict": "table",
    "/runs/run/differences?other=run-2": "h1",
    "/runs/run/trust": "h1",
    "/runs/run/corrected": "h1",
    "/ranking": "h1",
    "/runs/run/annotate": "form",
    "/runs/run/annotate?annotator=ana": ".question",
    "/annotate": "h1",
    "/judge": "form",
    "/runs/none": "h1",
}


@pytest.fixture(scope="module")
def axe() -> str:
    if not PLACE.is_file():
        pytest.skip(f"no axe-core at {PLACE.name}: make browser fetches it, or set EDITLOUPE_AXE to axe.min.js")
    return PLACE.read_text("utf-8")


def faults(page: Page, axe: str) -> list[str]:
    """Return what axe-core finds, each with the element it is about."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_has_a_fault(axe: str, look: dict[str, Any], listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    address = listen(runs=(many_edits(tmp_path / "many", 40), long_trace(tmp_path / "long", repeats=2)))
    page = new_page(address, **look)
    found = {}
    for place, sign in PAGES.items():
        page.goto(place)
        page.wait_for_selector(sign)
        for fold in page.query_selector_all("details:not([open]) > summary"):
            if fold.is_visible():
                fold.click()
        found[place] = faults(page, axe)
    assert {place: told for place, told in found.items() if told} == {}


@pytest.mark.parametrize("look", LOOKS)
def test_what_opens_over_a_trace_and_the_pages_of_pairs_have_no_fault(
    axe: str, look: dict[str, Any], listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    scores = {name: [all_metrics(score, 4, 4, 4)] for name, score in (("x", 5), ("y", 3))}
    boxes = (Box(x1=40, y1=30, x2=60, y2=50),)
    making = ["make", "pairs", str(compass_run(tmp_path / "judged", scores, boxes=boxes)), "--dimension", "IA"]
    assert command([*making, "--out", str(tmp_path / "pairs.jsonl")]) == 0
    page = new_page(listen(runs=(long_trace(tmp_path / "long"),), pairs=(tmp_path / "pairs.jsonl",)), **look)
    found = {}
    page.goto(f"/runs/run/trace?{EDIT}")
    page.wait_for_load_state("networkidle")
    for name, button in (("picture", ".shot"), ("raw exchange", "[data-raw]")):
        page.locator(button).first.click()
        page.wait_for_selector("dialog[open]")
        found[name] = faults(page, axe)
        page.keyboard.press("Escape")
    page.goto("/pairs/1?annotator=Ana")
    page.wait_for_load_state("networkidle")
    found["pairs"] = faults(page, axe)
    assert {place: told for place, told in found.items() if told} == {}


def test_the_page_before_the_token_has_no_fault(axe: str, listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(), known=False)
    page.goto("/")
    assert faults(page, axe) == []


@pytest.mark.parametrize("look", LOOKS)
def test_files_that_are_sent_have_no_fault(
    axe: str, look: dict[str, Any], listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    run, traced = many_edits(tmp_path / "many", 40), long_trace(tmp_path / "long")
    report, trace = tmp_path / "report.html", tmp_path / "trace.html"
    assert command(["report", str(run), "--out", str(report)]) == 0
    assert command(["trace", str(traced), "the-edit/../x", "--out", str(trace)]) == 0
    page = new_page(listen(), **look)
    found = {}
    for file in (report, trace):
        page.goto(file.as_uri())
        found[file.name] = faults(page, axe)
    assert {name: told for name, told in found.items() if told} == {}
