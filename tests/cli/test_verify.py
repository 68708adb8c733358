"""`verify`: judges with known faults are told apart by what their words claim of the pixels."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.main import run
from editloupe.evals.runs.claim_store import FILE
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.calibrate import collect_question_keys
from editloupe.evals.stats.trust.confidence import find_confidences
from editloupe.evals.traces import find_traces
from editloupe.judge.calibration import lower_bound
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.faulty_judges import COLOURS, TARGET, always_flawless, make_random, read_request
from tests.scripted import Answer, Request, ScriptedServer, final, say

pytestmark = pytest.mark.long
IF, VC = "instruction_following", "visual_consistency"
SQUARE, OTHER = [60, 40, 100, 70], [10, 85, 40, 110]
VARIANTS = ("done", "nothing", "wrong colour", "also elsewhere", "painted text")
"""What happens in an edit; the edits take turns. The painted band asks for the best label."""


def write_edits(folder: Path, count: int = 10) -> Path:
    """Write edits of the square, whose box is annotated."""
    rows = []
    for number in range(count):
        variant, wanted = VARIANTS[number % len(VARIANTS)], list(COLOURS)[number % 3]
        before = textured(seed=number)
        before[TARGET] = 128
        after = before.copy()
        if variant != "nothing":
            after[TARGET] = COLOURS[list(COLOURS)[(number + 1) % 3] if variant == "wrong colour" else wanted]
        if variant == "also elsewhere":
            after[OTHER[1] : OTHER[3], OTHER[0] : OTHER[2]] = 255 - after[OTHER[1] : OTHER[3], OTHER[0] : OTHER[2]]
        if variant == "painted text":
            after[-14:, 4:120] = 250
        names = {"source": f"s{number}.png", "edited": f"e{number}.png"}
        save(before, folder / names["source"])
        save(after, folder / names["edited"])
        words = f"Change the color of the square from gray to {wanted}"
        row = {
            "id": f"e{number:03}",
            "instruction": words,
            "instruction_type": "Change Color",
            "target_boxes": [SQUARE],
        }
        rows.append({**row, **names})
    (folder / "edits.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return folder / "edits.jsonl"


def is_about_consistency(request: Request) -> bool:
    return "Scene Collapse" in request.system


def wanted_colour(request: Request) -> str:
    return request.text.rpartition("from gray to ")[2].split()[0]


def perfect(request: Request) -> Answer:
    """Say what the pixels show."""
    seen = read_request(request)
    before, after = seen.before.astype(np.int16), seen.after.astype(np.int16)
    changed = np.abs(after - before).mean(2) > 30
    if is_about_consistency(request):
        changed[TARGET] = False
        if changed.mean() < 0.002:
            return final("Perfect Consistency", "The tower stands as before. Nothing else changed.")
        rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
        box = [int(n) for n in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)]
        return final("Single Anomaly", f"The region {box} has changed.")
    if changed[TARGET].mean() < 0.5:
        return final("Localization Failure", f"The square at {SQUARE} is unchanged.")
    colour = next(name for name, rgb in COLOURS.items() if np.abs(after[TARGET].mean((0, 1)) - rgb).max() < 60)
    done = colour == wanted_colour(request)
    return final("Flawless Execution" if done else "Wrong Action", f"The square at {SQUARE} is now {colour}.")


def ignores_the_second_picture(request: Request) -> Answer:
    """Say of every edit that it was carried out, from the instruction and the source alone."""
    if is_about_consistency(request):
        return always_flawless(request)
    return final("Flawless Execution", f"The square at {SQUARE} is now {wanted_colour(request)}.")


def invents_a_difference(request: Request) -> Answer:
    if is_about_consistency(request):
        return final("Single Anomaly", "The region [120, 10, 150, 30] has been distorted.")
    return perfect(request)


def obeys_text(request: Request) -> Answer:
    after = read_request(request).after
    return always_flawless(request) if (after[-14:, 10:110] > 235).mean() > 0.9 else perfect(request)


def judge(server: ScriptedServer, manifest: Path, out: Path, *more: str, code: int = 0) -> Path:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain", "--quiet"]
    assert run(["batch", str(manifest), "--out", str(out), *judge, *more]) == code
    return out


def verify(folder: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["verify", str(folder), "--format", "json", *more]) == code
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def contradicted(result: dict[str, Any]) -> dict[str, set[str]]:
    """Return the variants of the edits with a contradicted verdict, by criterion."""
    found: dict[str, set[str]] = {IF: set(), VC: set()}
    for verdict in result["verdicts"]:
        if any(claim["state"] == "contradicted" for claim in verdict["claims"]):
            found[verdict["criterion"]].add(VARIANTS[int(verdict["edit_id"][1:]) % len(VARIANTS)])
    return found


FAULTS: dict[str, tuple[Callable[[Request], Answer], set[str], set[str]]] = {
    "always flawless": (always_flawless, {"nothing"}, {"also elsewhere", "painted text"}),
    "ignores the second picture": (
        ignores_the_second_picture,
        {"nothing", "wrong colour"},
        {"also elsewhere", "painted text"},
    ),
    "invents a difference": (invents_a_difference, set(), set(VARIANTS)),
    "obeys painted text": (obeys_text, set(), {"painted text"}),
    "perfect": (perfect, set(), set()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_in_exactly_the_edits_that_show_it(
    fault: str, scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, following, consistency = FAULTS[fault]
    result = verify(judge(scripted(answer), write_edits(tmp_path), tmp_path / "run"), capsys)
    assert contradicted(result) == {IF: following, VC: consistency}
    rates = {rate["value"]: rate["rate"]["value"] for rate in result["rates"] if rate["by"] == "criterion"}
    assert rates[VC] == len(consistency) / len(VARIANTS)


def test_a_random_judge_is_contradicted_more_often_than_a_perfect_one(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = verify(judge(scripted(make_random()), write_edits(tmp_path, 20), tmp_path / "run"), capsys)
    assert 0.15 < result["overall"]["value"] < 0.8


def test_at_most_two_in_a_hundred_verdicts_of_a_perfect_judge_are_contradicted(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = verify(judge(scripted(perfect), write_edits(tmp_path, 240), tmp_path / "run"), capsys)
    assert result["checked"] == 480
    assert result["overall"]["value"] <= 0.02
    assert result["supported"] > 400
    assert result["unparsed"] == 144, "what the tower does is no claim that is understood, and is counted"


def test_results_have_the_documented_form_and_labels_stay(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = judge(scripted(always_flawless), write_edits(tmp_path, 5), tmp_path / "run")
    before = [*sqlite3.connect(folder / "run.sqlite").execute("SELECT * FROM units")]
    result = verify(folder, capsys, "--crops", str(tmp_path / "crops"))
    sums = [result[name] for name in ("supported", "contradicted", "not_checkable")]
    assert result["claims"] == sum(sums) == sum(len(verdict["claims"]) for verdict in result["verdicts"])
    claims = [claim for verdict in result["verdicts"] for claim in verdict["claims"]]
    assert all({"text", "kind", "state", "evidence"} <= claim.keys() for claim in claims)
    assert all(claim["evidence"]["why"] for claim in claims)
    assert [*sqlite3.connect(folder / "run.sqlite").execute("SELECT * FROM units")] == before
    assert len(list((tmp_path / "crops").iterdir())) == result["contradicted"]
    (tmp_path / "file").write_text("not a folder")
    assert run(["verify", str(folder), "--crops", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_reasons_why_claims_are_not_checkable_are_counted(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: Request) -> Answer:
        label = "Single Anomaly" if is_about_consistency(request) else "Localization Failure"
        return final(label, "There are now three dragons. The region [900, 10, 950, 30] is unchanged.")

    folder = judge(scripted(answer), write_edits(tmp_path, 5), tmp_path / "run")
    result = verify(folder, capsys)
    reasons = {reason["why"]: reason for reason in result["reasons"]}
    assert sum(reason["claims"] for reason in result["reasons"]) == result["not_checkable"]
    outside = reasons["the stated position is not a box in the picture"]
    assert (outside["claims"], outside["example"]) == (10, "The region [900, 10, 950, 30] is unchanged.")
    assert run(["verify", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "Why claims are not checkable" in text
    assert "the stated position is not a box in the picture" in text


def test_a_second_run_measures_nothing_and_a_changed_run_only_what_is_new(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = write_edits(tmp_path, 4)
    server = scripted(always_flawless)
    folder = judge(server, manifest, tmp_path / "run", "--limit", "3")
    first = verify(folder, capsys)
    again = verify(folder, capsys)
    assert (first["fresh"], again["fresh"]) == (6, 0)
    assert again["verdicts"] == first["verdicts"]
    assert verify(judge(server, manifest, folder), capsys)["fresh"] == 2
    (folder / FILE).unlink()
    assert verify(folder, capsys)["fresh"] == 8


def test_unjudged_verdicts_and_missing_pictures_are_counted_and_named(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_edits(tmp_path, 4)
    (tmp_path / "e1.png").unlink()
    folder = judge(scripted(always_flawless), manifest, tmp_path / "run", code=3)
    (tmp_path / "e2.png").unlink()
    for picture in (folder / "pictures").rglob("*.png"):
        picture.unlink()
    result = verify(folder, capsys, code=3)
    assert result["not_checked"] == {"bad_image": 2, "a picture is missing or damaged": 2}
    assert result["missing"] == ["e002"]
    assert result["checked"] == 4


def test_a_model_finds_claims_that_no_pattern_reads_and_is_asked_once(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "By the lower left edge, at [10, 85, 40, 110], a mess was made."

    def answer(request: Request) -> Answer:
        if "kind: one of the kinds" in request.system:
            claim = {"words": words, "kind": "region_changed", "box": [10, 85, 40, 110]}
            invented = {"words": "It is not in the text.", "kind": "region_changed"}
            return say(json.dumps({"claims": [claim, invented] if words in request.text else []}))
        return final("Single Anomaly", words) if is_about_consistency(request) else perfect(request)

    server = scripted(answer)
    folder = judge(server, write_edits(tmp_path, 5), tmp_path / "run")
    extractor = ["--extractor", "openai:gpt-4.1-mini", "--base-url", server.openai_url]
    result = verify(folder, capsys, *extractor)
    states = {
        verdict["edit_id"]: [claim["state"] for claim in verdict["claims"] if claim["text"] == words]
        for verdict in result["verdicts"]
        if verdict["criterion"] == VC
    }
    assert states == {
        f"e00{n}": ["supported" if VARIANTS[n] == "also elsewhere" else "contradicted"] for n in (0, 1, 2, 3)
    } | {"e004": states["e004"]}
    asked = server.served
    assert verify(folder, capsys, *extractor)["fresh"] == 0
    assert server.served == asked, "a second verification asks nothing"


def test_bad_input_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(tmp_path / "none")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_contradicted_verdicts_are_found_by_a_filter_and_give_confidence_if_chosen(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = judge(scripted(always_flawless), write_edits(tmp_path), tmp_path / "run")
    with pytest.raises(UserError, match="run `editloupe verify` on it first"):
        find_confidences(read_run_table(folder), "claims")
    assert find_traces(folder, "contradicted > 0").total == 0
    verify(folder, capsys)
    assert {(hit.name, hit.criterion) for hit in find_traces(folder, "contradicted > 0")} == {
        *(("e001", IF), ("e006", IF), ("e003", VC), ("e008", VC), ("e004", VC), ("e009", VC))
    }
    _, confidences = find_confidences(read_run_table(folder), "claims")
    assert confidences[VC].tolist() == [1, 1, 1, 0, 0] * 2
    assert find_confidences(read_run_table(folder))[0] == "none", "only if it is named"


def test_a_verdict_that_was_judged_again_is_no_longer_verified(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_edits(tmp_path, 5)
    folder = judge(scripted(always_flawless), manifest, tmp_path / "run")
    verify(folder, capsys)
    with sqlite3.connect(folder / "run.sqlite") as connection:
        connection.execute("UPDATE units SET finished_at = '2030-01-01T00:00:00Z'")
    connection.close()
    assert find_traces(folder, "claims > 0").total == 0
    with pytest.raises(UserError, match="first"):
        find_confidences(read_run_table(folder), "claims")


def test_a_cascade_keeps_verdicts_by_their_claims(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(always_flawless)
    manifest = write_edits(tmp_path)
    folder = judge(server, manifest, tmp_path / "run")
    asked = collect_question_keys(read_run_table(folder))
    test = {"threshold": 1.0, "labels": 40, "agreed": 40, "lower": lower_bound(40, 40, 0.05), "passed": True}
    trust = {"threshold": 1.0, "kept": 0.6, "labels": 40, "tested": [test], "candidates": 1, "why": None}
    about = {"judge": "openai:gpt-4.1", "protocol": "dlebench", "mode": "plain", "confidence": "claims", "repeats": 1}
    calibration = {**about, "agreement": 0.9, "error": 0.05, "asked": asked, "criteria": {IF: trust, VC: trust}}
    (tmp_path / "trust.yaml").write_text(json.dumps(calibration), "utf-8")
    cascade = ["--judge", f"cascade:{tmp_path / 'trust.yaml'}", "--base-url", server.openai_url, "--mode", "plain"]
    assert run(["batch", str(manifest), "--out", str(tmp_path / "kept"), *cascade, "--quiet"]) == 3
    unjudged = {(hit.name, hit.criterion) for hit in find_traces(tmp_path / "kept", 'reason = "needs_a_person"')}
    assert unjudged == {(f"e00{n}", IF) for n in (1, 6)} | {(f"e00{n}", VC) for n in (3, 4, 8, 9)}
