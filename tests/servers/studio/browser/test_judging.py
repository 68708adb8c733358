"""The Judge page in a real browser."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from editloupe.rubrics.registry import get_protocol
from editloupe.servers.studio.settings import UPLOAD_BYTES
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, huge_png
from tests.rubrics.samples import reply_for
from tests.scripted import Request, call, final, say
from tests.servers.studio.browser.conftest import NewPage
from tests.servers.studio.conftest import Listen
from tests.servers.studio.samples import HOSTILE

INSTRUCTION = "Change the color of the patch to red"


def choose_pair(page: Page, folder: Path) -> None:
    for role, path in zip(("source", "edited"), edit_pair(folder), strict=True):
        page.set_input_files(f"[data-slot={role}] input", path)
        expect(page.locator(f"[data-slot={role}].filled")).to_be_visible()
    page.fill("[name=instruction]", INSTRUCTION)


def test_an_example_is_judged_with_the_embedded_judge_and_its_trace_opened(listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen())
    page.goto("/judge")
    page.click("[data-example=name-tag]")
    expect(page.locator("[name=instruction]")).to_have_value(
        "Change the color of the name tag with the wings from dark blue to green."
    )
    expect(page.locator("[data-box-list] input")).to_have_value("277, 337, 331, 380")
    page.click("[data-start]")
    expect(page.locator(".verdict")).to_have_count(2)
    expect(page.locator(".timeline h2")).to_have_text(["Instruction Following", "Visual Consistency"])
    assert page.locator(".step").count() >= 3
    expect(page.locator(".verdict .meaning").first).not_to_be_empty()
    expect(page.locator("[data-stop]")).to_be_hidden()
    page.reload()
    expect(page.locator(".verdict")).to_have_count(2)
    page.click(".verdict a >> nth=0")
    expect(page).to_have_title("name-tag-" + page.url.split("name-tag-")[1][:6] + " · EditLoupe")
    expect(page.locator(".step").first).to_be_visible()


def test_the_steps_of_a_model_appear_as_they_happen(
    listen: Listen, new_page: NewPage, scripted: StartServer, tmp_path: Path
) -> None:
    go_on = threading.Event()

    def answer(request: Request) -> Any:
        if not any(message.role == "assistant" for message in request.messages):
            look = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
            return look.but(text=f"I look at the patch. {HOSTILE}")
        assert go_on.wait(30)
        return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Over Modification")

    server = scripted(answer)
    page = new_page(listen(base_urls=(server.openai_url,)))
    page.goto("/judge")
    choose_pair(page, tmp_path)
    page.fill("[name=judge]", "openai:gpt-4.1")
    page.select_option("[name=base_url]", server.openai_url)
    page.press("[name=instruction]", "Control+Enter")
    expect(page.locator(".step")).to_have_count(2)
    expect(page.locator(".verdict")).to_have_count(0)
    expect(page.locator("[data-working]")).to_be_visible()
    expect(page.locator(".step .thought").first).to_contain_text("<script>document.title='owned'</script>")
    expect(page.locator(".step .shot img").first).to_have_js_property("complete", True)
    go_on.set()
    expect(page.locator(".verdict")).to_have_count(2)
    expect(page.locator(".step")).to_have_count(4)
    expect(page.locator(".verdict").first).to_contain_text("Over Modification")
    expect(page.locator("[data-working]")).to_be_hidden()
    assert page.title() == "Judge an edit · EditLoupe"


def test_stop_stops(listen: Listen, new_page: NewPage, scripted: StartServer, tmp_path: Path) -> None:
    release = threading.Event()

    def never(request: Request) -> Any:
        release.wait(30)
        return say("late")

    server = scripted(never)
    page = new_page(listen(base_urls=(server.openai_url,)))
    page.goto("/judge")
    choose_pair(page, tmp_path)
    page.fill("[name=judge]", "openai:gpt-4.1")
    page.select_option("[name=base_url]", server.openai_url)
    page.click("[data-start]")
    page.click("[data-stop]")
    expect(page.locator(".toast")).to_contain_text("Stopped")
    expect(page.locator("[data-start]")).to_be_enabled()
    expect(page.locator(".verdict")).to_have_count(0)
    release.set()


def test_a_missing_key_is_a_sentence(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen())
    page.goto("/judge")
    choose_pair(page, tmp_path)
    page.fill("[name=judge]", "openai:gpt-5.1")
    page.click("[data-start]")
    expect(page.locator("[data-failure]")).to_contain_text("openai:gpt-5.1 needs a key: set OPENAI_API_KEY")
    expect(page.locator("[data-start]")).to_be_enabled()


def test_a_file_that_is_no_picture_is_a_sentence(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("not a picture")
    page = new_page(listen())
    page.goto("/judge")
    page.set_input_files("[data-slot=source] input", tmp_path / "notes.png")
    expect(page.locator("[data-failure]")).to_contain_text("notes.png: this file is not a picture")


def test_a_picture_that_is_too_large_is_a_sentence(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    (tmp_path / "vast.png").write_bytes(huge_png(12_200, 12_200))
    with (tmp_path / "heavy.png").open("wb") as file:
        file.truncate(UPLOAD_BYTES + 1)
    page = new_page(listen())
    page.goto("/judge")
    page.set_input_files("[data-slot=source] input", tmp_path / "vast.png")
    expect(page.locator("[data-failure]")).to_have_text(
        "vast.png: this picture is larger than the limit of 50 megapixels"
    )
    page.set_input_files("[data-slot=edited] input", tmp_path / "heavy.png")
    expect(page.locator("[data-failure]")).to_have_text("heavy.png: That is more than the limit of 40 MB.")
    expect(page.locator(".slot.filled")).to_have_count(0)


def test_the_servers_named_at_the_start_are_offered_and_only_where_a_model_is_asked(
    listen: Listen, new_page: NewPage
) -> None:
    page = new_page(listen(base_urls=("http://127.0.0.1:8000/v1", "http://127.0.0.1:9000/v1"), judge="openai:qwen"))
    page.goto("/judge")
    server = page.locator("[name=base_url]")
    expect(server.locator("option")).to_have_text(
        ["The provider’s own", "http://127.0.0.1:8000/v1", "http://127.0.0.1:9000/v1"]
    )
    expect(server).to_have_value("http://127.0.0.1:8000/v1")
    page.fill("[name=judge]", "rules")
    expect(server).to_be_disabled()
    page.click("[data-example=cat-eye]")
    page.click("[data-start]")
    expect(page.locator(".verdict")).to_have_count(2)
    without = new_page(listen())
    without.goto("/judge")
    expect(without.locator("[name=base_url]")).to_be_hidden()


def test_a_target_box_is_drawn_corrected_and_judged(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen())
    page.goto("/judge")
    choose_pair(page, tmp_path)
    page.locator("[name=instruction]").blur()
    page.keyboard.press("t")
    pane = page.locator("[data-pane=source]")
    pane.scroll_into_view_if_needed()
    around = pane.bounding_box()
    assert around is not None
    frame = page.locator("[data-pane=source] img").evaluate(
        "(one) => { const r = one.getBoundingClientRect(); return [r.x, r.y, r.width, r.height] }"
    )

    def at(x: float, y: float) -> tuple[float, float]:
        return frame[0] + frame[2] * x / 160, frame[1] + frame[3] * y / 120

    def drag(start: tuple[float, float], end: tuple[float, float]) -> None:
        page.mouse.move(*start)
        page.mouse.down()
        page.mouse.move(*end, steps=4)
        page.mouse.up()

    drag(at(60, 40), at(100, 70))
    field = page.locator("[data-box-list] input")
    expect(field).to_have_value("60, 40, 100, 70")
    drag(at(100, 70), at(110, 80))
    expect(field).to_have_value("60, 40, 110, 80")
    drag(at(80, 60), at(70, 55))
    expect(field).to_have_value("50, 35, 100, 75")
    field.fill("60 40 100 70")
    field.press("Tab")
    with page.expect_request(lambda request: request.url.endswith("/judge") and request.method == "POST") as sent:
        page.click("[data-start]")
    assert (sent.value.post_data_json or {})["boxes"] == [[60, 40, 100, 70]]
    expect(page.locator(".verdict")).to_have_count(2)


def test_pictures_can_be_dropped_two_at_once(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen())
    page.goto("/judge")
    expect(page.locator("[name=mode]")).to_have_value("tools")
    dropped = page.evaluate_handle(
        "(files) => { const all = new DataTransfer(); "
        "for (const [name, bytes] of files) all.items.add(new File([new Uint8Array(bytes)], name)); return all }",
        [[path.name, list(path.read_bytes())] for path in edit_pair(tmp_path)],
    )
    page.dispatch_event("[data-slot=source]", "drop", {"dataTransfer": dropped})
    expect(page.locator("[data-slot=source] small")).to_have_text("before.png, 160 × 120")
    expect(page.locator("[data-slot=edited] small")).to_have_text("after.png, 160 × 120")
    expect(page.locator("[data-pane=source] img")).to_have_js_property("naturalWidth", 160)


def test_the_mode_and_the_types_follow_the_protocol(listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen())
    page.goto("/judge")
    expect(page.locator("[name=mode]")).to_have_value("tools")
    assert page.locator("[name=instruction_type] option").count() == 8
    page.click("[data-example=cat-eye]")
    expect(page.locator("[name=instruction_type]")).to_have_value("Change Color")
    page.select_option("[name=mode]", "oracle")
    page.click("[data-start]")
    expect(page.locator(".verdict")).to_have_count(2)


def test_a_protocol_with_further_pictures_has_slots_for_them(
    listen: Listen, new_page: NewPage, scripted: StartServer, tmp_path: Path
) -> None:
    vibe = get_protocol("vibe")
    server = scripted(lambda request: say(reply_for(vibe, request.system)))
    page = new_page(listen(judge="openai:gpt-5.1", base_urls=(server.openai_url,)))
    page.goto("/judge")
    annotated = page.locator("[data-slot=annotated]")
    expect(annotated).to_be_hidden()
    page.select_option("[name=protocol]", "vibe")
    expect(annotated).to_be_visible()
    choose_pair(page, tmp_path)
    page.set_input_files("[data-slot=annotated] input", edit_pair(tmp_path)[0])
    expect(page.locator("[data-slot=annotated].filled")).to_be_visible()
    page.select_option("[name=instruction_type]", "AD")
    page.click("[data-start]")
    expect(page.locator(".verdict").first).to_be_visible()
    expect(page.locator(".verdict.is-unjudged")).to_have_count(0)
    assert any(sum(len(message.images) for message in request.messages) == 3 for request in server.requests)


def test_the_handles_of_a_small_box_leave_it_in_sight(listen: Listen, new_page: NewPage, tmp_path: Path) -> None:
    page = new_page(listen())
    page.goto("/judge")
    choose_pair(page, tmp_path)
    page.click("[data-box-add]")
    page.fill("[data-box-list] input", "20, 20, 26, 26")
    page.keyboard.press("Enter")
    page.click("[data-toggle-draw]")
    box = page.locator(".mark.editable .line").bounding_box()
    assert box is not None
    for handle in page.locator(".grip").all():
        around = handle.bounding_box()
        assert around is not None
        middle = (around["x"] + around["width"] / 2, around["y"] + around["height"] / 2)
        assert not (box["x"] < middle[0] < box["x"] + box["width"] and box["y"] < middle[1] < box["y"] + box["height"])


def test_the_slots_of_further_pictures_share_the_row(listen: Listen, new_page: NewPage) -> None:
    page = new_page(listen(), width=1440)
    page.goto("/judge")
    page.select_option("[name=protocol]", "vibe")
    slots = page.locator("[data-further] [data-slot]:visible")
    expect(slots).to_have_count(3)
    row, *widths = page.evaluate(
        "() => [document.querySelector('.slots'), ...document.querySelectorAll('[data-further] [data-slot]:not([hidden])')]"
        ".map((one) => one.getBoundingClientRect().width)"
    )
    assert max(widths) - min(widths) < 2, "one is as wide as the other"
    assert sum(widths) > 0.9 * row, "and together they fill the row"
