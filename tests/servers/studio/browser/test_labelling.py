"""The Annotate page in a real browser: ten edits by keyboard, found again by `editloupe agree`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from editloupe.cli.main import run as editloupe
from editloupe.evals.stats.trust.label_queue import LabelQueue, QueuedEdit
from tests.servers.studio.browser.conftest import HeldBack, NewPage
from tests.servers.studio.conftest import Listen
from tests.servers.studio.samples import LABELS, long_trace, many_edits
from tests.servers.studio.test_worklists import vibe_manifest

FOLLOWING, CONSISTENCY = LABELS


def begin(page: Page, name: str) -> None:
    page.goto("/annotate")
    page.fill("[name=annotator]", name)
    page.keyboard.press("Enter")
    expect(page.locator(".question.current")).to_be_visible()


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_ten_edits_are_labelled_by_keyboard_and_agree_finds_them(
    listen: Listen, new_page: NewPage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = many_edits(tmp_path, 11)
    page = new_page(listen(runs=(folder,)))
    begin(page, "Ana")
    for number in range(10):
        expect(page).to_have_title(f"Label {number + 1} of 11 · EditLoupe")
        page.keyboard.press(str(1 + number % 4))
        page.keyboard.press(str(4 - number % 4))
        page.keyboard.press("n")
    expect(page).to_have_title("Label 11 of 11 · EditLoupe")
    labels = folder / "labels.jsonl"
    found = [(row["edit_id"], row["criterion"], row["label"], row["annotator"]) for row in rows(labels)]
    assert found == [
        (f"edit-{n:05}", criterion, LABELS[criterion][key], "Ana")
        for n in range(10)
        for criterion, key in ((FOLLOWING, n % 4), (CONSISTENCY, 3 - n % 4))
    ]
    page.goto("/runs/run/annotate")
    expect(page.locator("[data-annotators]")).to_contain_text("10 of 11")
    assert editloupe(["agree", str(folder), "--human", str(labels), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["annotators"] == {"annotator 1": 3, "Ana": 20}
    assert told[FOLLOWING]["n"] + told[FOLLOWING]["left_out"] == 11


def test_the_verdict_appears_only_after_ones_own_and_a_reload_loses_nothing(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 2),)))
    begin(page, "Ana")
    reveal = page.locator("[data-reveal]")
    checked = page.locator(".option[aria-checked=true]")
    page.keyboard.press("2")
    expect(page.locator(f"[data-criterion={CONSISTENCY}]")).to_have_class("question current")
    expect(checked).to_have_count(1)
    expect(page.locator("[data-saved]")).to_have_text("Saved")
    expect(reveal).to_contain_text("once you have given all your labels")
    page.reload()
    expect(checked).to_have_attribute("data-label", LABELS[FOLLOWING][1])
    expect(page.locator(f"[data-criterion={CONSISTENCY}].current")).to_be_visible()
    page.keyboard.press("4")
    expect(reveal).to_contain_text("Verdict of the judge")
    page.keyboard.press("u")
    expect(reveal).not_to_contain_text("Verdict of the judge")
    expect(checked).to_have_count(1)
    page.keyboard.press("Control+z")
    expect(checked).to_have_count(0)
    page.reload()
    expect(checked).to_have_count(0)


def test_undo_on_the_next_edit_goes_back_to_where_the_change_was(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    page = new_page(listen(runs=(many_edits(tmp_path, 2),)))
    begin(page, "Ana")
    for key in ("1", "1", "n"):
        page.keyboard.press(key)
    expect(page).to_have_title("Label 2 of 2 · EditLoupe")
    page.keyboard.press("u")
    expect(page).to_have_title("Label 1 of 2 · EditLoupe")
    expect(page.locator(".option[aria-checked=true]")).to_have_count(1)


def test_two_annotators_see_their_progress_and_their_alpha(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    address = listen(runs=(many_edits(tmp_path, 3),))
    for name, keys in (("Ana", "123"), ("Ben", "124")):
        page = new_page(address)
        saving = HeldBack(page, r"/labels$")
        begin(page, name)
        for number, key in enumerate(keys):
            expect(page).to_have_title(f"Label {number + 1} of 3 · EditLoupe")
            if number == 2:
                saving.hold()
            page.keyboard.press(key)
            page.keyboard.press(key)
            page.keyboard.press("Enter")
        page.click("details.people summary")  # while the last labels are on their way
        page.wait_for_timeout(300)  # long enough to count without them
        saving.let_go()
        people = page.locator("details.people")
        expect(people).to_contain_text(name)
        expect(page.locator("[data-saved]")).to_have_text("Saved")
    expect(people).to_contain_text("Ana")
    expect(people).to_contain_text("3 of 3")
    expect(people).to_contain_text("on 3 edits")


def test_target_boxes_are_corrected_and_kept(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    folder = long_trace(tmp_path, steps=2)
    page = new_page(listen(runs=(folder,)))
    begin(page, "Ana")
    field = page.locator("[data-box-list] input")
    expect(field).to_have_value("70, 50, 130, 90")
    field.fill("72, 52, 128, 88")
    field.press("Tab")
    expect(page.locator("[data-saved]")).to_have_text("Saved")
    assert rows(folder / "labels.jsonl")[0]["target_boxes"] == [[72, 52, 128, 88]]
    page.reload()
    expect(field).to_have_value("72, 52, 128, 88")
    page.click("[data-undo]")
    expect(field).to_have_value("70, 50, 130, 90")


def test_a_label_that_cannot_be_saved_says_so(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 1)
    page = new_page(listen(runs=(folder,)))
    begin(page, "Ana")
    (folder / "labels.jsonl").mkdir()
    page.keyboard.press("1")
    expect(page.locator("[data-saved]")).to_contain_text("Not saved")


def test_a_queue_is_worked_through_by_keyboard_with_doubt_skip_and_comment_and_goes_on_after_a_restart(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    folder = many_edits(tmp_path, 6)
    order = (4, 1, 3)
    names = [f"edit-{number:05}" for number in order]
    LabelQueue("q", tuple(QueuedEdit(name, name, None, 0.5, None, of=6) for name in names)).write(
        folder / "label_queue.jsonl"
    )
    page = new_page(listen(runs=(folder,)))
    page.goto("/annotate")
    page.fill("[name=annotator]", "Ana")
    page.check("[value='label_queue.jsonl']")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Label 1 of 3 · EditLoupe")
    expect(page.locator(".question.current")).to_be_visible()
    for key in ("i", "2", "3"):
        page.keyboard.press(key)
    expect(page.locator("[data-unsure][aria-pressed=true]")).to_have_count(1)
    page.keyboard.press("c")
    page.keyboard.type("An odd one, 4 tries")
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page).to_have_title("Label 2 of 3 · EditLoupe")
    page.keyboard.press("k")
    expect(page).to_have_title("Label 3 of 3 · EditLoupe")
    written = rows(folder / "labels.jsonl")
    assert [(row["edit_id"], row.get("label"), row.get("unsure")) for row in written if "criterion" in row] == [
        (names[0], LABELS[FOLLOWING][1], True),
        (names[0], LABELS[CONSISTENCY][2], None),
    ]
    assert [row["comment"] for row in written if "comment" in row] == ["An odd one, 4 tries"]
    assert [row["edit_id"] for row in written if row.get("skipped")] == [names[1]]
    again = new_page(listen(runs=(folder,)))
    again.goto("/runs/run/annotate?annotator=Ana&work=label_queue.jsonl")
    expect(again).to_have_title("Label 3 of 3 · EditLoupe")
    expect(again.locator(".question.current")).to_be_visible()
    again.keyboard.press("p")
    expect(again.locator("[data-skip]")).to_have_text("Skipped")
    again.keyboard.press("p")
    expect(again.locator("[data-comment]")).to_have_value("An odd one, 4 tries")


def test_a_check_list_of_a_manifest_nobody_judged_is_answered_by_keyboard(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    manifest = vibe_manifest(tmp_path)
    page = new_page(listen(runs=(manifest,), protocol="vibe"))
    begin(page, "Ana")
    items = page.locator("[data-check]")
    count = items.count()
    for _ in range(count):
        page.keyboard.press("2")
    expect(page.locator(".option[aria-checked=true]")).to_have_count(count)
    expect(page.locator("[data-total]")).to_have_text("Score of the list: 1.00 of 1")
    expect(page.locator(".further")).to_contain_text("Golden label")
    page.goto("/runs/vibe/annotate?annotator=Ana&edit=v1")
    expect(page.locator(".option[aria-checked=true]")).to_have_count(count)
    last = rows(tmp_path / "vibe.labels.jsonl")[-1]
    assert (last["label"], set(last["checks"].values())) == ("1", {"1"})  # type: ignore[attr-defined]


HOLD_REPLIES = """() => {
  const fetched = window.fetch.bind(window);
  window.held = [];
  window.fetch = async (...asked) => {
    const answer = await fetched(...asked);
    if (String(asked[0]).endsWith("/labels")) await new Promise((goOn) => window.held.push(goOn));
    return answer;
  };
}"""
"""The page learns of a saved label only when the test lets the reply through."""
LET_THROUGH = """() => new Promise((done) => {
  const look = () => { if (window.held.length) done(window.held.shift()()); else setTimeout(look, 10); };
  look();
})"""


def test_a_late_reply_does_not_send_the_next_key_to_an_answered_question(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    page = new_page(listen(runs=(vibe_manifest(tmp_path, "Addition"),), protocol="vibe"))
    begin(page, "Ana")
    count = page.locator("[data-check]").count()
    assert count > 4
    page.evaluate(HOLD_REPLIES)
    for key in "122":
        page.keyboard.press(key)
    page.evaluate(LET_THROUGH)
    for _ in range(count - 3):
        page.keyboard.press("2")
    answered = page.locator(".option[aria-checked=true]")
    expect(answered).to_have_count(count)
    for _ in range(count - 1):
        page.evaluate(LET_THROUGH)
    expect(page.locator("[data-saved]")).to_have_text("Saved")
    expect(answered).to_have_count(count)
    expect(answered.first).to_have_attribute("data-label", "0")


def test_differing_labels_are_settled_by_keyboard_without_the_judge(
    listen: Listen, new_page: NewPage, tmp_path: Path
) -> None:
    folder = many_edits(tmp_path, 2)
    address = listen(runs=(folder,))
    for name, key in (("Ana", "1"), ("Ben", "4")):
        page = new_page(address)
        begin(page, name)
        page.keyboard.press(key)
        page.keyboard.press(key)
        expect(page.locator("[data-reveal]")).to_contain_text("Verdict of the judge")
    page.goto("/runs/run/annotate?annotator=Cem&work=differ")
    expect(page.locator(".said").first).to_contain_text("Ben")
    expect(page.locator(".question.current")).to_be_visible()
    page.keyboard.press("4")
    page.keyboard.press("4")
    expect(page.locator(".option[aria-checked=true]")).to_have_count(2)
    expect(page.locator("[data-saved]")).to_have_text("Saved")
    expect(page.locator("[data-reveal]")).to_be_hidden()
    page.reload()
    expect(page.locator("[data-through]")).to_contain_text("settled")
    assert [row.get("adjudicated") for row in rows(folder / "labels.jsonl")[-2:]] == [True, True]
