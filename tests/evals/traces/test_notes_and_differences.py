"""Tags and notes on traces, and two runs as one list."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.runs.store import Run
from editloupe.evals.traces import find_traces
from editloupe.evals.traces.trace_notes import FILE, TagsAndNote, TraceKey, read_notes, write_note
from editloupe.evals.traces.trace_search import compare_runs, read_pairs, search_run
from editloupe.types import UserError
from tests.evals.traces.samples import Told, write_run


def place_of(folder: Path, name: str) -> TraceKey:
    (hit,) = find_traces(folder, f'name = "{name}"')
    return TraceKey(hit.name, hit.criterion, hit.repeat, hit.asked)


def test_a_later_note_replaces_the_earlier_one_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a"), Told("b")])
    place = place_of(folder, "a")
    assert write_note(folder, place, [" Missed  it ", "", "Missed it"], " Look again. ") == TagsAndNote(
        ("Missed it",), "Look again."
    )
    write_note(folder, place, ["Missed it"], "Look again.")
    assert len((folder / FILE).read_text("utf-8").splitlines()) == 1, "the same again changes nothing"
    assert [hit.name for hit in find_traces(folder, 'tagged("missed it") and note ~ "again"')] == ["a"]
    assert [hit.name for hit in find_traces(folder, "not tagged()")] == ["b"]
    write_note(folder, place, [], "")
    assert read_notes(folder) == {}
    assert [hit.name for hit in find_traces(folder, "tagged()")] == []
    assert len((folder / FILE).read_text("utf-8").splitlines()) == 2


def test_case_is_the_same_beyond_ascii_in_tags_and_fields_and_no_note_says_otherwise(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a", model="éditeur"), Told("b", model="other")])
    write_note(folder, place_of(folder, "a"), ["été"], "")
    for where in ('tagged("ÉTÉ")', 'model = "ÉDITEUR"'):
        with Run.open(folder) as run, search_run(run, where) as found:
            assert [hit.name for hit in found.hits()] == ["a"]
            assert found.notes == ()


def test_too_much_is_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a")])
    with pytest.raises(UserError, match="up to 20 tags"):
        write_note(folder, place_of(folder, "a"), [str(number) for number in range(30)], "")
    with pytest.raises(UserError, match="up to 4000"):
        write_note(folder, place_of(folder, "a"), [], "x" * 5000)


def test_two_runs_are_paired_by_their_pictures_and_never_by_id(tmp_path: Path) -> None:
    first = write_run(
        tmp_path / "one",
        [
            Told("a", "Wrong Action", picture=1),
            Told("b", picture=2),
            Told("c", "Over Modification", picture=3),
            Told("x"),
        ],
    )
    second = write_run(
        tmp_path / "two",
        [
            Told("other-a", "Flawless Execution", picture=1),
            Told("b", picture=2),
            Told("c", None, picture=3),
            Told("a", "Localization Failure", picture=4),
            Told("x", "Wrong Action"),
        ],
        judge="openai:gpt-6",
    )
    with Run.open(first) as one, Run.open(second) as two, search_run(one) as left, search_run(two) as right:
        found = compare_runs(left, right)
        rows = read_pairs(left, right, found.differing)
    assert len(found.pairs) == 3
    assert [(row.first.name, row.second.name) for row in rows] == [("a", "other-a"), ("c", "c")], "unjudged comes last"
    assert (rows[0].first.label, rows[0].second.label) == ("Wrong Action", "Flawless Execution")


def test_the_filter_of_the_first_run_chooses_among_the_pairs(tmp_path: Path) -> None:
    first = write_run(
        tmp_path / "one", [Told("a", "Wrong Action", picture=1), Told("b", "Over Modification", picture=2)]
    )
    second = write_run(tmp_path / "two", [Told("a", picture=1), Told("b", picture=2)])
    with (
        Run.open(first) as one,
        Run.open(second) as two,
        search_run(one, 'label = "Wrong Action"') as left,
        search_run(two) as right,
    ):
        found = compare_runs(left, right)
    assert (len(found.pairs), len(found.differing)) == (1, 1)


def test_edits_that_show_the_same_are_paired_each_with_its_own(tmp_path: Path) -> None:
    told = [Told("a", "Wrong Action", picture=1, model="m"), Told("a", "Wrong Action", picture=1, model="n")]
    first = write_run(tmp_path / "one", [*told, Told("b", "Wrong Action", picture=1)])
    second = write_run(
        tmp_path / "two",
        [Told("a", picture=1, model="n"), Told("a", "Over Modification", picture=1, model="m")],
        "rules",
    )
    with Run.open(first) as one, Run.open(second) as two, search_run(one) as left, search_run(two) as right:
        found = compare_runs(left, right)
        rows = read_pairs(left, right, found.differing)
    assert (len(found.pairs), found.several) == (3, ()), "nothing was judged in several ways"
    pairs = {(row.first.edit_id, row.first.model): (row.second.edit_id, row.second.model) for row in rows}
    assert pairs == {("a", "m"): ("a", "m"), ("a", "n"): ("a", "n"), ("b", None): ("a", "n")}


def test_an_edit_judged_in_several_ways_is_told(tmp_path: Path) -> None:
    first = write_run(tmp_path / "one", [Told("a", picture=1)])
    write_run(tmp_path / "one", [Told("a", "Wrong Action", picture=1)], "rules")
    second = write_run(tmp_path / "two", [Told("a", "Wrong Action", picture=1)])
    with Run.open(first) as one, Run.open(second) as two, search_run(one) as left, search_run(two) as right:
        found = compare_runs(left, right)
    assert (len(found.pairs), len(found.differing), found.several) == (1, 1, ("one",))


def test_a_change_is_fixed_or_broken_by_peoples_labels(tmp_path: Path) -> None:
    right, wrong = "Flawless Execution", "Wrong Action"
    before = [wrong, right, right, wrong, None]
    after = [right, wrong, right, wrong, right]
    folders = [
        write_run(
            tmp_path / name,
            [Told(f"e{n}", label, human=right if n < 5 else None, picture=n) for n, label in enumerate(labels)],
            judge,
        )
        for name, labels, judge in (("one", [*before, right], "openai:a"), ("two", [*after, wrong], "openai:b"))
    ]
    with (
        Run.open(folders[0]) as one,
        Run.open(folders[1]) as two,
        search_run(one) as left,
        search_run(two) as right_side,
    ):
        found = compare_runs(left, right_side)
        people, labels = found.tabulate_changes()
        broken = read_pairs(left, right_side, found.in_cell(people.criterion, "people", "right", "wrong"))
    assert (people.by, labels.by) == ("people", "labels")
    assert people.counts == {
        ("wrong", "right"): 1, ("right", "wrong"): 1, ("right", "right"): 1, ("wrong", "wrong"): 1, ("unjudged", "right"): 1
    }  # fmt: skip
    assert people.rows == ("right", "wrong", "unjudged")
    assert labels.counts[right, wrong] == 2, "also where people gave no label"
    assert [pair.first.name for pair in broken] == ["e1"]


def test_scores_with_many_values_are_compared_by_direction(tmp_path: Path) -> None:
    from tests.evals.preferences.samples import all_metrics, compass_run

    cases = [all_metrics(1 + n / 10, 3, 3, 3) for n in range(12)]
    moved = [all_metrics(1 + (n + 1) / 10, 3, 3, 3) for n in range(12)]
    first, second = compass_run(tmp_path / "one", {"x": cases}), compass_run(tmp_path / "two", {"x": moved}, "openai:b")
    with Run.open(first) as one, Run.open(second) as two, search_run(one) as left, search_run(two) as right:
        tables = {table.criterion: table for table in compare_runs(left, right).tabulate_changes()}
    assert tables["instruction_following"].by == "direction"
    assert tables["instruction_following"].counts == {("all", "higher"): 12}
    assert tables["visual_quality"].by == "labels"
