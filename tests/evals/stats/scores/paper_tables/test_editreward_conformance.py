"""EditReward-Compass's numbers for stored scores: a reward model's file, and a scripted judge's run and its reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.rubrics.editcompass import EDIT_COMPASS
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import ROOT, needs_fixtures, read_lines, read_numbers
from tests.scripted import Request, say

FOLDER = "editreward-compass"
FIELDS = ("id", "source_image", "prompt", "winner", "loser", "dimension", "label")

pytestmark = needs_fixtures(FOLDER, pytest.mark.long, pytest.mark.timeout(900))


def list_models() -> list[str]:
    return list(read_numbers(f"{FOLDER}/formula.json")["results"]) if (ROOT / FOLDER).is_dir() else []


def list_whole_models() -> list[str]:
    """Return the models whose scores a judge on a scale from 1 to 5 can give."""
    given = {m: [v["score"] for v in read_lines(f"{FOLDER}/verdicts.jsonl") if v["model"] == m] for m in list_models()}
    return [m for m, scores in given.items() if all(score in (1, 2, 3, 4, 5, None) for score in scores)]


def write_pairs(folder: Path) -> dict[tuple[int, int], str]:
    """Write the pairs with the public fields. Each candidate has a unique size; return its path by size."""
    pairs = [{name: case[name] for name in FIELDS} for case in read_lines(f"{FOLDER}/cases.jsonl")]
    sizes: dict[tuple[int, int], str] = {}
    for pair in pairs:
        touch(folder / pair["source_image"])
        for side in ("winner", "loser"):
            size, path = (20 + len(sizes) % 50, 20 + len(sizes) // 50), folder / pair[side]
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, "red").save(path)
            sizes[size] = pair[side]
    (folder / "pairs.json").write_text(json.dumps(pairs), "utf-8")
    return sizes


def compare(found: Mapping[str, Any], average: float, model: str) -> None:
    """Compare accuracies by dimension and AVG with the formula's numbers."""
    wanted = dict(read_numbers(f"{FOLDER}/formula.json")["results"][model])
    assert average == pytest.approx(wanted["AVG_over_all_judged_pairs"], abs=1e-9)
    for dimension in ("IA", "VC", "VQ"):
        own, number = found[dimension], wanted[dimension]
        assert (own["correct"], own["judged"], own["pairs"]) == (number["correct"], number["judged"], number["pairs"])
        assert own["accuracy"] == pytest.approx(number["accuracy_of_judged"], abs=1e-9)


@pytest.mark.parametrize("model", list_models())
def test_a_reward_model_s_scores_give_the_numbers_of_the_formula(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path)
    scores: dict[str, dict[str, Any]] = {}
    for line in read_lines(f"{FOLDER}/verdicts.jsonl"):
        if line["model"] == model:
            scores.setdefault(line["pair"], {"pair": line["pair"]})[line["side"]] = line["score"]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in scores.values()), "utf-8")
    code = run(["reward", str(tmp_path / "pairs.json"), "--scores", str(tmp_path / "scores.jsonl"), "--json"])
    report = json.loads(capsys.readouterr().out)
    compare(report["by_dimension"], report["overall"]["accuracy"], model)
    assert code == (0 if report["overall"]["judged"] == report["overall"]["pairs"] else 3)


def judge_pairs(folder: Path, server: StartServer, replies: Mapping[str, str]) -> tuple[Path, int]:
    """Judge the pairs with a scripted judge that gives each candidate its reply; return the run and the exit code."""
    sizes = write_pairs(folder)

    def judge(request: Request) -> Any:
        if "List of differences" in request.system:
            return say(json.dumps({"differences": "none"}))
        shown: Sequence[tuple[int, int]] = [i.pixels for message in request.messages for i in message.images]
        assert any(f"# Criterion: {r.title}\n" in request.system for r in EDIT_COMPASS.rubrics)
        return say(replies[next(sizes[size] for size in shown if size in sizes)])

    out = folder / "run"
    command = ["reward", str(folder / "pairs.json"), "--judge", "openai:gpt-4.1", "--out", str(out), "--quiet"]
    return out, run([*command, "--base-url", server(judge, log=False).openai_url, "--json"])


def read_published(out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[dict[str, Any], list[str]]:
    """Return the row of the script's table, and the notes below it."""
    capsys.readouterr()
    assert run(["report", str(out), "--format", "json", *options]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return (rows[0] if rows else {}), table["notes"]


@pytest.mark.parametrize("model", list_whole_models())
def test_a_judge_gives_the_numbers_of_the_formula_and_as_published_of_the_script(
    model: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = {v["candidate"]: v["reply"] for v in read_lines(f"{FOLDER}/verdicts.jsonl") if v["model"] == model}
    out, code = judge_pairs(tmp_path, scripted, replies)
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["overall"]["judged"] == report["overall"]["pairs"] else 3)
    compare(report["by_dimension"], report["overall"]["accuracy"], model)
    row, notes = read_published(out, capsys, "--as-published")
    original = read_numbers(f"{FOLDER}/original.json")["results"][model]
    if "crashed" in original:
        assert row == {}
        assert any("the script stops at a pair without both scores" in note for note in notes)
    else:
        for dimension, number in original.items():
            assert row[dimension] == pytest.approx(number["accuracy"], abs=1e-9)
            assert (row[f"{dimension} correct"], row[f"{dimension} total"]) == (number["correct"], number["total"])
        assert "AVG" not in row
    for average, name in (("pairs", "AVG_over_all_judged_pairs"), ("dimensions", "mean_of_dimensions")):
        row, _ = read_published(out, capsys, "--rule", f"editreward.average={average}")
        assert row["AVG"] == pytest.approx(read_numbers(f"{FOLDER}/formula.json")["results"][model][name], abs=1e-9)


@pytest.mark.parametrize("model", list_whole_models())
def test_a_dimension_without_any_score_is_one_that_the_script_was_not_asked_for(
    model: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [v for v in read_lines(f"{FOLDER}/verdicts.jsonl") if v["model"] == model]
    replies = {v["candidate"]: v["reply"] if v["dimension"] != "VC" else "unclear" for v in lines}
    out, code = judge_pairs(tmp_path, scripted, replies)
    assert code == 3
    row, notes = read_published(out, capsys, "--as-published")
    wanted = read_numbers(f"{FOLDER}/original.json")["results"][model]
    assert {name: row[name] for name in ("IA", "VQ")} == {name: wanted[name]["accuracy"] for name in ("IA", "VQ")}
    assert row["VC"] is None
    assert any("no pair of VC has both scores; the script is then run without --dim VC" in note for note in notes)
