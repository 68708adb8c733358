"""`editloupe make dlebench`: six questions become six samples, nothing is paid twice, and whatever goes wrong is one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from editloupe.cli.main import run
from editloupe.making.folder import MakingFolder
from editloupe.making.reviews import review
from editloupe.pictures.decode import open_picture
from editloupe.pictures.encode import encode
from editloupe.types import Box
from tests.conftest import StartServer
from tests.making.demo_questions import DEMO, METADATA, lines, make, models, painted, write_questions
from tests.scripted import Reply, Request, fault, hang, say
from tests.scripted.images_wire import picture

ALL = {"box": True, "metadata": True, "reference": True}


def accept_all(out: Path, who: str = "ann") -> None:
    folder = MakingFolder(out)
    for sample in list(folder.samples()):
        if sample.step == "review":
            review(folder, sample.id, who, "accept", ALL)


@pytest.mark.long
def test_six_questions_become_six_reviewed_samples_and_nothing_is_asked_twice(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, out, server = write_questions(tmp_path / "set"), tmp_path / "bench", scripted(models())

    assert make(questions, out, server, "--editor-price", "0.04", "--licence", "CC0") == 0

    said = capsys.readouterr()
    assert "metadata: 6 made" in said.out
    assert "references: 6 made" in said.out
    assert "0 samples in" in said.out
    assert "6 samples wait for review" in said.err
    assert server.served == 12
    accept_all(out)

    assert make(questions, out, server) == 0

    assert server.served == 12
    samples = lines(out / "manifest.jsonl")
    assert [one["instruction_type"] for one in samples] == [
        "Change Color",
        "Removal Object",
        "Change OCR",
        "Change Material",
        "Change Shape",
        "Change Count",
    ]
    assert samples[0]["wrong_option"] == "blue"
    for one in samples:
        before, after = (open_picture(out / one[role]).pixels for role in ("source", "reference"))
        x1, y1, x2, y2 = one["crop"]
        outside = np.ones(before.shape[:2], bool)
        outside[y1:y2, x1:x2] = False
        assert (before[outside] == after[outside]).all()
        assert (before != after).any()
    card = json.loads((out / "card.json").read_text("utf-8"))
    assert card["licences"] == {"CC0": 6}
    assert card["dollars"] == pytest.approx(6 * 0.04 + 6 * (100 * 2 + 20 * 8) / 1e6)
    assert (out / "figures" / "area_curves.png").is_file()
    capsys.readouterr()
    assert run(["manifest", "stats", str(out / "manifest.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manifests"][0]["measured"] == 6


@pytest.mark.long
def test_metadata_are_asked_for_again_twice_and_then_left_out_with_the_reason(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(name: str, request: Request) -> Reply:
        if name == "cat-eye":
            return say("I would make it blue.")
        wrong = {**METADATA[name], "edit_ops": "remove_object", "q_type": "material"}
        return say(json.dumps(wrong if len(request.messages) == 1 else METADATA[name]))

    questions, out = write_questions(tmp_path / "set", "cat-eye", "spoon-wood"), tmp_path / "bench"
    server = scripted(models(metadata=answer))

    assert make(questions, out, server) == 0

    said = capsys.readouterr()
    assert "metadata, cat-eye: no usable answer after 3 replies" in said.err
    told = [one.last.text for one in server.requests if len(one.messages) == 3]
    assert any('"edit_ops" must be alter_material where "q_type" is material.' in one for one in told)
    made = {one["id"]: one for one in lines(out / "metadata.jsonl")}
    assert "left_out" in made["cat-eye"]
    assert made["spoon-wood"]["instruction_type"] == "Change Material"
    served = server.served
    assert make(questions, out, server) == 0
    assert server.served == served, "what was left out is not asked for again"
    assert make(questions, out, server, "--again", "metadata") == 0
    assert server.served == served + 3


@pytest.mark.long
def test_an_editor_of_another_size_is_fitted_one_of_another_shape_is_asked_again_and_one_that_refuses_is_told(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(request: Request) -> Reply:
        data, prompt = request.images[0].data, request.text
        if "rod" in prompt:
            return fault(400, "Your request was rejected by the safety system.", code="moderation_blocked")
        tried = sum("saucer" in one.text for one in server.requests if one.images)
        if "saucer" in prompt and tried == 1:
            return picture(encode(open_picture(DEMO / "pictures" / "rocket.jpg").pixels[:200]), request)
        if "saucer" in prompt and tried == 2:
            return picture(painted(data)[:40] + b"broken", request)
        return picture(painted(data, 0.4), request)

    questions = write_questions(tmp_path / "set", "cat-eye", "rocket-rod", "saucer-text")
    out, server = tmp_path / "bench", scripted(models(edit=edit))

    assert make(questions, out, server) == 0

    made = {one["id"]: one for one in lines(out / "references.jsonl")}
    assert made["cat-eye"]["attempt"] == 1
    assert made["saucer-text"]["attempt"] == 3
    assert "rejected by the safety system" in made["rocket-rod"]["left_out"]
    assert "references, rocket-rod:" in capsys.readouterr().err
    assert {one["facts"]["outside_difference"] for one in made.values() if "facts" in one} == {0.0}


@pytest.mark.long
def test_the_other_provider_edits_as_well(tmp_path: Path, scripted: StartServer) -> None:
    questions, out, server = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench", scripted(models())

    assert make(questions, out, server, editor="google_genai:gemini-3-pro-image") == 0

    (made,) = lines(out / "references.jsonl")
    assert made["by"] == "google_genai:gemini-3-pro-image"
    assert made["facts"]["changed"] > 5
    assert made["usage"]["output_tokens"] == 1000


@pytest.mark.long
def test_a_server_that_is_down_loses_nothing_and_the_next_session_pays_for_the_rest_only(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, out = write_questions(tmp_path / "set", "cat-eye", "spoon-wood"), tmp_path / "bench"
    server = scripted(models(edit=lambda request: fault(401)))

    assert make(questions, out, server) == 2

    said = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in said if "key" in line.lower()]) == 1
    assert "Traceback" not in "".join(said)
    server.play(models())
    asked = sum(not one.images for one in server.requests)
    assert asked == 2
    assert make(questions, out, server) == 0
    assert sum(not one.images for one in server.requests) == 2, "metadata were paid for already"
    assert len(lines(out / "references.jsonl")) == 2


@pytest.mark.long
def test_a_picture_that_was_paid_for_before_a_kill_is_not_paid_for_again(tmp_path: Path, scripted: StartServer) -> None:
    questions, out, server = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench", scripted(models())
    assert make(questions, out, server) == 0
    whole = (out / "references.jsonl").read_bytes()
    (out / "references.jsonl").write_bytes(whole[:40])  # as a kill leaves a line
    (out / "metadata.jsonl").write_bytes((out / "metadata.jsonl").read_bytes() + b'{"id": "cat-e')
    served = server.served

    assert make(questions, out, server) == 0

    assert server.served == served
    assert len(lines(out / "references.jsonl")) == 1


@pytest.mark.long
def test_the_cap_stops_before_it_is_passed_and_the_same_command_goes_on(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, out, server = write_questions(tmp_path / "set"), tmp_path / "bench", scripted(models())

    code = make(questions, out, server, "--editor-price", "1", "--max-cost", "2.5")

    assert code == 3
    told = capsys.readouterr().err
    assert told.count("the cap of $2.5 is reached") == 1, "said once, not for every sample"
    assert "4 samples left; a larger --max-cost goes on from here" in told
    assert sum(bool(one.images) for one in server.requests) == 2
    assert make(questions, out, server, "--editor-price", "1", "--max-cost", "20") == 0
    assert sum(bool(one.images) for one in server.requests) == 6
    assert make(questions, out, server, "--max-cost", "20") == 2
    assert "--editor-price" in capsys.readouterr().err


def test_a_dry_run_asks_nobody(tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]) -> None:
    questions, out, server = write_questions(tmp_path / "set"), tmp_path / "bench", scripted(models())

    assert make(questions, out, server, "--dry-run", "--editor-price", "0.04") == 0

    assert server.served == 0
    told = capsys.readouterr().out
    assert "metadata: 6 requests, about " in told
    assert "references: 6 requests, about $0.24" in told


@pytest.mark.long
def test_a_refused_reference_is_made_anew_three_times_and_then_the_sample_is_discarded(
    tmp_path: Path, scripted: StartServer
) -> None:
    questions, out = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench"
    server = scripted(
        models(edit=lambda request: picture(painted(request.images[0].data, 1 - 0.1 * len(server.requests)), request))
    )
    for attempt in range(1, 5):
        assert make(questions, out, server) == 0
        folder = MakingFolder(out)
        (sample,) = folder.samples()
        assert sample.reference is not None
        assert sample.reference.attempt == attempt
        review(folder, "cat-eye", "ann", "regenerate", {"box": True, "metadata": True, "reference": False})

    assert make(questions, out, server) == 0

    (sample,) = MakingFolder(out).samples()
    assert sample.step == "discarded"
    assert sum(bool(one.images) for one in server.requests) == 4


@pytest.mark.long
def test_a_corrected_instruction_gets_a_reference_of_its_own(tmp_path: Path, scripted: StartServer) -> None:
    questions, out, server = write_questions(tmp_path / "set", "cat-eye"), tmp_path / "bench", scripted(models())
    assert make(questions, out, server) == 0
    folder = MakingFolder(out)
    box = Box(x1=140, y1=90, x2=200, y2=140)
    checks = {"box": False, "metadata": False, "reference": True}
    changed = {"edit_instruction": "Change the color of the cat's left eye from green to brown."}
    review(folder, "cat-eye", "ann", "correct", checks, "sharper", changed, [box])

    assert make(questions, out, server) == 0

    assert "left eye from green to brown" in server.requests[-1].text
    (sample,) = MakingFolder(out).samples()
    assert sample.step == "review"
    assert sample.boxes is not None
    assert sample.boxes.boxes == (box,)
    assert [one["by"] for one in lines(out / "metadata.jsonl")] == ["openai:gpt-4.1", "ann"]


@pytest.mark.long
def test_a_detector_proposes_boxes_that_people_look_at_unless_it_is_trusted(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    look = ["--detector", str(save_tiny_grounding_dino(tmp_path / "weights")), "--device", "cpu", "--tool-set"]
    questions = write_questions(tmp_path / "set", "cat-eye", "rocket-emblem", boxes=False)
    out, server = tmp_path / "bench", scripted(models())

    assert make(questions, out, server, *look, "box_threshold=0.0") == 0

    assert "2 samples wait for people to confirm boxes" in capsys.readouterr().err
    proposed = {one["id"]: one for one in lines(out / "boxes.jsonl")}
    assert len(proposed["cat-eye"]["boxes"]) == 1
    assert 1 <= len(proposed["rocket-emblem"]["boxes"]) <= 8
    assert not proposed["cat-eye"]["confirmed"]
    assert not (out / "references.jsonl").exists()
    assert make(questions, out, server, "--boxes", "detector", *look, "box_threshold=0.0") == 0
    assert len(lines(out / "references.jsonl")) == 2
    assert make(questions, tmp_path / "other", server, "--boxes", "detector", *look, "box_threshold=1.0") == 0
    assert 'the detector finds no "rocket" in the picture' in capsys.readouterr().err


@pytest.mark.long
def test_a_killed_session_loses_nothing_and_no_picture_is_paid_for_twice(tmp_path: Path, scripted: StartServer) -> None:
    def edit(request: Request) -> Reply:
        prompts.append(request.text)
        if killing and len(prompts) > 2:
            return hang(60)
        return picture(painted(request.images[0].data, 0.5), request)

    prompts: list[str] = []
    killing = True
    questions, out, server = write_questions(tmp_path / "set"), tmp_path / "bench", scripted(models(edit=edit))
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--concurrency", "1"]
    editing = ["--editor", "openai:gpt-image-1", "--editor-url", server.openai_url]
    command = [
        sys.executable,
        "-m",
        "editloupe",
        "make",
        "dlebench",
        str(questions),
        "--out",
        str(out),
        *asked,
        *editing,
    ]
    session = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while len(prompts) < 3 and session.poll() is None:
        time.sleep(0.05)
    session.kill()
    session.wait()
    killing = False

    assert make(questions, out, server) == 0

    assert len(lines(out / "references.jsonl")) == 6
    assert len(prompts) == 7, "only the one that never came back is asked for again"
    assert sum(not one.images for one in server.requests) == 6


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--boxes", "guess"], "--boxes is people or detector"),
        (["--set", "ocr_operation=x"], "ocr_operation"),
        (["--set", "colour=red"], "is not a setting"),
        (["--again", "reviews"], "--again is one of"),
        (["--editor", "nowhere"], "nowhere is neither a folder nor an image model"),
        (["--judge", "rules"], "needs a model that reads and writes"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = write_questions(tmp_path / "set", "cat-eye")

    assert run(["make", "dlebench", str(questions), "--out", str(tmp_path / "bench"), *more]) == 2

    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
