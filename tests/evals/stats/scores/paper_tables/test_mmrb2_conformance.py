"""MMRB2's numbers for stored verdicts: from a file of predictions, and from a scripted judge's run and its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.evals.stats.scores.paper_tables.conformance import (
    ROOT,
    needs_fixtures,
    read_lines,
    read_numbers,
)
from tests.scripted import Request, say

FOLDER = ROOT / "mmrb2"
ORDERS = ("forward", "reverse")

pytestmark = needs_fixtures("mmrb2", pytest.mark.long, pytest.mark.timeout(900))


def list_models() -> list[str]:
    return list(read_numbers("mmrb2/formula.json")["results"]) if FOLDER.is_dir() else []


def verdicts_of(model: str) -> dict[str, Mapping[str, Any]]:
    """Return the verdicts of a model by pair; a pair without an output is left out."""
    own = [line for line in read_lines("mmrb2/verdicts.jsonl") if line["model"] == model]
    return {line["pair"]: line for line in own if line.get("output") is not False}


def is_complete(model: str) -> bool:
    """Return whether a model has one readable verdict for every pair and order."""
    own = verdicts_of(model)
    words = [line.get(order) for line in own.values() for order in ORDERS]
    return len(own) == len(read_lines("mmrb2/cases.jsonl")) and all(word in (["A"], ["B"]) for word in words)


def write_set(folder: Path) -> dict[tuple[int, int], tuple[str, str]]:
    """Write the set with its pictures; each response has a unique size. Return pair and response by size."""
    cases = read_lines("mmrb2/cases.jsonl")
    sizes: dict[tuple[int, int], tuple[str, str]] = {}
    for case in cases:
        sources = [path for kind, path in case["prompt_content"] if kind == "image"]
        responses = [case[f"response_{side}"]["response_content"][0][1] for side in ("a", "b")]
        for path in (*sources, *responses):
            size = (16, 16)
            if path in responses:
                size = (20 + len(sizes) % 50, 20 + len(sizes) // 50)
                sizes[size] = (case["id"], "AB"[responses.index(path)])
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", size, "red").save(folder / path)
    (folder / "edit.json").write_text(json.dumps({"pairs": cases}), "utf-8")
    return sizes


def check(accuracy: float, measures: Mapping[str, Any], model: str) -> None:
    """Compare with every number of the script, and of the formula."""
    original, formula = (read_numbers(f"mmrb2/{name}.json")["results"][model] for name in ("original", "formula"))
    assert accuracy == pytest.approx(original["accuracy"], abs=1e-9)
    assert accuracy == pytest.approx(formula["accuracy"], abs=1e-9)
    counts = [measures[title] for title in ("total pairs", "evaluated pairs", "missing pairs")]
    assert counts == [original[f"{name}_pairs"] for name in ("total", "evaluated", "missing")]
    for title in ("right in both orders", "same choice in both orders", "pairs with both orders"):
        name = title.replace(" ", "_").removesuffix("_orders") if title.startswith("pairs") else title.replace(" ", "_")
        assert measures[title] == pytest.approx(formula[name], abs=1e-9)


@pytest.mark.parametrize("model", list_models())
def test_a_file_of_predictions_gives_the_numbers_of_the_script(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_set(tmp_path)
    predictions = {
        pair: {order: [{"judgement": word} for word in line[order]] for order in ORDERS if line.get(order) is not None}
        for pair, line in verdicts_of(model).items()
    }
    (tmp_path / f"{model}.json").write_text(json.dumps(predictions), "utf-8")
    command = ["reward", str(tmp_path / "edit.json"), "--layout", "mmrb2", "--scores", str(tmp_path / f"{model}.json")]
    code = run([*command, "--json"])
    report = json.loads(capsys.readouterr().out)
    formula = read_numbers("mmrb2/formula.json")["results"][model]
    overall = report["overall"]
    assert (overall["correct"], overall["judged"]) == (formula["right"], formula["verdicts"])
    check(overall["accuracy"], report["measures"], model)
    assert code == (0 if overall["judged"] == overall["pairs"] else 3)


@pytest.mark.parametrize("model", [name for name in list_models() if is_complete(name)])
def test_a_judge_asked_in_both_orders_gives_the_numbers_of_the_script_in_every_table(
    model: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, verdicts = write_set(tmp_path), verdicts_of(model)

    def judge(request: Request) -> Any:
        shown = [sizes[i.pixels] for message in request.messages for i in message.images if i.pixels in sizes]
        (pair, first), _ = shown
        (word,) = verdicts[pair]["forward" if first == "A" else "reverse"]
        return say(json.dumps({"reason": "seen", "better": word}))

    out = tmp_path / "run"
    command = ["reward", str(tmp_path / "edit.json"), "--layout", "mmrb2", "--pairwise", "--out", str(out), "--quiet"]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", scripted(judge).openai_url]
    assert run([*command, *asked, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    check(report["overall"]["accuracy"], report["measures"], model)
    assert run(["reward", str(out), "--table", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    check(row["overall"], row["measures"], model)
    assert run(["report", str(out), "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    cells = dict(zip(table["columns"], table["rows"][0], strict=True))
    assert cells["accuracy"] == f"{read_numbers('mmrb2/original.json')['results'][model]['accuracy']:.4f}"


@pytest.mark.parametrize("model", [name for name in list_models() if not is_complete(name)])
def test_verdicts_that_a_judge_does_not_give_are_left_out_and_counted(
    model: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small letter in a reply is read as the letter, unlike in a file."""
    sizes, verdicts = write_set(tmp_path), verdicts_of(model)

    def judge(request: Request) -> Any:
        shown = [sizes[i.pixels] for message in request.messages for i in message.images if i.pixels in sizes]
        (pair, first), _ = shown
        words = verdicts.get(pair, {}).get("forward" if first == "A" else "reverse") or [None]
        return say(json.dumps({"reason": "seen", "better": words[0]}) if words[0] else "I cannot tell.")

    command = ["reward", str(tmp_path / "edit.json"), "--layout", "mmrb2", "--pairwise", "--quiet", "--json"]
    assert run([*command, "--judge", "openai:gpt-4.1", "--base-url", scripted(judge).openai_url]) == 3
    report = json.loads(capsys.readouterr().out)
    formula = read_numbers("mmrb2/formula.json")["results"][model]
    chosen = {case["id"]: case["chosen"] for case in read_lines("mmrb2/cases.jsonl")}
    small = [
        (pair, word if order == "forward" else word.translate(str.maketrans("ab", "ba")))
        for pair, line in verdicts.items()
        for order in ORDERS
        for word in (line.get(order) or [""])[:1]
        if word in ("a", "b")
    ]
    gained = sum(chosen[pair] == word.upper() for pair, word in small)
    assert report["overall"]["judged"] == formula["verdicts"]
    assert report["overall"]["correct"] == formula["right"] + gained
    answered = {pair for pair, line in verdicts.items() if any((line.get(order) or [None])[0] for order in ORDERS)}
    assert report["measures"]["missing pairs"] == len(chosen.keys() - answered)
