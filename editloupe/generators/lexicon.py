"""The words the letter puzzles know: a file of the user's, the system's word list, or a small bundled one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from editloupe._util.files import read_text
from editloupe.types import UserError

SYSTEM = Path("/usr/share/dict/words")
"""Where Debian's packages of word lists (wamerican and others) put theirs."""
BUNDLED = "bundled"
"""The name of the small list of this package."""
ENOUGH = 30_000
"""So many words make a dictionary: what none of them beats is taken for the longest. Debian's wamerican has 64 203 of such
words, wamerican-small 40 104."""


@dataclass(slots=True)
class Node:
    """A place in the tree of prefixes."""

    children: dict[str, Node] = field(default_factory=dict)
    is_word: bool = False


@dataclass(frozen=True)
class Lexicon:
    """Words in capitals, with the tree of their prefixes."""

    words: tuple[str, ...]
    root: Node
    name: str = "a list"
    """Where the words come from."""

    @property
    def about(self) -> str:
        """The list in a few words."""
        return f"{self.name}, {len(self.words)} words"

    @property
    def is_dictionary(self) -> bool:
        """Whether the list is long enough to say that a word is the longest in English, and not only the longest it holds."""
        return len(self.words) >= ENOUGH

    @classmethod
    def of(cls, words: Iterable[str], name: str = "a list") -> Lexicon:
        """Build a lexicon; names (one capital, then small letters) and words with anything but letters are left out."""
        kept = tuple(
            sorted(
                {
                    word.upper()
                    for word in words
                    if word.isascii() and word.isalpha() and len(word) > 2 and not word.istitle()
                }
            )
        )
        root = Node()
        for word in kept:
            node = root
            for letter in word:
                node = node.children.setdefault(letter, Node())
            node.is_word = True
        return cls(kept, root, name)

    def of_length(self, low: int, high: int) -> list[str]:
        """Return the words with so many letters."""
        return [word for word in self.words if low <= len(word) <= high]


def lexicon(file: Path | None = None) -> Lexicon:
    """Return the words of a file; without one, the system's word list where it is installed, else the bundled words.

    `Path("bundled")` names the bundled words wherever they are used.
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
