"""Decompose: listed by a scripted LMM, grounded by a scripted detector, one file a picture, never half done twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.asker import Asker
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.open_model import open_chat
from editloupe.evals.batch.work_items import ItemTally
from editloupe.evals.edival.decompose import Decomposer
from editloupe.evals.edival.files import SceneFile, list_pictures, read_json
from editloupe.pictures.decode import open_picture
from editloupe.rubrics.edival.rules import EdivalSettings, load_published
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save
from tests.evals.edival import stand_ins as s
from tests.scripted import Request, Script, fault, say


def entry(object: str, color: str | None = None, material: str | None = None, **more: Any) -> dict[str, Any]:
    return {"object": object, "color": color, "material": material, "text": None, "count": 1, "foreground": True} | more


LISTING = {
    "ceramic white cup": entry("cup", "white", "ceramic"),
    "wooden box": entry("box", None, "wooden"),
    "paper red sign": entry("sign", "red", "paper", text="STOP", foreground=False),
    "spoon": entry("spoon"),
    "All Objects": "ceramic white cup. wooden box. paper red sign. spoon.",
}
FINE = say("Looking around. " + json.dumps(LISTING))


class Kitchen:
    """One folder, one scripted model."""

    def __init__(self, root: Path, scripted: StartServer) -> None:
        self.base, self.out, self._scripted = s.save_base(root / "photos"), root / "objects", scripted

    def run(
        self, *script: Script, rules: EdivalSettings | None = None, pictures: dict[str, Path] | None = None
    ) -> ItemTally:
        self.server = self._scripted(*script)
        quick = ModelSettings(retry=RetryPolicy(first_wait=0.01, longest_wait=0.02, max_attempts=2))
        chat = open_chat("openai:gpt-4.1", self.server.openai_url, quick)
        finder = s.ColorFinder()
        worker = Decomposer(Asker(chat), "openai:gpt-4.1", finder, "patches", rules or load_published(), self.out)
        return asyncio.run(worker.all(pictures or {"kitchen": self.base}, 2))

    @property
    def scene(self) -> SceneFile:
        return read_json(self.out / "kitchen.json", SceneFile)


@pytest.fixture
def kitchen(tmp_path: Path, scripted: StartServer) -> Kitchen:
    return Kitchen(tmp_path, scripted)


def test_what_is_listed_and_found_is_kept_with_its_boxes(kitchen: Kitchen) -> None:
    assert kitchen.run(FINE).made == 1
    scene = kitchen.scene
    assert [item.name for item in scene.listed] == list(LISTING)[:-1]
    assert [item.name for item in scene.objects] == ["ceramic white cup", "wooden box", "paper red sign"]
    assert scene.filtered_all_objects == "ceramic white cup. wooden box. paper red sign."
    (cup,) = scene.objects[0].hits
    assert (cup.x1, cup.y1, cup.x2, cup.y2) == pytest.approx((0.10, 0.40, 0.25, 0.80), abs=0.01)
    assert scene.objects[2].text == "STOP"
    assert not scene.objects[2].foreground
    assert scene.usage.requests == 1
    assert (kitchen.out / scene.image).resolve() == kitchen.base


def test_the_boxes_are_drawn_for_the_eye(kitchen: Kitchen) -> None:
    kitchen.run(FINE)
    drawn = open_picture(kitchen.out / "kitchen.boxes.jpg")
    assert drawn.size == (200, 100)
    assert (abs(drawn.pixels.astype(int) - s.BASE.astype(int)).max(2) > 60).any()


def test_the_detector_looks_at_the_published_size(kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    found = s.ColorFinder.find
    monkeypatch.setattr(
        s.ColorFinder, "find", lambda self, pixels, phrase: sizes.append(pixels.shape) or found(self, pixels, phrase)
    )
    kitchen.run(FINE)
    assert set(sizes) == {(512, 512, 3)}


def test_a_picture_is_letterboxed_not_squeezed_and_boxes_are_shares_of_the_picture(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    found = s.ColorFinder.find
    monkeypatch.setattr(
        s.ColorFinder, "find", lambda self, pixels, phrase: seen.append(pixels) or found(self, pixels, phrase)
    )
    kitchen.run(FINE)
    assert (seen[0][:128] == 0).all()
    assert (seen[0][-128:] == 0).all()
    assert (seen[0][130] != 0).all()
    (cup,) = kitchen.scene.objects[0].hits
    assert (cup.x1, cup.y1, cup.x2, cup.y2) == pytest.approx((0.10, 0.40, 0.25, 0.80), abs=0.01)


def test_a_person_is_dropped_and_the_picture_kept(kitchen: Kitchen) -> None:
    listed = {"old man": entry("old man"), **LISTING, "All Objects": f"old man. {LISTING['All Objects']}"}
    tally = kitchen.run(say(json.dumps(listed)))
    assert (tally.made, kitchen.scene.usage.requests) == (1, 1), "nothing is sent back"
    assert kitchen.scene.listed[0].name == "old man"
    assert [item.name for item in kitchen.scene.objects] == ["ceramic white cup", "wooden box", "paper red sign"]


def test_an_object_with_a_box_too_large_is_dropped(kitchen: Kitchen) -> None:
    save(s.scene(("ceramic white cup", (0, 0, 190, 50)), ("wooden box", s.BOX)), kitchen.base)
    kitchen.run(FINE)
    assert [item.name for item in kitchen.scene.objects] == ["wooden box"], "the cup is wider than 0.9"


def test_a_listing_that_cannot_be_read_is_sent_back_with_the_reason(kitchen: Kitchen) -> None:
    wrong = {**LISTING, "All Objects": "some things"}
    tally = kitchen.run(say("No objects here, sorry."), say(json.dumps(wrong)), FINE)
    assert tally.made == 1
    told = [request.messages[-1].text for request in kitchen.server.requests[1:]]
    assert "valid JSON object" in told[0]
    assert "must be exactly" in told[1]
    assert kitchen.scene.usage.requests == 3


def test_a_model_that_never_answers_properly_fails_its_picture_and_leaves_no_file(kitchen: Kitchen) -> None:
    tally = kitchen.run(lambda _: say("A lovely kitchen."))
    assert "no usable answer after 3 replies" in tally.failed["kitchen"]
    assert not list(kitchen.out.glob("*.json"))


def test_a_listing_that_was_cut_off_is_sent_back_and_named(kitchen: Kitchen) -> None:
    cut = FINE.but(finish="length")
    assert kitchen.run(cut, FINE).made == 1
    assert "length limit" in kitchen.server.requests[1].messages[-1].text


def test_listings_that_are_always_cut_off_say_what_to_do(kitchen: Kitchen) -> None:
    assert "--max-output-tokens" in kitchen.run(lambda _: FINE.but(finish="length")).failed["kitchen"]


def test_one_picture_that_fails_does_not_stop_the_others(kitchen: Kitchen) -> None:
    broken = kitchen.base.with_name("broken.png")
    broken.write_bytes(b"no picture")
    tally = kitchen.run(lambda _: FINE, pictures={"kitchen": kitchen.base, "broken": broken})
    assert tally.made == 1
    assert "broken" in tally.failed


def test_a_server_that_is_down_fails_the_picture_and_the_next_run_makes_it(kitchen: Kitchen) -> None:
    assert "kitchen" in kitchen.run(lambda _: fault(500)).failed
    assert kitchen.run(FINE).made == 1


@pytest.mark.long
def test_what_is_there_is_not_asked_again_unless_something_it_depends_on_changed(kitchen: Kitchen) -> None:
    kitchen.run(FINE)

    def never(request: Request) -> Any:
        raise AssertionError("asked again")

    assert kitchen.run(never).held == 1
    assert kitchen.run(FINE, rules=load_published().with_changes({"decompose_max_area": 0.035})).made == 1
    assert [item.name for item in kitchen.scene.objects] == ["ceramic white cup"], (
        "box and sign cover 0.04 of the frame each"
    )
    save(s.scene(("wooden box", s.BOX)), kitchen.base)
    assert kitchen.run(FINE).made == 1, "another picture under the same name"


def test_pictures_of_one_name_are_the_users_mistake(tmp_path: Path) -> None:
    for name in ("a", "b"):
        s.save_base(tmp_path / name)
    with pytest.raises(UserError, match="have the same id kitchen"):
        list_pictures([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(UserError, match="does not exist"):
        list_pictures([tmp_path / "c"])
