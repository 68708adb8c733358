"""`gate` on manifests and folders: broken and identical outputs are free, and nothing is paid twice."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.testing import assert_no_loss
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.scripted import Answer, Request, ScriptedServer, final

pytestmark = pytest.mark.long

COUNT = 25
SIZE = (48, 36)
MARK = (slice(0, 10), slice(0, 10))
RED, BLUE = (230, 20, 20), (20, 20, 230)
"""A judge of these tests finds no fault in an output with a red mark, and one with a blue mark worse."""


def judge_mark(request: Request) -> Answer:
    output = np.asarray(Image.open(io.BytesIO(request.images[1].data)).convert("RGB"), np.int16)
    is_good = output[3, 3, 0] > output[3, 3, 2]
    if "Scene Collapse" in request.system:
        return final("Perfect Consistency")
    return final("Flawless Execution" if is_good else "Wrong Action")


def write_outputs(folder: Path, good: Sequence[bool], shade: int = 0) -> Path:
    """Write sources, outputs and their manifest; a shade makes outputs differ without being judged differently."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, is_good in enumerate(good):
        source = textured(*SIZE, seed=number)
        output = source.copy()
        output[MARK] = RED if is_good else BLUE
        output[20:24, 20:24] = shade
        save(source, folder / f"s{number}.png")
        save(output, folder / f"e{number}.png")
        rows.append(
            {
                "id": f"e{number}",
                "source": f"s{number}.png",
                "edited": f"e{number}.png",
                "instruction": f"Mark {number}",
            }
        )
    manifest = folder / "edits.jsonl"
    manifest.write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return manifest


Gate = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def server(scripted: StartServer) -> ScriptedServer:
    return scripted(judge_mark)


@pytest.fixture
def gate(server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Gate:
    """Run the command; return its exit code, its answer and what it said."""

    def start(new: Path, old: Path, *more: str) -> tuple[int, dict[str, Any], str]:
        judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain", "--quiet"]
        own = ["gate", str(new), "--against", str(old), "--run", str(tmp_path / "run"), "--format", "json", *judge]
        capsys.readouterr()
        code = run([*own, *more])
        output = capsys.readouterr()
        return code, json.loads(output.out or "{}"), output.err

    return start


def test_manifests_are_judged_on_the_way_and_the_baseline_is_never_paid_twice(
    gate: Gate, server: ScriptedServer, tmp_path: Path
) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * COUNT), write_outputs(tmp_path / "new", [True] * COUNT, 9)
    code, answer, said = gate(new, old, "--drop", "40")
    assert (code, answer["verdict"], answer["edits"]) == (0, "passed", COUNT)
    assert f"at most {4 * COUNT} units to judge with about {4 * COUNT} requests" in said
    paid = server.served
    assert paid == 4 * COUNT
    assert gate(new, old, "--drop", "40")[1] == answer
    assert server.served == paid, "the same command again asks nothing"
    other = write_outputs(tmp_path / "other", [False] * COUNT, 12)
    code, answer, _ = gate(other, old, "--drop", "10")
    assert (code, answer["criteria"]["instruction_following"]["verdict"]) == (4, "failed")
    assert server.served - paid <= 2 * COUNT, "another model's outputs alone are judged"


def test_identical_outputs_are_not_judged_and_count_as_no_difference(
    gate: Gate, server: ScriptedServer, tmp_path: Path
) -> None:
    old = write_outputs(tmp_path / "old", [True] * COUNT)
    code, answer, _ = gate(write_outputs(tmp_path / "same", [True] * COUNT), old)
    assert (code, answer["difference"], answer["identical"], server.served) == (0, 0.0, COUNT, 0)
    new = write_outputs(tmp_path / "new", [*[True] * (COUNT - 2), False, False])
    code, answer, _ = gate(new, old, "--drop", "50", "--criterion", "instruction_following")
    test = answer["criteria"]["instruction_following"]
    assert server.served == 4, "two outputs of each side, on one criterion"
    assert (test["edits"], answer["identical"]) == (COUNT, COUNT - 2)
    assert test["difference"] == pytest.approx((test["new"] - test["baseline"]) * 2 / COUNT)


def test_a_broken_output_fails_before_anything_is_paid(gate: Gate, server: ScriptedServer, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 8), write_outputs(tmp_path / "new", [True] * 8, 9)
    save(np.zeros((SIZE[1], SIZE[0], 3), np.uint8), new.parent / "e3.png")
    (new.parent / "e5.png").unlink()
    code, answer, _ = gate(new, old)
    assert (code, server.served) == (4, 0)
    assert {edit["edit_id"]: edit["reason"] for edit in answer["broken"]} == {"e3": "all black", "e5": "missing"}
    assert answer["criteria"] == {}


def test_a_folder_of_outputs_is_judged_on_the_cases_of_a_run(
    gate: Gate, server: ScriptedServer, tmp_path: Path
) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 8), write_outputs(tmp_path / "new", [True] * 8, 9)
    base = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain", "--quiet"]
    assert run(["batch", str(old), "--out", str(tmp_path / "full"), *base]) == 0
    for path in (*new.parent.glob("s*.png"), new, *old.parent.glob("s*.png")):
        path.unlink()  # the folder has outputs alone, and the run its own copies of the sources
    paid = server.served
    _, answer, _ = gate(new.parent, tmp_path / "full", "--drop", "60")
    assert (answer["edits"], server.served - paid) == (8, 16), "the outputs of the run are not judged again"


def test_two_folders_need_the_manifest_of_their_cases(gate: Gate, tmp_path: Path) -> None:
    cases = write_outputs(tmp_path / "cases", [True] * 8)
    for name, shade in (("a", 3), ("b", 6)):
        write_outputs(tmp_path / name, [True] * 8, shade).unlink()
    code, _, said = gate(tmp_path / "a", tmp_path / "b")
    assert code == 2
    assert "name the manifest of their cases with --cases" in said
    assert gate(tmp_path / "a", tmp_path / "b", "--cases", str(cases))[1]["edits"] == 8


def test_a_clear_loss_is_found_before_all_edits_are_judged(gate: Gate, server: ScriptedServer, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 60), write_outputs(tmp_path / "new", [False] * 60)
    code, answer, _ = gate(new, old, "--criterion", "instruction_following")
    assert (code, answer["looks"], answer["drawn"]) == (4, [20, 40, 60], 20)
    assert server.served == 40


def test_a_cap_ends_the_judging_and_the_next_command_continues(
    gate: Gate, server: ScriptedServer, tmp_path: Path
) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * COUNT), write_outputs(tmp_path / "new", [True] * COUNT, 9)
    limits = ["--drop", "40", "--price", "1000,1000", "--concurrency", "1"]
    code, answer, _ = gate(new, old, *limits, "--max-cost", "5")
    assert (code, answer["verdict"]) == (5, "cannot_tell")
    assert "The judging was stopped" in answer["notes"][0]
    assert 0 < server.served < 4 * COUNT
    assert gate(new, old, "--drop", "40")[0] == 0
    assert server.served == 4 * COUNT, "nothing is asked twice"


def test_a_run_of_another_judge_is_refused_before_anything_is_paid(
    gate: Gate, server: ScriptedServer, tmp_path: Path
) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 6), write_outputs(tmp_path / "new", [True] * 6, 9)
    run(["batch", str(old), "--out", str(tmp_path / "full"), "--judge", "rules", "--quiet"])
    code, _, said = gate(new, tmp_path / "full")
    assert (code, server.served) == (2, 0)
    assert "full was judged by rules" in said


def test_cases_of_one_side_alone_are_named(gate: Gate, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 8), write_outputs(tmp_path / "new", [True] * 10, 9)
    assert gate(new, old, "--drop", "60")[1]["left_out"] == {f"only in {new}": 2}
    lines = new.read_text("utf-8").splitlines()
    new.write_text("\n".join(lines[:6]) + "\n", "utf-8")
    assert [edit["reason"] for edit in gate(new, old)[1]["broken"]] == ["missing"] * 2
    assert gate(new, old, "--shared", "--drop", "60")[1]["broken"] == []


def test_missing_files_of_a_folder_fail_the_gate_or_are_left_out_with_shared(
    gate: Gate, server: ScriptedServer, tmp_path: Path
) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 8), write_outputs(tmp_path / "new", [True] * 8, 9)
    (new.parent / "e3.png").unlink()
    (old.parent / "e5.png").unlink()
    _, answer, said = gate(new.parent, old)
    assert "1 of 8 outputs missing" in said
    assert [edit["edit_id"] for edit in answer["broken"]] == ["e3"]
    _, answer, _ = gate(new.parent, old, "--shared", "--drop", "60")
    assert (answer["broken"], answer["edits"]) == ([], 6)
    assert answer["left_out"] == {f"no readable output in {old.name}": 1, f"no output in {new.parent.name}": 1}


def test_junit_of_a_gate_that_compares_nothing_does_not_pass(gate: Gate, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 4), write_outputs(tmp_path / "new", [True] * 4, 9)
    for path in old.parent.glob("e*.png"):
        path.unlink()
    assert gate(new, old, "--format", "junit", "--out", str(tmp_path / "gate.xml"))[0] == 5
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()[0]
    assert [suite.get(name) for name in ("tests", "errors")] == ["1", "1"]


def test_a_dry_run_says_the_cost_and_asks_nothing(gate: Gate, server: ScriptedServer, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * 8), write_outputs(tmp_path / "new", [True] * 8, 9)
    code, answer, said = gate(new, old, "--dry-run")
    assert (code, answer, server.served) == (0, {}, 0)
    assert "at most 32 units to judge with about 32 requests, about $0." in said
    assert not (tmp_path / "run").exists()


def test_pictures_and_the_step_summary_show_the_worst_edits(gate: Gate, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * COUNT), write_outputs(tmp_path / "new", [False] * COUNT)
    pictures, summary = tmp_path / "pictures", tmp_path / "gate.md"
    gate(
        new, old, "--out", str(summary), "--format", "md", "--pictures", str(pictures), "--pictures-url", "https://x/y"
    )
    text = summary.read_text("utf-8")
    thumbnails = sorted(path.name for path in pictures.glob("*.jpg"))
    assert len(thumbnails) == 5 * 3 + 1
    assert all(f"https://x/y/{name}" in text for name in thumbnails)
    assert Image.open(pictures / "sheet.jpg").width > 3 * 256


def test_an_assertion_judges_manifests(server: ScriptedServer, tmp_path: Path) -> None:
    old, new = write_outputs(tmp_path / "old", [True] * COUNT), write_outputs(tmp_path / "new", [False] * COUNT)
    settings = {"base_url": server.openai_url, "mode": "plain", "run": tmp_path / "run"}
    with pytest.raises(AssertionError, match="Failed: a loss is proven"):
        assert_no_loss(new, old, 10, judge="openai:gpt-4.1", **settings)
