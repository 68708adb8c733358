"""KRIS-Bench's numbers for stored replies, through `batch` and `report`: the paper's rule by default, the script's as published.

A reply that the script takes a number from and the judge refuses is unjudged. The default report leaves such scores out, so cells
that depend on one are left aside; the report as published reads the stored replies as the script does, and no cell is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.rubrics.kris import CATEGORIES, DUAL, GROUPS, IF, KNOWLEDGE_TYPES, KRIS, VC, VQ, WITH_KNOWLEDGE
from editloupe.rubrics.kris.paper import TITLE
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import (
    Cells,
    Outputs,
    find_asked,
    judge_once,
    needs_fixtures,
    read_lines,
    read_numbers,
    report,
)
from tests.scripted import Request, say

pytestmark = needs_fixtures("kris-bench", pytest.mark.slow, pytest.mark.timeout(1800))
QUESTIONS = {VC: "consistency", VQ: "quality", IF: "instruction", DUAL: "dual"}
BY_TYPE, BY_GROUP = "KRIS-Bench, by knowledge type", "KRIS-Bench, metrics by group"
BY_CATEGORY = "KRIS-Bench, metrics by category"


def write_benchmark(data: Path, results: Path, outputs: Outputs) -> None:
    """Write the cases in the benchmark's layout, and the outputs, one of them in a format that the script does not look for."""
    annotations: dict[str, dict[str, Any]] = {}
    formats = {
        case["id"]: "png" for case in read_lines("kris-bench/cases.jsonl") if case.get("awkward") == "output_is_png"
    }
    for case in read_lines("kris-bench/cases.jsonl"):
        names = case["ori_img"] if isinstance(case["ori_img"], list) else [case["ori_img"]]
        touch(*(data / "KRIS_Bench" / case["category"] / name for name in (*names, case["gt_img"]) if name))
        item = {name: case[name] for name in ("ori_img", "gt_img", "ins_en", "explain_en")}
        annotations.setdefault(case["category"], {})[case["image_id"]] = item
    for category, items in annotations.items():
        (data / "KRIS_Bench" / category / "annotation.json").write_text(json.dumps(items), "utf-8")
    for line in read_lines("kris-bench/verdicts.jsonl"):
        is_png = line.get("awkward") == "output_is_png"
        if line["output"] or is_png:
            suffix = formats[line["id"]] if is_png else "jpg"
            outputs.write(results / line["model"] / f"{line['id']}.{suffix}", (line["model"], line["id"]))


@pytest.fixture
def out(folder: Path, scripted: StartServer) -> Path:
    """The run, judged once."""
    lines = [line for line in read_lines("kris-bench/verdicts.jsonl") if line["output"]]
    replies = {(line["model"], line["id"], line["question"]): line["reply"] for line in lines}

    def reply(output: Any, request: Request) -> Any:
        return say(replies.get((*output, QUESTIONS[find_asked(KRIS, request)])) or "")

    return judge_once(folder, "kris", scripted, write_benchmark, reply)


def find_awkward() -> set[tuple[str, str]]:
    """Return model and category of every reply that the script may read otherwise than the judge."""
    lines = read_lines("kris-bench/verdicts.jsonl")
    return {(line["model"], line["id"].split("/")[0]) for line in lines if line["output"] and line.get("awkward")}


def list_wanted(results: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield column, categories and number of every cell of the script's summary."""
    for name, numbers in results["groups"].items():
        yield from ((f"{name} {metric}", GROUPS[name], value) for metric, value in numbers.items())
    for name, numbers in results["knowledge_types"].items():
        yield f"{name} AVG", tuple(c for group in KNOWLEDGE_TYPES[name] for c in GROUPS[group]), numbers["AVG"]
    yield "Overall AVG", CATEGORIES, results["overall"]["AVG"]


def has_awkward(awkward: set[tuple[str, str]], model: str, categories: Iterable[str]) -> bool:
    return any((model, category) in awkward for category in categories)


def test_the_default_report_averages_over_cases(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed, awkward, compared = report(capsys, out), find_awkward(), 0
    for model, results in read_numbers("kris-bench/formula.json")["results"].items():
        row = printed[BY_TYPE][model]
        wanted = {name: (GROUPS[name], numbers) for name, numbers in results["groups"].items()}
        for name, numbers in results["knowledge_types"].items():
            wanted[f"{name} AVG"] = (tuple(c for g in KNOWLEDGE_TYPES[name] for c in GROUPS[g]), numbers)
        wanted["Overall"] = (CATEGORIES, results["overall"])
        for column, (categories, numbers) in wanted.items():
            if not has_awkward(awkward, model, categories):
                assert row[column] == pytest.approx(numbers["over_cases"], abs=1e-9), (model, column)
                compared += 1
    assert compared > 24


def test_the_default_report_holds_the_metrics_of_groups_and_categories(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, awkward, compared = report(capsys, out), find_awkward(), 0
    for model, results in read_numbers("kris-bench/original.json")["results"].items():
        for title, kind in ((BY_GROUP, "groups"), (BY_CATEGORY, "categories")):
            for name, numbers in results[kind].items():
                if not has_awkward(awkward, model, GROUPS.get(name, (name,))):
                    for metric in {"VC", "VQ", "IF", "KP"} & numbers.keys():
                        assert printed[title][model][f"{name} {metric}"] == pytest.approx(numbers[metric], abs=1e-9)
                        compared += 1
    assert compared > 150


def test_the_report_as_published_holds_the_numbers_of_the_summary(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, out, "--as-published")
    for model, results in read_numbers("kris-bench/original.json")["results"].items():
        row = printed[TITLE][model]
        for column, _, value in list_wanted(results):
            assert row[column] == pytest.approx(value, abs=1e-9), (model, column)
        for name, numbers in results["categories"].items():
            for metric, value in numbers.items():
                cell = printed[f"{TITLE}, by category"][model][f"{name} {metric}"]
                assert cell == pytest.approx(value, abs=1e-9), (model, name, metric)
    assert printed[TITLE]["beta"]["Temporal Prediction AVG"] is None


@pytest.mark.parametrize("average", ["scores", "cases", "categories"])
def test_every_way_to_average_gives_its_numbers_of_the_formula(
    out: Path, average: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = report(capsys, out, "--as-published", "--rule", f"kris.average={average}")[TITLE]
    for model, results in read_numbers("kris-bench/formula.json")["results"].items():
        named = {**results["groups"], **results["knowledge_types"], "Overall": results["overall"]}
        for name, numbers in named.items():
            value = numbers[f"over_{average}"]
            assert printed[model][f"{name} AVG"] == pytest.approx(value, abs=1e-9), (model, name)


def test_numbers_outside_the_scale_are_kept_clamped_or_left_out(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = {}
    for value in ("as_is", "clamped", "left_out"):
        printed = report(capsys, out, "--as-published", "--rule", f"kris.out_of_range={value}")
        cells[value] = _find(printed, "gamma", "count_change VQ")
    outside = [line for line in read_lines("kris-bench/verdicts.jsonl") if line.get("awkward") == "out_of_range"]
    scores = [
        score
        for line in read_lines("kris-bench/verdicts.jsonl")
        if line["model"] == "gamma" and line["id"].startswith("count_change/") and line.get("question") == "quality"
        for score in (line["scores"] or {}).values()
    ]
    others = [(score - 1) * 25 for score in scores]
    assert cells["left_out"] == pytest.approx(sum(others) / len(others))
    for value, number in (("as_is", outside[0]["original_reading"]["quality_score"]), ("clamped", 5)):
        assert cells[value] == pytest.approx((sum(others) + (number - 1) * 25) / (len(others) + 1))


def _find(printed: Cells, model: str, column: str) -> float:
    cell: float = printed[f"{TITLE}, by category"][model][column]
    return cell


def test_an_output_that_is_no_jpg_is_left_out_only_as_published(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    from editloupe.cli.main import run

    assert run(["report", str(out), "--format", "json", "--as-published"]) == 0
    notes = " ".join(json.loads(capsys.readouterr().out)["tables"][0]["notes"])
    assert "kris.output_format=jpg (script)" in notes
    assert "Concerned: 1 case of gamma." in notes
    assert "kris.reading=any_digit (script)" in notes
    assert len(WITH_KNOWLEDGE) == 10
