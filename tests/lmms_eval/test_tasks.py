"""The tasks for lmms-eval, run by lmms-eval itself with a model that paints a square and a scripted judge."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.stats.scores.run_table import read_run_table
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.scripted import Request, final, say
from tests.servers.started import ROOT, command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LMMS_EVAL = command("lmms-eval", "lmms-eval in .venv-lmms-eval")
ITEMS = {
    "success": 8,
    "overediting": 5,
    "naturalness": 10,
    "artifacts": 5,
    "prompt_compliance": 5,
    "visual_naturalness": 3,
    "physical_detail_coherence": 1,
    "consistency_score": 5,
    "quality_score": 5,
    "instruction_score": 5,
    "knowledge_score": 5,
}
"""A judge's answer to every item that some rubric asks for."""
PAINTER = """
import json
from pathlib import Path
from lmms_eval.api.model import lmms

class Painter(lmms):
    is_simple = True

    def __init__(self, out, **_):
        super().__init__()
        self.out = Path(out)

    def generate_until(self, requests):
        return [self.paint(*request.args) for request in requests]

    def paint(self, instruction, _, doc_to_visual, doc_id, task, split):
        doc = self.task_dict[task][split][doc_id]
        if "nothing" in instruction:
            return "I cannot edit pictures."
        picture = doc_to_visual(doc)[0].copy()
        picture.paste((220, 30, 30), (5, 5, 30, 30))
        path = self.out / f"{task}-{doc_id}.png"
        picture.save(path)
        return json.dumps({"text": "", "images": [str(path)]})

    def loglikelihood(self, requests):
        raise NotImplementedError

    generate_until_multi_round = loglikelihood
"""


def answer(request: Request) -> Any:
    """Answer every item that the prompt asks for, or with the best label; refuse to judge rain."""
    prompt = json.dumps(request.body)
    if "Add rain" in prompt:
        return say("I would rather not.")
    if "Flawless Execution" in prompt:
        return final("Flawless Execution")
    if "Perfect Consistency" in prompt:
        return final("Single Anomaly")
    return say(json.dumps({"reason": "seen", **{name: value for name, value in ITEMS.items() if name in prompt}}))


def write_picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save(textured(), path)


def write_benchmarks(folder: Path) -> dict[str, str]:
    """Write a few samples of each benchmark and return the variables that name their folders."""
    rows = [
        {"key": key, "task_type": "subject-add", "instruction": text, "instruction_language": "en"}
        for key, text in (("k1", "Add a lamp"), ("k2", "Add nothing"), ("k3", "Add rain"))
    ]
    for number in (1, 2, 3):
        write_picture(folder / f"gedit/k{number}_SRCIMG.png")
    (folder / "gedit/info.jsonl").write_text(
        "".join(json.dumps({**row, "Intersection_exist": True}) + "\n" for row in rows)
    )
    write_picture(folder / "imgedit/pictures/animal/7.png")
    item = {"id": "animal/7.png", "prompt": "Add a hat", "edit_type": "add"}
    (folder / "imgedit/basic_edit.json").write_text(json.dumps({"7": item}))
    write_picture(folder / "kris/KRIS_Bench/color_change/1.png")
    case = {"ori_img": "1.png", "gt_img": "", "ins_en": "Make it red", "explain_en": ""}
    (folder / "kris/KRIS_Bench/color_change/annotation.json").write_text(json.dumps({"1": case}))
    write_picture(folder / "dlebench/a.png")
    sample = {
        "id": "a",
        "source": "a.png",
        "edited": "none.png",
        "instruction": "Paint it",
        "instruction_type": "Change Color",
    }
    (folder / "dlebench/manifest.jsonl").write_text(json.dumps(sample))
    places = {"gedit": "gedit", "imgedit": "imgedit", "kris": "kris", "dlebench": "dlebench/manifest.jsonl"}
    return {f"EDITLOUPE_{name.upper()}": str(folder / place) for name, place in places.items()}


def run_lmms_eval(
    folder: Path, tasks: str, more: Mapping[str, str]
) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Run lmms-eval with the painter; return what it printed, its results, and its samples of GEdit-Bench."""
    for part, text in (
        ("__init__", ""),
        ("tasks/__init__", ""),
        ("models/__init__", 'AVAILABLE_MODELS = {"painter": "Painter"}'),
    ):
        path = folder / f"plugins/painter/{part}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "plugins/painter/models/painter.py").write_text(PAINTER)
    (folder / "painted").mkdir(exist_ok=True)
    kept = {
        name: value for name, value in os.environ.items() if "proxy" not in name.lower() or name.upper() == "NO_PROXY"
    }
    env = {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "plugins")]),
        "LMMS_EVAL_PLUGINS": "editloupe.lmms_eval,painter",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        **more,
    }
    words = ["--model", "painter", "--model_args", f"out={folder / 'painted'}", "--tasks", tasks, "--batch_size", "1"]
    words += ["--log_samples", "--output_path", str(folder / "out")]
    done = subprocess.run([LMMS_EVAL, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    results = [json.loads(path.read_text()) for path in sorted((folder / "out").rglob("*results.json"))]
    lines = sorted((folder / "out").rglob("*samples_editloupe_gedit.jsonl"))
    samples = [json.loads(line) for line in lines[-1].read_text().splitlines()] if lines else []
    return output, results[-1]["results"] if results else {}, samples


def test_the_four_tasks_are_judged_and_failures_have_no_score(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(answer)
    runs = tmp_path / "runs"
    more = {
        **write_benchmarks(tmp_path / "data"),
        "EDITLOUPE_JUDGE": "openai:gpt-4.1",
        "EDITLOUPE_BASE_URL": server.openai_url,
        "EDITLOUPE_MODE": "plain",
        "EDITLOUPE_MODEL": "painter",
        "EDITLOUPE_RUNS": str(runs),
        "OPENAI_API_KEY": "sk-secret-of-the-test-1",
    }
    tasks = "editloupe_gedit,editloupe_imgedit,editloupe_kris,editloupe_dlebench"
    output, results, samples = run_lmms_eval(tmp_path, tasks, more)
    assert results, output
    means = {task: (found["score,none"], found["unjudged,none"]) for task, found in results.items()}
    assert means["editloupe_gedit"] == (pytest.approx(50), 2)
    assert means["editloupe_imgedit"] == (pytest.approx(50), 0)
    assert means["editloupe_kris"] == (pytest.approx(100), 0)
    assert means["editloupe_dlebench"][1] == 0
    assert results["editloupe_dlebench"]["instruction_following,none"] == 100
    records = {sample["score"]["edit_id"]: sample["score"] for sample in samples}
    assert records["en/k1"]["valid"]
    assert [records[name]["valid"] for name in ("en/k2", "en/k3")] == [False, False]
    assert "score" not in records["en/k2"]
    assert "bad_image" in records["en/k2"]["reason"]
    table = read_run_table(runs / "editloupe_gedit")
    assert {row.edit.model for row in table.rows} == {"painter"}
    assert not any(b"sk-secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    asked = len(server.requests)
    again, results_again, _ = run_lmms_eval(tmp_path, "editloupe_imgedit", more)
    assert results_again["editloupe_imgedit"]["score,none"] == pytest.approx(50), again
    assert len(server.requests) == asked


def test_a_missing_folder_or_judge_is_one_sentence(tmp_path: Path) -> None:
    output, results, _ = run_lmms_eval(tmp_path, "editloupe_gedit", {"EDITLOUPE_JUDGE": "rules"})
    assert "set the variable EDITLOUPE_GEDIT to the folder of the benchmark" in output
    assert not results
    more = {**write_benchmarks(tmp_path / "data"), "EDITLOUPE_JUDGE": "opnai:gpt-4.1"}
    output, results, _ = run_lmms_eval(tmp_path, "editloupe_gedit", more)
    assert "did you mean openai:gpt-4.1?" in output
    assert not results


def test_a_task_without_any_score_has_no_mean(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(lambda request: say("No."))
    more = {
        **write_benchmarks(tmp_path / "data"),
        "EDITLOUPE_JUDGE": "openai:gpt-4.1",
        "EDITLOUPE_BASE_URL": server.openai_url,
        "OPENAI_API_KEY": "sk-secret-of-the-test-1",
        "EDITLOUPE_RUNS": str(tmp_path / "runs"),
    }
    output, results, _ = run_lmms_eval(tmp_path, "editloupe_imgedit", more)
    found = results["editloupe_imgedit"]
    assert found["unjudged,none"] == 1, output
    assert math.isnan(float(found["score,none"]))


def test_an_output_of_any_form_is_a_picture_or_none(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    outputs = ['{"images": ["a.png", 1]}', '{"images": "a.png"}', '"a.png"', '{"images": 5}', "[" * 100_000, "a\0b", ""]
    code = "import json, sys; from editloupe.lmms_eval.task import find_picture; "
    code += "print([str(find_picture(each)) for each in json.load(sys.stdin)])"
    python = str(Path(LMMS_EVAL).with_name("python"))
    done = subprocess.run(
        [python, "-c", code], input=json.dumps(outputs), text=True, capture_output=True, cwd=tmp_path, check=True
    )
    assert done.stdout.splitlines()[-1] == str(["a.png"] * 3 + ["None"] * 4)
