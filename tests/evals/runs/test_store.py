import errno
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from editloupe.evals.runs import store
from editloupe.evals.runs.edit_rows import parse_edit
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.run_folder import ABOUT, remove_if_empty_on_error
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.types import Edit, Unjudged, Usage, UserError, Verdict
from tests.evals.samples import judgement


def test_a_judgement_comes_back_whole(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=album)
    with Run.open(tmp_path / "run") as run:
        assert [unit.outcome for unit in run.units()] == list(whole.verdicts)
        assert run.load_trace("e0") == whole.traces
        assert run.load_trace("e0", "visual_consistency") == ()
        edit, pictures, _ = run.edit("e0")
        assert edit == whole.edit
        for sha in (*pictures["source"], *pictures["edited"], whole.traces[0].steps[0].observations[0].pictures[0]):
            path = run.pictures.find(sha)
            assert path is not None
            assert path.parent.name == sha[:2]


def test_a_picture_of_a_run_is_the_file_that_was_judged(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=album)
        kept = run.pictures.find(album.open(tmp_path / "src.png").sha)
    assert kept is not None
    assert kept.read_bytes() == (tmp_path / "src.png").read_bytes()


def test_saving_a_unit_again_replaces_it_and_its_trace(tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as run:
        for thought in ("first", "second"):
            whole, album = judgement(tmp_path, thought=thought)
            run.save(whole, album=album)
        assert len(list(run.units())) == 2
        (trace,) = run.load_trace("e0")
        assert trace.steps[0].thought == "second"
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as database:
        assert database.execute("SELECT count(*) FROM steps").fetchone() == (2,)


def test_repeats_are_kept_beside_each_other(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save(whole, repeat=0, album=album)
        run.save(whole, repeat=1, album=album)
        assert [(u.criterion, u.repeat) for u in run.units()] == [
            ("instruction_following", 0),
            ("instruction_following", 1),
            ("visual_consistency", 0),
            ("visual_consistency", 1),
        ]
        assert len(run.load_trace("e0", repeat=1)) == 1


def test_units_come_in_the_order_of_the_manifest_not_of_arrival(tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as run:
        for position, name in ((2, "c"), (0, "a"), (1, "b")):
            whole, album = judgement(tmp_path, name)
            run.save_all([JudgementRecord(whole, album=album, position=position)])
        assert [edit.id for edit, *_ in run.edits()] == ["a", "b", "c"]
        assert list(dict.fromkeys(unit.edit_id for unit in run.units())) == ["a", "b", "c"]


def test_nothing_of_a_transaction_that_fails_is_kept(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    broken = JudgementRecord(whole, album=album, configuration=object())  # type: ignore[arg-type]
    with Run.write(tmp_path / "run") as run:
        with pytest.raises(sqlite3.Error):
            run.save_all([JudgementRecord(judgement(tmp_path, "good")[0]), broken])
        assert list(run.units()) == []
        assert list(run.edits()) == []


@pytest.mark.long
def test_a_second_writer_is_told_who_writes_and_a_reader_is_let_in(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=album)
        attempt = "try: Run.write(sys.argv[1])\nexcept Exception as error: print(error)"
        code = f"import sys; from editloupe.evals.runs.store import Run\n{attempt}"
        told = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
        assert f"is being written by process {os.getpid()} on " in told.stdout
        with Run.open(tmp_path / "run") as reader:
            assert len(list(reader.units())) == 2
    with Run.write(tmp_path / "run"):
        pass


@pytest.mark.long
def test_the_lock_of_a_killed_writer_is_free(tmp_path: Path) -> None:
    code = "import sys, time; from editloupe.evals.runs.store import Run\nrun = Run.write(sys.argv[1]); print(); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-uc", code, str(tmp_path / "run")], stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        writer.stdout.readline()
        with pytest.raises(UserError, match=f"is being written by process {writer.pid} on "):
            Run.write(tmp_path / "run")
        writer.kill()
    with Run.write(tmp_path / "run"):
        pass


def test_a_new_run_whose_description_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if target.name == ABOUT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(UserError, match="No space left"), remove_if_empty_on_error(tmp_path / "run"):
        Run.write(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_can_be_moved(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=album)
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    with Run.open(tmp_path / "elsewhere") as run:
        assert run.load_trace("e0") == whole.traces
        assert run.pictures.find(whole.traces[0].steps[0].sent[0].sha)


def test_a_reply_and_what_was_paid_are_seen_by_another_process_at_once(tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as run:
        run.keep_reply("k", {"text": "hello"})
        run.add_spending("openai:x", Usage(requests=1, input_tokens=10, output_tokens=2), 0.5)
        run.add_spending("openai:x", Usage(requests=1, input_tokens=5, output_tokens=1), 0.25)
        with Run.open(tmp_path / "run") as other:
            assert other.find_reply("k") == {"text": "hello"}
            assert other.read_spending() == (Usage(requests=2, input_tokens=15, output_tokens=3), 0.75)
            assert other.find_reply("unknown") is None


@pytest.mark.long
def test_the_log_stays_small_although_replies_arrive_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOG_BYTES", 200_000)
    log, ended, sizes = tmp_path / "run" / "run.sqlite-wal", threading.Event(), list[int]()
    with Run.write(tmp_path / "run") as run:

        def write() -> None:
            for number in itertools.count():
                run.keep_reply(f"k{number}", {"text": "x" * 4000})
                if ended.is_set():
                    return

        writing = threading.Thread(target=write)
        writing.start()
        for _ in range(30):
            time.sleep(0.05)
            run.checkpoint()
            sizes.append(log.stat().st_size)
        with run.reader() as reader:
            rows = reader.connection.execute("SELECT key FROM replies")
            rows.fetchone()  # uses the log until it is read to its end
            time.sleep(0.1)
            run.checkpoint()
            rows.close()
        ended.set()
        writing.join()
        run.checkpoint()
        assert log.stat().st_size <= store.LOG_BYTES
    assert sorted(sizes)[len(sizes) // 2] < 1_000_000


def test_the_cost_of_a_unit_is_unknown_without_a_price(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save_all([JudgementRecord(whole, album=album)])
        assert [unit.cost for unit in run.units()] == [None, None]
        run.save_all([JudgementRecord(whole, album=album, price=Price(input=10, output=100))])
        assert [unit.cost for unit in run.units()] == [0.004, 0.0]


def test_an_api_key_never_reaches_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-test-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    whole, album = judgement(tmp_path, thought=f"the server said {key}")
    with Run.write(tmp_path / "run") as run:
        run.configure({"judge": "openai:x", "base_url": f"https://user:{key}@host/v1", "note": key})
        run.save(whole, album=album)
        run.keep_reply("k", {"text": f"wrong key {key}"})
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        assert any(path.name == "run.sqlite-wal" for path in files)
        assert not [path for path in files if key.encode() in path.read_bytes()]
        (configuration,) = run.about()["configurations"]
        assert configuration["base_url"] == "https://host/v1"


def test_the_same_configuration_is_written_down_once(tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as run:
        names = [run.configure({"judge": judge}) for judge in ("a", "a", "b")]
        assert names[0] == names[1] != names[2]
        assert [known["judge"] for known in run.about()["configurations"]] == ["a", "b"]


def test_an_unknown_edit_is_told_with_close_matches(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path, "cup_0042")
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=album)
        with pytest.raises(UserError, match=r'has no edit "cup_042"; did you mean cup_0042\?'):
            run.load_trace("cup_042")


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be one" * 50])
def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UserError, match="is not a run"):
        Run.open(tmp_path)
    (tmp_path / "other.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty and is not a run"):
        Run.write(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(content or b"x")
    with pytest.raises(UserError):
        Run.open(tmp_path)


def test_a_run_of_a_later_version_is_refused(tmp_path: Path) -> None:
    Run.write(tmp_path / "run").close()
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match="schema version 99"):
        Run.open(tmp_path / "run")


def test_the_columns_of_a_unit_say_what_its_outcome_says(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path)
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=album)
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as database:
        database.row_factory = sqlite3.Row
        judged, left = database.execute("SELECT * FROM units ORDER BY criterion")
    verdict, unjudged = whole.verdicts
    assert isinstance(verdict, Verdict)
    assert isinstance(unjudged, Unjudged)
    assert (judged["label"], judged["score"], judged["input_tokens"]) == ("Wrong Action", 2, 200)
    assert (left["status"], left["reason"], left["score"]) == ("unjudged", "unreadable_answer", None)
    assert json.loads(left["outcome"])["raw"] == unjudged.raw


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "target_boxes": [[1, 2, 30, 40], [5.4, 6, 7, 8]],
            "turn": 2,
            "hint": "left",
            "instruction_type": "Change Color",
        },
        {"human": {"a": "Good", "b": ["Good", "Bad"]}, "extra": {"list": [1, {"x": None}], "n": 1.5, "": "ü"}},
        {"reference": "r.png", "more_images": {"pose": ["p.png"]}},
        {"id": ""},
    ],
)
def test_an_edit_is_read_back_as_the_record_itself_reads_it(more: dict[str, Any]) -> None:
    given = {"id": "e", "source": "a/s.png", "edited": "b//e.png", "instruction": " Do it. ", **more}
    text = Edit.model_validate(given).model_dump_json()
    read, plain = parse_edit(text), Edit.model_validate_json(text)
    assert read == plain
    assert read.model_dump_json() == plain.model_dump_json() == text
    assert repr(read.model_copy(update={"turn": 7})) == repr(plain.model_copy(update={"turn": 7}))
    assert (type(read.source), read.model_fields_set) == (type(plain.source), plain.model_fields_set)


@pytest.mark.parametrize("change", [{"instruction": " "}, {"turn": "x"}, {"unknown": 1}, {"source": None}])
def test_what_is_no_edit_is_not_read_as_one(change: dict[str, Any]) -> None:
    text = Edit(id="e", source=Path("s.png"), edited=Path("e.png"), instruction="Do it.").model_dump_json()
    with pytest.raises(ValidationError):
        parse_edit(json.dumps({**json.loads(text), **change}))
