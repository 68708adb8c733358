"""A merged run has everything people made in the runs, once, and two merges into one folder never mix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.runs.merging import merge_runs
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.evals.stats.trust.label_queue import LabelQueue, QueuedEdit
from editloupe.evals.traces.trace_notes import TagsAndNote, TraceKey, read_notes, write_note
from editloupe.servers.studio.annotation.label_file import StudioLabels
from editloupe.types import UserError
from tests.evals.sample_runs import IF, Line, make_run


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_rows(path: Path, *lines: dict[str, Any]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")


def label(
    edit_id: str, score: int, annotator: str = "Ada", at: str = "2026-01-01T00:00:00Z", **more: Any
) -> dict[str, Any]:
    return {"edit_id": edit_id, "criterion": IF, "label": score, "annotator": annotator, "at": at, **more}


def test_labels_notes_queues_and_other_files_of_all_runs_are_in_the_merged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make_run(tmp_path / "one", [Line("x"), Line("y")]), make_run(tmp_path / "two", [Line("z")])
    write_rows(first / "labels.jsonl", label("x", 1), label("y", 2))
    write_rows(second / "labels.jsonl", label("z", 3))
    write_note(first, TraceKey("x", IF, 0, "k"), ["odd"], "look")
    LabelQueue("q", (QueuedEdit("x", "x", None, 0.5, None, of=2),)).write(first / "label_queue.jsonl")
    LabelQueue("q", (QueuedEdit("z", "z", None, 0.5, None, of=1),)).write(second / "random.queue.jsonl")
    (second / "remarks.md").write_text("good")
    (second / "drafts").mkdir()
    out = tmp_path / "both"
    assert command(["run", "merge", str(first), str(second), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "3 edits, 6 verdicts, 3 label rows, 1 note, 2 queues, 1 other file" in " ".join(said.out.split())
    assert "drafts" in said.err
    assert [(row["name"], row["label"]) for row in rows(out / "labels.jsonl")] == [("x", 1), ("y", 2), ("z", 3)]
    assert read_notes(out) == {TraceKey("x", IF, 0, "k"): TagsAndNote(("odd",), "look")}
    assert LabelQueue.read(out / "label_queue.jsonl").chances == {"x": 0.5}
    assert LabelQueue.read(out / "random.queue.jsonl").chances == {"z": 0.5}
    assert (out / "remarks.md").read_text() == "good"
    people = load_human_labels(read_run_table(out))
    assert {place[0]: dict(given) for place, given in people.given.items()} == {
        "x": {"Ada": 1.0},
        "y": {"Ada": 2.0},
        "z": {"Ada": 3.0},
    }


def test_labels_follow_their_edit_where_another_run_has_its_name(tmp_path: Path) -> None:
    first = make_run(tmp_path / "one", [Line("x", model="a")], pictures=True)
    second = make_run(tmp_path / "two", [Line("x", model="b")], pictures=True)
    write_rows(first / "labels.jsonl", label("x", 1))
    write_rows(second / "labels.jsonl", label("x", 4), {"edit_id": "x", "comment": "nice", "annotator": "Ada"})
    write_note(second, TraceKey("x", IF, 0, "k"), [], "of b")
    LabelQueue("q", (QueuedEdit("x", "x", "b", 0.5, None, of=1),)).write(second / "label_queue.jsonl")
    out = tmp_path / "both"
    merge_runs([first, second], out)
    with Run.open(out) as run:
        names = {edit.edit.model: edit.name for edit in run.edits()}
    assert names["a"] == "x"
    assert names["b"] != "x"
    given = load_human_labels(read_run_table(out)).given
    assert {place[0]: dict(labels) for place, labels in given.items()} == {"x": {"Ada": 1.0}, names["b"]: {"Ada": 4.0}}
    assert [place.name for place in read_notes(out)] == [names["b"]]
    LabelQueue.read(out / "label_queue.jsonl").check(read_run_table(out))
    book = StudioLabels(out / "labels.jsonl")
    assert book.comment("Ada", names["b"]) == "nice"


def test_rows_that_two_runs_share_are_taken_once_and_the_later_label_of_a_person_counts(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "one", [Line("x")]), make_run(tmp_path / "two", [Line("x")])
    shared = label("x", 1)
    unnamed = {"edit_id": "x", "criterion": IF, "label": 2}
    write_rows(first / "labels.jsonl", unnamed, unnamed, shared, label("x", 4, at="2026-03-01T00:00:00Z"))
    write_rows(second / "labels.jsonl", unnamed, shared, label("x", 3, at="2026-02-01T00:00:00Z"))
    done = merge_runs([first, second], tmp_path / "both")
    assert done.people.labels == 5
    assert [row["label"] for row in rows(tmp_path / "both" / "labels.jsonl")] == [2, 2, 1, 3, 4]
    given = load_human_labels(read_run_table(tmp_path / "both")).given["x", IF]
    assert given["Ada"] == 4.0
    assert len(given) == 3


def test_different_notes_on_one_trace_are_combined_and_replaced_ones_do_not_come_back(tmp_path: Path) -> None:
    first, second = (
        make_run(tmp_path / "one", [Line("x"), Line("y")]),
        make_run(tmp_path / "two", [Line("x"), Line("y")]),
    )
    x, y = TraceKey("x", IF, 0, "k"), TraceKey("y", IF, 0, "k")
    write_note(first, x, ["a"], "one")
    write_note(first, y, [], "early")
    (second / "trace_notes.jsonl").write_bytes((first / "trace_notes.jsonl").read_bytes().splitlines(True)[1])
    write_note(second, x, ["b"], "two")
    write_note(second, y, [], "late")
    merge_runs([first, second], tmp_path / "both")
    merge_runs([second, first], tmp_path / "back")
    assert read_notes(tmp_path / "both") == {x: TagsAndNote(("a", "b"), "one\ntwo"), y: TagsAndNote((), "late")}
    assert read_notes(tmp_path / "back") == {x: TagsAndNote(("b", "a"), "two\none"), y: TagsAndNote((), "late")}


def test_queues_and_files_of_one_name_are_kept_apart_by_the_names_of_their_runs(tmp_path: Path) -> None:
    for name, chance in (("one", 0.5), ("two", 0.25)):
        run = make_run(tmp_path / name, [Line("x")])
        for file in ("label_queue.jsonl", "ana.queue.jsonl"):
            LabelQueue("q", (QueuedEdit("x", "x", None, chance, None, of=1),)).write(run / file)
        LabelQueue("q", (QueuedEdit("x", "x", None, 1.0, None, of=1),)).write(run / "same.queue.jsonl")
        (run / "remarks.md").write_text(name)
    out = tmp_path / "both"
    done = merge_runs([tmp_path / "one", tmp_path / "two"], out)
    assert done.people.queues == 5
    assert {path.name: LabelQueue.read(path).drawn[0].probability for path in out.glob("*.queue.jsonl")} == {
        "one.queue.jsonl": 0.5,
        "two.queue.jsonl": 0.25,
        "one-ana.queue.jsonl": 0.5,
        "two-ana.queue.jsonl": 0.25,
        "same.queue.jsonl": 1.0,
    }
    assert not (out / "label_queue.jsonl").exists()
    assert {path.name: path.read_text() for path in out.glob("*.md")} == {"remarks.md": "one", "two-remarks.md": "two"}


def test_a_line_that_is_no_row_stops_the_merge_and_a_line_that_was_cut_off_is_told(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "one", [Line("x")]), make_run(tmp_path / "two", [Line("y")])
    (first / "labels.jsonl").write_text('{"edit_id": "x"\n{}\n')
    with pytest.raises(UserError, match=r"one/labels.jsonl, line 1"):
        merge_runs([first, second], tmp_path / "new" / "both")
    assert list((tmp_path / "new").iterdir()) == []
    (first / "labels.jsonl").write_text(f'{json.dumps(label("x", 1))}\n{{"edit_id": "x"')
    done = merge_runs([first, second], tmp_path / "new" / "both")
    assert (done.people.labels, len(done.people.remarks)) == (1, 1)


def test_a_file_whose_name_only_begins_like_one_of_a_run_is_copied(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path / name, [Line(name)]) for name in ("one", "two"))
    (first / "pictures.csv").write_text("mine")
    (second / "run.json.old").write_text("mine")
    done = merge_runs([first, second], tmp_path / "both")
    assert done.people.others == 2
    assert (tmp_path / "both" / "pictures.csv").read_text() == "mine"
    assert (tmp_path / "both" / "run.json.old").read_text() == "mine"


def start_merge(*arguments: Path) -> subprocess.Popen[str]:
    *runs, out = map(str, arguments)
    given = [sys.executable, "-m", "editloupe", "run", "merge", *runs, "--out", out]
    return subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("large")
    return tuple(make_run(folder / name, [Line(f"{name}{n}") for n in range(1500)]) for name in ("one", "two"))  # type: ignore[return-value]


@pytest.mark.long
def test_of_several_merges_into_one_folder_one_wins_and_the_others_are_refused(
    large: tuple[Path, Path], tmp_path: Path
) -> None:
    started = [start_merge(*large, tmp_path / "new" / "both") for _ in range(3)]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert sorted(code for _, _, code in ended) == [0, 2, 2], ended
    for out, err, code in ended:
        assert ("3000 edits" in out) == (code == 0)
        assert code == 0 or "another process is merging into" in err or "is a run already" in err
        assert "Traceback" not in err
    with Run.open(tmp_path / "new" / "both") as run:
        assert len(list(run.edits())) == 3000
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["both"]


@pytest.mark.long
def test_a_killed_merge_leaves_no_run_and_the_next_one_cleans_up(large: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "new"
    process = start_merge(*large, folder / "both")
    part = folder / ".both.part"
    until = time.monotonic() + 60
    while not list(part.rglob("run.sqlite")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert part.exists()
    assert not (folder / "both").exists()
    merge_runs(list(large), folder / "both")
    assert [path.name for path in folder.iterdir()] == ["both"]


def test_a_run_is_not_merged_into_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = (make_run(tmp_path / name, [Line("x")]) for name in ("a", "b"))
    with pytest.raises(UserError, match="is inside a run that is merged"):
        merge_runs([first, second], first / "in")
    assert not (first / "in").exists()
