"""Labels that were given under another wording than the judge was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.labels.label_form import build_wording_key, find_wording_keys
from editloupe.evals.labels.unjudged_run import write_unjudged_run
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.rubrics.dlebench import DLEBENCH
from editloupe.rubrics.model import Rubric
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.samples import write_picture

CURRENT = DLEBENCH.rubric(IF)
REWORDED = CURRENT.model_copy(update={"question": "Was it done, and nothing else?"})


@pytest.mark.parametrize(("judge", "noted"), [(CURRENT, 1), (REWORDED, 2)])
def test_labels_under_another_wording_are_noted(tmp_path: Path, judge: Rubric, noted: int) -> None:
    about = {"protocol": "dlebench", "rubrics": {IF: judge.model_dump(mode="json")}}
    run = make_run(tmp_path / "run", [Line(f"e{n}") for n in range(4)], description=about)
    shown = {"e0": CURRENT, "e1": CURRENT, "e2": REWORDED}
    rows = [
        {
            "edit_id": name,
            "criterion": IF,
            "label": "Wrong Action",
            "annotator": "Ana",
            "rubric": build_wording_key(rubric),
        }
        for name, rubric in shown.items()
    ]
    rows.append({"edit_id": "e3", "criterion": IF, "label": "Wrong Action", "annotator": "Ana"})
    (run / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = [note for note in load_human_labels(read_run_table(run)).notes if "another wording" in note]
    assert len(notes) == 1
    assert notes[0].startswith(f"{noted} label{'s' * (noted > 1)} on {IF}")


def test_a_manifest_to_label_records_the_wording_of_a_file(tmp_path: Path) -> None:
    write_picture(tmp_path / "a.png", 1, (40, 30))
    line = {"id": "e", "source": "a.png", "edited": "a.png", "instruction": "Paint it red"}
    manifest = tmp_path / "edits.jsonl"
    manifest.write_text(json.dumps(line) + "\n")
    words = tmp_path / "words.yaml"
    words.write_text("extends: dlebench/instruction_following\nquestion: Was it done, and nothing else?\n")
    write_unjudged_run(manifest, tmp_path / "run", rubrics=[words])
    with Run.open(tmp_path / "run") as run:
        keys = find_wording_keys(run.about(), "dlebench")
        assert {unit.criterion for unit in run.units()} == {IF, "visual_consistency"}
    assert keys[IF] == {build_wording_key(REWORDED)} != {build_wording_key(CURRENT)}
