"""Full and read-only disks, a clock that runs backwards, two who write labels: one sentence, and nothing is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.demo import demo_manifest
from editloupe.evals.runs import unit_rows
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import open_picture
from editloupe.servers.studio.annotation.label_file import LabelValue, StudioLabels
from editloupe.types import UserError
from tests.drawn_pictures import edit_pair
from tests.evals.sample_runs import IF, Line, make_run
from tests.evals.samples import judgement

START = "import sys; from editloupe.cli.main import run; sys.exit(run(sys.argv[1:]))"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB; skipped where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def many(folder: Path, count: int = 40) -> Path:
    lines = [Line(f"e{n}", follows=1 + n % 4, rationale="because " * 20) for n in range(count)]
    return make_run(folder, lines)


def outputs(run: Path, disk: Path) -> Iterator[list[str]]:
    for suffix in ("md", "html", "json", "txt"):
        yield ["report", str(run), "--out", str(disk / f"r.{suffix}")]
    yield ["report", str(run), "--figures", str(disk / "figures")]
    for kind in ("jsonl", "csv", "parquet"):
        yield ["export", str(run), "--format", kind, "--out", str(disk / f"x.{kind}")]
    yield ["export", str(run), "--format", "datasets", "--out", str(disk / "packed")]
    yield ["agree", str(run), "--out", str(disk / "a.json")]
    yield ["compare", str(run), str(run), "--out", str(disk / "c.md")]


@pytest.mark.long
def test_a_full_disk_keeps_the_old_file_and_leaves_no_half_one(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = many(tmp_path / "run", 300)
    for arguments in outputs(run, small_disk):
        out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else None
        if out is not None and "datasets" not in arguments:
            out.write_text("old", "utf-8")
        filling = small_disk / "filling"
        with filling.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        code = command(arguments)
        said = capsys.readouterr().err
        assert code == 2, arguments
        assert said.startswith("editloupe: ")
        assert "No space left on device" in said
        if out is not None and out.is_file():
            assert out.read_text("utf-8") == "old"
        assert not list(small_disk.rglob("*.part"))
        for path in sorted(small_disk.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def makers(run: Path, pictures: tuple[Path, Path], disk: Path) -> Iterator[list[str]]:
    source, edited = map(str, pictures)
    rules = ["--judge", "rules", "--mode", "plain"]
    yield ["judge", source, edited, "Remove it", *rules, "--out", str(disk / "new"), "--quiet"]
    yield ["demo", "--out", str(disk / "new")]
    yield ["run", "merge", str(run), str(run.parent / "other"), "--out", str(disk / "new")]
    yield ["make", "billiards", str(disk / "new"), "--count", "1"]
    yield ["make", "Knapsack", str(disk / "new"), "--count", "1"]
    yield ["tool", "localize_differences", source, edited, "--out", str(disk / "new")]
    yield ["trace", str(run), "e0", "--format", "html", "--out", str(disk / "new.html")]
    yield ["label-queue", str(run), "--budget", "10", "--out", str(disk / "new.jsonl")]
    yield ["traces", str(run), "--format", "json", "--out", str(disk / "new.json")]
    yield ["manifest", "stats", str(demo_manifest()), "--out", str(disk / "new")]


@pytest.mark.long
def test_commands_that_make_something_new_leave_nothing_half_written_on_a_full_disk(
    small_disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = many(tmp_path / "run", 300)
    many(tmp_path / "other", 3)
    before = (run / "run.sqlite").read_bytes()
    for room in (0, 5):
        for arguments in makers(run, edit_pair(tmp_path), small_disk):
            with (small_disk / "filling").open("wb", buffering=0) as file:
                file.write(bytes(65536 - 4096 * room))
            code = command(arguments)
            told = capfd.readouterr().err
            assert "Traceback" not in told
            if not room or code:  # a small file may fit
                assert code == 2, (arguments, told)
                assert re.search("No space left on device|disk is full|disk I/O error", told.splitlines()[-1]), told
            whole = [path for path in small_disk.rglob("*") if path.is_file() and path.name != "filling"]
            assert not [path for path in whole if path.name.endswith(".part")], arguments
            for path in whole:
                if path.suffix == ".png":
                    open_picture(path)
            for path in sorted(small_disk.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
    assert (run / "run.sqlite").read_bytes() == before


def test_a_verdict_that_cannot_be_stored_is_still_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr("editloupe.evals.runs.writer.save_judgement", fail)
    source, edited = map(str, edit_pair(tmp_path))
    out = tmp_path / "run"
    given = ["judge", source, edited, "Make the rectangle red.", "--judge", "rules", "--mode", "plain", "--quiet"]
    assert command([*given, "--out", str(out)]) == 2
    told = capsys.readouterr()
    assert "Instruction Following: " in told.out
    assert told.err.splitlines() == ["editloupe: the disk is full"]


@pytest.mark.long
def test_output_that_goes_to_a_full_disk_ends_in_a_sentence(tmp_path: Path) -> None:
    run = many(tmp_path / "run")
    for arguments in (
        ["export", str(run)],
        ["report", str(run)],
        ["trace", str(run), "e0", "--json"],
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-c", START, *arguments], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "No space left on device" in done.stderr


@pytest.mark.long
def test_a_device_is_written_and_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = many(tmp_path / "run", 3)
    before = os.stat("/dev/full").st_rdev
    for kind in ("jsonl", "csv"):
        assert command(["export", str(run), "--format", kind, "--out", "/dev/full"]) == 2
        assert command(["export", str(run), "--format", kind, "--out", "/dev/null"]) == 0
    assert command(["report", str(run), "--format", "json", "--out", "/dev/full"]) == 2
    assert os.stat("/dev/full").st_rdev == before
    link = tmp_path / "link.json"
    link.symlink_to("real.json")
    assert command(["report", str(run), "--out", str(link)]) == 0
    assert link.is_symlink()
    json.loads((tmp_path / "real.json").read_text("utf-8"))


@pytest.mark.long
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = many(tmp_path / "run", 3)
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    for place in (
        tmp_path / "file" / "below",
        tmp_path / "loop",
        tmp_path,
        tmp_path / ("x" * 300),
        Path("/proc/none/x"),
    ):
        for arguments in (
            ["report", str(run), "--format", "json", "--out", str(place)],
            ["export", str(run), "--format", "csv", "--out", str(place)],
            ["export", str(run), "--format", "parquet", "--out", str(place)],
            ["export", str(run), "--format", "datasets", "--out", str(place)],
        ):
            if "datasets" in arguments and place.name == "x" * 300:
                continue
            assert command(arguments) == 2, arguments
            assert capsys.readouterr().err.count("\n") == 1


def test_a_run_on_a_disk_that_cannot_be_written_is_read_and_says_what_it_cannot_see(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True).returncode
    ):
        pytest.skip("no disk can be mounted here")
    try:
        run = many(disk / "run", 3)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert command(["export", str(run)]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 6
        assert command(["batch", str(tmp_path / "none.jsonl"), "--out", str(run)]) == 2
        with pytest.raises(UserError, match="cannot be written"):
            Run.write(run)
        with pytest.raises(UserError, match="cannot be written"):
            StudioLabels(run / "labels.jsonl").say("ana", "e0", IF, LabelValue("Wrong Action"))
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        (run / "run.sqlite-wal").write_bytes(b"a log that was never read")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert command(["export", str(run)]) == 0
        assert "the last writes are not shown" in capsys.readouterr().err
        held = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        assert not [name for name in held if name.startswith(str(disk))]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_clock_that_runs_backwards_changes_nothing_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(f"20{year:02}-01-01T00:00:00Z" for year in range(99, 0, -1))
    monkeypatch.setattr(unit_rows, "timestamp", lambda: next(times))
    with Run.write(tmp_path / "run") as run:
        for number in range(3):
            whole, album = judgement(tmp_path, f"e{number}")
            back = whole.model_copy(update={"traces": (whole.traces[0].model_copy(update={"seconds": -5.0}),)})
            run.save(back, album=album)
        assert [edit.id for edit, *_ in run.edits()] == ["e0", "e1", "e2"]
        assert {unit.seconds for unit in run.units()} == {0.0}
        stamps = [unit.finished_at for unit in run.units()]
        assert stamps == sorted(stamps, reverse=True)
    assert command(["report", str(tmp_path / "run")]) == 0


def _label(path: Path, name: str, count: int = 60) -> None:
    book = StudioLabels(path)
    for number in range(count):
        book.say(name, f"e{number}", IF, LabelValue("Wrong Action"))


@pytest.mark.long
def test_two_studios_may_write_one_file_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_bytes(b'{"edit_id": "cut off he')
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_label, args=(path, name)) for name in ("ana", "ben")]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert sorted((row["annotator"], row["edit_id"]) for row in rows) == sorted(
        (name, f"e{number}") for name in ("ana", "ben") for number in range(60)
    )
    assert (tmp_path / "labels.jsonl.torn").read_bytes() == b'{"edit_id": "cut off he\n'


@pytest.mark.long
def test_a_torn_last_line_is_passed_over_and_the_next_label_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = many(tmp_path / "run", 3)
    path = run / "labels.jsonl"
    StudioLabels(path).say("ana", "e0", IF, LabelValue("Wrong Action"))
    whole = path.read_bytes()
    for torn in (b'{"edit_id": "e1", "crit', b"\x00\x00\x00\x00", b'{"edit_id": "\xff', b'"text"', b"{" * 3000):
        path.write_bytes(whole + torn)
        book = StudioLabels(path)
        assert book.about("ana", "e0") == {IF: LabelValue("Wrong Action")}
        assert book.notes
        assert path.read_bytes() == whole + torn
        for arguments in (
            ["agree", str(run)],
            [
                "report",
                str(run),
            ],
        ):
            assert command(arguments) == 0
            assert "was cut off and is skipped" in " ".join(capsys.readouterr().out.split())
        book.say("ana", "e1", IF, LabelValue("Wrong Action"))
        assert {(key.edit_id, key.criterion) for _, key, _ in StudioLabels(path).said()} == {("e0", IF), ("e1", IF)}
        assert StudioLabels(path).notes == ()
        assert torn in (run / "labels.jsonl.torn").read_bytes()


def test_a_broken_line_in_the_middle_is_told_with_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = many(tmp_path / "run", 3)
    (run / "labels.jsonl").write_bytes(b'{"edit_id": "e0"\n{}\n')
    assert command(["agree", str(run)]) == 2
    assert "labels.jsonl, line 1: this is not JSON" in capsys.readouterr().err
    with pytest.raises(UserError, match="line 1"):
        StudioLabels(run / "labels.jsonl").annotators()


def test_a_label_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was(small_disk: Path) -> None:
    with pytest.raises(UserError, match="No space left on device"):
        _label(small_disk / "labels.jsonl", "ana", 2000)
    rows = [json.loads(line) for line in (small_disk / "labels.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == len(list(StudioLabels(small_disk / "labels.jsonl").said())) > 10
