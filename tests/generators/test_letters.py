"""Letter puzzles and their words: which list is used, what it can prove, and what is left undecided."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from editloupe.generators import letters
from editloupe.generators import letters as lexicon
from editloupe.generators.drawing import YELLOW, CellGrid, pixels_of
from editloupe.generators.letters import ENOUGH, TASKS, Lexicon, with_words
from editloupe.generators.scenes import find_task
from editloupe.pictures.pixels import Pixels
from editloupe.types import UserError

GRID = ["BANANA", "QQQQQS", "QQQQQX"]
BANANA = [(0, column) for column in range(6)]
BANANAS = [*BANANA, (1, 5)]


def coloured(cells: list[tuple[int, int]]) -> Pixels:
    return pixels_of(CellGrid(3, 6).draw(GRID, dict.fromkeys(cells, YELLOW)))


def facts(**more: object) -> dict[str, object]:
    return {"grid": GRID, "word": "BANANA", "path": [list(c) for c in BANANA], "start": [0, 0], **more}


def test_without_a_file_the_systems_list_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexicon, "SYSTEM", tmp_path / "words")
    assert lexicon.load_lexicon().name == "bundled"
    (tmp_path / "words").write_text("banana\norchard\n")
    assert lexicon.load_lexicon().words == ("BANANA", "ORCHARD")
    assert lexicon.load_lexicon(Path("bundled")).name == "bundled"


def test_names_and_words_with_other_signs_are_no_words() -> None:
    assert Lexicon.of(["Boston", "boston's", "café", "at", "ORCHARD", "banana"]).words == ("BANANA", "ORCHARD")


@pytest.mark.long
def test_only_a_list_as_long_as_a_dictionary_proves_a_word_the_longest() -> None:
    letters_of = "abcdefghij"
    many = ["".join(letters_of[int(digit)] for digit in f"{number:06d}") for number in range(ENOUGH)]
    assert Lexicon.of(many).is_dictionary
    assert not Lexicon.of(many[1:]).is_dictionary
    assert not lexicon.load_lexicon(Path("bundled")).is_dictionary


@pytest.mark.parametrize("known", TASKS, ids=lambda t: t.name)
def test_a_puzzle_is_made_from_the_words_it_is_given_and_says_which(known: letters.PuzzleKind) -> None:
    puzzle = with_words(known, Lexicon.of(["orchard", "banana"], "fruit.txt")).make(random.Random(1))
    assert puzzle.facts["word"] in ("ORCHARD", "BANANA")
    assert puzzle.facts["lexicon"] == "fruit.txt, 2 words"
    assert puzzle.facts.get("longest_proven") is (False if "Longest" in known.name else None)


@pytest.mark.long
def test_another_word_of_an_unproven_puzzle_is_undecided_and_of_a_proven_one_wrong() -> None:
    known, blank = find_task("Longest_Word"), np.full((1, 1, 3), 255, np.uint8)
    for proven, outcome in ((False, None), (True, False)):
        found = known.check(facts(longest_proven=proven, lexicon="few.txt, 2 words"), blank, coloured(BANANAS))
        assert found.correct is outcome
        assert "BANANAS" in found.why
    assert known.check(facts(), blank, coloured(BANANAS)).correct is None, "facts of a version that did not record it"
    assert known.check(facts(longest_proven=False), blank, coloured(BANANA)).correct is True
    shorter = known.check(facts(longest_proven=False), blank, coloured(BANANA[:5]))
    assert shorter.correct is False, "a shorter word is not the longest, whatever the list"
    elsewhere = known.check(facts(longest_proven=False), blank, coloured([*BANANA[1:], (1, 5), (2, 5)]))
    assert elsewhere.correct is False, "it does not begin in the marked cell"
    broken = known.check(facts(longest_proven=False), blank, coloured([*BANANA, (2, 0)]))
    assert broken.correct is False, "no path"


def test_a_given_word_needs_no_dictionary() -> None:
    blank = np.full((1, 1, 3), 255, np.uint8)
    assert find_task("Word").check(facts(), blank, coloured(BANANAS)).correct is False


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"of to at", "holds no words"), (b"\xff\xfe\x00", "not UTF-8"), (None, "cannot be read")],
)
def test_a_file_without_words_is_the_users_mistake(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        lexicon.load_lexicon(tmp_path / "words.txt")


def test_words_that_fit_no_puzzle_are_told_and_so_are_words_for_another_puzzle() -> None:
    with pytest.raises(UserError, match="none of them has 6 to 12 letters"):
        with_words(find_task("Longest_Word"), Lexicon.of(["cat", "dog"])).make(random.Random(0))
    with pytest.raises(UserError, match="takes no --lexicon"):
        with_words(find_task("Knapsack"), Lexicon.of(["banana"]))
