"""Define the interface of a tool and the records that it takes and returns.

A tool has a name, a JSON schema and a `run` method that returns a sentence and pictures. It knows pictures by the names
the judge uses and never talks to a model. Other packages add tools through the entry point group `editloupe.tools`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from editloupe._util.text import quote_line
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.pixels import Pixels
from editloupe.types import Box

T = TypeVar("T")

SYNONYMS = {"original image": "Source Image"}
"""Other names of a picture in published transcripts."""


class ToolError(Exception):
    """A call that cannot be carried out. Its sentence is sent to the model, and the loop continues."""


@dataclass(frozen=True)
class ToolPicture:
    """A picture that a tool returns, with its caption.

    Args:
        pixels: RGB pixels, height × width × 3.
        caption: One line that describes the picture to the model.
    """

    pixels: Pixels
    caption: str


@dataclass(frozen=True)
class ToolResult:
    """The result of a tool call.

    Args:
        text: The sentence for the model.
        pictures: Pictures for the model.
        data: The measured facts behind the sentence, JSON-like, in pixels of the original.
        cached: Whether every costly part came from the cache. The toolbox sets it.
    """

    text: str
    pictures: tuple[ToolPicture, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False


@dataclass(frozen=True)
class CachedResult:
    """The part of a result that a cache may keep on disk; the tool writes the sentence from it.

    Args:
        data: JSON-like facts.
        pictures: Pictures that were costly to make.
    """

    data: Mapping[str, Any]
    pictures: tuple[Pixels, ...] = ()


Kept = CachedResult
"""Former name, for existing plug-ins."""


@dataclass(frozen=True)
class Frame:
    """The coordinate system in which a model names positions in one picture.

    Args:
        size: Width and height of the original.
        sent: Width and height of the copy that the model was sent.
        per_mille: Whether the model counts in thousandths of each side instead of pixels of the copy.
    """

    size: tuple[int, int]
    sent: tuple[int, int]
    per_mille: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The largest x and y that a model can name."""
        return (1000, 1000) if self.per_mille else self.sent

    @property
    def _units(self) -> tuple[float, float]:
        width, height = self.limits
        return self.size[0] / width, self.size[1] / height

    def to_original(self, numbers: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """Convert the model's numbers to pixels of the original.

        >>> Frame(size=(4000, 2000), sent=(1000, 500)).to_original((10, 10, 20, 20))
        (40.0, 40.0, 80.0, 80.0)
        """
        x, y = self._units
        return numbers[0] * x, numbers[1] * y, numbers[2] * x, numbers[3] * y

    def say(self, box: Box) -> str:
        """Format a box of the original in the model's numbers.

        >>> Frame(size=(4000, 2000), sent=(1000, 500)).say(Box.model_validate([40, 40, 80, 80]))
        '[10, 10, 20, 20]'
        """
        x, y = self._units
        return str([round(box.x1 / x), round(box.y1 / y), round(box.x2 / x), round(box.y2 / y)])


class ResultCache(Protocol):
    """Cache of computed results by key.

    A key names everything a result depends on: the pictures' hashes, the tool, and its settings (see
    `result_cache.key`).
    """

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """Return the cached result, or compute and cache it. A `CachedResult` may also be stored on disk."""


class NoResultCache:
    """Cache that stores nothing."""

    def get(self, key: str, compute: Callable[[], T]) -> T:
        """Compute the result."""
        return compute()


@dataclass(frozen=True)
class View:
    """The pictures and the instruction of one edit, as a tool call sees them.

    Args:
        album: The decoded pictures by hash.
        pictures: Picture names to hashes, in the order in which the model saw them.
        instruction: The instruction of the edit.
        frames: The coordinate system per picture. Without one, positions are pixels of the original.
        memory: The cache for costly results.
    """

    album: Album
    pictures: Mapping[str, str]
    instruction: str
    frames: Mapping[str, Frame] = field(default_factory=dict)
    memory: ResultCache = field(default_factory=NoResultCache)

    def picture(self, name: Any) -> tuple[str, Picture]:
        """Return a picture and its proper name.

        Raises:
            ToolError: If there is no picture of this name.
        """
        proper_name = SYNONYMS.get(str(name).strip().lower(), str(name).strip())
        for own_name, sha in self.pictures.items():
            if own_name.lower() == proper_name.lower():
                return own_name, self.album[sha]
        raise ToolError(
            f"There is no picture called {quote_line(str(name))}. The pictures are: {', '.join(self.pictures)}."
        )

    def frame(self, name: str) -> Frame:
        """Return the coordinate system of a picture."""
        size = self.album[self.pictures[name]].size
        return self.frames.get(name) or Frame(size=size, sent=size)


@runtime_checkable
class Tool(Protocol):
    """Interface of a tool that the judge may call.

    A tool may also have a `version`. Raise it whenever the tool shows something different, so that cached results are
    computed again.
    """

    @property
    def name(self) -> str:
        """The name that the model calls."""

    @property
    def description(self) -> str:
        """One or two sentences for the model."""

    def schema(self, view: View) -> dict[str, Any]:
        """Return the JSON schema of the parameters for these pictures."""

    def unavailable(self) -> str | None:
        """Return why the tool cannot run on this machine and what would help, or None if it can."""

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Carry out a call.

        Args:
            parameters: The parameters of the call, checked against the schema.
            view: The pictures and the instruction.

        Raises:
            ToolError: If the call makes no sense; its sentence is sent to the model.
        """


@runtime_checkable
class Selective(Protocol):
    """Optional interface of a tool that is useful for some edits only."""

    def useful(self, instruction: str) -> bool:
        """Return whether the tool should be offered for this instruction."""
