"""What the presets of public scripts ask differently from the papers' texts, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from editloupe.evals.manifests import load_outputs
from editloupe.judge.question_facts import find_inputs
from editloupe.judge.settings import JudgeSettings, build_protocol, find_setup
from editloupe.rubrics.model import ChecksAnswer
from editloupe.rubrics.protocol import Protocol
from tests.evals.manifests.benchmarks import touch
from tests.evals.stats.scores.paper_tables.judged_runs import edit


def ask(setup: str, name: str) -> Protocol:
    return build_protocol(find_setup(setup), name, (), JudgeSettings())


def test_vibe_asks_three_tasks_differently_and_the_others_alike() -> None:
    text, script = ask("default", "vibe"), ask("vibe-published", "vibe")
    changed = {}
    for task in (*text.types, "AD+RM", "2-Tasks"):
        before, after = (protocol.rubrics_for(edit("x", task, "m")) for protocol in (text, script))
        names = [own.criterion for own, other in zip(before, after, strict=True) if own != other]
        changed |= {task: names} if names else {}
    assert changed == {
        "AD": ["visual_coherence"],
        "RO": ["reorientation_preservation"],
        "DI": ["instruction_adherence"],
    }
    draft = next(r for r in script.rubrics_for(edit("x", "DI", "m")) if r.criterion == "instruction_adherence")
    assert isinstance(draft.answer, ChecksAnswer)
    assert {check.key: list(check.values) for check in draft.answer.checks}["operation"] == ["0", "0.5", "1"]
    addition = next(r for r in script.rubrics_for(edit("x", "AD", "m")) if r.criterion == "visual_coherence")
    assert addition.texts_with("bent or broken structure")
    assert not addition.texts_with("left over")


def test_wiseedit_judges_chinese_outputs_by_the_english_instruction_and_under_another_key() -> None:
    text, script = ask("default", "wiseedit"), ask("wiseedit-published", "wiseedit")
    chinese = edit("x", "Awareness", "m", language="cn", instruction_en="Do it in English")
    english = edit("x", "Awareness", "m", language="en")
    rubric = text.rubrics[0]
    assert find_inputs(text, rubric, "plain", chinese).texts["instruction"] == "Do it"
    assert find_inputs(script, rubric, "plain", chinese).texts["instruction"] == "Do it in English"
    assert find_inputs(script, rubric, "plain", english) == find_inputs(text, rubric, "plain", english)


def test_vibe_s_files_of_several_tasks_and_a_generator_s_own_folder_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "data/Tasks/Level-1-Deictic"
    for task, place in (("Addition", "Addition"), ("2-Tasks", "Multi-Tasks"), ("3-Tasks", "Multi-Tasks")):
        item = {"id": f"{task}_0001", "file_paths": {"source": "a.png"}, "text_prompt": {"input_prompt": "Do"}}
        touch(folder / place / "a.png")
        (folder / place / f"{task}.json").write_text(json.dumps([item]))
        touch(folder / place / f"gen_run_v1/imgs/{task}_0001.png")
    loaded = list(load_outputs(tmp_path / "data", {"gen": tmp_path / "data"}, "vibe").edits())
    assert [(one.id, one.instruction_type) for one in loaded] == [
        ("Addition_0001", "AD"),
        ("2-Tasks_0001", "2-Tasks"),
        ("3-Tasks_0001", "3-Tasks"),
    ]
    assert all("gen_run_v1" in str(one.edited) and Path(str(one.edited)).is_file() for one in loaded)
