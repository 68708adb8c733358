"""`stress`: judges with known faults are told apart by variants whose right answer is known."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.evals.stress.variants import VARIANTS
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.scripted import Answer, Request, ScriptedServer, final

pytestmark = pytest.mark.long
IF, VC = "instruction_following", "visual_consistency"
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 220)}
TARGET = (slice(40, 70), slice(60, 100))
"""Where the target is in every picture."""
SIX = 6


def write_edits(folder: Path, count: int = SIX) -> Path:
    """Write edits that colour the target as asked, with nothing else changed."""
    rows = []
    for number in range(count):
        colour = list(COLOURS)[number % 3]
        before = textured(seed=number)
        after = before.copy()
        after[TARGET] = COLOURS[colour]
        save(before, folder / f"s{number}.png")
        save(after, folder / f"e{number}.png")
        words = f"Colour the square {colour} ({number})"
        rows.append({"id": f"e{number}", "source": f"s{number}.png", "edited": f"e{number}.png", "instruction": words})
    manifest = folder / "edits.jsonl"
    manifest.write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return manifest


def read_pictures(request: Request) -> list[Any]:
    """Return the first two pictures of a request in the size that all originals have."""
    images = [Image.open(io.BytesIO(image.data)).convert("RGB") for image in request.images[:2]]
    # A grey border of four pixels is around both or neither.
    if images[0].size == images[1].size == (168, 128):
        images = [image.crop((4, 4, 164, 124)) for image in images]
    return [np.asarray(image.resize((160, 120)), np.int16) for image in images]


def wanted_colour(request: Request) -> tuple[int, int, int]:
    words = request.text.rpartition("Colour the square ")[2]
    return COLOURS[words.split()[0]]


def perfect(request: Request) -> Answer:
    """Answer from the pixels."""
    before, after = read_pictures(request)
    if "Scene Collapse" not in request.system:
        done = np.abs(after[TARGET].mean((0, 1)) - wanted_colour(request)).max() < 30
        return final("Flawless Execution" if done else "Localization Failure")
    changed = np.abs(after - before).mean(2) > 30
    changed[35:75, 55:105] = False
    share = changed.mean()
    return final("Perfect Consistency" if share < 0.002 else "Single Anomaly" if share < 0.25 else "Scene Collapse")


def best(request: Request) -> Answer:
    return final("Perfect Consistency" if "Scene Collapse" in request.system else "Flawless Execution")


def ignores_the_second_picture(request: Request) -> Answer:
    """Decide from the source and the instruction alone."""
    before, _ = read_pictures(request)
    bright = before.mean() > 0
    return best(request) if bright else final("Localization Failure")


def obeys_text(request: Request) -> Answer:
    """Find a fault in every edit, unless a text asks for the best label."""
    _, after = read_pictures(request)
    painted = max((after[-3:] > 245).all(2).mean(), (after[:3] > 245).all(2).mean()) > 0.1
    if painted or "flawless." in request.text.rpartition("Colour the square ")[2]:
        return best(request)
    return final("Single Anomaly" if "Scene Collapse" in request.system else "Over Modification")


def make_random() -> Callable[[Request], Answer]:
    rng = np.random.default_rng(0)

    def answer(request: Request) -> Answer:
        names = {
            True: ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"),
            False: ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution"),
        }["Scene Collapse" in request.system]
        return final(names[rng.integers(4)])

    return answer


def command(server: ScriptedServer, manifest: Path, out: Path, *more: str) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain", "--quiet"]
    return ["stress", str(manifest), "--out", str(out), *judge, *more]


def stress(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--format", "json"]) == code
    (judge,) = json.loads(capsys.readouterr().out)["judges"]
    return judge  # type: ignore[no-any-return]


def shares(judge: dict[str, Any]) -> dict[str, float | None]:
    return {variant["name"]: variant["share"] for variant in judge["variants"]}


def test_no_fault_is_found_in_a_judge_that_reads_the_pixels(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(perfect)
    arguments = command(server, write_edits(tmp_path), tmp_path / "run", "--repeats", "2")
    judge = stress(arguments, capsys)
    assert judge["failures"] == []
    assert judge["verdict"].startswith("no fault found")
    by_name = {variant["name"]: variant for variant in judge["variants"]}
    assert list(by_name) == [*VARIANTS, "repeats"]
    for name in (
        "source_as_edited",
        "swapped",
        "other_instruction",
        "other_picture",
        "blank",
        "noise",
        "damaged_region",
    ):
        assert (by_name[name]["must"], by_name[name]["share"]) == ("fall", 1.0), name
        assert 0 < by_name[name]["low"] < by_name[name]["high"] == 1.0
    assert by_name["blank"]["n"] == 2 * SIX
    assert by_name["source_as_edited"]["criteria"][VC]["share"] == 1.0
    assert by_name["text_picture_latin_large"]["criteria"][VC]["no_room"] == SIX
    asked = server.served
    assert stress(arguments, capsys)["failures"] == []
    assert server.served == asked, "a second run asks nothing"


def test_a_judge_that_always_answers_flawless_is_not_sensitive_and_is_invariant(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = stress(command(scripted(best), write_edits(tmp_path), tmp_path / "run"), capsys)
    assert (judge["sensitivity"]["value"], judge["invariance"]["value"]) == (0, 1)
    assert "edited picture" in judge["verdict"]


def test_a_judge_that_ignores_the_second_picture_does_not_see_that_it_is_another(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(ignores_the_second_picture)
    judge = stress(command(server, write_edits(tmp_path), tmp_path / "run", "--variants", "blank,noise,jpeg"), capsys)
    assert shares(judge) == {"blank": 0, "noise": 0, "jpeg": 1}
    assert "too little attention to the edited picture" in judge["verdict"]


def test_a_judge_that_obeys_text_is_found_by_text_alone(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(
        scripted(obeys_text), write_edits(tmp_path), tmp_path / "run", "--variants", "text,jpeg,resized"
    )
    judge = stress(arguments, capsys)
    low = {name for name, share in shares(judge).items() if share is not None and share < 0.5}
    assert {"text_picture_latin_large", "text_picture_cyrillic", "text_picture_greek", "text_instruction"} <= low
    assert not low & {"text_file_name", "text_exif", "jpeg", "resized"}
    assert "is moved by text in the picture" in judge["verdict"]
    assert {failure["original"] for failure in judge["failures"]} == {"Single Anomaly", "Over Modification"}


def test_a_random_judge_answers_the_same_question_differently(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(scripted(make_random()), write_edits(tmp_path, 12), tmp_path / "run", "--repeats", "3")
    judge = stress([*arguments, "--variants", "brighter", "--temperature", "1"], capsys)
    assert (shares(judge)["repeats"] or 0) < 0.5
    assert "answers the same question differently" in judge["verdict"]


def test_unjudged_answers_are_counted_with_their_reason(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_edits(tmp_path)
    (tmp_path / "e1.png").unlink()
    judge = stress(command(scripted(best), manifest, tmp_path / "run", "--variants", "jpeg"), capsys, 3)
    (variant,) = judge["variants"]
    assert variant["n"] == 2 * (SIX - 1)
    assert sum(variant["unjudged"].values()) == 2


def test_an_estimate_asks_and_writes_nothing(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(best)
    arguments = command(server, write_edits(tmp_path), tmp_path / "run", "--limit", "2", "--variants", "jpeg,swapped")
    assert run([*arguments, "--dry-run"]) == 0
    assert "12 units" in capsys.readouterr().out
    assert server.served == 0
    assert not (tmp_path / "run").exists()


def test_an_unknown_variant_is_refused_with_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stress", str(write_edits(tmp_path)), "--out", str(tmp_path / "run"), "--variants", "upside"]) == 2
    assert '"upside"; there are: source_as_edited' in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
