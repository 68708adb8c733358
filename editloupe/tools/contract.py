"""The contract of a tool: a name, a JSON schema, and run → sentence + pictures.

A tool is pure vision: it knows pictures by the names the judge uses for them and never talks to a model. Another
package adds its own through the entry point group `editloupe.tools`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from editloupe._util.text import quoted
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.pixels import Pixels
from editloupe.types import Box

T = TypeVar("T")

SYNONYMS = {"original image": "Source Image"}
"""Published transcripts call the source picture by this name too."""


class ToolError(Exception):
    """A call that cannot be carried out; the sentence goes back to the model and the loop goes on."""


@dataclass(frozen=True)
class ToolPicture:
    """A picture a tool returns, with a line that says what it shows."""

    pixels: Pixels
    caption: str


@dataclass(frozen=True)
class ToolResult:
    """What a tool says and shows."""

    text: str
    pictures: tuple[ToolPicture, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    """The measured facts behind the sentence, JSON-like, in original pixels."""
    cached: bool = False
    """Whether everything costly came out of the memory; the toolbox fills this in."""


@dataclass(frozen=True)
class CachedResult:
    """What a tool lets the memory keep, apart from the words it will put it in: facts, and made pictures."""

    data: Mapping[str, Any]
    """JSON-like, so that it survives on disk unchanged."""
    pictures: tuple[Pixels, ...] = ()


Kept = CachedResult
"""Former name, for existing plug-ins."""


@dataclass(frozen=True)
class Frame:
    """How a model speaks of positions in one picture: pixels of the copy it was sent, or thousandths of each side."""

    size: tuple[int, int]
    """Of the original."""
    sent: tuple[int, int]
    """Of the copy the model saw."""
    per_mille: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The largest x and y a model can name."""
        return (1000, 1000) if self.per_mille else self.sent

    @property
    def _units(self) -> tuple[float, float]:
        width, height = self.limits
        return self.size[0] / width, self.size[1] / height

    def to_original(self, numbers: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """Map the model's numbers to pixels of the original.

        >>> Frame(size=(4000, 2000), sent=(1000, 500)).to_original((10, 10, 20, 20))
        (40.0, 40.0, 80.0, 80.0)
        """
        x, y = self._units
        return numbers[0] * x, numbers[1] * y, numbers[2] * x, numbers[3] * y

    def say(self, box: Box) -> str:
        """Write a box of the original in the model's numbers.

        >>> Frame(size=(4000, 2000), sent=(1000, 500)).say(Box.model_validate([40, 40, 80, 80]))
        '[10, 10, 20, 20]'
        """
        x, y = self._units
        return str([round(box.x1 / x), round(box.y1 / y), round(box.x2 / x), round(box.y2 / y)])


class ResultCache(Protocol):
    """Remembers computed results by key, so that the same look at the same pixels is taken once.

    A key names everything the result depends on: the pictures' hashes, the tool, its settings (see `result_cache.key`).
    """

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """Return the kept result, or compute and keep it; a `CachedResult` may also be kept on disk."""


class NoResultCache:
    """Remembers nothing: every result is computed."""

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """Compute the result."""
        return compute()


@dataclass(frozen=True)
class View:
    """What one judge can look at: its pictures by name, the instruction, and how it speaks of positions."""

    album: Album
    pictures: Mapping[str, str]
    """Picture names to hashes, in the order they were shown."""
    instruction: str
    frames: Mapping[str, Frame] = field(default_factory=dict)
    """Without a frame, positions are pixels of the original."""
    memory: ResultCache = field(default_factory=NoResultCache)

    def picture(self, name: Any) -> tuple[str, Picture]:
        """Return a picture and its proper name; an unknown name is a sentence to the model."""
        wanted = SYNONYMS.get(str(name).strip().lower(), str(name).strip())
        for known, sha in self.pictures.items():
            if known.lower() == wanted.lower():
                return known, self.album[sha]
        raise ToolError(
            f"There is no picture called {quoted(str(name))}. The pictures are: {', '.join(self.pictures)}."
        )

    def frame(self, name: str) -> Frame:
        """Return how positions in this picture are spoken of."""
        size = self.album[self.pictures[name]].size
        return self.frames.get(name) or Frame(size=size, sent=size)


@runtime_checkable
class Tool(Protocol):
    """A tool the judge may call.

    A tool may also have a `version`, raised whenever it shows something else, so that kept results are computed anew.
    """

    @property
    def name(self) -> str:
        """The name in the model's calls."""

    @property
    def description(self) -> str:
        """One or two sentences for the model."""

    def schema(self, view: View) -> dict[str, Any]:
        """Return the JSON schema of the parameters, for these pictures."""

    def unavailable(self) -> str | None:
        """Say why the tool cannot be offered on this machine and what would help, or None where it can."""

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Look. Raises ToolError with a sentence for the model where the call makes no sense."""


@runtime_checkable
class Selective(Protocol):
    """What a tool adds where it is of use for some edits only."""

    def useful(self, instruction: str) -> bool:
        """Whether the tool should be offered for this instruction."""
