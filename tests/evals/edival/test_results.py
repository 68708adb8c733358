"""Result folders: what belongs where, and what is told to someone who put it elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.edival.files import ChainFile, build_edits, find_results, list_expected, read_folder
from editloupe.rubrics.edival.pools import read_turn
from editloupe.rubrics.edival.tasks import Task
from editloupe.types import UserError
from tests.drawn_pictures import save
from tests.evals.edival import stand_ins as s


@pytest.fixture
def chains(tmp_path: Path) -> list[ChainFile]:
    return [s.kitchen_chain(tmp_path / "chains", s.save_base(tmp_path / "photos"))]


def test_names_of_turns_may_be_written_in_three_ways(tmp_path: Path, chains: list[ChainFile]) -> None:
    folder = tmp_path / "results/m/multi/kitchen"
    folder.mkdir(parents=True)
    for name in ("1.png", "T2.jpg", "turn_3.webp"):
        save(s.BASE, folder / name)
    assert [r.turn for r in find_results(tmp_path / "results", chains)] == [1, 2, 3]


def test_an_edit_goes_from_the_turn_before_to_the_turn_and_knows_its_base(
    tmp_path: Path, chains: list[ChainFile]
) -> None:
    s.put(tmp_path / "results", "m", "multi", {1: s.GOOD[0], 2: s.GOOD[1]})
    first, second = build_edits(find_results(tmp_path / "results", chains), chains, tmp_path / "chains")
    assert first.source == tmp_path / "photos/kitchen.png"
    assert second.source == first.edited
    assert second.more_images["base"] == (tmp_path / "photos/kitchen.png",)
    turn = read_turn(second)
    assert turn.all == ("ceramic white cup", "wooden box", "paper red sign", "ceramic blue cup", "lamp")
    assert turn.unchanged == ("wooden box", "paper red sign")
    assert turn.names_after == ("lamp",)
    assert (second.turn, second.model, second.instruction_type) == (2, "m", "subject_add")


def test_text_that_was_put_anywhere_is_no_background_from_its_turn_on(tmp_path: Path, chains: list[ChainFile]) -> None:
    """Also in a chain whose file does not list it, as files of earlier versions."""
    (chain,) = chains
    put = chain.turns[0].model_copy(update={"task": Task(type="text_change", text="HELLO"), "pools": chain.start})
    old = [chain.model_copy(update={"turns": (put, *chain.turns[1:])})]
    s.put(tmp_path / "results", "m", "multi", {1: s.GOOD[0], 2: s.GOOD[1]})
    first, second = build_edits(find_results(tmp_path / "results", old), old, tmp_path / "chains")
    assert read_turn(first).all == (*chain.start.all, "HELLO")
    assert read_turn(second).all == (*chain.start.all, "HELLO", "lamp")


@pytest.mark.parametrize("mode", ["complex", "complex-shuffled", "complex-ordered", "complex-keep"])
def test_a_complex_picture_has_all_tasks_and_the_prompt_of_its_connector(
    mode: str, tmp_path: Path, chains: list[ChainFile]
) -> None:
    s.put(tmp_path / "results", "m", mode, {3: s.GOOD[2]})
    (edit,) = build_edits(find_results(tmp_path / "results", chains), chains, tmp_path / "chains")
    assert len(read_turn(edit).tasks) == 3
    connector = mode.removeprefix("complex-") if "-" in mode else "plain"
    assert edit.instruction == chains[0].complex[connector][2]


def test_how_complete_the_results_are_is_known(tmp_path: Path, chains: list[ChainFile]) -> None:
    s.put(tmp_path / "results", "m", "multi", {1: s.GOOD[0]})
    (one,) = list_expected(find_results(tmp_path / "results", chains), chains)
    assert (one.there, one.expected) == (1, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("m/single/kitchen/1.png", "is not a mode"),
        ("m/multi/garden/1.png", "does not belong to a chain"),
        ("m/multi/kitchen/4.png", "not one of the turns 1 to 3"),
        ("m/multi/kitchen/final.png", "not one of the turns"),
    ],
)
def test_pictures_that_fit_nowhere_are_told(path: str, sentence: str, tmp_path: Path, chains: list[ChainFile]) -> None:
    file = tmp_path / "results" / path
    file.parent.mkdir(parents=True)
    save(s.BASE, file)
    with pytest.raises(UserError, match=sentence):
        find_results(tmp_path / "results", chains)


def test_two_files_of_one_turn_are_told(tmp_path: Path, chains: list[ChainFile]) -> None:
    folder = tmp_path / "results/m/multi/kitchen"
    folder.mkdir(parents=True)
    for name in ("1.png", "t1.png"):
        save(s.BASE, folder / name)
    with pytest.raises(UserError, match="same turn"):
        find_results(tmp_path / "results", chains)


def test_an_empty_or_missing_folder_is_told(tmp_path: Path, chains: list[ChainFile]) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        find_results(tmp_path / "nothing", chains)
    (tmp_path / "results").mkdir()
    with pytest.raises(UserError, match="has no pictures"):
        find_results(tmp_path / "results", chains)
    with pytest.raises(UserError, match=r"has no \.json"):
        read_folder(tmp_path / "results", ChainFile)


def test_a_file_of_something_else_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"id": 3}')
    with pytest.raises(UserError, match="not a valid file of this kind"):
        read_folder(tmp_path, ChainFile)
