"""`editloupe make sizes`: targets named by a model and found by the detector, boxes that are there kept, nothing asked twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.making.dlebench_sizes import read_target
from tests.conftest import StartServer
from tests.making.demo_questions import lines
from tests.scripted import Reply, Request, say


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("torch")
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    return str(save_tiny_grounding_dino(tmp_path_factory.mktemp("grounding")))


def manifest(folder: Path, name: str, *rows: dict[str, object]) -> Path:
    folder.mkdir(exist_ok=True)
    Image.new("RGB", (120, 90), "navy").save(folder / "a.png")
    path = folder / f"{name}.jsonl"
    usual = {"source": "a.png", "edited": "a.png"}
    path.write_text(
        "\n".join(json.dumps({"id": f"{name}{place}", **usual, **row}) for place, row in enumerate(rows)), "utf-8"
    )
    return path


def named(request: Request) -> Reply:
    return say("[Result]: image" if "Change the style of" in request.text else "[Result]: the red cup.")


@pytest.mark.long
def test_targets_are_named_and_found_once_and_stand_beside_those_that_are_annotated(
    tmp_path: Path, scripted: StartServer, detector: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(named)
    ours = manifest(tmp_path / "m", "ours", {"instruction": "Remove it.", "target_boxes": [[10, 10, 22, 19]]})
    other = manifest(
        tmp_path / "m",
        "other",
        {"instruction": "Paint the red cup blue."},
        {"instruction": "Paint the red cup blue."},
        {"instruction": "Change the style of everything."},
    )
    look = [
        "--detector",
        detector,
        "--device",
        "cpu",
        "--tool-set",
        "box_threshold=0.0",
        "--tool-set",
        "text_threshold=0.0",
    ]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--json", *look]
    command = ["make", "sizes", str(ours), str(other), "--out", str(tmp_path / "sizes"), *asked]

    assert run(command) == 0

    first, second = json.loads(capsys.readouterr().out)["manifests"]
    assert server.served == 2, "an instruction is asked about once"
    assert first["area"]["median"] == pytest.approx(1.0)
    assert second["samples"] == 2
    assert second["area"]["maximum"] == 100
    written = lines(tmp_path / "sizes" / "other.jsonl")
    assert [one["target_object"] for one in written] == ["red cup", "image"]
    assert all(one["target_boxes"] for one in written)
    assert (tmp_path / "sizes" / "figures" / "area_curves.svg").is_file()
    assert run(command) == 0
    assert server.served == 2


@pytest.mark.long
def test_without_a_detector_the_targets_are_named_and_it_says_what_is_missing(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(named)
    path = manifest(tmp_path / "m", "x", {"instruction": "Paint the red cup blue."})
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url]

    assert run(["make", "sizes", str(path), "--out", str(tmp_path / "sizes"), *asked]) == 3

    assert "1 target not looked for, because the detector cannot be used" in capsys.readouterr().err
    (target,) = lines(tmp_path / "sizes" / "targets.jsonl")
    assert target["target"] == "red cup"


@pytest.mark.long
def test_a_reply_in_another_form_is_sent_back_and_then_left_out(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say("It is the cup."))
    path = manifest(tmp_path / "m", "x", {"instruction": "Paint the red cup blue."})
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url]

    assert run(["make", "sizes", str(path), "--out", str(tmp_path / "sizes"), *asked]) == 0

    assert server.served == 3
    (target,) = lines(tmp_path / "sizes" / "targets.jsonl")
    assert "no usable answer after 3 replies" in target["left_out"]


def test_a_model_must_be_named_where_boxes_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(tmp_path / "m", "x", {"instruction": "Paint the red cup blue."})
    assert run(["make", "sizes", str(path), "--out", str(tmp_path / "s")]) == 2
    assert "1 instruction without target boxes: name a model with --judge" in capsys.readouterr().err
    assert (
        run(["make", "sizes", str(path), "--out", str(tmp_path / "s"), "--dry-run", "--judge", "openai:gpt-4.1"]) == 0
    )
    assert "targets: 1 request, about" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[Result]: building", "building"),
        ("Output: [Result]: cat", None),
        ("**[Result]:** woman's face", "woman's face"),
    ],
)
def test_the_line_with_the_result_is_read(text: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(ValueError, match="no line"):
            read_target(text)
    else:
        assert read_target(text) == name
