"""The table of a run: pages, filters and order worked out in SQL, up to date while the run grows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from sqlite3 import Connection
from urllib.parse import urlencode

import pytest

from editloupe.evals.runs.damage import RunDamaged
from editloupe.evals.runs.reader import RunReader
from editloupe.evals.runs.store import Run
from editloupe.evals.traces import find_traces
from editloupe.evals.traces.run_index import (
    RunIndex,
    count_facts,
)
from editloupe.evals.traces.run_list import PAGE_SIZE, EditList, EditPage, ListQuery
from editloupe.servers.studio.annotation.label_file import LabelValue, StudioLabels
from editloupe.types import Edit, Judgement, Verdict
from tests.evals.sample_runs import Line, make_run
from tests.evals.watched_run import WatchedRun
from tests.servers.studio.samples import LABELS, TYPES, many_edits, outcome

FOLLOWING, JUDGE = "instruction_following", "openai:gpt-5.1"


def opened(folder: Path) -> RunIndex:
    return RunIndex(Run.open(folder))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> RunIndex:
    return opened(many_edits(tmp_path_factory.mktemp("many"), 5000))


def query(**wanted: object) -> ListQuery:
    """Return the query of an address with these choices."""
    return ListQuery.parse(urlencode(wanted))


def read_page(rows: Connection, wanted: ListQuery) -> EditPage:
    return EditList(rows, wanted).page()


def open_page(index: RunIndex, wanted: ListQuery) -> EditPage:
    with index.reading() as rows:
        return read_page(rows, wanted)


def ids(index: RunIndex, **wanted: object) -> list[str]:
    return [row.edit["edit_id"] for row in open_page(index, query(**wanted)).rows]


def total(index: RunIndex, **wanted: object) -> int:
    return open_page(index, query(**wanted)).total


@pytest.mark.long
def test_a_page_holds_fifty_of_five_thousand(index: RunIndex) -> None:
    assert ids(index) == [f"edit-{n:05}" for n in range(PAGE_SIZE)]
    assert ids(index, page=100) == [f"edit-{n:05}" for n in range(4950, 5000)]
    assert ids(index, page=10**6) == ids(index, page=100)
    assert total(index) == 5000


@pytest.mark.long
def test_filters_find_exactly_what_fits(index: RunIndex) -> None:
    verdicts = [outcome(FOLLOWING, n) for n in range(5000)]
    wrong = [n for n, v in enumerate(verdicts) if isinstance(v, Verdict) and v.label == "Wrong Action"]
    assert total(index, criterion=FOLLOWING, label="Wrong Action") == len(wrong)
    assert total(index, type=TYPES[1]) == len([n for n in range(5000) if n % len(TYPES) == 1])
    assert total(index, status="unjudged") == 250
    assert total(index, status="judged") == 4750
    assert total(index, label="unjudged", criterion=FOLLOWING) == 250
    assert total(index, text="PATCH 4999 ") == 1
    assert total(index, text="painter-2") == len([n for n in range(5000) if n % 3 == 2])
    assert total(index, text="%") == 0
    assert total(index, label="Scene Collapse", criterion=FOLLOWING) == 0
    assert ids(index, text="patch 77 to red", criterion=FOLLOWING) == ["edit-00077"]


@pytest.mark.long
def test_disagreement_with_people_can_be_asked_for(index: RunIndex) -> None:
    assert total(index, apart="people") == 500
    assert total(index, apart="agree") == 500
    assert total(index, apart="none") == 4000
    assert total(index, apart="people", criterion="visual_consistency") == 0
    apart = ids(index, order="apart", criterion=FOLLOWING)
    assert all(int(one.removeprefix("edit-")) % 10 == 0 for one in apart)


@pytest.mark.long
def test_all_names_of_a_query_are_in_the_order_of_its_pages(index: RunIndex) -> None:
    wanted = query(apart="people", order="worst")
    pages = [
        (row.edit["name"], row.criterion)
        for number in range(1, 11)
        for row in open_page(index, replace(wanted, page=number)).rows
    ]
    with index.reading() as rows:
        assert EditList(rows, wanted).names() == pages
    assert len(set(pages)) == 500
    assert {criterion for _, criterion in pages} == {FOLLOWING}, "only this one was labelled"


def test_the_order_can_be_chosen(index: RunIndex) -> None:
    with index.reading() as rows:
        for order, name in (("worst", "place"), ("best", "place"), ("unsure", "confidence")):
            found = read_page(rows, query(order=order, criterion=FOLLOWING)).rows
            values = [row.cells[FOLLOWING][name] for row in found]
            assert values == sorted(values, reverse=order == "best")
            assert len(values) == PAGE_SIZE


@pytest.mark.long
def test_a_page_is_read_off_an_index_and_not_sorted_whole(index: RunIndex) -> None:
    with index.reading() as rows:
        plan = [
            row["detail"]
            for row in rows.execute(
                f"EXPLAIN QUERY PLAN {EditList(rows, ListQuery()).statement()}", {"size": 50, "skipped": 0}
            )
        ]
    assert plan == ["SCAN e USING INDEX edits_in_order"]


@pytest.mark.long
def test_edits_are_listed_by_any_filter_on_their_verdicts(index: RunIndex) -> None:
    wrong = total(index, criterion=FOLLOWING, label="Wrong Action")
    assert total(index, where=f'criterion = "{FOLLOWING}" and label = "wrong action"') == wrong
    assert total(index, where='edit = "edit-00077" or edit = "edit-00078"') == 2
    assert total(index, where="apart > 99") == total(index, where="agrees = false and apart > 99") > 0
    assert total(index, where="repeats_differ = true") == 0
    assert total(index, where="confidence < 0.52 and score = 1", apart="people") < 500


def test_texts_of_a_request_are_values_and_never_sql(index: RunIndex) -> None:
    for nasty in ("' OR 1=1 --", '"; DROP TABLE edits; --', "\x00", "☃" * 50):
        for name in ("text", "type", "label", "criterion"):
            assert total(index, **{name: nasty}) == 0
    assert total(index) == 5000


def test_the_table_grows_with_the_run_and_shows_what_was_judged_again(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 3)
    index = opened(folder)
    assert total(index) == 3
    with Run.write(folder) as run:
        last = run.edit("edit-00002").edit
        for edit in (last, last.model_copy(update={"id": "later"})):
            verdict = Verdict(criterion=FOLLOWING, label="Wrong Action", score=2, score_100=100 / 3)
            run.save(Judgement(edit=edit, protocol="dlebench", mode="tools", judge=JUDGE, verdicts=(verdict,)))
        assert total(index) == 4
        with index.reading() as rows:
            found = {row.edit["edit_id"]: row.cells[FOLLOWING]["label"] for row in read_page(rows, ListQuery()).rows}
        assert (found["edit-00002"], found["later"]) == ("Wrong Action", "Wrong Action")
        other = verdict.model_copy(update={"label": "Flawless Execution", "score": 4, "score_100": 100.0})
        again = Judgement(edit=last, protocol="dlebench", mode="tools", judge=JUDGE, verdicts=(other,))
        run.save(again)
        assert ids(index, label="Flawless Execution", text="edit-00002") == ["edit-00002"]
        run.save(again.model_copy(update={"verdicts": (verdict,)}), repeat=1)
        assert ids(index, apart="repeats") == ["edit-00002"]


def test_verdicts_committed_while_the_table_is_brought_up_to_date_come_with_the_next_reading(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 3)
    watched = WatchedRun.open(folder)
    assert isinstance(watched, WatchedRun)
    index = RunIndex(watched)
    with Run.write(folder) as writer:

        def judge_again(*names: str) -> None:
            verdict = Verdict(criterion=FOLLOWING, label="Wrong Action", score=2, score_100=100 / 3)
            for name in names:
                edit = writer.edit(name).edit
                whole = Judgement(edit=edit, protocol="dlebench", mode="tools", judge=JUDGE, verdicts=(verdict,))
                writer.save(whole, repeat=1)

        assert total(index) == 3
        judge_again("edit-00002")
        watched.watch("WHERE answers.answer > ", lambda: judge_again("edit-00000", "edit-00001"))
        assert total(index) == 3
        assert watched.was_called, "verdicts were committed during the reading"
        with index.reading() as rows:
            repeats = {
                row.edit["edit_id"]: row.cells[FOLLOWING]["repeats"] for row in read_page(rows, ListQuery()).rows
            }
            units = rows.execute("SELECT sum(units) FROM configurations").fetchone()[0]
    assert repeats == {"edit-00000": 2, "edit-00001": 2, "edit-00002": 2}
    assert units == 9
    index.close()


def test_labels_given_by_people_come_into_the_table_at_once(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 3)
    book = StudioLabels(folder / "labels.jsonl")
    index = RunIndex(Run.open(folder), book.path)
    assert total(index, apart="people") == 1
    for name, label in (("ana", 0), ("ben", 3), ("cy", 0)):
        book.say(name, "edit-00001", FOLLOWING, LabelValue(LABELS[FOLLOWING][label]))
    with index.reading() as rows:
        found = {row.edit["edit_id"]: row.people for row in read_page(rows, ListQuery()).rows}
        assert found["edit-00001"][FOLLOWING]["label"] == LABELS[FOLLOWING][0]
        assert found["edit-00001"][FOLLOWING]["count"] == 3
        assert count_facts(rows).labelled == 2
    book.undo("ana")
    with index.reading() as rows:
        found = {row.edit["edit_id"]: row.people for row in read_page(rows, ListQuery()).rows}
    assert found["edit-00001"][FOLLOWING]["count"] == 2


def test_the_state_is_read_from_the_index_only_if_a_file_changed_or_was_written_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = many_edits(tmp_path, 3)
    book = StudioLabels(folder / "labels.jsonl")
    index = RunIndex(Run.open(folder), book.path)
    first, reading = index.state(), index.reading
    readings: list[None] = []
    monkeypatch.setattr(index, "reading", lambda: readings.append(None) or reading())
    index.state()
    assert len(readings) == 1, "a file that was written just now may change again within the clock's step"
    for file in folder.iterdir():
        os.utime(file, (1_000_000_000, 1_000_000_000))
    assert [index.state() for _ in range(3)] == [first] * 3
    assert len(readings) == 2
    book.say("ana", "edit-00001", FOLLOWING, LabelValue(LABELS[FOLLOWING][0]))
    assert index.state() != first
    many_edits(tmp_path, 5)
    assert index.state() != first
    assert total(index) == 5
    index.close()
    with pytest.raises(RunDamaged):
        index.state()


def test_scores_without_a_label_can_be_filtered_like_labels(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 2)
    with Run.write(folder) as run:
        for number in range(2):
            edit = run.edit(f"edit-{number:05}").edit
            verdict = Verdict(criterion="visual_quality", score=7.0 + number, score_100=70.0)
            run.save(Judgement(edit=edit, protocol="wiseedit", mode="plain", judge="rules", verdicts=(verdict,)))
    index = opened(folder)
    with index.reading() as rows:
        first, second = (one["configuration"] for one in count_facts(rows).configurations)
        assert count_facts(rows, second).counts == {"visual_quality": {"7": 1, "8": 1}}
        assert set(count_facts(rows).counts) == set(LABELS)
    assert ids(index, criterion="visual_quality", label="8", configuration=second) == ["edit-00001"]
    assert ids(index, criterion="visual_quality", label="8", configuration=first) == []


def test_an_edit_without_a_verdict_is_shown_too(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 1)
    with Run.write(folder) as run:
        edit = Edit(id="waiting", source=tmp_path / "a.png", edited=tmp_path / "b.png", instruction="Wait")
        run.save(Judgement(edit=edit, protocol="dlebench", mode="tools", judge="rules", verdicts=()))
    assert ids(opened(folder)) == ["edit-00000", "waiting"]


def two_models_two_judges(folder: Path) -> Path:
    """One id of two models, both judged by two judges that disagree, and an edit that only the second one judged."""
    lines = [Line("a", 4, model="A"), Line("a", 1, model="B"), Line("b", 2, model=None)]
    make_run(folder / "run", lines, pictures=True)
    turned = [Line("a", 1, model="A"), Line("a", 4, model="B"), Line("b", 3, model=None), Line("c", 4, model="B")]
    return make_run(folder / "run", turned, judge="openai:other", pictures=True)


def test_models_under_one_id_are_rows_of_their_own_and_can_be_filtered(tmp_path: Path) -> None:
    index = opened(two_models_two_judges(tmp_path))
    with index.reading() as rows:
        found = read_page(rows, ListQuery()).rows
        assert count_facts(rows).models == ("A", "B", "(no model)")
    told = [(row.edit["name"], row.edit["edit_id"], row.edit["model"], row.cells[FOLLOWING]["score"]) for row in found]
    assert told == [("a", "a", "A", 4), ("a@B", "a", "B", 1), ("b", "b", None, 2)]
    assert [total(index, model=model) for model in ("A", "B", "(no model)", "C")] == [1, 1, 1, 0]
    assert ids(index, order="model") == ["a", "a", "b"]


def test_two_judges_of_one_run_are_never_mixed(tmp_path: Path) -> None:
    index = opened(two_models_two_judges(tmp_path))
    with index.reading() as rows:
        first, second = count_facts(rows).configurations
        assert [one["title"] for one in (first, second)] == [
            "openai:gpt-5.1 · dlebench · tools mode",
            "openai:other · dlebench · tools mode",
        ]
        counts = [count_facts(rows, one["configuration"]).counts[FOLLOWING] for one in (first, second)]
        found = read_page(rows, ListQuery(configuration=second["configuration"])).rows
    assert [sum(one.values()) for one in counts] == [3, 4]
    assert [(row.edit["name"], row.cells[FOLLOWING]["score"]) for row in found] == [
        ("a", 1),
        ("a@B", 4),
        ("b", 3),
        ("c", 4),
    ]
    assert ids(index, text="c", configuration=first["configuration"], model="B") == ["a"]


def test_a_run_that_is_opened_again_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = many_edits(tmp_path, 3)
    first = opened(folder)
    assert total(first) == 3
    first.close()
    monkeypatch.setattr(RunReader, "verdict_records", lambda *_: pytest.fail("the verdicts were read again"))
    assert total(opened(folder)) == 3


def test_edits_that_are_taken_back_leave_the_table(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 3)
    index = opened(folder)
    assert ids(index) == ["edit-00000", "edit-00001", "edit-00002"]
    with Run.write(folder) as run:
        with run.reader() as reader:
            (number,) = reader.connection.execute("SELECT edit FROM edits WHERE edit_id = 'edit-00001'").fetchone()
        run.delete_edits([number])
    assert ids(index) == ["edit-00000", "edit-00002"]
    assert total(index, criterion=FOLLOWING, status="judged") == 2


def test_the_table_and_the_search_share_one_index(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 3)
    index = opened(folder)
    assert total(index) == 3
    assert len(list(find_traces(folder, 'criterion = "instruction_following"'))) == 3
    with index.reading() as rows:
        assert rows.execute("SELECT count(*) FROM units").fetchone()[0] == 6
