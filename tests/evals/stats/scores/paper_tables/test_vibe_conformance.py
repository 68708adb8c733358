"""VIBE's numbers for stored answers, through `batch` and `report`: the formula by default, the script's as published.

An answer that the script takes and the question does not allow, such as 0.5 for an item of 0 or 1, is refused (*stricter
reading*); the cells that depend on it are left aside, all others are compared.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from editloupe.judge.settings import JudgeSettings, build_protocol, find_setup
from editloupe.rubrics.model import ChecksAnswer
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.published import RawAnswer, RawEdit
from editloupe.rubrics.vibe import LEVELS
from editloupe.rubrics.vibe.paper import FOLDERS
from editloupe.rubrics.vibe.published import KEYS, PUBLISHED, TITLE
from tests.conftest import StartServer
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.conformance import (
    Outputs,
    judge,
    needs_fixtures,
    read_lines,
    read_numbers,
    report,
)
from tests.evals.stats.scores.paper_tables.judged_runs import edit
from tests.scripted import Request, say

pytestmark = needs_fixtures("vibe", pytest.mark.long)
CODES = {name: code for code, names in FOLDERS.items() for name in names} | {n: n for n in ("2-Tasks", "3-Tasks")}
METRICS = {title: criterion for criterion, (title, _) in KEYS.items()}
SINGLE = {"contextual_preservation": "preserved", "wind_direction": "direction"}


def ask(setup: str) -> Protocol:
    return build_protocol(find_setup(setup), "vibe", (), JudgeSettings())


def translate(question: str, answer: Mapping[str, Any]) -> dict[str, str]:
    """Return a stored answer by our keys."""
    criterion = METRICS[question]
    if criterion in SINGLE:
        return {SINGLE[criterion]: format_value(answer[question]["score"])}
    if criterion == "pose_consistency":
        return {key.lower(): value for key, value in answer[question].items()}
    given = {key: format_value(answer[title]["score"]) for key, title in KEYS[criterion][1].items()}
    if criterion == "orientation_alignment":
        flags = {key: answer[title]["needs_modification"] for key, title in KEYS[criterion][1].items()}
        given |= {f"{key}_needs_modification": "yes" if flag else "no" for key, flag in flags.items()}
    return given


def format_value(score: float | str) -> str:
    return f"{float(score):g}"


def is_allowed(protocol: Protocol, task: str, question: str, given: Mapping[str, str]) -> bool:
    sample = edit("x", CODES[task], "m")
    rubric = next(r for r in protocol.rubrics_for(sample) if r.criterion == METRICS[question])
    assert isinstance(rubric.answer, ChecksAnswer)
    return all(given.get(check.key) in check.values for check in rubric.answer.checks)


@dataclass(frozen=True)
class Refused:
    """The tasks of a model with a refused answer, by question."""

    cells: frozenset[tuple[str, str, str]]

    def hits(self, model: str, task: str, key: str) -> bool:
        questions = {asked for own, other, asked in self.cells if (own, other) == (model, task)}
        return key.partition("/")[0] in questions or (key == "score" and bool(questions))


def find_refused(setup: str) -> Refused:
    protocol = ask(setup)
    return Refused(
        frozenset(
            (line["model"], line["task"], line["question"])
            for line in read_lines("vibe/verdicts.jsonl")
            if line.get("answer") and not is_allowed(protocol, line["task"], line["question"], translated(line))
        )
    )


def translated(line: Mapping[str, Any]) -> dict[str, str]:
    return translate(line["question"], line["answer"])


def list_answers() -> list[dict[str, Any]]:
    models = read_numbers("vibe/original.json")["results"]
    return [line for line in read_lines("vibe/verdicts.jsonl") if line["model"] in models and line.get("answer")]


def compute(choices: Mapping[str, str], protocol: Protocol) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the script's tables for the stored answers, without those that are refused."""
    answers: dict[tuple[str, str, str, int], dict[str, RawAnswer]] = {}
    for line in list_answers():
        given = translated(line)
        readable = is_allowed(protocol, line["task"], line["question"], given)
        answer = RawAnswer("judged", checks=given) if readable else RawAnswer("unjudged", reason="unreadable")
        key = (line["model"], line["task"], line["id"], line["run"])
        answers.setdefault(key, {})[METRICS[line["question"]]] = answer
    models: dict[str, list[RawEdit]] = {}
    for (model, task, name, repeat), given_answers in answers.items():
        models.setdefault(model, []).append(RawEdit(edit(name, CODES[task], model), repeat - 1, given_answers))
    return {
        table.title: {model: dict(zip(table.columns, row, strict=True)) for model, row in table.rows.items()}
        for table in PUBLISHED.tables(models, choices)
    }


def compare_script(printed: Mapping[str, Any], refused: Refused) -> tuple[int, int]:
    """Compare the tables of tasks with the script's summaries; return the numbers of cells compared and left aside."""
    compared = aside = 0
    for model, tasks in read_numbers("vibe/original.json")["results"].items():
        for task, summary in tasks.items():
            row = printed[f"{TITLE}, {task}"][model]
            runs = summary["three_runs"]
            wanted = {(key, ""): value for key, value in runs["mean"].items()}
            wanted |= {(key, " variance"): value for key, value in runs["var"].items()}
            for number, run in enumerate(summary["each_run"], start=1):
                wanted |= {(key, f" run {number}"): value for key, value in run.items()}
            for (key, end), value in wanted.items():
                if refused.hits(model, task, key):
                    aside += 1
                else:
                    assert row[key + end] == pytest.approx(value, abs=1e-9), (model, task, key + end)
                    compared += 1
    return compared, aside


def test_the_script_s_summaries_come_out_of_the_answers_cell_by_cell() -> None:
    compared, aside = compare_script(
        compute(PUBLISHED.choose({}, published=True), ask("vibe-published")), find_refused("vibe-published")
    )
    assert compared, f"{aside} cells depend on answers that are read more strictly"


def test_answers_that_only_the_script_allows_give_its_numbers_too() -> None:
    """With every answer that its reader takes, all cells are the script's."""
    answer = {"0": 0.0, "0.5": 0.5, "1": 1.0}
    lenient = []
    for rubric in ask("vibe-published").rubrics:
        assert isinstance(rubric.answer, ChecksAnswer)
        checks = [c.model_copy(update={"values": answer}) if "1" in c.values else c for c in rubric.answer.checks]
        lenient.append(rubric.model_copy(update={"answer": rubric.answer.model_copy(update={"checks": tuple(checks)})}))
    protocol = type(ask("vibe-published"))(**{**vars(ask("vibe-published")), "rubrics": tuple(lenient)})
    compared, aside = compare_script(compute(PUBLISHED.choose({}, published=True), protocol), Refused(frozenset()))
    assert (compared > 0, aside) == (True, 0)
    for column, choices in {
        "paper": PUBLISHED.choose({}),
        "script_rules_unrounded": PUBLISHED.choose({"rounding": "none"}, published=True),
    }.items():
        printed = compute(choices, protocol)
        for model, results in read_numbers("vibe/formula.json")["results"].items():
            wanted = {CODES[task]: own["mean"] for task, own in results[column]["tasks"].items()}
            wanted |= {f"{level} Avg": value for level, value in results[column]["levels"].items()}
            wanted["Overall"] = results[column]["overall"]
            row = printed[TITLE][model]
            assert {name: row[name] for name in wanted} == pytest.approx(wanted, abs=1e-9)
            for task, own in results[column]["tasks"].items():
                runs = [printed[f"{TITLE}, {task}"][model][f"score run {n}"] for n in range(1, len(own["runs"]) + 1)]
                assert runs == pytest.approx(own["runs"], abs=1e-9)


def test_awkward_answers_alone_score_as_in_the_script() -> None:
    """What the script stops at and what is a matter of reading replies is left aside."""
    protocol, compared = ask("vibe-published"), 0
    for awkward in read_numbers("vibe/original.json")["awkward"]:
        lines = [line for line in read_lines("vibe/verdicts.jsonl") if line.get("alone") == awkward["alone"]]
        task = lines[0]["task"]
        try:
            given = {line["question"]: translate(line["question"], json.loads(line["reply"])) for line in lines}
        except (KeyError, ValueError):
            continue
        allowed = all(is_allowed(protocol, task, question, own) for question, own in given.items())
        if not allowed or not isinstance(awkward["original"], dict):
            continue
        answers = {METRICS[question]: RawAnswer("judged", checks=own) for question, own in given.items()}
        raw = RawEdit(edit("x", CODES[task], "m"), 0, answers)
        tables = {t.title: t for t in PUBLISHED.tables({"m": [raw]}, PUBLISHED.choose({}, published=True))}
        table = tables[f"{TITLE}, {task}"]
        cells = dict(zip(table.columns, table.rows["m"], strict=True))
        assert cells["score"] == pytest.approx(awkward["original"]["summary"], abs=1e-9), awkward["kind"]
        compared += 1
    assert compared


def write_benchmark(data: Path, results: Path, outputs: Outputs) -> None:
    """Write samples and outputs in the public layout; an output with another status than success has no picture."""
    items: dict[Path, list[dict[str, Any]]] = {}
    for case in read_lines("vibe/cases.jsonl"):
        folder = data / "Tasks" / case["level"] / ("Multi-Tasks" if case["task"].endswith("-Tasks") else case["task"])
        paths = case["file_paths"]
        touch(*((data if path.startswith("Common_Corpus") else folder) / path for path in paths.values() if path))
        item = {"id": case["id"], "file_paths": paths, "text_prompt": {"input_prompt": case["instruction"]}}
        items.setdefault(folder / f"{case['task']}.json", []).append(item)
        for line in (line for line in read_lines("vibe/verdicts.jsonl") if line["id"] == case["id"]):
            if line["output"] and line["model"] in read_numbers("vibe/original.json")["results"]:
                place = results / line["model"] / folder.relative_to(data / "Tasks") / "imgs" / f"{case['id']}.png"
                outputs.write(place, (line["model"], case["id"]))
    for file, samples in items.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(samples), "utf-8")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_batch_and_report_give_the_formula_by_default_and_the_script_by_its_preset(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs, seen, last = Outputs(), Counter[Any](), dict[Any, str]()
    write_benchmark(tmp_path / "data", tmp_path / "results", outputs)
    given = {
        (line["model"], line["id"], METRICS[line["question"]], line["run"]): translated(line) for line in list_answers()
    }
    rubrics = [rubric for setup in ("default", "vibe-published") for rubric in ask(setup).rubrics]

    def answer(request: Request) -> Any:
        """Give the answers of run 1, 2 and 3 in this order, and the same one again if it is refused."""
        (asked,) = {rubric.criterion for rubric in rubrics if rubric.question in request.system}
        key = (*outputs.find(request), asked, request.system)
        if not any(message.role == "assistant" for message in request.messages):
            seen[key] += 1
            checks = given.get((*key[:3], (seen[key] - 1) % 3 + 1), {})
            last[key] = json.dumps({"reason": "seen", **checks})
        return say(last[key])

    server = scripted(answer, log=False)
    place = (tmp_path / "data", tmp_path / "results", tmp_path / "run", "vibe", server.openai_url, "--concurrency", "1")
    judge(*place)
    printed, refused = report(capsys, tmp_path / "run"), find_refused("default")
    for model, results in read_numbers("vibe/formula.json")["results"].items():
        own = results["paper"]
        hit = {CODES[task] for task in own["tasks"] if refused.hits(model, task, "score")}
        for task, numbers in own["tasks"].items():
            code = CODES[task]
            if code not in hit and code in FOLDERS:
                row = printed["VIBE, Table 3: mean and standard deviation over repeats"][model]
                assert row[code] == printed["VIBE, Table 1"][model][code] == pytest.approx(numbers["mean"], abs=1e-9)
                assert row[f"{code} SD"] == pytest.approx(numbers["sd_n_minus_1"], abs=1e-9)
        for level, value in own["levels"].items():
            if not hit & {*LEVELS[level]}:
                assert printed["VIBE, Table 1"][model][f"{level} Avg"] == pytest.approx(value, abs=1e-9)
    asked = server.served
    judge(*place, "--setup", "vibe-published")
    assert server.served < 2 * asked  # only what the preset asks differently
    compared, aside = compare_script(report(capsys, tmp_path / "run"), find_refused("vibe-published"))
    assert compared, f"{aside} cells depend on answers that are read more strictly"
