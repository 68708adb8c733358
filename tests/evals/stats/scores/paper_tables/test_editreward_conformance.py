"""EditReward-Compass's numbers for stored scores: a reward model's file, and a scripted judge's run and its reports."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.rubrics.editcompass import EDIT_COMPASS
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import touch
from tests.scripted import Request, say

CONFORMANCE = Path(
    os.environ.get("EDITLOUPE_CONFORMANCE", Path(__file__).resolve().parents[6] / "shared" / "conformance")
)
FOLDER = CONFORMANCE / "editreward-compass"
FIELDS = ("id", "source_image", "prompt", "winner", "loser", "dimension", "label")

pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the conformance fixtures are not here"),
    pytest.mark.long,
    pytest.mark.timeout(900),
]


def read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


def read_numbers(name: str) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((FOLDER / name).read_text("utf-8"))["results"]
    return results


def list_models(whole: bool = False) -> list[str]:
    """Return the models, or those whose scores a judge on a scale from 1 to 5 can give."""
    if not FOLDER.is_dir():
        return []
    models = list(read_numbers("formula.json"))
    given = {m: [v["score"] for v in read_lines("verdicts.jsonl") if v["model"] == m] for m in models}
    return [m for m in models if not whole or all(score in (1, 2, 3, 4, 5) for score in given[m])]


def write_pairs(folder: Path) -> dict[tuple[int, int], str]:
    """Write the pairs with the public fields. Each candidate has a unique size; return its path by size."""
    pairs = [{name: case[name] for name in FIELDS} for case in read_lines("cases.jsonl")]
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
    wanted = dict(read_numbers("formula.json")[model])
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
    for line in read_lines("verdicts.jsonl"):
        if line["model"] == model:
            scores.setdefault(line["pair"], {"pair": line["pair"]})[line["side"]] = line["score"]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in scores.values()), "utf-8")
    code = run(["reward", str(tmp_path / "pairs.json"), "--scores", str(tmp_path / "scores.jsonl"), "--json"])
    report = json.loads(capsys.readouterr().out)
    compare(report["by_dimension"], report["overall"]["accuracy"], model)
    assert code == (0 if report["overall"]["judged"] == report["overall"]["pairs"] else 3)


@pytest.mark.parametrize("model", list_models(whole=True))
def test_a_judge_gives_the_numbers_of_the_formula_and_as_published_of_the_script(
    model: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = write_pairs(tmp_path)
    replies = {v["candidate"]: v["reply"] for v in read_lines("verdicts.jsonl") if v["model"] == model}

    def judge(request: Request) -> Any:
        if "List of differences" in request.system:
            return say(json.dumps({"differences": "none"}))
        shown: Sequence[tuple[int, int]] = [i.pixels for message in request.messages for i in message.images]
        assert any(f"# Criterion: {r.title}\n" in request.system for r in EDIT_COMPASS.rubrics)
        return say(replies[next(sizes[size] for size in shown if size in sizes)])

    out = tmp_path / "run"
    command = ["reward", str(tmp_path / "pairs.json"), "--judge", "openai:gpt-4.1", "--out", str(out), "--quiet"]
    assert run([*command, "--base-url", scripted(judge).openai_url, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    compare(report["by_dimension"], report["overall"]["accuracy"], model)
    assert run(["report", str(out), "--format", "json", "--as-published"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    (row,) = (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])
    for dimension, number in read_numbers("original.json")[model].items():
        assert row[dimension] == pytest.approx(number["accuracy"], abs=1e-9)
        assert (row[f"{dimension} correct"], row[f"{dimension} total"]) == (number["correct"], number["total"])
    assert "AVG" not in row
    for average, name in (("pairs", "AVG_over_all_judged_pairs"), ("dimensions", "mean_of_dimensions")):
        assert run(["report", str(out), "--format", "json", "--rule", f"editreward.average={average}"]) == 0
        (table,) = json.loads(capsys.readouterr().out)["tables"]
        found = table["rows"][0][table["columns"].index("AVG")]
        assert found == pytest.approx(read_numbers("formula.json")[model][name], abs=1e-9)
