"""An edit whose task is corrected in the manifest is answered by its own wording, and no longer by another kind's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.evals.stats.scores.run_table import read_run_table
from tests.conftest import StartServer
from tests.evals.batch.test_batch import batch, run
from tests.evals.samples import write_picture
from tests.scripted import Answer, Request, say


def marks(request: Request) -> Answer:
    return say('{"reasoning": "seen", "score": 4}')


@pytest.mark.long
def test_a_corrected_task_leaves_one_answer_for_a_criterion(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(marks)
    write_picture(tmp_path / "s.png", 1)
    write_picture(tmp_path / "e.png", 2)
    manifest = tmp_path / "manifest.jsonl"
    found = []
    for task in ("ADD", "Complex_Instruction", "ADD"):
        row = {"id": "x", "source": "s.png", "edited": "e.png", "instruction": "Do it", "instruction_type": task}
        manifest.write_text(json.dumps(row) + "\n", "utf-8")
        run(batch(server, manifest, tmp_path / "run", judge={"protocol": "edit-compass"}, keep_going=True))
        units = read_run_table(tmp_path / "run").rows[0].units
        assert all(len(listed) == 1 for listed in units.values())
        found.append(({name: listed[0].kind.asked for name, listed in units.items()}, server.served))
    assert found[0][0] != found[1][0]
    assert found[2][0] == found[0][0]
    assert found[2][1] == found[1][1], "what was said of it as this kind of edit is found again"
