"""The same run twice by a judge that decides the same gives the same bytes, in whatever order the edits are finished."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.demo import demo_manifest
from editloupe.evals.batch import local_executor
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.local_executor import JobResult, judge_job
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.judge import Judge
from tests.drawn_pictures import save, textured

VOLATILE = frozenset({"seconds", "finished_at", "first_used", "created", "cached"})
"""What docs/reference/run.md says may differ: times, and whether a look was remembered."""


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_times(item) for name, item in value.items() if name not in VOLATILE}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def write_edits(folder: Path, count: int = 6) -> Path:
    lines = []
    for number in range(count):
        before = textured(120, 90, number)
        after = before.copy()
        after[20:50, 30:70] = (220, 30, 30)
        save(before, folder / f"{number}_before.png")
        save(after, folder / f"{number}_after.png")
        boxes = [[30, 20, 70, 50], [80, 60, 100, 80]][: 1 + number % 2]
        lines.append(
            {
                "id": f"edit {number}",
                "source": f"{number}_before.png",
                "edited": f"{number}_after.png" if number != 3 else "missing.png",
                "instruction": "Change the color of the square to red.",
                "instruction_type": "Change Color",
                "target_boxes": boxes,
                "model": f"m{number % 2}",
            }
        )
    (folder / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "m.jsonl"


def told(run: Path, capsys: pytest.CaptureFixture[str], forms: tuple[str, ...]) -> dict[str, Any]:
    """Everything a run says, times left out; what has no times in it, byte for byte."""
    found: dict[str, Any] = {}
    for form in forms:
        target = Path(f"report.{form}")
        assert command(["report", str(run), "--format", form, "--out", str(target)]) == 0
        found[form] = target.read_bytes()
    capsys.readouterr()
    assert command(["report", str(run), "--format", "json"]) == 0
    found["json"] = without_times(json.loads(capsys.readouterr().out))
    assert command(["export", str(run), "--format", "jsonl"]) == 0
    found["jsonl"] = [without_times(json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert command(["export", str(run), "--format", "csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    place = rows[0].index("seconds")
    found["csv"] = [[*row[:place], *row[place + 1 :]] for row in rows]
    with Run.open(run) as opened:
        found["units"] = [without_times(unit.model_dump(mode="json")) for unit in opened.units()]
        found["edits"] = [(edit.model_dump(mode="json"), pictures) for edit, pictures, _ in opened.edits()]
        found["about"] = without_times(opened.about())
        names = dict.fromkeys(unit["edit_id"] for unit in found["units"])
        found["traces"] = {
            name: [without_times(trace.model_dump(mode="json")) for trace in opened.load_trace(name)] for name in names
        }
    found["pictures"] = {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((run / "pictures").rglob("*"))
        if path.is_file()
    }
    return found


def judge_into(run: Path, manifest: Path, mode: Any, concurrency: int, repeats: int) -> None:
    def open_judge(**hooks: Any) -> Judge:
        return Judge("rules", mode=mode, **hooks)

    judge_batch(
        Batch(
            lambda: load_manifest(manifest), run, open_judge, limits=Limits(concurrency=concurrency), repeats=repeats
        ),
        quiet=True,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "whole_demo"),
    [
        ("tools", False),
        pytest.param("oracle", False, marks=pytest.mark.slow),
        pytest.param("plain", False, marks=pytest.mark.slow),
        pytest.param("tools", True, marks=pytest.mark.slow),
        pytest.param("oracle", True, marks=pytest.mark.slow),
    ],
)
def test_two_runs_say_the_same_whatever_finishes_first(
    mode: str, whole_demo: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = demo_manifest() if whole_demo else write_edits(tmp_path)
    order: dict[int, list[str]] = {}

    async def late(judge: Judge, job: Job, deadline: float | None) -> JobResult:
        await asyncio.sleep(rng.random() * 0.05)
        done = await judge_job(judge, job, deadline)
        await asyncio.sleep(rng.random() * 0.2)
        order[concurrency].append(f"{job.edit.id} {job.repeat}")
        return done

    monkeypatch.setattr(local_executor, "judge_job", late)
    said = []
    for concurrency in (1, 8):
        rng, order[concurrency] = random.Random(concurrency), []
        folder = tmp_path / str(concurrency)
        folder.mkdir()
        monkeypatch.chdir(folder)  # reports name the run as it was named to them
        judge_into(Path("run"), manifest, mode, concurrency, repeats=2)
        said.append(told(Path("run"), capsys, ("text", "md", "html") if whole_demo else ("md",)))
    assert order[1] != order[8], "the second run finished its edits in another order"
    for name in said[0]:
        assert said[0][name] == said[1][name], name
    assert len(said[0]["traces"]) == 6
