"""A full disk at any moment of a command that writes: one sentence, no half-written file, and the same command ends well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.evals.traces.trace_notes import TraceKey, write_note
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.edival import stand_ins as kitchen
from tests.evals.edival.evaluate_once import stand_ins
from tests.evals.edival.test_import_chains import rows, write_csv
from tests.evals.forks.kept_runs import Kept
from tests.evals.preferences.samples import all_metrics, compass_run
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.samples import write_manifest
from tests.faults.commands import looks_then_answers
from tests.faulty_judges import KINDS, perfect, write_edits
from tests.making.demo_questions import models, write_questions
from tests.scripted import ScriptedServer, final, say

pytestmark = pytest.mark.long
SCORED = '{"differences": "none", "reason": "As asked.", "score": 4}'
FREE = (0, 8, 24, 64, 160, 400)
"""Kilobytes that are left on the disk, one after the other, until the command ends well."""


class Place(NamedTuple):
    """Where a command reads and writes, and the server that it asks."""

    files: Path
    disk: Path
    """The small disk; before it is filled, a case may put a run there."""
    serve: StartServer


@pytest.fixture
def place(tmp_path: Path, scripted: StartServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    files, disk = tmp_path / "files", tmp_path / "disk"
    files.mkdir()
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("editloupe.evals.edival.judge.open_instruments", stand_ins)
    yield Place(files, disk, scripted)
    subprocess.run(["umount", "-l", disk], check=True)


def asking(server: ScriptedServer) -> list[str]:
    return ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--tool-calls", "native", "--quiet"]


def judge(place: Place) -> list[str]:
    pictures = map(str, edit_pair(place.files))
    return ["judge", *pictures, "Paint the patch red.", "--judge", "rules", "-q", "--out", str(place.disk / "run")]


def demo(place: Place) -> list[str]:
    return ["demo", "--limit", "2", "--out", str(place.disk / "run")]


def batch(place: Place) -> list[str]:
    manifest = write_manifest(place.files, 4)
    return ["batch", str(manifest), "--out", str(place.disk / "run"), *asking(place.serve(looks_then_answers))]


def ablate(place: Place) -> list[str]:
    manifest, server = write_manifest(place.files, 4), place.serve(looks_then_answers)
    return ["ablate", str(manifest), "--vary", "mode=plain,tools", "--out", str(place.disk / "run"), *asking(server)]


def drift(place: Place) -> list[str]:
    manifest, asked = write_manifest(place.files, 20), asking(place.serve(looks_then_answers))
    assert command(["batch", str(manifest), "--out", str(place.files / "run"), *asked]) == 0
    margin = ["--edits", "20", "--margin", "40"]
    return ["drift", str(place.files / "run"), *asked[:-1], *margin, "--out", str(place.disk / "run")]


def fork(place: Place) -> list[str]:
    kept = Kept(place.files, place.serve(looks_then_answers), "openai:gpt-4.1")
    shutil.copytree(kept.run, place.disk / "run")
    named = ["--criterion", "instruction_following", "--step", "1", "--drop-observation", "1"]
    return ["fork", str(place.disk / "run"), "patch", *named]


def import_scores(place: Place) -> list[str]:
    scores = place.files / "scores.csv"
    scores.write_text(f"picture,{IF}\n" + "".join(f"e{number},Wrong Action\n" for number in range(300)))
    named = ["--judge", "theirs", "--protocol", "dlebench", "--columns", "id=picture"]
    return ["import", str(scores), *named, "--out", str(place.disk / "run")]


def reward(place: Place) -> list[str]:
    runs = compass_run(place.files / "runs/m", {"x": [all_metrics(5, 4, 4, 4)], "y": [all_metrics(3, 4, 4, 4)]})
    pairs, server = place.files / "pairs.jsonl", place.serve(lambda _: say(SCORED))
    assert command(["make", "pairs", str(runs), "--out", str(pairs)]) == 0
    return ["reward", str(pairs), "--out", str(place.disk / "run"), *asking(server)]


def make_pairs(place: Place) -> list[str]:
    scores = [all_metrics(5, 4, 4, 4)] * 8
    runs = compass_run(place.files / "runs/m", {"x": scores, "y": [all_metrics(3, 4, 4, 4)] * 8})
    return ["make", "pairs", str(runs), "--out", str(place.disk / "pairs.jsonl")]


def make_pairs_for_people(place: Place) -> list[str]:
    return [*make_pairs(place), "--dimension", "IA"]


def make_scenes(place: Place) -> list[str]:
    return ["make", "billiards", str(place.disk / "scenes"), "--count", "3"]


def make_dlebench(place: Place) -> list[str]:
    questions, server = write_questions(place.files / "set", "cat-eye", "spoon-wood"), place.serve(models())
    servers = ["--base-url", server.openai_url, "--editor", "openai:gpt-image-1", "--editor-url", server.openai_url]
    return [
        "make",
        "dlebench",
        str(questions),
        "--out",
        str(place.disk / "bench"),
        "--judge",
        "openai:gpt-4.1",
        *servers,
    ]


def make_dlebench_by_hand(place: Place) -> list[str]:
    questions, server = write_questions(place.files / "set", "cat-eye", "spoon-wood"), place.serve(models())
    (place.files / "hand").mkdir()
    out = ["--out", str(place.disk / "bench"), "--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    return ["make", "dlebench", str(questions), *out, "--editor", str(place.files / "hand")]


def edival_import(place: Place) -> list[str]:
    (place.files / "photos").mkdir()
    kitchen.save(kitchen.BASE, place.files / "photos/7_input_raw.png")
    table = write_csv(place.files / "released.csv", [{**row, "difficulty": "hard"} for row in rows()])
    return [
        "edival",
        "import",
        str(table),
        "--images",
        str(place.files / "photos"),
        "--out",
        str(place.disk / "chains"),
    ]


def edival_evaluate(place: Place) -> list[str]:
    kitchen.kitchen_chain(place.files / "chains", kitchen.save_base(place.files / "photos"))
    kitchen.put(place.files / "results", "m", "multi", dict(enumerate(kitchen.GOOD, 1)))
    folders, server = [str(place.files / "chains"), str(place.files / "results")], place.serve(kitchen.seeing)
    model = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--features", "none", "--quality", "none"]
    return ["edival", "evaluate", *folders, "--out", str(place.disk / "run"), *model]


def merge(place: Place) -> list[str]:
    runs = [make_run(place.files / name, [Line(f"{name}{n}") for n in range(20)], pictures=True) for name in "ab"]
    (runs[0] / "labels.jsonl").write_text(
        json.dumps({"edit_id": "a0", "criterion": IF, "label": "Wrong Action"}) + "\n"
    )
    return ["run", "merge", *map(str, runs), "--out", str(place.disk / "both")]


def prune(place: Place) -> list[str]:
    folder = place.disk / "run"
    shutil.copytree(make_run(place.files / "run", [Line(f"e{number}") for number in range(20)], pictures=True), folder)
    with Run.write(folder) as run, run.transaction() as connection:
        connection.execute("DELETE FROM answers WHERE rowid % 3 = 0")
    return ["run", "prune", str(folder), "--pictures"]


def label_queue(place: Place) -> list[str]:
    folder = make_run(place.disk / "run", [Line(f"e{number}", confidence=0.5) for number in range(300)])
    return ["label-queue", str(folder), "--budget", "200"]


def calibrate(place: Place) -> list[str]:
    lines = [Line(f"e{n}", confidence=0.9, human={IF: "Flawless Execution"}) for n in range(300)]
    return ["calibrate", str(make_run(place.files / "run", lines)), "--out", str(place.disk / "trust.yaml")]


def trace(place: Place) -> list[str]:
    kept = Kept(place.files, place.serve(looks_then_answers), "openai:gpt-4.1")
    return ["trace", str(kept.run), "patch", "--format", "html", "--out", str(place.disk / "t.html")]


def tool(place: Place) -> list[str]:
    pictures = map(str, edit_pair(place.files))
    return ["tool", "localize_differences", *pictures, "--out", str(place.disk / "seen")]


def stress(place: Place) -> list[str]:
    manifest, server = write_edits(place.files, 6), place.serve(perfect)
    return ["stress", str(manifest), "--out", str(place.disk / "run"), *asking(server), "--mode", "plain"]


def gate(place: Place) -> list[str]:
    sides = []
    for name, kinds in (("old", KINDS), ("new", KINDS[:1])):
        (place.files / name).mkdir()
        sides.append(write_edits(place.files / name, 30, kinds))
    judge = [*asking(place.serve(perfect)), "--mode", "plain", "--pictures", str(place.disk / "worst")]
    return ["gate", str(sides[1]), "--against", str(sides[0]), "--run", str(place.disk / "run"), *judge, "--drop", "20"]


def verify(place: Place) -> list[str]:
    kept = Kept(
        place.files, place.serve(lambda _: final("Wrong Action", "The background turned red.")), "openai:gpt-4.1"
    )
    shutil.copytree(kept.run, place.disk / "run")
    return ["verify", str(place.disk / "run"), "--crops", str(place.disk / "evidence"), "--quiet"]


def masks(place: Place) -> list[str]:
    run = make_run(place.files / "run", [Line(f"e{number}") for number in range(20)], pictures=True)
    return ["masks", str(run), "--format", "png", "--out", str(place.disk / "masks")]


def report(place: Place) -> list[str]:
    run = make_run(place.files / "run", [Line(f"e{number}") for number in range(20)], pictures=True)
    return ["report", str(run), "--out", str(place.disk / "report.html"), "--figures", str(place.disk / "figures")]


def exporting(kind: str, *more: str) -> Callable[[Place], list[str]]:
    def export(place: Place) -> list[str]:
        run = make_run(place.files / "run", [Line(f"e{number}") for number in range(200)], pictures=True)
        return ["export", str(run), "--format", kind, "--out", str(place.disk / f"out.{kind}"), *more]

    return export


CASES: dict[str, Callable[[Place], list[str]]] = {
    case.__name__: case
    for case in (
        judge,
        demo,
        batch,
        ablate,
        drift,
        fork,
        import_scores,
        reward,
        make_pairs,
        make_pairs_for_people,
        make_scenes,
        make_dlebench,
        make_dlebench_by_hand,
        edival_import,
        edival_evaluate,
        merge,
        prune,
        label_queue,
        calibrate,
        trace,
        tool,
        stress,
        gate,
        verify,
        masks,
        report,
    )
}
CASES |= {f"export {kind}": exporting(kind) for kind in ("jsonl", "csv", "parquet", "sft")}
CASES |= {f"export {kind} with pictures": exporting(kind, "--images") for kind in ("datasets", "label-studio")}


@pytest.mark.parametrize("name", CASES)
def test_a_command_on_a_full_disk_ends_with_a_sentence_and_the_same_one_ends_well_on_a_larger_disk(
    name: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = CASES[name](place)
    refused = 0
    for free in FREE:
        fill(place.disk, free * 1024)
        capsys.readouterr()
        code = command(arguments)
        told = capsys.readouterr().err
        assert code in (0, 2), told
        assert half_written(place.disk) == []
        if code == 0:
            break
        refused += 1
        assert any(words in told.splitlines()[-1] for words in ("cannot be written", "No space left", "is full")), told
    assert refused, "the disk was never full"
    if code:
        subprocess.run(["mount", "-o", "remount,size=200m", place.disk], check=True)
        assert command(arguments) == 0, capsys.readouterr().err
        assert half_written(place.disk) == []


@pytest.mark.parametrize("free", [0, 64, 160])
def test_a_run_on_a_full_disk_is_read_and_searched(
    free: int, place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.disk / "cache"))
    run = make_run(place.disk / "run", [Line(f"e{number}", human={IF: "Wrong Action"}) for number in range(60)])
    with Run.open(run) as opened:
        unit = next(unit for unit in opened.units("e7") if unit.criterion == IF)
    write_note(run, TraceKey("e7", IF, 0, unit.asked), ["odd"], "x" * 3000)
    fill(place.disk, free * 1024)
    for words in ("traces --where tagged('odd')", "traces", "report", "agree", "export", "run info"):
        name, *options = words.split()
        arguments = ["run", "info", str(run)] if name == "run" else [name, str(run), *options]
        assert command(arguments) == 0, capsys.readouterr().err
        assert "e7" in capsys.readouterr().out or name not in ("traces", "export"), words


def fill(disk: Path, free: int) -> None:
    """Fill the disk up to some bytes."""
    filling = disk / "filling"
    filling.unlink(missing_ok=True)
    about = os.statvfs(disk)
    rest = about.f_bavail * about.f_frsize - free
    if rest > 0:
        with filling.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, rest)


def half_written(disk: Path) -> list[str]:
    return [str(path.relative_to(disk)) for path in disk.rglob("*") if path.name.endswith((".part", ".tmp"))]
