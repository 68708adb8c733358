"""Generate word puzzles on letter grids, and load the word lists they are made from.

The task is the longest word or a given word, starting from a marked cell or anywhere.
"""

from __future__ import annotations

import itertools
import random
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from editloupe._util.files import read_text
from editloupe.generators.contract import AnswerCheck, Puzzle, PuzzleKind, Undecided
from editloupe.generators.drawing import YELLOW, Cell, CellGrid, find_tinted_cells, pixels_of
from editloupe.pictures.pixels import Pixels
from editloupe.types import UserError

SYSTEM = Path("/usr/share/dict/words")
"""The path of Debian's word lists (wamerican and others)."""
BUNDLED = "bundled"
"""The name of the small list in this package."""
ENOUGH = 30_000
"""A list with at least this many words counts as a dictionary that proves a word to be the longest. Debian's wamerican has
64 203 such words, wamerican-small 40 104."""


@dataclass(slots=True)
class Node:
    """A node of the prefix tree."""

    children: dict[str, Node] = field(default_factory=dict)
    is_word: bool = False


@dataclass(frozen=True)
class Lexicon:
    """Words in capitals with their prefix tree."""

    words: tuple[str, ...]
    root: Node
    name: str = "a list"
    """The source of the words."""

    @property
    def about(self) -> str:
        """The list in a few words."""
        return f"{self.name}, {len(self.words)} words"

    @property
    def is_dictionary(self) -> bool:
        """Whether the list is long enough to prove that a word is the longest in English."""
        return len(self.words) >= ENOUGH

    @classmethod
    def of(cls, words: Iterable[str], name: str = "a list") -> Lexicon:
        """Build a lexicon without names (one capital, then small letters) and words with characters other than letters."""
        chosen = tuple(
            sorted(
                {
                    word.upper()
                    for word in words
                    if word.isascii() and word.isalpha() and len(word) > 2 and not word.istitle()
                }
            )
        )
        root = Node()
        for word in chosen:
            node = root
            for letter in word:
                node = node.children.setdefault(letter, Node())
            node.is_word = True
        return cls(chosen, root, name)

    def of_length(self, low: int, high: int) -> list[str]:
        """Return the words with `low` to `high` letters."""
        return [word for word in self.words if low <= len(word) <= high]


def load_lexicon(file: Path | None = None) -> Lexicon:
    """Return the words of a file. Default: the system's word list if it is installed, else the bundled words.

    `Path("bundled")` names the bundled words.
    """
    if file is None:
        file = SYSTEM if SYSTEM.is_file() else Path(BUNDLED)
    return _read(file)


@lru_cache(maxsize=4)
def _read(file: Path) -> Lexicon:
    if str(file) == BUNDLED:
        return Lexicon.of((files(__package__) / "words.txt").read_text(encoding="utf-8").split(), BUNDLED)
    try:
        words = Lexicon.of(read_text(file).split(), str(file) if file == SYSTEM else file.name)
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    if not words.words:
        raise UserError(f"{file} holds no words of three letters or more")
    return words


RARE = "XZQJ"
"""Letters placed after a word's end, so that it does not continue by chance (Edit-Compass, A.3.1)."""
Letters = Sequence[Sequence[str]]
TRIES = 1000
"""The largest number of grids that are tried per puzzle; usually one of the first few works."""


def longest_words(grid: Letters, words: Lexicon, starts: Sequence[Cell]) -> list[str]:
    """Return all longest words that can be read from these cells going down or right."""
    best: list[str] = []

    def walk(row: int, column: int, node: Node, word: str) -> None:
        if node.is_word and (not best or len(word) >= len(best[0])):
            if best and len(word) > len(best[0]):
                best.clear()
            if word not in best:
                best.append(word)
        for r, c in ((row + 1, column), (row, column + 1)):
            if r < len(grid) and c < len(grid[0]) and (after := node.children.get(grid[r][c])):
                walk(r, c, after, word + grid[r][c])

    for row, column in starts:
        if first := words.root.children.get(grid[row][column]):
            walk(row, column, first, grid[row][column])
    return best


def read_word(grid: Letters, cells: set[Cell]) -> str | None:
    """Return the word a set of cells spells if they form one path down and right, else None."""
    path = sorted(cells)
    for (r1, c1), (r2, c2) in itertools.pairwise(path):
        if (r2 - r1, c2 - c1) not in ((1, 0), (0, 1)):
            return None
    return "".join(grid[row][column] for row, column in path) if path else None


def _grid_with(word: str, size: int, rng: random.Random) -> tuple[list[list[str]], list[Cell]]:
    """Return a grid of random letters with the word on a random path down and right, and that path."""
    turns = len(word) - 1
    down = rng.randint(max(0, turns - (size - 1)), min(size - 1, turns))
    moves = [(1, 0)] * down + [(0, 1)] * (turns - down)
    rng.shuffle(moves)
    path = [(rng.randint(0, size - 1 - down), rng.randint(0, size - 1 - (turns - down)))]
    for dr, dc in moves:
        path.append((path[-1][0] + dr, path[-1][1] + dc))
    grid = [[rng.choice(string.ascii_uppercase) for _ in range(size)] for _ in range(size)]
    for letter, (row, column) in zip(word, path, strict=True):
        grid[row][column] = letter
    for row, column in ((path[-1][0] + 1, path[-1][1]), (path[-1][0], path[-1][1] + 1)):
        if row < size and column < size and (row, column) not in path:
            grid[row][column] = rng.choice(RARE)
    return grid, path


def make(rng: random.Random, *, name: str, everywhere: bool, word_given: bool, words: Lexicon | None = None) -> Puzzle:
    """Make one puzzle whose answer is unique: the only longest word, or a word that can be read only once."""
    lexicon = words or load_lexicon()
    shortest, longest = (5, 10) if word_given else (6, 12)
    fitting = lexicon.of_length(shortest, longest)
    if not fitting:
        raise UserError(f"{lexicon.about}: none of them has {shortest} to {longest} letters, as {name} needs")
    for _ in range(TRIES):
        word = rng.choice(fitting)
        size = rng.randint(max(6, len(word) // 2 + 2), max(8, len(word) // 2 + 3))
        grid, path = _grid_with(word, size, rng)
        cells = [(row, column) for row in range(size) for column in range(size)]
        starts = cells if everywhere else [path[0]]
        if word_given and len(paths_of(grid, word)) == 1:
            break
        if not word_given and longest_words(grid, lexicon, starts) == [word]:
            break
    else:
        raise UserError(f"{lexicon.about}: no grid of {name} could be made from them")
    facts: dict[str, Any] = {"lexicon": lexicon.about}
    if not word_given:
        facts["longest_proven"] = lexicon.is_dictionary
    return _make_puzzle(name, grid, path, word, marked=not everywhere, word_given=word_given, facts=facts)


def paths_of(grid: Letters, word: str) -> list[list[Cell]]:
    """Return all paths down and right on which a word can be read."""
    paths = [[(r, c)] for r in range(len(grid)) for c in range(len(grid[0])) if grid[r][c] == word[0]]
    for letter in word[1:]:
        paths = [
            [*path, (r, c)]
            for path in paths
            for r, c in ((path[-1][0] + 1, path[-1][1]), (path[-1][0], path[-1][1] + 1))
            if r < len(grid) and c < len(grid[0]) and grid[r][c] == letter
        ]
    return paths


def _make_puzzle(
    name: str, grid: Letters, path: list[Cell], word: str, marked: bool, word_given: bool, facts: Mapping[str, Any]
) -> Puzzle:
    layout = CellGrid(len(grid), len(grid[0]))
    fills = {path[0]: YELLOW} if marked else {}
    where_en = " It begins in the yellow cell." if marked else ""
    where_cn = "起点是黄色格子。" if marked else ""
    if word_given:
        english = (
            f"Find the word {word} in the grid, reading only down or right, and colour its cells yellow.{where_en}"
        )
        chinese = f"在网格中找到单词 {word}，每一步只能向下或向右，并把它经过的格子涂成黄色。{where_cn}"
    else:
        english = (
            "Find the longest English word that can be read going only down or right, and colour its cells yellow."
            f"{where_en}"
        )
        chinese = f"找出只能向下或向右读出的最长英文单词，并把它经过的格子涂成黄色。{where_cn}"
    return Puzzle(
        task=name,
        instruction_en=english,
        instruction_cn=chinese,
        picture=pixels_of(layout.draw(grid, fills)),
        answer=pixels_of(layout.draw(grid, dict.fromkeys(path, YELLOW))),
        facts={
            "grid": ["".join(row) for row in grid],
            "word": word,
            "path": [list(cell) for cell in path],
            "start": list(path[0]) if marked else None,
            **facts,
        },
    )


def check(facts: Mapping[str, Any], picture: Pixels, answer: Pixels, word_given: bool = True) -> AnswerCheck:
    """Read the coloured cells: they must spell the word on a path down and right, from the marked cell if there is one.

    If the task is the longest word and the word list is too short for a dictionary, another path of at least as many letters is
    left undecided: it may spell a word that is not in the list.
    """
    grid = facts["grid"]
    try:
        cells = find_tinted_cells(CellGrid(len(grid), len(grid[0])), answer, YELLOW)
    except Undecided as why:
        return AnswerCheck(None, str(why))
    word = read_word(grid, cells)
    if word is None:
        return AnswerCheck(False, f"the {len(cells)} coloured cells are not one path down and right", None)
    start = facts.get("start")
    begins = start is None or min(cells) == tuple(start)
    right = word == facts["word"] and begins
    proven = word_given or facts.get("longest_proven", False)
    if not proven and begins and word != facts["word"] and len(word) >= len(facts["word"]):
        listed = facts.get("lexicon", "the list it was made with")
        return AnswerCheck(None, f"the coloured cells spell {word}; {listed}, cannot tell whether that is a word", word)
    return AnswerCheck(right, f"the coloured cells spell {word}, asked is {facts['word']}", word)


def _task(name: str, about: str, everywhere: bool, word_given: bool) -> PuzzleKind:
    return PuzzleKind(
        name,
        about,
        partial(make, name=name, everywhere=everywhere, word_given=word_given),
        partial(check, word_given=word_given),
    )


TASKS = (
    _task("Longest_Word", "the longest word from a marked cell", everywhere=False, word_given=False),
    _task("Global_Longest_Word", "the longest word from anywhere", everywhere=True, word_given=False),
    _task("Word", "a given word from a marked cell", everywhere=False, word_given=True),
    _task("Global_Word", "a given word from anywhere", everywhere=True, word_given=True),
)


def with_words(task: PuzzleKind, words: Lexicon) -> PuzzleKind:
    """Return a letter puzzle with these words. Raise UserError for any other puzzle."""
    if task.name not in {puzzle.name for puzzle in TASKS}:
        raise UserError(f"{task.name} is not a letter puzzle, so it takes no --lexicon")
    make_puzzle: Callable[..., Puzzle] = task.make
    return replace(task, make=partial(make_puzzle, words=words))
