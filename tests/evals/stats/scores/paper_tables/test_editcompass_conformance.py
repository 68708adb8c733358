"""Edit-Compass's numbers for stored replies, from the files on disk over a scripted judge to the cells of the tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.editcompass import (
    EDIT_COMPASS,
    FLAGS,
    PART_NAMES,
    PARTS,
    Gate,
    find_part_number,
    score_item,
    score_overall,
    to_five,
)
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import ROOT, needs_fixtures, read_lines, read_numbers
from tests.scripted import Request, ScriptedServer, say

FOLDER = "edit-compass"
WORDS = {"en": "English instructions", "cn": "Chinese instructions"}

pytestmark = needs_fixtures(FOLDER, pytest.mark.long, pytest.mark.timeout(900))


def read_score(line: Mapping[str, Any]) -> int | None:
    """Return the score that a reply clearly gives."""
    if line["score"] is not None:
        return int(line["score"])
    found = re.search(r'"score":\s*"?([1-5])(?:\.0*)?"?\s*[,}]', str(line["reply"]))
    return int(found[1]) if found else None


@dataclass
class Fixture:
    """The run, the reports on it, and what is expected of every item."""

    run: Path
    cases: Mapping[str, Mapping[str, Any]]
    reports: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)

    def rows(self, title: str, *options: str) -> dict[str, dict[str, Any]]:
        """Return the rows of all tables with these words in the title, by model, merged."""
        rows: dict[str, dict[str, Any]] = {}
        for table in self.reports[options]["tables"]:
            if title in table["title"]:
                for row in table["rows"]:
                    rows.setdefault(row[0], {}).update(zip(table["columns"], row, strict=True))
        return rows


def write_benchmark(data: Path, results: Path) -> dict[tuple[int, int], tuple[str, str, str]]:
    """Write cases and outputs. Each output has a unique size; return the model, language and id by size."""
    cases = {case["id"]: case for case in read_lines(f"{FOLDER}/cases.jsonl")}
    files: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for case in cases.values():
        files.setdefault((case["part"], case["task"]), []).append(case)
        sources = [case["source_image"], re.sub("/(EN|CN)/", "/image/", case["source_image"])]
        touch(*(data / name for name in (*sources, *case.get("reference_image_path", ()))))
    for (part, task), items in files.items():
        file = data / part / task / f"{task}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(items, ensure_ascii=False), "utf-8")
    sizes: dict[tuple[int, int], tuple[str, str, str]] = {}
    outputs = dict.fromkeys(
        (v["model"], v["language"], v["id"]) for v in read_lines(f"{FOLDER}/verdicts.jsonl") if v["output"]
    )
    for number, (model, language, name) in enumerate(outputs):
        case, size = cases[name], (20 + number % 50, 20 + number // 50)
        path = results / model / language / case["part"] / case["task"] / f"{case['save_id']}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, "red").save(path)
        sizes[size] = (model, language, name)
    return sizes


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    folder = tmp_path_factory.mktemp("compass")
    sizes = write_benchmark(folder / "data", folder / "results")
    replies = {
        (line["model"], line["language"], line["id"], line["question"]): line["reply"]
        for line in read_lines(f"{FOLDER}/verdicts.jsonl")
        if line["output"]
    }

    def judge(request: Request) -> Any:
        if "List of differences" in request.system:
            return say(json.dumps({"differences": "none"}))
        shown = [image.pixels for message in request.messages for image in message.images]
        output = next(sizes[size] for size in shown if size in sizes)
        rubric = next(r for r in EDIT_COMPASS.rubrics if f"# Criterion: {r.title}\n" in request.system)
        return say(replies[*output, FLAGS[rubric.criterion]])

    server = ScriptedServer(judge).start()
    out = folder / "run"
    command = ["batch", str(folder / "data"), "--layout", "edit-compass", "--results", str(folder / "results")]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--out", str(out), "--quiet"]
    try:
        assert run(command) in (0, 3)
    finally:
        server.close()
    made = Fixture(out, {case["id"]: case for case in read_lines(f"{FOLDER}/cases.jsonl")})
    for options in ((), ("--as-published",), ("--rule", "gate=metrics", "--rule", "category_average=tasks")):
        file = folder / f"report{len(made.reports)}.json"
        assert run(["report", str(out), "--format", "json", "--out", str(file), *options]) == 0
        made.reports[options] = json.loads(file.read_text("utf-8"))
    return made


def find_differences(model: str, language: str) -> dict[str, str]:
    """Return the items whose replies are read differently here, with the kind of reply.

    Numbers outside the scale or between two of its numbers are taken by the script. Here they are no answers, and their items
    are unjudged. `4.` and `"4"` are a 4 here; the script cannot read them.
    """
    kinds = {}
    for line in read_lines(f"{FOLDER}/verdicts.jsonl"):
        if (line["model"], line["language"]) != (model, language) or "original_reading" not in line:
            continue
        original = (line["original_reading"] or {}).get("score")
        if read_score(line) != original:
            kinds[line["id"]] = line["awkward"]
    return kinds


def expect_items(cases: Mapping[str, Any], model: str, language: str, gate: Gate) -> dict[str, float]:
    """Return the scores of items: the fixture's, but for those whose replies are read differently here."""
    numbers = read_numbers(f"{FOLDER}/formula.json")["results"][model][language][f"gate_{gate}"]["edits"]
    scores = {name: value for name, value in numbers.items() if value is not None}
    for name in find_differences(model, language):
        scores.pop(name, None)
        lines = [
            line
            for line in read_lines(f"{FOLDER}/verdicts.jsonl")
            if (line["model"], line["language"], line["id"]) == (model, language, name)
        ]
        criteria = {flag: criterion for criterion, flag in FLAGS.items()}
        metrics = {criteria[line["question"]]: read_score(line) for line in lines}
        if all(value is not None for value in metrics.values()):
            value = score_overall({name: float(v) for name, v in metrics.items() if v}, cases[name]["task"], gate)
            assert value is not None
            scores[name] = value
    return scores


def list_runs() -> list[tuple[str, str]]:
    if not (ROOT / FOLDER).is_dir():
        return []
    return [
        (model, language)
        for model, own in read_numbers(f"{FOLDER}/formula.json")["results"].items()
        for language in own
    ]


@pytest.mark.parametrize(("model", "language"), list_runs())
def test_items_have_the_scores_of_the_formula(fixture: Fixture, model: str, language: str) -> None:
    expected = expect_items(fixture.cases, model, language, "dimensions")
    found = {}
    for row in read_run_table(fixture.run).of_model(model).rows:
        if row.edit.extra["language"] == language:
            scores = {n: u[0].score_100 for n, u in row.units.items() if u and u[0].score_100 is not None}
            value = score_item(row.edit, scores)
            if value is not None:
                found[row.edit.id.rpartition("/")[2]] = to_five(value)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("model", "language"), list_runs())
def test_the_tables_hold_the_numbers_of_the_formula(fixture: Fixture, model: str, language: str) -> None:
    cases, numbers = (
        fixture.cases,
        read_numbers(f"{FOLDER}/formula.json")["results"][model][language]["gate_dimensions"],
    )
    items = expect_items(cases, model, language, "dimensions")
    differing = {cases[name]["task"] for name in find_differences(model, language)}
    row = fixture.rows(WORDS[language])[model]
    for task, number in numbers["tasks"].items():
        own = [value for name, value in items.items() if cases[name]["task"] == task]
        assert row.get(task) == (pytest.approx(fmean(own), abs=1e-9) if own else None), task
        if task not in differing and number is not None:
            assert row[task] == pytest.approx(number, abs=1e-9), task
    for part, title in PART_NAMES.items():
        number = numbers["categories_over_edits"][title]
        own = [value for name, value in items.items() if cases[name]["task"] in PARTS[part]]
        assert row.get(f"{title} AVG") == (pytest.approx(fmean(own), abs=1e-9) if own else None), title
        if not differing.intersection(PARTS[part]) and number is not None:
            assert row[f"{title} AVG"] == pytest.approx(number, abs=1e-9)
    assert row["Overall AVG"] == pytest.approx(fmean(items.values()), abs=1e-9)
    if not differing:
        assert row["Overall AVG"] == pytest.approx(numbers["overall_over_edits"], abs=1e-9)


@pytest.mark.parametrize(("model", "language"), list_runs())
def test_as_published_holds_the_numbers_of_the_script(fixture: Fixture, model: str, language: str) -> None:
    cases, numbers = fixture.cases, read_numbers(f"{FOLDER}/original.json")["results"][model][language]
    row = fixture.rows(WORDS[language], "--as-published")[model]
    items = expect_items(cases, model, language, "metrics")
    differing = {cases[name]["task"] for name in find_differences(model, language)}
    for task, number in numbers.items():
        own = [value for name, value in items.items() if cases[name]["task"] == task]
        assert row.get(task) == (pytest.approx(fmean(own), abs=1e-9) if own else None), task
        assert row[f"{task} items"] == number["total_count"], task
        if task not in differing:
            assert row[task] == (number["overall"] and pytest.approx(number["overall"], abs=1e-9)), task
            assert row[f"{task} sum"] == pytest.approx(number["eval_overall_sum"], abs=1e-9)
            assert row[f"{task} evaluated"] == number["eval_count"]


@pytest.mark.parametrize(("model", "language"), list_runs())
def test_rules_are_chosen_one_by_one(fixture: Fixture, model: str, language: str) -> None:
    options = ("--rule", "gate=metrics", "--rule", "category_average=tasks")
    row = fixture.rows(WORDS[language], *options)[model]
    numbers = read_numbers(f"{FOLDER}/formula.json")["results"][model][language]["gate_metrics"]
    differing = {find_part_number(fixture.cases[name]["task"]) for name in find_differences(model, language)}
    for part, title in PART_NAMES.items():
        if part not in differing and (number := numbers["categories_over_tasks"][title]) is not None:
            assert row[f"{title} AVG"] == pytest.approx(number, abs=1e-9)
    if not differing:
        assert row["Overall AVG"] == pytest.approx(numbers["overall_over_edits"], abs=1e-9)
