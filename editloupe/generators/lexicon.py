"""The words the letter puzzles know: a bundled list, or any file with one word a line or several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from editloupe.files import read_text
from editloupe.types import UserError


@dataclass
class Node:
    """A place in the tree of prefixes."""

    children: dict[str, Node] = field(default_factory=dict)
    is_word: bool = False


@dataclass(frozen=True)
class Lexicon:
    """Words in capitals, with the tree of their prefixes."""

    words: tuple[str, ...]
    root: Node

    @classmethod
    def of(cls, words: Iterable[str]) -> Lexicon:
        """Build a lexicon; words with anything but letters are left out."""
        kept = tuple(sorted({word.upper() for word in words if word.isascii() and word.isalpha() and len(word) > 2}))
        root = Node()
        for word in kept:
            node = root
            for letter in word:
                node = node.children.setdefault(letter, Node())
            node.is_word = True
        return cls(kept, root)

    def of_length(self, low: int, high: int) -> list[str]:
        """Return the words with so many letters."""
        return [word for word in self.words if low <= len(word) <= high]


@lru_cache(maxsize=4)
def lexicon(file: Path | None = None) -> Lexicon:
    """Return the bundled words, or those of a file."""
    try:
        text = read_text(file) if file else (files(__package__) / "words.txt").read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}") from None
    return Lexicon.of(text.split())
