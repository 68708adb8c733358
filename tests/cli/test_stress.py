"""`stress`: judges with known faults are told apart by variants whose right answer is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.stress.variants import REPEATS, VARIANTS, choose_variants
from tests import faulty_judges as faulty
from tests.conftest import StartServer
from tests.scripted import Answer, Request, ScriptedServer

pytestmark = pytest.mark.long
IF, VC = "instruction_following", "visual_consistency"
MUST_FALL = ("source_as_edited", "swapped", "other_instruction", "other_picture", "blank", "noise", "damaged_region")
PICTURE_TEXTS = tuple(name for name in VARIANTS if name.startswith("text_picture"))
Reply = Callable[[Request], Answer]


def command(server: ScriptedServer, manifest: Path, out: Path, *more: str) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain", "--quiet"]
    return ["stress", str(manifest), "--out", str(out), *judge, *more]


def read_json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def stress(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    (judge,) = read_json(arguments, capsys, code)["judges"]
    return judge  # type: ignore[no-any-return]


def low_shares(judge: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Return the shares below 1, by variant and criterion."""
    return {
        (variant["name"], criterion): share["share"]
        for variant in judge["variants"]
        for criterion, share in variant["criteria"].items()
        if share["share"] is not None and share["share"] < 1
    }


def test_a_page_is_not_taken_for_the_folder_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "stress.html"
    assert run(["stress", str(tmp_path / "edits.jsonl"), "--out", str(out), "--format", "html"]) == 2
    assert (
        "--out is the folder of the run; write the result with --format html > stress.html" in capsys.readouterr().err
    )
    assert not out.exists()


def test_no_fault_is_found_in_a_judge_that_reads_the_pixels(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(faulty.perfect)
    arguments = command(server, faulty.write_edits(tmp_path, 12), tmp_path / "run", "--repeats", "2")
    judge = stress(arguments, capsys)
    assert judge["failures"] == []
    assert judge["verdict"].startswith("no fault found")
    by_name = {variant["name"]: variant for variant in judge["variants"]}
    assert list(by_name) == [*(variant.name for variant in choose_variants([])), REPEATS]
    for name in MUST_FALL:
        assert (by_name[name]["must"], by_name[name]["share"]) == ("fall", 1.0), name
        assert 0 < by_name[name]["low"] < by_name[name]["high"] == 1.0
    # Of twelve edits three are unchanged, so that their label cannot fall, and three have a wrong colour.
    assert [by_name[name]["criteria"][IF]["n"] for name in ("blank", "swapped")] == [9, 6]
    assert [by_name[name]["criteria"][IF]["no_room"] for name in ("blank", "swapped")] == [3, 6]
    # Only the three damaged edits could look more consistent.
    assert by_name["text_picture_greek"]["criteria"][VC]["n"] == 3
    asked = server.served
    assert stress(arguments, capsys)["failures"] == []
    assert server.served == asked, "a second run asks nothing"
    assert run(["report", str(tmp_path / "run"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["coverage"]["not_yet"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_fault_is_found_in_a_perfect_judge_on_240_edits(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(scripted(faulty.perfect), faulty.write_edits(tmp_path, 240), tmp_path / "run")
    judge = stress(arguments, capsys)
    assert (judge["sensitivity"]["value"], judge["invariance"]["value"]) == (1, 1)
    assert judge["sensitivity"]["n"] + judge["invariance"]["n"] > 5000
    assert judge["failures"] == []


NOT_LOOKING = {
    **{(name, IF): 0 for name in ("source_as_edited", "swapped", "other_instruction")},
    **{(name, criterion): 0 for name in ("other_picture", "blank", "noise") for criterion in (IF, VC)},
    ("damaged_region", VC): 0,
}


@pytest.mark.parametrize(
    ("reply", "low", "faults"),
    [
        (
            faulty.always_flawless,
            NOT_LOOKING,
            ["pays too little attention to the edited picture", "overlooks damage"],
        ),
        # It sees that the source has the colour already, which tells it from the judge that looks at nothing.
        (
            faulty.ignores_the_second_picture,
            {**NOT_LOOKING, ("swapped", IF): 0.5},
            ["pays too little attention to the edited picture", "overlooks damage"],
        ),
        (
            faulty.invents_a_difference,
            {("source_as_edited", VC): 0},
            ["sees differences where there are none"],
        ),
        # Half of the edits are flawless anyway, and three of four consistent.
        (
            faulty.obeys_text,
            {
                **{(name, IF): 0.5 for name in (*PICTURE_TEXTS, "text_instruction", "text_instruction_chinese")},
                **{(name, VC): 0 for name in PICTURE_TEXTS},
                **{(name, VC): 0.75 for name in ("text_instruction", "text_instruction_chinese")},
            },
            ["is moved by text in the picture", "is moved by text in the instruction"],
        ),
    ],
)
def test_every_fault_has_its_own_figures(
    reply: Reply,
    low: dict[tuple[str, str], float],
    faults: list[str],
    scripted: StartServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    judge = stress(command(scripted(reply), faulty.write_edits(tmp_path, 12), tmp_path / "run"), capsys)
    assert low_shares(judge) == low
    assert all(fault in judge["verdict"] for fault in faults)


def test_a_random_judge_answers_the_same_question_differently(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(
        scripted(faulty.make_random()), faulty.write_edits(tmp_path, 24), tmp_path / "run", "--repeats", "3"
    )
    # One request at a time, so that the seeded judge draws the same labels in every run.
    judge = stress([*arguments, "--variants", "brighter", "--temperature", "1", "--concurrency", "1"], capsys)
    assert "answers the same question differently" in judge["verdict"]
    brighter, repeats = judge["variants"]
    # Two labels of four drawn by lot are alike in a quarter of the cases, three in a sixteenth.
    assert brighter["low"] < 1 / 4 < brighter["high"]
    assert repeats["low"] < 1 / 16 < repeats["high"]


@pytest.mark.parametrize(
    ("reply", "mirrored", "repeats"),
    [
        (faulty.perfect_on_pairs, (1, 1), (1, 1)),
        (faulty.prefers_the_first, (0, 0), (1, 1)),
        (faulty.make_random_on_pairs(), (0.1, 0.6), (0.1, 0.6)),
    ],
)
def test_a_preferred_position_and_a_random_winner_are_told_apart(
    reply: Reply,
    mirrored: tuple[float, float],
    repeats: tuple[float, float],
    scripted: StartServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = faulty.write_pairs(tmp_path, 24)
    arguments = command(scripted(reply), pairs, tmp_path / "run", "--variants", "mirrored", "--repeats", "2")
    judge = stress([*arguments, "--temperature", "1"], capsys)
    by_name = {variant["name"]: variant for variant in judge["variants"]}
    assert mirrored[0] <= by_name["mirrored"]["share"] <= mirrored[1]
    assert repeats[0] <= by_name["repeats"]["share"] <= repeats[1]
    assert ("prefers a position" in judge["verdict"]) is (mirrored[1] < 1)
    assert {failure["original"] for failure in judge["failures"]} <= {"A", "B", "tie"}


def test_a_file_of_pairs_has_the_variants_of_pairs(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(faulty.perfect_on_pairs)
    pairs = faulty.write_pairs(tmp_path, 2)
    assert run([*command(server, pairs, tmp_path / "run", "--variants", "blank")]) == 2
    assert "for pairs of candidates; there are: text_instruction, text_instruction_chinese, mirrored" in (
        capsys.readouterr().err
    )
    assert run([*command(server, pairs, tmp_path / "run", "--protocol", "dlebench")]) == 2
    assert "dlebench has no question on two candidates" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_several_judges_and_modes_are_rows_of_one_figure(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(faulty.always_flawless)
    arguments = command(server, faulty.write_edits(tmp_path, 3), tmp_path / "run", "--variants", "blank,jpeg")
    arguments[arguments.index("plain")] = "tools,plain"
    # The embedded judge does not understand these instructions, so its answers are unjudged.
    result = read_json([*arguments, "--judge", "rules"], capsys, 3)
    names = [f"{judge['judge']} {judge['mode']}" for judge in result["judges"]]
    assert names == ["openai:gpt-4.1 tools", "openai:gpt-4.1 plain", "rules tools", "rules plain"]
    assert run([*arguments, "--judge", "rules", "--format", "html"]) == 3
    page = capsys.readouterr().out
    assert '<figure class="drawing"' in page
    assert "<image" not in page, "cells are shapes, because a page shows no pictures from data in a drawing"
    assert "openai:gpt-4.1 · plain" in page


def test_a_wrong_answer_is_listed_with_the_command_that_shows_it_next_to_its_original(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, out = faulty.write_edits(tmp_path, 2), tmp_path / "run"
    assert run(command(scripted(faulty.always_flawless), manifest, out, "--variants", "blank")) == 0
    line = " ".join(capsys.readouterr().out.split())
    assert f"trace --criterion {IF} --beside 'e0~blank' {out} e0" in line
    assert run(["trace", "--criterion", IF, "--beside", "e0~blank", str(out), "e0"]) == 0
    assert capsys.readouterr().out.count("Flawless Execution") >= 2


def test_unjudged_answers_are_counted_with_their_reason(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = faulty.write_edits(tmp_path, 6)
    (tmp_path / "e1.png").unlink()
    arguments = command(scripted(faulty.always_flawless), manifest, tmp_path / "run", "--variants", "jpeg")
    (variant,) = stress(arguments, capsys, 3)["variants"]
    assert variant["n"] == 2 * 5
    assert variant["unjudged"] == {"bad_image": 2}


def test_the_words_name_variants_without_an_answer_to_compare(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = faulty.write_edits(tmp_path, 2)
    arguments = command(scripted(faulty.always_worst), manifest, tmp_path / "run", "--variants", "blank,noise,jpeg")
    judge = stress(arguments, capsys)
    assert judge["verdict"].startswith("no fault found")
    assert judge["verdict"].endswith("; nothing to compare in blank, noise")
    arguments = command(scripted(faulty.always_flawless), manifest, tmp_path / "flawless", "--variants", "blank,jpeg")
    assert "(blank 0 % of 2)" in stress(arguments, capsys)["verdict"]


def test_an_estimate_counts_every_unit_once_and_asks_nothing(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(faulty.perfect)
    arguments = command(server, faulty.write_edits(tmp_path, 6), tmp_path / "run", "--variants", "jpeg,swapped")
    arguments += ["--limit", "2", "--repeats", "3"]
    assert run([*arguments, "--dry-run"]) == 0
    # Two edits, two criteria: three answers to each original and one to each of two variants.
    assert "20 units to judge" in capsys.readouterr().out
    assert server.served == 0
    assert not (tmp_path / "run").exists()
    assert run(arguments) == 0
    assert server.served == 20


def test_the_estimate_of_the_variants_comes_before_them(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = faulty.write_edits(tmp_path, 4)
    assert run(command(scripted(faulty.perfect), manifest, tmp_path / "run", "--variants", "jpeg,blank")) == 0
    assert "variants of 4 edits: 1 judge: 16 units to judge, about 16 requests" in capsys.readouterr().err


def test_an_unknown_variant_is_refused_with_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = faulty.write_edits(tmp_path, 1)
    assert run(["stress", str(manifest), "--out", str(tmp_path / "run"), "--variants", "upside"]) == 2
    assert '"upside" for single edits; there are: source_as_edited' in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
