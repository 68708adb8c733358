"""The index follows its run, stands where it can, and is never needed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from editloupe.evals.runs.store import Run
from editloupe.evals.traces import find_traces
from editloupe.evals.traces import index_update as files
from editloupe.evals.traces.index_file import FILE
from editloupe.evals.traces.index_update import open_index
from editloupe.evals.traces.run_index import RunIndex
from editloupe.evals.traces.run_list import EditList, ListQuery
from editloupe.types import UserError
from tests.evals.sample_runs import IF
from tests.evals.traces.samples import FIND, ZOOM, Told, _filing, write_run
from tests.evals.watched_run import WatchedRun


def names(folder: Path, where: str = "") -> list[str]:
    return [hit.name for hit in find_traces(folder, where)]


def count(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / FILE)) as index:
        return int(index.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_what_comes_while_a_batch_is_writing_is_found_at_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    assert names(folder) == ["a"]
    with Run.write(folder) as writer:
        writer.save_all([_filing(folder, Told("b", calls=(ZOOM,), thought="later words"), 1, "openai:gpt-5.1")])
        assert names(folder) == ["a", "b"], "the writer still holds the run"
        assert names(folder, 'said("later words") and tool("zoom_in_image") = 1') == ["b"]


def test_a_verdict_that_is_given_again_replaces_the_one_before(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a", "Wrong Action", (ZOOM,), thought="old words"), Told("b")])
    assert names(folder, 'said("old words")') == ["a"]
    write_run(folder, [Told("a", "Flawless Execution", (FIND,), thought="other words")])
    assert names(folder, 'said("old words")') == []
    assert names(folder, 'said("other words") and tool("zoom_in_image") = 0 and score = 4') == ["a"]
    assert count(folder, "verdicts") == 2


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", [Told(f"e{number}") for number in range(5)])
    assert len(names(folder)) == 5
    read: list[int] = []
    usual = files._read_steps
    monkeypatch.setattr(files, "_read_steps", lambda source, units: read.extend(units) or usual(source, units))
    assert len(names(folder)) == 5
    assert read == []
    write_run(folder, [Told("e5")])
    assert len(names(folder)) == 6
    assert len(read) == 1


def test_an_edit_that_says_something_else_is_read_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a", extra={"style": "sketch"}, human="Wrong Action")])
    assert names(folder, 'style = "sketch" and human = "Wrong Action"') == ["a"]
    write_run(folder, [Told("a", extra={"style": "photo"}, human="Flawless Execution")])
    assert names(folder, 'style = "sketch"') == []
    assert names(folder, 'style = "photo" and human = "Flawless Execution"') == ["a"]


def test_what_is_taken_back_is_found_no_more(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a"), Told("b"), Told("c")])
    assert names(folder) == ["a", "b", "c"]
    with Run.write(folder) as run:
        with run.reader() as reader:
            (edit,) = reader.connection.execute("SELECT edit FROM edits WHERE name = 'c'").fetchone()
        run.delete_edits([edit])
    assert names(folder) == ["a", "b"]
    write_run(folder, [Told("d", "Wrong Action", (ZOOM,), thought="in its place")])
    assert names(folder, 'said("in its place")') == ["d"], "its number was the forgotten one's"


def test_numbers_given_again_while_the_index_is_brought_up_to_date_are_read_with_the_next_search(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "run", [Told("a"), Told("b"), Told("c")])
    assert names(folder) == ["a", "b", "c"]
    watched = WatchedRun.open(folder)
    assert isinstance(watched, WatchedRun)
    with Run.write(folder) as writer, watched:

        def save(*told: Told) -> None:
            writer.save_all([_filing(folder, one, 3, "openai:gpt-5.1") for one in told])

        def give_numbers_again() -> None:
            with writer.reader() as reader:
                edits = reader.connection.execute("SELECT edit FROM edits WHERE name IN ('c', 'd')").fetchall()
            writer.delete_edits(edit for (edit,) in edits)
            save(Told("e", "Wrong Action", (ZOOM,), thought="in its place"), Told("f"), Told("g"))

        save(Told("d"))
        watched.watch("WHERE answers.answer = ", give_numbers_again)
        with open_index(watched):
            pass
        assert watched.was_called
        assert sorted(names(folder)) == ["a", "b", "e", "f", "g"]
        assert names(folder, 'said("in its place")') == ["e"]


def test_labels_given_in_the_studio_count_from_then_on(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    assert names(folder, "human is not null") == []
    row = f'{{"edit_id": "a", "criterion": "{IF}", "label": "Wrong Action", "annotator": "Ada"}}\n'
    (folder / "labels.jsonl").write_text(row, "utf-8")
    assert names(folder, 'human = "Wrong Action"') == ["a"]


@pytest.mark.parametrize("content", [b"not a database at all", b""])
def test_a_damaged_index_is_made_anew(tmp_path: Path, content: bytes) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    assert names(folder) == ["a"]
    (folder / FILE).write_bytes(content)
    assert names(folder) == ["a"]


@pytest.mark.parametrize(
    ("table", "by"), [("cells", "page"), ("people", "page"), ("people", "search"), ("tool_counts", "search")]
)
def test_an_index_with_a_damaged_table_is_built_again(tmp_path: Path, table: str, by: str) -> None:
    run = write_run(tmp_path / "run", [Told("a")])
    assert names(run) == ["a"]
    with closing(sqlite3.connect(run / FILE)) as index:
        (page_size,) = index.execute("PRAGMA page_size").fetchone()
        (root,) = index.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        index.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (run / FILE).open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(b"\xff" * page_size)
    if by == "search":
        with suppress(UserError):  # the first search may say that the index cannot be read
            names(run, 'tool("zoom_in_image") = 0')
        assert names(run) == ["a"]
    else:
        with Run.open(run) as opened, closing(RunIndex(opened)) as table_index:
            with suppress(UserError), table_index.reading() as index:
                EditList(index, ListQuery()).page()
            with table_index.reading() as index:
                assert EditList(index, ListQuery()).page().total == 1


def test_an_index_of_another_version_is_made_anew(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    assert names(folder) == ["a"]
    with closing(sqlite3.connect(folder / FILE)) as index:
        index.execute("PRAGMA user_version = 99")
    assert names(folder, 'said("settles")') == ["a"]


def test_the_index_of_another_run_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    first = write_run(tmp_path / "one", [Told("a", calls=(ZOOM,), thought="first words")])
    second = write_run(tmp_path / "two", [Told("b", calls=(ZOOM,), thought="second words")])
    assert names(first) == ["a"]
    about = (second / "run.json").read_text("utf-8").replace('"created": "20', '"created": "19')
    (second / "run.json").write_text(about, "utf-8")
    (second / FILE).write_bytes((first / FILE).read_bytes())
    assert names(second) == ["b"]
    assert names(second, 'said("first words")') == []


def test_a_run_that_cannot_be_written_has_its_index_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert names(folder, 'said("settles")') == ["a"]
    assert not (folder / FILE).exists()
    assert len(list((tmp_path / "cache").rglob("*.sqlite"))) == 1


def test_without_any_place_the_index_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    (tmp_path / "cache").write_text("a file", "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert names(folder) == ["a"]


def test_a_step_that_cannot_be_read_is_told_and_the_rest_is_found(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a", calls=(ZOOM, FIND)), Told("b")])
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        connection.execute("UPDATE steps SET step = 'torn' WHERE trace = 1 AND position = 0")
        connection.commit()
    found = find_traces(folder, "tool() = 1")
    assert [hit.name for hit in found] == ["a"]
    assert any("1 step cannot be read" in note for note in found.notes)


def test_several_indexers_at_one_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    folder = write_run(tmp_path / "run", [Told(f"e{number}") for number in range(30)])

    def search(_: int) -> int:
        with Run.open(folder) as run, open_index(run) as index:
            return int(index.execute("SELECT count(*) FROM units").fetchone()[0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(search, range(8))) == [30] * 8
    assert count(folder, "verdicts") == 30


def test_a_verdict_that_answers_two_questions_of_its_edit_is_found_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    with Run.write(folder) as run, run.transaction() as connection:
        connection.execute(
            "INSERT INTO answers (edit, criterion, asked, repeat, unit, shown) "
            "SELECT edit, criterion, 'another', repeat, unit, shown FROM answers"
        )
    assert names(folder) == ["a"]


def test_a_disk_that_is_full_is_no_reason_not_to_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    usual, places = files._scan_edits, []

    def full(index: sqlite3.Connection, source: sqlite3.Connection) -> None:
        places.append(index.execute("PRAGMA database_list").fetchone()["file"])
        if places[-1]:
            raise sqlite3.OperationalError("database or disk is full")
        usual(index, source)

    monkeypatch.setattr(files, "_scan_edits", full)
    assert names(folder)[:1] == ["a"]
    assert places[:3] == [str(folder / FILE), places[1], ""], "in the run, in the cache, in memory"
